"""Personal data and secrets out, pseudonyms in, before anything leaves memory.

In: payloads as JSON. Out: the same with every find replaced by `<EMAIL_7f3a9c2e>`: kind and the first digits of
HMAC-SHA256 under the project's key, so that equal values stay equal (for joins, deduplication and replays) and a guess
cannot be tested without the key. Redacting twice changes nothing.
"""

from __future__ import annotations

import hmac
import json
import re
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from flywheel.config import RedactConfig
from flywheel.errors import ConfigError
from flywheel.records import is_name
from flywheel.stages.ingest.framing.jsontext import dumps, loads
from flywheel.stages.ingest.redaction.allowed import Allowed, denied
from flywheel.stages.ingest.redaction.patterns import GIVEN, KINDS, PLACED, Find
from flywheel.stages.ingest.redaction.patterns.coded import BLOBBED, CODED, View, blobs, escaped_runs, views
from flywheel.stages.ingest.redaction.patterns.near import is_unmistakable
from flywheel.stages.ingest.redaction.patterns.structure import (
    in_columns,
    in_field,
    in_list,
    in_object,
    in_rows,
    in_steps,
    login_in,
)
from flywheel.stages.ingest.redaction.quoted import JSON, values_in, with_escapes, without_escapes
from flywheel.stages.ingest.redaction.screen import Screen, Screened, as_fields
from flywheel.stages.ingest.redaction.users import Users

_HEX = 8
_CACHE = 1 << 16
_SHORTEST = 5
_NAME_SHORTEST = 15  # of what could be data and an identifier at once: Norway's IBAN, a token behind its prefix
_LEAST_NUMBER = 10**7  # no card or national id has fewer digits
_DEPTH = 2  # of what is encoded within what is encoded
_CONTEXT = 64  # characters before a find that may decide on it
_CARD = "card"  # whose checksum and issuer tell enough of a number under any name
_ID = "id"  # the field that ids and names given to `text` are taken to be in


class _Payload:
    """A payload on its way: what it is by now, what it may hold, and what was found."""

    def __init__(self, text: str, kinds: tuple[Screened, ...]) -> None:
        self.text, self.kinds = text, kinds
        self.value = loads(text.encode()).value
        self.found: list[tuple[str, str]] = []  # kinds and normal forms


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
        self.users = Users(key, plus_addressing=cfg.plus_addressing)
        self._allowed = Allowed(cfg)
        self._coded, self._blobbed = Screened(CODED), Screened(BLOBBED)
        decoded = (self._coded, self._blobbed) if cfg.kinds else ()
        self._kinds = (*(Screened(kind) for kind in KINDS if kind.name in cfg.kinds), *decoded)
        self._screen = Screen(self._kinds)
        self._placed = next((kind for kind in self._kinds if kind.kind is PLACED), None)
        self._deny = denied(cfg.deny)
        self._entities = _entities(cfg)
        self._every = bool(self._deny) or self._entities is not None  # which have no trigger
        self._marks: dict[str, str] = {}
        # Of one call: texts redacted, and what was replaced, its kind and normal form, one after the other.
        self._done: dict[tuple[str, str, tuple[Screened, ...]], tuple[str, list[tuple[str, str]]]] = {}
        self._log: list[tuple[str, str]] = []
        self._here: list[tuple[str, str]] = []  # of one payload, the same
        self._short: dict[str, str] = {}
        self._harmless: set[str] = set()  # of the last short texts
        self._suspected: dict[str, tuple[Screened, ...]] = {}  # the same: what others may hold
        self._held: dict[tuple[str, str], tuple[Screened, ...]] = {}  # of payloads' texts and fields: what may be there

    def payloads(
        self, texts: Sequence[str], shorts: Iterable[str] = (), ids: Sequence[Sequence[str]] = ()
    ) -> list[str]:
        """Return JSON texts redacted: their strings, and the names of their fields; canonical as they were.

        Most payloads hold nothing; polars finds those that may. With them it looks at short texts (ids, names), so that
        `text` and `name` then give back those in which nothing can be as they are. `ids` are those of each payload: in
        one that is a string of its payload nothing can be where nothing can be in the payload.
        """
        items = list(texts)
        self._harmless, self._suspected = set(), {}
        held = [
            (n, name) for n, names in enumerate(ids) for name in names if f'"{name[name.find(":") + 1 :]}"' in items[n]
        ]
        known = {name for _, name in held}
        names = (*shorts, *(name for some in ids for name in some if name not in known)) if not self._every else ()
        new = list({text for text in names if text not in self._short})
        wanted = self._screen.wanted([*items, *as_fields(_ID, new)])
        self._sort(new, {row - len(items): kinds for row, kinds in wanted.items() if row >= len(items)})
        self._harmless.update(name for row, name in held if row not in wanted)
        left = [name for name in known if name not in self._harmless and name not in self._short]
        self._sort(left, self._screen.wanted(as_fields(_ID, left)))
        if self._every:
            self._harmless.clear()
        self._done.clear()
        self._log.clear()
        rows = range(len(items)) if self._every else sorted(row for row in wanted if row < len(items))
        self._redact({row: _Payload(texts[row], self._in_order(wanted.get(row, ()))) for row in rows}, items)
        return items

    def _redact(self, payloads: dict[int, _Payload], items: list[str]) -> None:
        """Replace until nothing is found: a replacement may uncover what was next to it, of any kind."""
        going_on = payloads
        while going_on:
            self._narrow(going_on)
            going_on = {row: payload for row, payload in going_on.items() if self._changes_more(payload)}
            wanted = {} if self._every else self._screen.wanted([dumps(p.value) for p in going_on.values()])
            for n, payload in enumerate(going_on.values()):
                payload.kinds = self._kinds if self._every else self._in_order(wanted.get(n, ()))
        for row, payload in payloads.items():
            if payload.found:
                self._here = payload.found
                items[row] = dumps(self._everywhere(payload.text, payload.value))

    def _changes_more(self, payload: _Payload) -> bool:
        """Replace what is found in a payload as it is; return whether anything was."""
        self._here = payload.found
        before = payload.value
        payload.value = self._walk(before, payload.kinds)
        return bool(payload.value != before)

    def _narrow(self, payloads: Mapping[int, _Payload]) -> None:
        """Note which of a payload's kinds each of its texts may hold."""
        fields: dict[tuple[str, str], int] = {}
        wanted: dict[Screened, dict[int, None]] = {}
        for payload in payloads.values():
            places = [fields.setdefault(field, len(fields)) for field in _fields(payload.value)]
            for kind in payload.kinds:
                wanted.setdefault(kind, {}).update(dict.fromkeys(places))
        held = self._screen.of_texts(list(fields), {kind: list(places) for kind, places in wanted.items()})
        self._held = dict(zip(fields, map(self._in_order, held), strict=True))

    def _sort(self, shorts: Sequence[str], wanted: Mapping[int, Container[Screened]]) -> None:
        """Note in which short texts nothing can be, and which kinds the others may hold."""
        self._harmless.update(text for n, text in enumerate(shorts) if n not in wanted)
        self._suspected |= {_split(shorts[n])[1]: self._in_order(kinds) for n, kinds in wanted.items()}

    def _in_order(self, kinds: Container[Screened]) -> tuple[Screened, ...]:
        return tuple(kind for kind in self._kinds if kind in kinds)

    def _everywhere(self, text: str, redacted: Any) -> Any:
        """Replace secrets that something announced in one place of a text in all of its places."""
        again = {value for kind, value in self._here if kind == "secret" and is_unmistakable(value)}
        if not any(value in text for value in again):
            return redacted
        written = "|".join(map(re.escape, sorted(again, key=lambda value: (-len(value), value))))
        return self._again(redacted, re.compile(rf"(?<![A-Za-z0-9_])(?:{written})(?![A-Za-z0-9_])"))

    def _again(self, value: Any, secrets: re.Pattern[str]) -> Any:
        """Replace secrets that something announced elsewhere in a payload where nothing announces them."""
        if isinstance(value, str):
            return secrets.sub(
                lambda match: self._replaced(match[0], "secret", Find(match[0], 0, len(match[0]))), value
            )
        if isinstance(value, dict):
            return {self._again(key, secrets): self._again(item, secrets) for key, item in value.items()}
        return [self._again(item, secrets) for item in value] if isinstance(value, list) else value

    def text(self, text: str) -> str:
        """Return one short text redacted: an id, a name. Random letters alone make no secret of an id."""
        if text in self._harmless:
            return text
        known = self._short.get(text)
        if known is None:
            self._here = []
            known = self._everywhere(text, self._replaced_all(text, self._suspected.get(text, self._kinds), _ID))
            if len(self._short) < _CACHE:
                self._short[text] = known
        elif known != text:
            self._replaced_all(text, self._kinds, _ID)  # counts it
        return known

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
        return self.users.pseudonym(user)

    def _walk(self, value: Any, kinds: tuple[Screened, ...], name: str = "") -> Any:
        """Redact a field's value; what is a secret by its place in the structure is replaced first."""
        if isinstance(value, str):
            return self._field(value, kinds, name)
        if isinstance(value, dict):
            value = self._placed_in_object(value, name) if self._placed in kinds else value
            names = {key: self._name(key, kinds) for key in value}
            return {names[key]: self._walk(item, kinds, _without_pseudonyms(names[key])) for key, item in value.items()}
        if isinstance(value, list):
            items = self._placed_in_list(value, name) if self._placed in kinds else value
            return [self._walk(item, kinds, name) for item in items]
        return self._number(value, kinds, name) if isinstance(value, int) and value > _LEAST_NUMBER else value

    def _field(self, text: str, kinds: tuple[Screened, ...], name: str) -> str:
        if name and self._placed in kinds and (find := in_field(name, text)) is not None:
            text = self._replaced(text, "secret", find)
        if len(text) < _SHORTEST and not self._deny:
            return text
        kinds = self._held.get((text, name), kinds)
        return self._string(text, kinds, name) if kinds or self._every else text

    def _placed_in_object(self, fields: dict[str, Any], name: str) -> dict[str, Any]:
        """Return an object without the secrets that its other fields name."""
        finds, cells = list(in_object(fields, name)), list(in_columns(fields))
        if finds or cells:
            fields = dict(fields)
        for key in {key: None for key, _ in finds}:
            fields[key] = self._each_replaced(fields[key], [find for place, find in finds if place == key])
        for key, row, column in cells:
            rows = fields[key] = [list(cells) if isinstance(cells, list) else cells for cells in fields[key]]
            text = rows[row][column]
            rows[row][column] = self._replaced(text, "secret", Find(text, 0, len(text)))
        return fields

    def _placed_in_list(self, items: list[Any], name: str) -> list[Any]:
        """Return a list without the secrets that its other items announce."""
        if not any(isinstance(item, str) for item in items):
            return self._in_rows(items)
        finds: dict[int, list[Find]] = {}
        for n, find in in_list(items, name):
            finds.setdefault(n, []).append(find)
        done = {n: self._each_replaced(items[n], some) for n, some in finds.items()}
        return [done.get(n, item) for n, item in enumerate(items)] if done else items

    def _in_rows(self, rows: list[Any]) -> list[Any]:
        """Return rows without the secrets that the first one announces, steps without what the one before does."""
        for n, key in in_steps(rows):
            text = rows[n][key]
            step = {**rows[n], key: self._replaced(text, "secret", Find(text, 0, len(text)))}
            rows = [*rows[:n], step, *rows[n + 1 :]]
        cells = list(in_rows(rows))
        rows = [list(row) for row in rows] if cells else rows
        for row, column in cells:
            text = rows[row][column]
            rows[row][column] = self._replaced(text, "secret", Find(text, 0, len(text)))
        return rows

    def _replaced(self, text: str, kind: str, find: Find) -> str:
        written = text[find.start : find.end]
        if self._allowed.keeps(text, find.value, written):
            return text
        return text[: find.start] + self._mark(kind, find.value) + text[find.end :]

    def _each_replaced(self, text: str, finds: Iterable[Find]) -> str:
        """Replace secrets that several ways found in one text: their places are those in the text as it came."""
        start = len(text)
        for find in sorted(finds, key=lambda find: (find.end, -find.start), reverse=True):
            if find.end <= start:
                text, start = self._replaced(text, "secret", find), find.start
        return text

    def _name(self, key: str, kinds: tuple[Screened, ...]) -> str:
        harmless = key.isidentifier() and len(key) < _NAME_SHORTEST
        return key if harmless and not self._deny else self._replace(key, kinds)

    def _string(self, text: str, kinds: tuple[Screened, ...], name: str) -> str:
        """Redact a text; a conversation's messages come again and again, so most are known."""
        known = self._done.get(key := (text, name, kinds))
        if known is None:
            begin = len(self._log)
            redacted = self._long(text, kinds, name)
            known = self._done[key] = redacted, self._log[begin:]
        elif known[1]:
            self.counts.update(kind for kind, _ in known[1])
            self._here += known[1]
        return known[0]

    def _number(self, value: int, kinds: tuple[Screened, ...], name: str) -> int | str:
        """Redact a number as if it were a text, if its field has the name of such a number."""
        some = tuple(kind for kind in kinds if kind.name == _CARD or (kind.holds_number and kind.holds_number(name)))
        text = str(value)
        redacted = self._replace(text, some, name) if some else text
        return value if redacted == text else redacted

    def _long(self, text: str, kinds: tuple[Screened, ...], name: str) -> str:
        """Replace what the kinds find, then what Presidio finds, until nothing is found."""
        if self._placed in kinds and JSON.search(text):
            text = self._within(text)
        before, text = None, self._replace(text, kinds, name)
        while self._entities is not None and text != before:
            before, text = text, self._replace(self._named(text), kinds, name)
        return text

    def _within(self, text: str) -> str:
        """Redact JSON in a text by its structure; everything else of the text stays as it is written."""
        changes: dict[str, str] = {}
        for value in values_in(text):
            self._changes(value, "", changes)
        for before, after in changes.items():
            for write in (_as_json, json.dumps, repr):
                written, redacted = write(before), write(after)
                text = text.replace(written, redacted).replace(written.replace("/", "\\/"), redacted)
        return text

    def _changes(self, value: Any, name: str, changes: dict[str, str]) -> None:
        """Collect the texts in a value that hold secrets by their place, and what becomes of them."""
        if isinstance(value, dict):
            placed = self._placed_in_object(value, name)
            for key, row, column in in_columns(value):
                cell = value[key][row][column]
                changes[cell] = self._replaced(cell, "secret", Find(cell, 0, len(cell)))
            pairs = [(key, item, placed[key]) for key, item in value.items()]
        elif isinstance(value, list):
            cells = [value[row][column] for row, column in in_rows(value)]
            for cell in (*cells, *(value[n][key] for n, key in in_steps(value))):
                changes[cell] = self._replaced(cell, "secret", Find(cell, 0, len(cell)))
            pairs = [(name, old, new) for old, new in zip(value, self._placed_in_list(value, name), strict=True)]
        else:
            return
        for key, old, new in pairs:
            after = self._changed(old, key) if isinstance(old, str) and new is old else new
            if not isinstance(old, str):
                self._changes(old, key, changes)
            elif after != old:
                changes[old] = after

    def _changed(self, text: str, name: str) -> str:
        """Return a text of a value without what is a secret by its place: its name's, in JSON within it, in itself."""
        if name and (find := in_field(name, text)) is not None:
            return self._replaced(text, "secret", find)
        if JSON.match(text):
            return self._within(text)
        return self._without(text, self._placed, name) if self._placed is not None else text

    def _named(self, text: str) -> str:
        """Replace what Presidio finds."""
        parts, end = [], 0
        for kind, find in self._entities.finds(text):
            written = text[find.start : find.end]
            kept = self._allowed.keeps(find.value, written)
            parts += [text[end : find.start], written if kept else self._mark(kind, find.value)]
            end = find.end
        return "".join([*parts, text[end:]])

    def _replaced_all(self, text: str, kinds: tuple[Screened, ...], name: str) -> str:
        """Replace until nothing is found: a replacement may uncover what was next to it, of any kind."""
        before = None
        while text != before:
            before, text = text, self._replace(text, kinds, name)
            kinds = self._kinds
        return text

    def _replace(self, text: str, kinds: tuple[Screened, ...], name: str = "") -> str:
        """Replace what is found in a text as it is."""
        for pattern in self._deny:
            text = pattern.sub(self._denied, text)
        for kind in kinds:
            if kind.kind.early:
                text = self._without(text, kind, name)
        if self._blobbed in kinds:
            text = self._decoded(text, blobs(text), name)
        if self._coded in kinds:
            text = self._decoded(text, views(text), name)
        shown, escapes = without_escapes(text)
        for kind in kinds:
            if not kind.kind.early:
                shown = self._without(shown, kind, name)
        return with_escapes(shown, escapes)

    def _without(self, text: str, kind: Screened, name: str) -> str:
        """Replace what a kind finds."""
        parts, end = [], 0
        for find in kind.finds(text, name):
            written = text[find.start : find.end]
            if not self._allowed.keeps(written, find.value):
                parts += [text[end : find.start], self._mark(kind.name, find.value)]
                end = find.end
        return "".join([*parts, text[end:]]) if parts else text

    def _decoded(self, text: str, decoded: Iterable[View], name: str) -> str:
        """Replace what is found in views of a text, where it came from."""
        finds = sorted({found for view in decoded for found in self._in_view(view, name, 0)})
        parts, end = [], 0
        for start, stop, kind, value in finds:
            if stop <= end or GIVEN.search(text, start, stop):
                continue
            parts += [text[end : max(start, end)], self._mark(kind, value)]
            end = stop
        return "".join([*parts, text[end:]])

    def _in_view(self, view: View, name: str, depth: int) -> Iterator[tuple[int, int, str, str]]:
        """Yield what a view holds: the place in the text, kind and normal form; in base64 in base64 too."""
        texts = 0
        for kind in self._kinds:
            for find in kind.finds(view.text, name):
                start, end = view.span(find.start, find.end)
                written = view.text[find.start : find.end]
                if (find.start >= _CONTEXT or not view.cut) and not self._allowed.keeps(written, find.value):
                    texts += 1
                    yield start, end, kind.name, find.value
        if not texts and self._placed is not None:
            for start, end in ((0, len(view.text)),) if view.blob else escaped_runs(view):
                if password := login_in(view.text[start:end]):
                    yield *view.span(start, end), "secret", password
        if depth < _DEPTH and view.blob:
            for inner in (*views(view.text), *blobs(view.text)):
                for first, last, kind_name, value in self._in_view(inner, name, depth + 1):
                    yield *view.span(first, last), kind_name, value

    def _denied(self, match: re.Match[str]) -> str:
        text = match[0]
        return text if not text or GIVEN.fullmatch(text) else self._mark("denied", text)

    def _mark(self, kind: str, value: str) -> str:
        self.counts[kind] += 1
        self._log.append((kind, value))
        self._here.append((kind, value))
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


def _fields(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Yield the texts of a value, each with its field's name, as a walk through it comes upon them."""
    if isinstance(value, str):
        yield value, name
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _fields(item, key)
    elif isinstance(value, list):
        for item in value:
            yield from _fields(item, name)


_as_json = partial(json.dumps, ensure_ascii=False)


def _without_pseudonyms(name: str) -> str:
    """Return a redacted name without pseudonyms, which do not describe the field."""
    return name if name.isidentifier() else GIVEN.sub("", name)


def _entities(cfg: RedactConfig) -> Any:
    """Return what finds entities, where the project asks for it; loading it takes seconds."""
    if not cfg.presidio:
        return None
    from flywheel.stages.ingest.redaction.entities import Entities

    return Entities(cfg)
