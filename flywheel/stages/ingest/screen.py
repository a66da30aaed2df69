"""Which payloads may hold which kinds: most hold nothing, and polars finds those that may in a few passes over all."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import orjson
import polars as pl

from flywheel.stages.ingest.patterns import Kind, Scan
from flywheel.stages.ingest.patterns.hints import Hint

_BETWEEN = ("},{", ',"')  # objects, fields and texts: no hint needs more than one side of it
# The id of a call or a response, which joins events and stays: half of what differs from one call to the next.
_IDS = (
    r'^(?:\{")?(?:(?:response|tool_call|message|request)_)?id":"'
    r'(?:chatcmpl|msg|call|toolu|resp)[_-][0-9A-Za-z]{4,64}(?:-[0-9]{1,6})?"\}?(?:,")?$'
)


class Screened:
    """A kind, compiled."""

    def __init__(self, kind: Kind | Scan) -> None:
        self.kind, self.name, self.finds = kind, kind.name, kind.finds
        self.holds_number = re.compile(kind.numbers).search if kind.numbers else None

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
        worth = [token for token in tokens["token"].drop_nulls().unique() if self.kind.worth(token)]
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
