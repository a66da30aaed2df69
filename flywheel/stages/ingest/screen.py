"""Which payloads may hold which kinds: most hold nothing, and polars finds those that may in a few passes over all."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import orjson
import polars as pl

from flywheel.stages.ingest.patterns import Kind, Scan
from flywheel.stages.ingest.patterns.hints import DIGITS

_BETWEEN = ("},{", '","')  # objects, texts: no hint needs more than one side of it


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

    def wanted(self, texts: Sequence[str]) -> dict[int, list[Screened]]:
        """Return the kinds that payloads may hold, by the place of those that may hold any."""
        wanted: dict[int, list[Screened]] = {}
        if not texts or not self._groups:
            return wanted
        payloads = pl.Series("piece", texts, dtype=pl.String())
        pieces = _pieces(payloads)
        different = pieces["piece"].unique()
        for searched, kinds in self._groups:
            hinted = different
            for pattern in searched:
                hinted = hinted.filter(('"' + hinted).str.contains(pattern))  # no piece begins within a word
            if not len(hinted):
                continue
            rows = pieces.filter(pl.col("piece").is_in(hinted.implode()))["row"].unique().sort()
            some = payloads.gather(rows)
            for kind in kinds:
                for row in rows.gather(kind.among(some)):
                    wanted.setdefault(row, []).append(kind)
        return wanted


def _pieces(payloads: pl.Series) -> pl.DataFrame:
    """Return the pieces of payloads, cut between objects, each with its row.

    A conversation's messages come again with each of its calls: only different pieces are searched.
    """
    pieces = payloads.to_frame().with_row_index("row")
    for between in _BETWEEN:
        pieces = pieces.with_columns(pl.col("piece").str.split(between, inclusive=True)).explode("piece")
    return pieces


def as_fields(name: str, texts: list[str]) -> list[str]:
    """Return each text as a JSON object that has nothing else, under a name."""
    try:
        written = orjson.dumps(texts).decode()
    except TypeError:  # half an emoji
        return as_fields(name, [text.encode("utf-8", "replace").decode() for text in texts])
    if "\\" in written:
        return [orjson.dumps({name: text}).decode() for text in texts]
    return [f'{{"{name}":"{text}"}}' for text in texts]


def _together(kinds: Iterable[Screened]) -> list[tuple[list[str], list[Screened]]]:
    """Return what is searched in all payloads, one after the other in what is left, each with the kinds it is for."""
    groups: dict[str, list[Screened]] = {}
    for kind in kinds:
        groups.setdefault(kind.kind.hint, []).append(kind)
    any_of = {hint: "|".join(f"(?:{kind.kind.trigger})" for kind in group) for hint, group in groups.items()}
    return [
        ([DIGITS, any_of[hint]] if hint == DIGITS else [hint or any_of[hint]], group) for hint, group in groups.items()
    ]
