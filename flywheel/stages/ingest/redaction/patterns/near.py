r"""Secrets near a word that announces one, however the two are joined: what no grammar of a command or a file foresees.

One table of words, one of values. A word announces a password, a key or a login; a value is worth the more the less it
reads as a name, a number or an id; and the closer it is to the word, the less it must be worth. A value that has a name
of its own (`digest = "..."`) is announced by that one, not by a word further away.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from string import ascii_lowercase, ascii_uppercase, digits
from typing import NamedTuple

from flywheel.stages.ingest.redaction.patterns.hints import FLAGS, PARTS, WHOLE
from flywheel.stages.ingest.redaction.patterns.kinds import GIVEN, PLACEHOLDER, Find
from flywheel.stages.ingest.redaction.patterns.names import PASSWORD, fits, is_placeholder, is_spoken, kind_of_name

_WORD = re.compile("|".join(rf"(?P<{k}>{PARTS[k]}|(?<![a-z0-9+])(?:{WHOLE[k]})(?![a-z0-9+]))" for k in PARTS))
TOKENS = r"[^\s\"'`<>()\[\]{},;|\\]{6,256}"
_AFTER, _BEFORE, _TOKENS, _NEXT = 120, 64, 10, 3  # characters and tokens that are looked at; how many are close
_LONG_HEX = 32
# The letters of flags that take passwords.
_FLAG = re.compile(
    rf"""(?<=\s)-(?P<letter>{FLAGS})(?:[ \t]{{1,3}}|=)(?:(?P<q>["'])(?P<quoted>[^"'\n]{{6,128}})(?P=q)|(?P<bare>[^\s"'`<>|;&-][^\s"'`<>|;&]{{5,128}})(?=\s|\Z))"""
)
_LOGIN = re.compile(r"(?![a-z][\w+.-]*://)(?P<user>[A-Za-z][\w.@+\\-]{0,40})[:=/](?P<rest>[^\s/].{3,})")
_QUOTED = r"""(?P<q>["'`«„“])[ ]?(?P<quoted>[^"'`«»“”\n]{4,128}?)\s{0,4}["'`»“”]"""
_TOKEN = re.compile(
    rf"{PLACEHOLDER}|(?<![\w])[bfrNuB@$]{{0,2}}{_QUOTED}(?![\w])|(?<!\w)\[+(?P<bracketed>[^\s\[\]]{{6,128}})\]|(?P<bare>[^\s\"'`<>()\[\]{{}},;|«»“”„]{{1,256}})"
)
_OWN = re.compile(
    r"""(?<![\w.@-])(?P<name>[\w.-]{1,48})["'`\])]{0,2}\s{0,3}(?P<joint>=>|:=|\|\||[:=])\s{0,3}["'`\[(]{0,2}\Z"""
)
# Ends of names that hold a secret's word, of values that are none.
_NOT_ITSELF = re.compile(
    r"(?i)(?:id|ids|hash|name|url|uri|type|count|file|path|prefix|length|len|size|ttl|expir\w*|sha\w*|digest|manager|class|error|usage|limit|index|pos|policy|field|label|version|kind)s?\Z"
)
# Names that say nothing of their value but where it goes.
_VALUED = re.compile(
    r"(?i)(?:.*[^a-z])?(?:values?|val|text|keys|input|data|default|content|body|send|sendline|answer|string|d|v|k|p|w|x|key|params?)\Z"
)
_URL = re.compile(r"[a-z][\w+.-]{0,16}://")
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_HEX = re.compile(r"(?:0x)?[0-9a-fA-F]+")
_PLAIN = re.compile(
    r"[\d.,:/+%$€£°-]+[A-Za-z]{0,4}|v?\d+(?:\.\w+)+|\d{4}-\d\d-\d\d\S*|[\w.+-]+@[\w-]+(?:\.[\w-]+)*|(?:[\w-]+\.)+[A-Za-z]{2,10}(?::\d+)?"
    r"|[A-Z]{2,6}-?\d{1,6}|[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+|[#@]?[A-Za-z_][\w.]*[\[(].*|[A-Za-z]{1,3}\d{1,3}(?:[_-]\w{1,4})?"
    r"|(?:[0-9A-Fa-f]{2}:){7,}[0-9A-Fa-f]{2}"
)
_TYPED = re.compile(r"sha[0-9]{3}[-:]\S+|(?!(?:[a-z]{4,}-){3})[a-z]{2,12}[_-][A-Za-z0-9_-]{10,}|[A-Za-z_]\w*_\w*")
_BRACKETS = re.compile(r"[(\[{].*[)\]}]")  # code, or an expression
_PART = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[0-9]+|[^A-Za-z0-9]+")
_HUMAN = re.compile(
    r"(?=.{8})[A-Za-z]{4,20}[0-9]{3,6}|[A-Za-z]{4,20}[._-]?[0-9]{2,6}[!?*#$%&]{1,3}|(?:[A-Z][a-z]{2,}){1,3}[0-9]{1,6}[!?*#$%&@]{1,3}"
    # words and signs, with capitals and digits among them
    r"|(?=.*[0-9])(?=.*[A-Z])(?=.*[a-z])(?=.*[!#+$%&*~^])[A-Za-z0-9]{3,20}(?:[!#+$%&*~^_][A-Za-z0-9]{2,20}){1,4}"
)
_PHRASE = re.compile(r"[a-z]{4,}(?:-[a-z]{4,}){3,}")
_JOINS = re.compile(r"\.(?=[a-z])")  # parts of a name: `pypi-token.pypi`
_CUT = ".,;:!?)]}…"
_LEAST, _MOST, _ENOUGH_RANDOM, _SPOKEN_FROM, _LETTERS, _KEY = 6, 256, 5, 4, 10, 16
_CHANGES, _UNMISTAKABLE = 4, 8
_CLASS = str.maketrans(ascii_lowercase + ascii_uppercase + digits, "a" * 26 + "A" * 26 + "0" * 10)
WEAK, FAIR, STRONG = 1, 2, 3


# Words in a link: the name of a file, a heading that was looked for.
_ENCODED_WORDS = re.compile(r"(?:[A-Z]?[a-z]{3,20}(?:%20|%2D|%2C){1,8}){2}[A-Z]?[a-z]{3,20}")


@lru_cache(maxsize=1 << 14)
def worth(value: str) -> int:
    """Return how much a value looks like a password or a key by itself: 0 not at all, WEAK, FAIR, STRONG."""
    if not _LEAST <= len(value) <= _MOST or is_placeholder(value) or _is_plain(value):
        return 0
    if _ENCODED_WORDS.search(value):
        return 0
    if _HEX.fullmatch(value) or _TYPED.fullmatch(value) or (value.isalnum() and value.isupper()):
        return WEAK
    if not any(map(str.isdigit, value)):
        letters = len(value) >= _LETTERS and value.isalpha() and value.islower() and not is_spoken(value)
        return FAIR if letters or _PHRASE.fullmatch(value) else WEAK
    changes = sum(a != b for a, b in pairwise(value.translate(_CLASS)))
    if changes >= _CHANGES and _odd(value) >= _ENOUGH_RANDOM:
        return STRONG
    return FAIR if _HUMAN.fullmatch(value) else WEAK


def is_worthy(token: str) -> bool:
    """Whether a word of a text, or what is behind a sign in it, is worth looking for what announces it."""
    parts = {token, token.strip(_CUT + "*"), *re.split(r"[:=/>-]", token)[1:]}
    return any(worth(part) >= FAIR or (len(part) >= _LONG_HEX and _HEX.fullmatch(part)) for part in parts)


def is_unmistakable(value: str) -> bool:
    """Whether a secret is one wherever the same text is found again: no word, number or id."""
    mixed = any(map(str.isdigit, value)) and any(map(str.isalpha, value)) and not value.replace("_", "").isalnum()
    return len(value) >= _UNMISTAKABLE and worth(value) >= (WEAK if mixed else FAIR)


def _is_plain(value: str) -> bool:
    """Whether a value is a number, a version, a date, an address, a path, a reference, an id or several words."""
    return bool(
        " " in value
        or value.count("/") > 1
        or value.startswith(("/", "./", "~", "$", "-", "\\"))
        or not any(map(str.isalpha, value))
        or _BRACKETS.search(value)
        or _URL.match(value)
        or _PLAIN.fullmatch(value)
        or _UUID.fullmatch(value)
    )


def _odd(value: str) -> int:
    """Return how many letters and digits of a value are in no word, number or part of a name."""
    odd, parts = 0, _PART.findall(value)
    for n, part in enumerate(parts):
        alone = (n == 0 or not parts[n - 1].isalnum()) and (n + 1 == len(parts) or not parts[n + 1].isalnum())
        if part.isalpha() and not (len(part) >= _SPOKEN_FROM and is_spoken(part)) and not alone:
            odd += len(part)
        elif part.isdigit() and not alone:
            odd += min(len(part), 2)
    return odd


def near(text: str, small: str, found: Sequence[Find]) -> Iterator[Find]:
    """Yield values near words that announce them; where another pattern found one after a word, that is the one.

    Args:
        text: where to look.
        small: the same in small letters.
        found: what other patterns found, in any order.
    """
    taken = sorted((find.start, find.end) for find in found)
    for word in _WORD.finditer(small):
        place = bisect_left(taken, (word.end(), 0))
        is_known = place < len(taken) and taken[place][0] <= word.end() + _AFTER
        is_within = place > 0 and taken[place - 1][1] > word.start()
        if not is_known and not is_within and _is_cased(text[word.start() : word.end()]):
            yield from _of(text, word)
    for flag in _FLAG.finditer(text) if " -" in text else ():
        value = flag["quoted"] or flag["bare"]
        phrase = " " in value and flag["letter"] in "NP" and fits(PASSWORD, value, quoted=True)
        ends = text[flag.end() : flag.end() + 1] in ("", "\n", '"') and flag["letter"] in "kwNP"
        if phrase or worth(value) >= (FAIR if flag["quoted"] or ends else STRONG):
            yield Find(value, *flag.span("quoted" if flag["quoted"] else "bare"))


def _is_cased(word: str) -> bool:
    """Whether a word is written as words are, not as a part of random letters (`PaT`)."""
    return word.islower() or word.isupper() or word.istitle() or len(word) > 3 or not word.isascii()  # noqa: PLR2004


def _of(text: str, word: re.Match[str]) -> Iterator[Find]:
    """Yield the first value after a word that is announced by it, or the last one before it."""
    kind, begin, end = word.lastgroup or "", word.end(), min(len(text), word.end() + _AFTER)
    while begin < end and (text[begin].isalnum() or text[begin] in "_-" or _JOINS.match(text, begin)):
        begin += 1  # the rest of the name
    if begin > word.end() and _NOT_ITSELF.search(text, word.end(), begin):
        return
    lines, place = 0, begin
    for count, token in enumerate(_TOKEN.finditer(text, begin)):
        lines += text.count("\n", place, token.start())
        place = token.start()
        if count >= _TOKENS or token.start() >= end or lines > 2 or GIVEN.search(token[0]):  # noqa: PLR2004
            return
        find = _candidate(token)
        if find is None:
            continue
        split = find.start > token.start() + 2
        marked = text[token.start() - 1] == ">"
        seen = _Seen(find.value, token["bare"] is None, count, lines, _is_set_off(text, token), split, marked)
        named = token.start() if split and text[find.start - 1] != "=" else find.start
        if _ANNOUNCED[kind](seen) and _is_nameless(text, named, begin):
            yield find
            return
    if kind == "password":
        yield from _before(text, word)


class _Seen(NamedTuple):
    """A value after a word: how many are between, how many ends of lines, whether it is set off, behind a user, in markup."""

    value: str
    quoted: bool
    between: int
    lines: int
    set_off: bool
    split: bool
    marked: bool


def _candidate(token: re.Match[str]) -> Find | None:
    """Return a token without the marks around it; of `user:password` and `name=value` what is last."""
    group = next((group for group in ("quoted", "bracketed", "bare") if token[group] is not None), "")
    if not group:
        return None
    value = token[group]
    start = token.start(group)
    if group == "bare":
        shorter = value.lstrip("*_-=:>.")
        start += len(value) - len(shorter)
        marks = "*_" * (shorter != value)  # around a word in markup, not at the end of a password
        value = shorter.rstrip(marks + (".,;:…" if any(map(str.isdigit, shorter)) else _CUT))
    parts = _LOGIN.fullmatch(value)
    if parts is not None:
        start, value = start + parts.start("rest"), parts["rest"]
    return Find(value, start, start + len(value)) if value else None


def _is_set_off(text: str, token: re.Match[str]) -> bool:
    """Whether nothing else is on a token's line, or a colon or another sign announces it."""
    before = text[max(0, token.start() - _BEFORE) : token.start()].rpartition("\n")[2].rstrip(" \t")
    after = text[token.end() : token.end() + 16].partition("\n")[0]
    alone = not before.strip(" \t-*>`") and not after.strip(" \t`")
    return alone or before.endswith((":", "=", "->", "=>", "→")) or (":" in token[0][:-1] and "://" not in token[0])


def _password(seen: _Seen) -> bool:
    value = worth(seen.value)
    if seen.lines and not (seen.quoted or seen.set_off or seen.marked):
        return False
    if value == WEAK and _HEX.fullmatch(seen.value) and len(seen.value) >= _LONG_HEX:
        return (seen.set_off and not seen.split) or seen.quoted
    return value == STRONG or (value == FAIR and (seen.quoted or seen.set_off or seen.split or seen.between <= _NEXT))


def _key(seen: _Seen) -> bool:
    if len(seen.value) < _KEY or (seen.lines and not (seen.quoted or (seen.set_off and not seen.split))):
        return False
    if _HEX.fullmatch(seen.value) and len(seen.value) >= _LONG_HEX:
        return (seen.set_off and not seen.split) or seen.between == 0 or (seen.quoted and seen.between <= _NEXT)
    return worth(seen.value) == STRONG and (seen.quoted or seen.set_off or seen.between <= _NEXT)


def _login(seen: _Seen) -> bool:
    value = worth(seen.value)
    if seen.lines:
        return False
    return (value >= FAIR and (seen.quoted or seen.split or 0 < seen.between <= _NEXT)) or (
        value == STRONG and seen.between <= _NEXT
    )


_ANNOUNCED = {"password": _password, "key": _key, "login": _login}


def _is_nameless(text: str, start: int, begin: int) -> bool:
    """Whether a value has no name of its own behind the word, or one that is a secret's or a mere "value"."""
    own = _OWN.search(text, max(begin, start - 60), start)
    if own is None or _VALUED.fullmatch(own["name"]) or kind_of_name(own["name"]):
        return True
    before = text[begin : own.start()].rstrip(" \t")
    if not before and own.start() > begin:  # "API key token: ..."
        return not _NOT_ITSELF.search(own["name"])
    return own["joint"] == ":" and text[own.end("name")] == ":" and before[-1:].isalnum()  # a colon in a sentence


def _before(text: str, word: re.Match[str]) -> Iterator[Find]:
    """Yield a value shortly before a word, on its line: "typed X into the password field", `value=X type=password`."""
    begin = max(text.rfind("\n", 0, word.start()) + 1, word.start() - _BEFORE)
    for token in reversed(list(_TOKEN.finditer(text, begin, word.start()))):
        find = _candidate(token)
        if GIVEN.search(token[0]):
            return
        if (
            find
            and worth(find.value) >= (FAIR if token["quoted"] else STRONG)
            and _is_nameless(text, find.start, begin)
        ):
            yield find
            return
