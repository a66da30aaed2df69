"""Personal data and secrets out, pseudonyms in, before anything leaves memory.

In: payloads as JSON. Out: the same with every find replaced by `<EMAIL_7f3a9c2e>`: kind and the first digits of
HMAC-SHA256 under the project's key, so that equal values stay equal (for joins, deduplication and replays) and a guess
cannot be tested without the key. Redacting twice changes nothing.
"""

from __future__ import annotations

import hmac
import re
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import orjson
import polars as pl

from flywheel.config import RedactConfig
from flywheel.errors import ConfigError
from flywheel.records import is_name
from flywheel.stages.ingest.jsontext import dumps, loads
from flywheel.stages.ingest.patterns import GIVEN, KINDS, PLACEHOLDER, Kind, is_secret_field

_HEX = 8
_USER_HEX = 16
_USER = re.compile(rf"user_[0-9a-f]{{{_USER_HEX}}}\Z")
_CACHE = 1 << 16
_SHORTEST = 5
_NAME_SHORTEST = 15  # of what could be data and an identifier at once: Norway's IBAN, a token behind its prefix
_LEAST_NUMBER = 10**7  # no card or national id has fewer digits
_CARD = "card"  # whose checksum and issuer tell enough of a number under any name
_ID = "id"  # the field that ids and names given to `text` are taken to be in


_DOMAIN = re.compile(r"(?!-)[\w-]{1,63}(?:\.[\w-]{1,63})*")
_ESCAPE = re.compile(r"(?<=\\)(?:[nrtbf]|u[0-9A-Fa-f]{4})")  # in JSON inside a text
_PRIVATE, _PRIVATE_TOO = 0xF0000, 0x100000
_HIDDEN = re.compile("[\U000f0000-\U0010ffff]")


class _Kind:
    """A kind, compiled."""

    def __init__(self, kind: Kind) -> None:
        self.kind, self.name = kind, kind.name
        self.sub = kind.finder()
        self.holds_number = re.compile(kind.numbers).search if kind.numbers else None

    def places(self, texts: pl.Series) -> pl.Series:
        """Return the places of the payloads that may hold this kind."""
        rows = texts.str.contains(self.kind.trigger).arg_true()
        if not self.kind.tokens or not len(rows):
            return rows
        tokens = pl.DataFrame({"row": rows, "token": texts.gather(rows)})
        tokens = tokens.with_columns(pl.col("token").str.extract_all(self.kind.tokens)).explode("token")
        tokens = tokens.filter(pl.col("token").str.contains(self.kind.trigger))
        worth = [token for token in tokens["token"].unique() if self.kind.worth(token)]
        return tokens.filter(pl.col("token").is_in(worth))["row"].unique()


class Redactor:
    """Replaces what the configuration names; counts what it replaced, by kind.

    Args:
        cfg: kinds, what is allowed and denied, whether Presidio looks too.
        key: the project's secret key.

    Raises:
        ConfigError: an unknown kind, an invalid regular expression, Presidio is missing.
    """

    def __init__(self, cfg: RedactConfig, key: bytes) -> None:
        known = list(dict.fromkeys(kind.name for kind in KINDS))
        unknown = sorted(set(cfg.kinds) - set(known))
        if unknown:
            raise ConfigError(f"ingest.redact.kinds: unknown kind `{unknown[0]}`", hint=f"known: {', '.join(known)}")
        self.counts: Counter[str] = Counter()
        self._key = key
        self._allowed = Allowed(cfg)
        self._kinds = tuple(_Kind(kind) for kind in KINDS if kind.name in cfg.kinds)
        halves = ([k for k in self._kinds if k.kind.words], [k for k in self._kinds if not k.kind.words])
        self._together = [half for half in halves if half]
        self._fields = "secret" in cfg.kinds
        self._deny = denied(cfg.deny)
        self._entities = _entities(cfg)
        self._every = bool(self._deny) or self._entities is not None  # which have no trigger
        self._marks: dict[str, str] = {}
        # Of one call: texts redacted, and the kinds of what was replaced, one after the other.
        self._done: dict[tuple[str, str, tuple[_Kind, ...]], tuple[str, list[str]]] = {}
        self._log: list[str] = []
        self._short: dict[str, str] = {}
        self._harmless: set[str] = set()  # of one call of `expect`
        self._suspected: dict[str, tuple[_Kind, ...]] = {}  # the same: what others may hold
        self._users: dict[str, str] = {}

    def payloads(self, texts: Sequence[str]) -> list[str]:
        """Return JSON texts redacted: their strings, and the names of their fields; canonical as they were.

        Most payloads hold nothing; polars finds those that may in two passes over all.
        """
        items = list(texts)
        wanted = self._wanted(texts)
        self._done.clear()
        self._log.clear()
        for row in range(len(texts)) if self._every else sorted(wanted):
            items[row] = self._payload(texts[row], self._in_order(wanted.get(row, ())))
        return items

    def _in_order(self, kinds: Container[_Kind]) -> tuple[_Kind, ...]:
        return tuple(kind for kind in self._kinds if kind in kinds)

    def _wanted(self, texts: Sequence[str]) -> dict[int, list[_Kind]]:
        """Return the kinds that payloads may hold, by the place of those that may hold any."""
        series = pl.Series(texts, dtype=pl.String())
        wanted: dict[int, list[_Kind]] = {}
        for kinds in self._together:
            rows = series.str.contains("|".join(f"(?:{kind.kind.trigger})" for kind in kinds)).arg_true()
            some = series.gather(rows)
            for kind in kinds if len(rows) else ():
                for row in rows.gather(kind.places(some)):
                    wanted.setdefault(row, []).append(kind)
        return wanted

    def _payload(self, text: str, kinds: tuple[_Kind, ...]) -> str:
        value = loads(text.encode()).value
        redacted = self._walk(value, kinds)
        return text if redacted == value else dumps(redacted)

    def text(self, text: str) -> str:
        """Return one short text redacted: an id, a name. Random letters alone make no secret of an id."""
        if text in self._harmless:
            return text
        known = self._short.get(text)
        if known is None:
            known = self._replace(text, self._suspected.get(text, self._kinds), _ID)
            if len(self._short) < _CACHE:
                self._short[text] = known
        elif known != text:
            self._replace(text, self._kinds, _ID)  # counts it
        return known

    def expect(self, texts: Iterable[str]) -> None:
        """Look at many short texts at once; `text` then gives back those in which nothing can be as they are."""
        new = [] if self._every else list({text for text in texts if text not in self._short})
        wanted = self._wanted(as_fields(_ID, new))
        self._harmless = {text for row, text in enumerate(new) if row not in wanted}
        rest = [_split(new[row])[1] for row in wanted]
        kinds = self._wanted(as_fields(_ID, rest))
        self._suspected = {text: self._in_order(kinds.get(row, ())) for row, text in enumerate(rest)}

    def name(self, name: str) -> str:
        """Return an id redacted; in a kind:id only the id, so that both ways to write it stay equal."""
        if name in self._harmless:
            return name
        kind, rest = _split(name)
        return kind + self.text(rest)

    def names(self, column: Iterable[str | None], redacted: Callable[[str], str] | None = None) -> list[Any]:
        """Return many ids (or, with `text`, many short texts) redacted; what is none stays None."""
        harmless, redacted = self._harmless, redacted or self.name
        return [text if text in harmless else redacted(text) if text else None for text in column]

    def user(self, user: str) -> str:
        """Return the pseudonym of a user: always one, whatever the name looks like."""
        name = user.strip()
        if _USER.match(name):
            return name
        known = self._users.get(name)
        if known is None:
            known = f"user_{self._digest('user', name)[:_USER_HEX]}"
            if len(self._users) < _CACHE:
                self._users[name] = known
        return known

    def _walk(self, value: Any, kinds: tuple[_Kind, ...], name: str = "") -> Any:
        """Redact a field's value; with a secret's name, a text that looks like a secret is replaced completely."""
        if isinstance(value, str):
            if name and self._fields and is_secret_field(name, value) and not self._allowed.keeps(value):
                return self._mark("secret", value)
            return self._string(value, kinds, name) if len(value) >= _SHORTEST or self._deny else value
        if isinstance(value, dict):
            names = {key: self._name(key, kinds) for key in value}
            return {names[key]: self._walk(item, kinds, _without_pseudonyms(names[key])) for key, item in value.items()}
        if isinstance(value, list):
            return [self._walk(item, kinds, name) for item in value]
        return self._number(value, kinds, name) if isinstance(value, int) and value > _LEAST_NUMBER else value

    def _name(self, key: str, kinds: tuple[_Kind, ...]) -> str:
        harmless = key.isidentifier() and len(key) < _NAME_SHORTEST
        return key if harmless and not self._deny else self._replace(key, kinds)

    def _string(self, text: str, kinds: tuple[_Kind, ...], name: str) -> str:
        """Redact a text; a conversation's messages come again and again, so most are known."""
        known = self._done.get(key := (text, name, kinds))
        if known is None:
            begin = len(self._log)
            redacted = self._long(text, kinds, name)
            known = self._done[key] = redacted, self._log[begin:]
        elif known[1]:
            self.counts.update(known[1])
        return known[0]

    def _number(self, value: int, kinds: tuple[_Kind, ...], name: str) -> int | str:
        """Redact a number as if it were a text, if its field has the name of such a number."""
        some = tuple(kind for kind in kinds if kind.name == _CARD or (kind.holds_number and kind.holds_number(name)))
        text = str(value)
        redacted = self._replace(text, some, name) if some else text
        return value if redacted == text else redacted

    def _long(self, text: str, kinds: tuple[_Kind, ...], name: str) -> str:
        """Replace what the kinds find, then what Presidio finds, until nothing is found."""
        before, text = None, self._replace(text, kinds, name)
        while self._entities is not None and text != before:
            before, text = text, self._replace(self._named(text), kinds, name)
        return text

    def _named(self, text: str) -> str:
        """Replace what Presidio finds."""
        parts, end = [], 0
        for kind, find in self._entities.finds(text):
            written = text[find.start : find.end]
            kept = self._allowed.keeps(find.value, written)
            parts += [text[end : find.start], written if kept else self._mark(kind, find.value)]
            end = find.end
        return "".join([*parts, text[end:]])

    def _replace(self, text: str, kinds: tuple[_Kind, ...], name: str = "") -> str:
        """Replace until nothing is found: a replacement may uncover what was next to it, of any kind."""
        before = None
        while text != before:
            before = text
            for pattern in self._deny:
                text = pattern.sub(self._denied, text)
            shown, escapes = without_escapes(text)
            for kind in kinds:
                shown = kind.sub(partial(self._replacement, kind.kind, name), shown)
            text = with_escapes(shown, escapes)
            if text != before:
                kinds = self._kinds
        return text

    def _denied(self, match: re.Match[str]) -> str:
        text = match[0]
        return text if not text or GIVEN.fullmatch(text) else self._mark("denied", text)

    def _replacement(self, kind: Kind, name: str, match: re.Match[str]) -> str:
        text = match[0]
        find = None if GIVEN.fullmatch(text) else kind.decide(match, name)
        if find is None:
            return text
        start, end = find.start - match.start(), find.end - match.start()
        if self._allowed.keeps(text, find.value, text[start:end]):
            return text
        return text[:start] + self._mark(kind.name, find.value) + text[end:]

    def _mark(self, kind: str, value: str) -> str:
        self.counts[kind] += 1
        self._log.append(kind)
        known = self._marks.get(key := f"{kind}:{value}")
        if known is None:
            known = f"<{kind.upper()}_{self._digest(kind, value)[:_HEX]}>"
            if len(self._marks) < _CACHE:
                self._marks[key] = known
        return known

    def _digest(self, kind: str, value: str) -> str:
        return hmac.digest(self._key, f"{kind}:{value}".encode("utf-8", "surrogatepass"), "sha256").hex()


def _split(name: str) -> tuple[str, str]:
    """Return an id's kind, with its colon, and the id."""
    kind, colon, rest = name.partition(":") if is_name(name) else ("", "", name)
    return kind + colon, rest


def _without_pseudonyms(name: str) -> str:
    """Return a redacted name without pseudonyms, which do not describe the field."""
    return name if name.isidentifier() else GIVEN.sub("", name)


def _entities(cfg: RedactConfig) -> Any:
    """Return what finds entities, where the project asks for it; loading it takes seconds."""
    if not cfg.presidio:
        return None
    from flywheel.stages.ingest.entities import Entities

    return Entities(cfg)


class Allowed:
    """What is kept: exact values, what a pattern matches as a whole, e-mail addresses of a domain.

    Raises:
        ConfigError: an invalid regular expression or domain.
    """

    def __init__(self, cfg: RedactConfig) -> None:
        self._values = frozenset(cfg.allow)
        self._patterns = [_compiled("allow_patterns", pattern, pattern) for pattern in cfg.allow_patterns]
        self._domains = frozenset(_domain(name) for name in cfg.allow_domains)

    def keeps(self, *spellings: str) -> bool:
        """Whether a find is kept, in one of the ways it is written."""
        return any(s in self._values or self._by_pattern(s) or self._by_domain(s) for s in spellings)

    def _by_pattern(self, text: str) -> bool:
        return any(pattern.fullmatch(text) for pattern in self._patterns)

    def _by_domain(self, text: str) -> bool:
        if not self._domains or "@" not in text:
            return False
        labels = text.rpartition("@")[2].lower().split(".")
        return any(".".join(labels[n:]) in self._domains for n in range(len(labels)))


def denied(patterns: list[str]) -> list[re.Pattern[str]]:
    """Return what finds denied texts; pseudonyms given before match too.

    Raises:
        ConfigError: an invalid regular expression.
    """
    return [_compiled("deny", pattern, f"{PLACEHOLDER}|(?:{pattern})") for pattern in patterns]


def _compiled(name: str, pattern: str, whole: str) -> re.Pattern[str]:
    try:
        re.compile(pattern)
        return re.compile(whole)
    except re.error as error:
        raise ConfigError(
            f"ingest.redact.{name}: `{pattern}` is not a regular expression: {error}", hint="see Python's re module"
        ) from None


def _domain(name: str) -> str:
    if not _DOMAIN.fullmatch(name):
        raise ConfigError(
            f"ingest.redact.allow_domains: `{name}` is not a domain",
            hint="a name as in example.com, without @ or https://",
        )
    return name.lower()


def as_fields(name: str, texts: list[str]) -> list[str]:
    """Return each text as a JSON object that has nothing else, under a name."""
    try:
        written = orjson.dumps(texts).decode()
    except TypeError:  # half an emoji
        return as_fields(name, [text.encode("utf-8", "replace").decode() for text in texts])
    if "\\" in written:
        return [orjson.dumps({name: text}).decode() for text in texts]
    return [f'{{"{name}":"{text}"}}' for text in texts]


def without_escapes(text: str) -> tuple[str, dict[str, str]]:
    r"""Return a text with one private character for the letters of each JSON escape, and the letters of each.

    A text may hold JSON: in `"say\n+49 30 ..."` the n belongs to the escape, not to what follows.
    """
    escapes: dict[str, str] = {}
    if "\\" not in text or _HIDDEN.search(text):
        return text, escapes

    def hidden(match: re.Match[str]) -> str:
        letters = match[0]
        char = chr(_PRIVATE + int(letters[1:], 16)) if letters[0] == "u" else chr(_PRIVATE_TOO + ord(letters))
        return char if escapes.setdefault(char, letters) == letters else letters

    return _ESCAPE.sub(hidden, text), escapes


def with_escapes(text: str, escapes: Mapping[str, str]) -> str:
    """Return a text of `without_escapes` with its escapes again."""
    return _HIDDEN.sub(partial(_escape, escapes), text) if escapes else text


def _escape(escapes: Mapping[str, str], match: re.Match[str]) -> str:
    return escapes[match[0]]
