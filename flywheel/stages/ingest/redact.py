"""Personal data and secrets out, pseudonyms in, before anything leaves memory.

In: payloads as JSON. Out: the same with every find replaced by `<EMAIL_7f3a9c2e>`: kind and the first
digits of HMAC-SHA256 under the project's key, so that equal values stay equal (for joins, deduplication and replays)
and nobody without the key can test a guess. Redacting twice changes nothing.
"""

from __future__ import annotations

import hmac
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from flywheel.config import RedactConfig
from flywheel.errors import ConfigError
from flywheel.records import is_name
from flywheel.stages.ingest.jsontext import dumps, loads
from flywheel.stages.ingest.patterns import KINDS, PLACEHOLDER, SECRET_KEYS, Kind, looks_secret

__all__ = ["Redactor"]

_HEX = 8
_USER_HEX = 16
_USER = re.compile(rf"user_[0-9a-f]{{{_USER_HEX}}}\Z")
_CACHE = 1 << 16
_SHORTEST = 5
_NAME_SHORTEST = 15  # of what could be data and an identifier at once: Norway's IBAN, a token behind its prefix
_LEAST_NUMBER = 10**9  # of what could be data and a JSON number at once
_GIVEN = re.compile(PLACEHOLDER)
_ESCAPE = re.compile(r"(?<=\\)(?:[nrtbf]|u[0-9A-Fa-f]{4})")  # in JSON that stands in a text
_PRIVATE, _PRIVATE_TOO = 0xF0000, 0x100000
_HIDDEN = re.compile("[\U000f0000-\U0010ffff]")


class Redactor:
    """Replaces what the configuration names; counts what it replaced, by kind.

    Args:
        cfg: kinds, allowed values and denied patterns.
        key: the project's secret key.

    Raises:
        ConfigError: an unknown kind, or a denied pattern that is no regular expression.
    """

    def __init__(self, cfg: RedactConfig, key: bytes) -> None:
        unknown = sorted(set(cfg.kinds) - set(KINDS))
        if unknown:
            raise ConfigError(f"ingest.redact.kinds: unknown kind `{unknown[0]}`", hint=f"known: {', '.join(KINDS)}")
        self.counts: Counter[str] = Counter()
        self._key = key
        self._allow = frozenset(cfg.allow)
        self._kinds = tuple(kind for kind in KINDS.values() if kind.name in cfg.kinds)
        self._triggers = [re.compile(kind.trigger) for kind in self._kinds]
        self._finders = {k.name: re.compile(f"{PLACEHOLDER}|{k.pattern}", re.VERBOSE | re.DOTALL) for k in self._kinds}
        self._deny = [_compiled(pattern) for pattern in cfg.deny]
        self._marks: dict[str, str] = {}
        self._short: dict[str, str] = {}

    def payloads(self, texts: Sequence[str]) -> list[str]:
        """Return JSON texts redacted: their strings, and the names of their fields; canonical as they were.

        Most payloads hold nothing; polars finds those that may in one pass over all.
        """
        import polars as pl

        found = list(texts)
        series = pl.Series(texts, dtype=pl.String())
        anything = "" if self._deny else "|".join(f"(?:{kind.trigger})" for kind in self._kinds)
        rows = series.str.contains(anything).arg_true() if anything or self._deny else pl.Series(dtype=pl.UInt32())
        some = series.gather(rows)
        wanted = [some.str.contains(kind.trigger).to_list() for kind in self._kinds]
        for place, row in enumerate(rows):
            kinds = tuple(kind for kind, found_in in zip(self._kinds, wanted, strict=True) if found_in[place])
            found[row] = self._payload(texts[row], kinds)
        return found

    def _payload(self, text: str, kinds: tuple[Kind, ...]) -> str:
        if not kinds and not self._deny:
            return text
        value = loads(text.encode()).value
        redacted = self._walk(value, kinds)
        return text if redacted == value else dumps(redacted)

    def text(self, text: str) -> str:
        """Return one short text redacted: an id, a name."""
        known = self._short.get(text)
        if known is None:
            known = self._replace(text, self._wanted(text))
            if len(self._short) < _CACHE:
                self._short[text] = known
        elif known != text:
            self._replace(text, self._wanted(text))  # counts it
        return known

    def name(self, name: str) -> str:
        """Return an id redacted; in a kind:id only the id, so that both ways to write it stay equal."""
        kind, colon, rest = name.partition(":") if is_name(name) else ("", "", name)
        return f"{kind}{colon}{self.text(rest)}"

    def user(self, user: str) -> str:
        """Return the pseudonym of a user: always one, whatever the name looks like."""
        name = user.strip()
        return name if _USER.match(name) else f"user_{self._digest('user', name)[:_USER_HEX]}"

    def _wanted(self, text: str) -> tuple[Kind, ...]:
        return tuple(k for k, trigger in zip(self._kinds, self._triggers, strict=True) if trigger.search(text))

    def _walk(self, value: Any, kinds: tuple[Kind, ...], key: str = "") -> Any:
        """Redact what stands under a name; under a secret's name a text that looks like one goes whole."""
        if isinstance(value, str):
            if key and self._is_secret(key, value):
                return self._mark("secret", value)
            return self._replace(value, kinds) if len(value) >= _SHORTEST or self._deny else value
        if isinstance(value, dict):
            return {self._name(name, kinds): self._walk(item, kinds, name) for name, item in value.items()}
        if isinstance(value, list):
            return [self._walk(item, kinds) for item in value]
        if isinstance(value, int) and value >= _LEAST_NUMBER:
            found = self._replace(str(value), kinds)
            return value if found == str(value) else found
        return value

    def _name(self, key: str, kinds: tuple[Kind, ...]) -> str:
        harmless = key.isidentifier() and len(key) < _NAME_SHORTEST
        return key if harmless and not self._deny else self._replace(key, kinds)

    def _is_secret(self, key: str, value: str) -> bool:
        if "secret" not in self._finders or not SECRET_KEYS.match(key):
            return False
        return value not in self._allow and not _GIVEN.search(value) and looks_secret(key, value)

    def _replace(self, text: str, kinds: tuple[Kind, ...]) -> str:
        """Replace until nothing is found: a replacement may uncover what stood beside it."""
        before = None
        while text != before:
            before = text
            for pattern in self._deny:
                text = pattern.sub(self._denied, text)
            shown, escapes = _without_escapes(text)
            for kind in kinds:
                shown = self._finders[kind.name].sub(partial(self._found, kind), shown)
            text = _HIDDEN.sub(partial(_escape, escapes), shown) if escapes else shown
        return text

    def _denied(self, match: re.Match[str]) -> str:
        text = match[0]
        return text if not text or _GIVEN.fullmatch(text) else self._mark("denied", text)

    def _found(self, kind: Kind, match: re.Match[str]) -> str:
        whole = match[0]
        if _GIVEN.fullmatch(whole) or whole in self._allow:
            return whole
        find = kind.decide(match)
        if find is None or find.value in self._allow:
            return whole
        start, end = find.start - match.start(), find.end - match.start()
        if whole[start:end] in self._allow:
            return whole
        return whole[:start] + self._mark(kind.name, find.value) + whole[end:]

    def _mark(self, kind: str, value: str) -> str:
        self.counts[kind] += 1
        known = self._marks.get(key := f"{kind}:{value}")
        if known is None:
            known = f"<{kind.upper()}_{self._digest(kind, value)[:_HEX]}>"
            if len(self._marks) < _CACHE:
                self._marks[key] = known
        return known

    def _digest(self, kind: str, value: str) -> str:
        return hmac.digest(self._key, f"{kind}:{value}".encode("utf-8", "surrogatepass"), "sha256").hex()


def _without_escapes(text: str) -> tuple[str, dict[str, str]]:
    r"""Return a text with one private character for the letters of each JSON escape, and what each stands for.

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


def _escape(escapes: Mapping[str, str], match: re.Match[str]) -> str:
    return escapes[match[0]]


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(f"{PLACEHOLDER}|(?:{pattern})")
    except re.error as error:
        raise ConfigError(
            f"ingest.redact.deny: `{pattern}` is no regular expression: {error}", hint="see Python's re module"
        ) from None
