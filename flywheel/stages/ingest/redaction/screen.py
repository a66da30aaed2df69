"""Which payloads may hold which kinds: most hold nothing, and polars finds those that may in a few passes over all.

Of a payload that may hold something only some texts may, and of a long text only some parts: the same searches say
which, a hundred times as fast as what looks for the kinds themselves.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache

import orjson
import polars as pl

from flywheel.stages.ingest.redaction.patterns import Find, Kind, Scan
from flywheel.stages.ingest.redaction.patterns.hints import Hint
from flywheel.stages.ingest.redaction.patterns.kinds import joined

_BETWEEN = ("},{", ',"')  # objects, fields and texts: no hint needs more than one side of it
# The id of a call or a response, which joins events and stays: half of what differs from one call to the next.
_IDS = (
    r'^(?:\{")?(?:(?:response|tool_call|message|request)_)?id":"'
    r'(?:chatcmpl|msg|call|toolu|resp)[_-][0-9A-Za-z]{4,64}(?:-[0-9]{1,6})?"\}?(?:,")?$'
)
_LONG = 4_000  # characters of a text that is worth dividing
_PART, _BEFORE, _AFTER = 1_000, 64, 256  # characters of a part, and of what is searched before and after it
_AROUND = 1_000  # characters on both sides of a part in which something may be that are looked at too
_LINE = 2_000  # most characters to the end of a line


class Screened:
    """A kind, compiled."""

    def __init__(self, kind: Kind | Scan) -> None:
        self.kind, self.name = kind, kind.name
        self.holds_number = re.compile(kind.numbers).search if kind.numbers else None
        self._is_worthwhile = lru_cache(1 << 16)(kind.worth)

    def finds(self, text: str, name: str) -> Iterator[Find]:
        """Yield what a text holds of this kind; a long one is looked at where its trigger is."""
        if len(text) < _LONG or not self.kind.local:
            return self.kind.finds(text, name)
        return self._in_parts(text, name)

    def _in_parts(self, text: str, name: str) -> Iterator[Find]:
        parts = _parts(text, name).str.contains(self.kind.trigger).arg_true()
        for start, end in joined(_around(text, part) for part in parts.to_list()):
            for find in self.kind.finds(text[start:end], name):
                yield Find(find.value, start + find.start, start + find.end)

    def among(self, texts: pl.Series) -> pl.Series:
        """Return the places of those payloads that may hold this kind, by its trigger."""
        triggered = texts.str.contains(self.kind.trigger).arg_true()
        if not self.kind.tokens:
            return triggered
        near = self.kind.near if isinstance(self.kind, Scan) else ""
        if not near:
            return self._worthwhile(texts, triggered)
        return triggered.append(self._worthwhile(texts, texts.str.contains(near).arg_true()))

    def _worthwhile(self, texts: pl.Series, rows: pl.Series) -> pl.Series:
        """Return those places where a token is worth looking at its surroundings."""
        if not len(rows):
            return rows
        tokens = pl.DataFrame({"row": rows, "token": texts.gather(rows)})
        tokens = tokens.with_columns(pl.col("token").str.extract_all(self.kind.tokens)).explode("token")
        worth = [token for token in tokens["token"].drop_nulls().unique() if self._is_worthwhile(token)]
        return tokens.filter(pl.col("token").is_in(worth))["row"].unique()


class Screen:
    """What is searched in all payloads, one after the other in what is left, for some kinds."""

    def __init__(self, kinds: Iterable[Screened]) -> None:
        self._groups = _together(kinds)
        self._hints = [_has(hint).alias(str(n)) for n, (hint, _, _) in enumerate(self._groups)]

    def wanted(self, texts: Sequence[str]) -> dict[int, list[Screened]]:
        """Return the kinds that payloads may hold, by the place of those that may hold any."""
        wanted: dict[int, list[Screened]] = {}
        if not texts or not self._groups:
            return wanted
        payloads = pl.Series("text", texts, dtype=pl.String())
        pieces = _Pieces(payloads)
        has_hint = pieces.searched.select_seq(self._hints)
        for has, (_, pattern, kinds) in zip(has_hint, self._groups, strict=True):
            hinted = pieces.with_pattern(has, pattern)
            if not len(hinted):
                continue
            rows = pieces.rows(hinted)
            some = payloads.gather(rows)
            for kind in kinds:
                for row in rows.gather(kind.among(some)):
                    wanted.setdefault(row, []).append(kind)
        return wanted

    def of_texts(
        self, fields: Sequence[tuple[str, str]], wanted: Mapping[Screened, Sequence[int]]
    ) -> list[list[Screened]]:
        """Return which kinds each text may hold.

        Args:
            fields: texts, and the names of their fields.
            wanted: places of the texts whose payloads may hold a kind.
        """
        kinds: list[list[Screened]] = [[] for _ in fields]
        payloads = pl.Series("text", [_as_field(name, text) for text, name in fields], dtype=pl.String())
        for kind, places in wanted.items():
            for row in kind.among(payloads.gather(list(places))):
                kinds[places[row]].append(kind)
        return kinds


class _Pieces:
    """The different pieces of payloads, cut between objects and then between texts.

    A conversation's messages come again with each of its calls: only different pieces are searched. A call of polars
    costs more than a search of a few pieces, so there are few: one for each cut, one for all hints.
    """

    def __init__(self, payloads: pl.Series) -> None:
        self._objects = _cut(payloads.to_frame().lazy().with_row_index("row"), _BETWEEN[0]).collect()
        self._different_objects = self._objects["text"].unique()
        self._texts = _cut(self._different_objects.to_frame().lazy().with_row_index("object"), _BETWEEN[1]).collect()
        different = self._texts["text"].unique().to_frame().filter(~pl.col("text").str.contains(_IDS))
        searched = '"' + pl.col("text")  # no piece begins within a word
        self.searched = different.with_columns(searched=searched, small=searched.str.to_lowercase())

    def with_pattern(self, has_hint: pl.Series, pattern: str) -> pl.Series:
        """Return those pieces that have a hint, and a pattern."""
        if not has_hint.any():
            return self.searched["text"].clear()
        hinted = self.searched.filter(has_hint)
        return hinted.filter(pl.col("searched").str.contains(pattern))["text"] if pattern else hinted["text"]

    def rows(self, pieces: pl.Series) -> pl.Series:
        """Return the places of the payloads that have one of some pieces."""
        places = self._texts.filter(pl.col("text").is_in(pieces.implode()))["object"].unique()
        objects = self._different_objects.gather(places)
        return self._objects.filter(pl.col("text").is_in(objects.implode()))["row"].unique().sort()


def _has(hint: Hint) -> pl.Expr:
    """Return whether a piece has a hint."""
    has = pl.col("searched").str.contains(hint.pattern)
    return has | pl.col("small").str.contains("|".join(map(re.escape, hint.parts))) if hint.parts else has


def _cut(texts: pl.LazyFrame, between: str) -> pl.LazyFrame:
    return texts.with_columns(pl.col("text").str.split(between, inclusive=True)).explode("text")


def as_fields(name: str, texts: list[str]) -> list[str]:
    """Return each text as a JSON object that has nothing else, under a name."""
    try:
        written = orjson.dumps(texts).decode()
    except TypeError:  # half an emoji
        return as_fields(name, [text.encode("utf-8", "replace").decode() for text in texts])
    if "\\" in written:
        return [orjson.dumps({name: text}).decode() for text in texts]
    return [f'{{"{name}":"{text}"}}' for text in texts]


def _as_field(name: str, text: str) -> str:
    try:
        return orjson.dumps({name: text}).decode()
    except TypeError:  # half an emoji
        return _as_field(*(part.encode("utf-8", "replace").decode() for part in (name, text)))


@lru_cache(1)
def _parts(text: str, name: str) -> pl.Series:
    """Return a long text in parts, as JSON under its field's name, each with what is next to it."""
    starts = range(0, len(text), _PART)
    return pl.Series(
        "text",
        [_as_field(name, text[max(0, start - _BEFORE) : start + _PART + _AFTER]) for start in starts],
        dtype=pl.String(),
    )


def _around(text: str, part: int) -> tuple[int, int]:
    """Return where a part of a text is with what is around it, in whole lines."""
    start, end = max(0, part * _PART - _AROUND), (part + 1) * _PART + _AROUND
    line = text.find("\n", end, end + _LINE)
    return text.rfind("\n", max(0, start - _LINE), start) + 1 or start, line if line >= 0 else end


def _together(kinds: Iterable[Screened]) -> list[tuple[Hint, str, list[Screened]]]:
    """Return what is searched in all payloads, a hint and in what has it a pattern, each with the kinds it is for."""
    groups: dict[Hint | None, list[Screened]] = {}
    for kind in kinds:
        groups.setdefault(kind.kind.hint, []).append(kind)
    any_of = {hint: "|".join(f"(?:{kind.kind.trigger})" for kind in group) for hint, group in groups.items()}
    return [
        (hint or Hint(pattern=any_of[hint]), any_of[hint] if hint and hint.twice else "", group)
        for hint, group in groups.items()
    ]
