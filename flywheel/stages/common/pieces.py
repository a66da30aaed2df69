"""Work on everything in pieces: what a stage over all asks of whoever runs it, in this process or on many machines.

In: functions of modules, and what each call of them gets. Out: their results, in order. A piece is some partitions; who
works on which changes nothing, so results are merged by sums that are exact, or sorted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import polars as pl

Piece = Sequence[int] | None  # numbers of partitions; None: all of them


class Reading(Protocol):
    """Tables as one call may read them."""

    def scan(self, table: str, piece: Piece = None) -> pl.LazyFrame:
        """Return the rows of a table that lie in the partitions of a piece."""

    def lies_in(self, task: str, piece: Piece) -> pl.Expr:
        """Return whether the task that a column names is one of the piece's."""


class Pieces(Reading, Protocol):
    """Tables, and who works on pieces of them."""

    pieces: Sequence[Piece]

    def each(self, work: Callable[..., Any], calls: Iterable[tuple[Any, ...]]) -> Iterator[Any]:
        """Yield what `work(reading, *call)` returns for each call."""

    def write(self, table: str, work: Callable[..., Any], calls: Iterable[tuple[Any, ...]]) -> Iterator[Any]:
        """Yield the second of what `work(reading, *call)` returns; the first is the rows of its tasks, and written."""


class InMemory:
    """All rows at once, as frames; also what is written, by table."""

    def __init__(self, **frames: pl.DataFrame) -> None:
        self.pieces: Sequence[Piece] = [None]
        self.written: dict[str, pl.DataFrame] = {}
        self._frames: Mapping[str, pl.DataFrame] = frames

    def scan(self, table: str, piece: Piece = None) -> pl.LazyFrame:
        """Return the rows of a table."""
        del piece
        return self._frames[table].lazy()

    def lies_in(self, task: str, piece: Piece) -> pl.Expr:
        """Return that every task does."""
        del task, piece
        return pl.lit(value=True)

    def each(self, work: Callable[..., Any], calls: Iterable[tuple[Any, ...]]) -> Iterator[Any]:
        """Yield what the work returns, here and now."""
        return (work(self, *call) for call in calls)

    def write(self, table: str, work: Callable[..., Any], calls: Iterable[tuple[Any, ...]]) -> Iterator[Any]:
        """Keep the rows."""
        for call in calls:
            rows, rest = work(self, *call)
            self.written[table] = pl.concat([*([self.written[table]] if table in self.written else []), rows])
            yield rest
