r"""Secrets with a known mark: keys of services, private keys, tokens that are sent as they are, hashes of passwords.

The marks are those that services publish for secret scanning (`services.toml`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from flywheel.stages.ingest.redaction.patterns.entropy import is_key_part, is_typed
from flywheel.stages.ingest.redaction.patterns.hints import KEYED, MARKS
from flywheel.stages.ingest.redaction.patterns.kinds import Find, Kind, Scan, whole
from flywheel.stages.ingest.redaction.patterns.services import forms
from flywheel.stages.ingest.redaction.patterns.structure import basic_password

# What has no mark of its own: web tokens, keys that are known by the form of their parts.
_PARTS_OF_KEYS = r"""
    eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*){0,3}
  | [A-Za-z0-9_~.]{3}[0-9]Q~[A-Za-z0-9_~.-]{31,34}
  | [MNO][A-Za-z0-9_-]{22,27}\.[A-Za-z0-9_-]{6,7}\.[A-Za-z0-9_-]{27,40}
  | [12]/[0-9]{15,17}(?:/[0-9]{15,17})?:[0-9a-f]{32}
  | [0-9]{15,16}\|[A-Za-z0-9_-]{27,40}
  | [0-9a-f]{32}-us[0-9]{1,2} | [0-9a-f]{32}-[0-9a-f]{8}-[0-9a-f]{8}(?![0-9a-f-])
"""
# Keys behind a word for keys, or one that names no id.
_TYPED = r"""
    (?:[A-Za-z][A-Za-z0-9]{1,11}[_-]){0,2}(?:[a-z]{0,8}key|[a-z]{0,3}sk|rk|pat|tok(?:en)?|secret|live|production|sdk|oauth)[_-](?:[A-Za-z0-9]{2,6}[_-]){0,2}(?P<tail>[A-Za-z0-9_-]{20,})
  | (?:[a-z]{2,8}_(?:test|prod|sandbox|dev)_|a[ks]-)(?P<tail2>[A-Za-z0-9]{20,})
  | (?P<typed>[a-z][a-z0-9]{1,9}(?:_[a-z]{2,9}){0,2}_)(?P<tail3>[A-Za-z0-9]{28,})(?![A-Za-z0-9_-])
"""
_FORMS = "|".join(form.pattern.replace("#", "[#]") for form in forms())
_MARK = re.compile(rf"(?:(?<![A-Za-z0-9])|(?<=/bot)(?=[0-9]{{8}}))(?:{_PARTS_OF_KEYS}|{_FORMS}|{_TYPED})", re.VERBOSE)
_RUN = re.compile(r"[^\s\"'<>\\`]{14,}")
# Only keys of these may have no digit: of AWS and of Hugging Face.
_LETTERS = r"A(?:KIA|SIA|BIA|CCA|3T)[A-Z]{16,17}(?![A-Za-z])|(?:hf|api_org)_(?=[a-z]*[A-Z])(?=[A-Z]*[a-z])[A-Za-z]{30}"
_DIGIT = re.compile(rf"[0-9]|{_LETTERS}")
_SENT = r"""
  -----BEGIN\ [A-Z ]{0,30}PRIVATE\ KEY(?:\ BLOCK)?-----.*?(?:-----END\ [A-Z ]{0,30}PRIVATE\ KEY(?:\ BLOCK)?-----|\Z)
| PuTTY-User-Key-File-[0-9].{0,8192}?Private-MAC:\ ?[0-9a-f]{40,}
| (?i:bearer)\ +(?:-a\ +)?(?P<bearer>[A-Za-z0-9._~+/=-]{16,})
| (?i:basic)\ (?P<basic>[A-Za-z0-9+/]{8,}={0,2})
| \$(?:1|2[abxy]?|5|6|7|y|apr1|argon2(?:id|i|d)|scrypt|pbkdf2(?:-[a-z0-9]+)?)\$[A-Za-z0-9./=,$+-]{20,}
| [?&;](?i:sig|appid|code|(?:x-[a-z]{2,6}-)?signature)=(?P<signed>[A-Za-z0-9%._~+/-]{16,})
"""
_SENT_TRIGGER = (
    r"-----BEGIN|PuTTY-User|(?i:bearer) |(?i:basic) [A-Za-z0-9+/]{8}|[?&;](?i:sig|appid|code|signature|x-[a-z]{2,6}-signature)="
    r"|\$(?:[1567y]|2[abxy]?|apr1|argon[a-z0-9]*|scrypt|pbkdf2[a-z0-9-]*)\$"
)
_MARKS_TRIGGER = "|".join(
    [
        *dict.fromkeys(form.trigger for form in forms()),
        r"eyJ|[0-9]Q~|[0-9a-f]{8}-us[0-9]|[^a-z]a[ks]-[A-Za-z0-9]{6}",
        KEYED,
    ]
)
# Of keys that have no mark but their parts.
_PARTED = (
    r"\.[A-Za-z0-9_-]{6,7}\.[A-Za-z0-9_-]{9}|[0-9a-f]-[0-9a-f]{8}-[0-9a-f]{8}[^0-9a-f-]|[0-9]{9}\||[0-9]{9}:[0-9a-f]{9}"
)
_BEFORE_KEYS = ("SharedAccessKey=", "AccountKey=")
_PARTS = ("bearer", "basic", "signed")


_OF_NAMES = ("md-", "live_")  # marks with which names of other things begin too
_PART = re.compile("[_.-]+")
_MANY = 5  # parts
_WORD = re.compile(r"(?=[A-Za-z]*[AEIOUYaeiouy])(?:[A-Za-z]?[a-z]{2,}|[A-Z]{3,})[0-9]?")


def _marked(text: str, _name: str) -> Iterator[Find]:
    """Yield keys, looked for in runs of characters that are long enough for one."""
    for run in _RUN.finditer(text):
        if _DIGIT.search(text, run.start(), run.end()):
            for match in _MARK.finditer(text, run.start(), run.end()):
                yield from _key(match)


def _key(match: re.Match[str]) -> Iterator[Find]:
    text = match[0]
    tail = match["tail"] or match["tail2"]
    if (tail and not is_key_part(tail)) or (match["tail3"] and not is_typed(match["typed"], match["tail3"])):
        return
    if _is_name(text) or (text.startswith(_OF_NAMES) and not is_key_part(re.split("[-_]", text, maxsplit=1)[1])):
        return
    named = next((name for name in _BEFORE_KEYS if text.startswith(name)), "")
    if _DIGIT.search(text):
        yield Find(text[len(named) :], match.start() + len(named), match.end())


def _is_name(text: str) -> bool:
    """Whether what follows a mark is a name of words, as of styles, settings and modules: `sk-fading-circle-container2`."""
    parts = _PART.split(text)[1:]
    words = [part for part in parts if _WORD.fullmatch(part)]
    if len(parts) > _MANY and len(words) > 1 and all(part.isdigit() or part.isalpha() for part in parts if part):
        return True  # the title of a page, as its address has it: no part mixes letters with digits
    return len(words) > 1 and 2 * sum(map(len, words)) >= sum(map(len, parts))


def _sent(match: re.Match[str], _name: str) -> Find | None:
    for part in _PARTS:
        if match[part] is not None:
            find = Find(match[part], *match.span(part))
            if part != "basic":
                return find
            password = basic_password(match[part])
            return find._replace(value=password) if password else None
    return whole(match, match[0])


MARKED = Scan("secret", _MARKS_TRIGGER, _marked, hint=MARKS)
PARTED = Scan("secret", _PARTED, _marked)
SENT = Kind("secret", _SENT_TRIGGER, _SENT, _sent, hint=MARKS, local=False)  # a key is many lines
