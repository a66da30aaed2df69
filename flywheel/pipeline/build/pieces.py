"""Stages over everything, in pieces, which whoever makes partitions reads and writes too.

In: a stage, and a way to run functions, here or elsewhere. Out: the parts that were written and the stage's funnel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from flywheel.config import Config
from flywheel.funnel import Funnel
from flywheel.io.processes import uncollected
from flywheel.pipeline.build.partition import Done, partition_of, refuse_other_partitions
from flywheel.pipeline.build.registry import Stage, made_by, stage_named, stage_of
from flywheel.stages.common.pieces import Piece
from flywheel.store import Part, Store

Run = Callable[[Callable[..., Any], Iterable[tuple[Any, ...]]], Iterator[Any]]
_PREVIOUS = "previous "


class StoreReading:
    """The tables that a stage needs, and its own as the last build left them."""

    def __init__(self, stage: Stage, store: Store) -> None:
        self._stage, self._store = stage, store

    def scan(self, table: str, piece: Piece = None) -> pl.LazyFrame:
        """Return the rows of a table that lie in the partitions of a piece."""
        if table.startswith(_PREVIOUS):
            return self._store.table(table.removeprefix(_PREVIOUS), self._stage.name)
        snapshot = self._store.current(stage_of(table))
        if snapshot is not None and made_by(table) != "all":
            refuse_other_partitions(self._store, snapshot)
        parts = [part for part in (snapshot.parts if snapshot else ()) if piece is None or part.partition in piece]
        rows = self._store.read(parts, table)
        return rows.select(self._stage.columns[table]) if table in self._stage.columns else rows

    def lies_in(self, task: str, piece: Piece) -> pl.Expr:
        """Return whether the task that a column names is one of the piece's."""
        return pl.lit(value=True) if piece is None else partition_of(task, self._store.partitions).is_in(piece)


class StorePieces(StoreReading):
    """Has functions run over pieces.

    Args:
        stage: whose tables are read.
        store: of the tables.
        pieces: the partitions that are read at once.
        run: calls a function with each of some arguments, and yields what it returns, in order.
    """

    def __init__(self, stage: Stage, store: Store, pieces: Sequence[Piece], run: Run) -> None:
        super().__init__(stage, store)
        self.pieces, self._run = pieces, run
        self.parts: list[Part] = []

    def each(self, work: Callable[..., Any], calls: Iterable[tuple[Any, ...]]) -> Iterator[Any]:
        """Yield what the work returns for each call."""
        return self._run(read_piece, ((self._stage.name, work, call) for call in calls))

    def write(self, table: str, work: Callable[..., Any], calls: Iterable[tuple[Any, ...]]) -> Iterator[Any]:
        """Yield the second of what the work returns for each call; the first is written."""
        for parts, rest in self._run(write_piece, ((self._stage.name, table, work, call) for call in calls)):
            self.parts += parts
            yield rest


def read_piece(store: Store, stage: str, work: Callable[..., Any], call: tuple[Any, ...]) -> Any:
    """Return what a stage's work returns for one call."""
    with uncollected():
        return work(StoreReading(stage_named(stage), store), *call)


def write_piece(store: Store, stage: str, table: str, work: Callable[..., Any], call: tuple[Any, ...]) -> Any:
    """Return the parts that one call's rows, which have a task, were written as, and what else it returns."""
    rows, rest = read_piece(store, stage, work, call)
    homes = rows.select(partition_of("task_id", store.partitions)).to_series()
    parts = [store.write(table, rows.filter(homes == number), partition=number) for number in homes.unique().sort()]
    return [part for part in parts if part is not None], rest


def make_in_pieces(
    stage: Stage, store: Store, config: Config, project: Path, pieces: Sequence[Piece], run: Run
) -> Done:
    """Run a stage on everything, in pieces; what it returns is written to the first partition."""
    given, funnel = StorePieces(stage, store, pieces, run), Funnel()
    output = stage.in_pieces()(given, config, funnel, project)
    funnel.check(stage.name)
    parts = [store.write(table, rows, partition=0) for table, rows in output.items()]
    return Done((*given.parts, *(part for part in parts if part is not None)), funnel.as_dict())
