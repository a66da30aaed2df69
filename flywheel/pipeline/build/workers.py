"""Who makes partitions: this process alone, one process a core when there is much to do, or a Ray cluster.

In: a stage. Out: the output of each partition, in order, whoever made it, so that it changes nothing. Workers write
parts, which are named by content; only the first process commits. It also decides which snapshots are current: on a
shared folder another node may see a commit late.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from concurrent.futures.process import BrokenProcessPool
from itertools import chain
from pathlib import Path
from typing import Any

from flywheel.config import Config
from flywheel.errors import StoreError
from flywheel.io.crew import Crew
from flywheel.io.places import Folder
from flywheel.io.safe_path import can_start_safely
from flywheel.pipeline.build.partition import SLICE, TOGETHER, Done, make_partitions
from flywheel.pipeline.build.pieces import make_in_pieces
from flywheel.pipeline.build.registry import Stage, stage_named, stage_of
from flywheel.pipeline.cluster import cluster_of, store_at
from flywheel.stages.common.pieces import Piece
from flywheel.store import Store

_WORTH = 150_000  # rows of a stage's largest table; below this, starting processes takes longer than the work
_MANY = 2_000_000  # rows from which a stage gets new processes: what the last stage left in theirs is not needed
_MOST = 16

_prepared: tuple[Store, Config, Path] | None = None


class Workers(Crew):
    """Runs stages over their partitions; processes, or a cluster's tasks, start when first needed and end with it.

    Args:
        store: of the tables.
        config: the project's; `build.engine` and `build.workers` say who works.
        project: its folder, where extensions by path are looked for.
    """

    def __init__(self, store: Store, config: Config, project: Path) -> None:
        super().__init__(cluster_of(config, project))
        self._store, self._config, self._project = store, config, project

    def run(self, stage: Stage) -> Iterator[Done]:
        """Yield the output of each partition, in order.

        Raises:
            StoreError: a process died.
            ClusterError: the cluster cannot be reached, or lost a task.
        """
        if self._rows(stage) >= _MANY:
            self.renew()
        if stage.pieced:
            yield self._in_pieces(stage)
            return
        count = self._store.partitions if stage.by != "all" else 1
        workers = min(self._workers(stage), count)
        if workers < 2 and (self.cluster is None or stage.by == "all"):  # noqa: PLR2004
            whole = stage.by != "all" and self._rows(stage) <= SLICE
            for numbers in [[None]] if whole else self._groups(stage, count, 1):
                yield from make_partitions(stage, self._store, self._config, self._project, numbers)
            return
        self._started(workers)
        jobs = [(stage.name, group) for group in self._groups(stage, count, self.size)]
        yield from chain.from_iterable(self._elsewhere(stage, workers, _made, jobs))

    def _in_pieces(self, stage: Stage) -> Done:
        """Return the output of a stage over everything that reads it in pieces."""
        count = self._store.partitions
        workers = min(self._workers(stage), count)
        if workers < 2 and self.cluster is None:  # noqa: PLR2004
            pieces: Sequence[Piece] = [None] if self._rows(stage) <= SLICE else self._groups(stage, count, 1)
            return make_in_pieces(stage, self._store, self._config, self._project, pieces, self._here)

        def run(work: Callable[..., Any], calls: Iterable[tuple[Any, ...]]) -> Iterator[Any]:
            return self._elsewhere(stage, workers, _called, [(work, call) for call in calls])

        self._started(workers)
        pieces = self._groups(stage, count, self.size)
        return make_in_pieces(stage, self._store, self._config, self._project, pieces, run)

    def _here(self, work: Callable[..., Any], calls: Iterable[tuple[Any, ...]]) -> Iterator[Any]:
        return (work(self._store, *call) for call in calls)

    def _elsewhere(
        self, stage: Stage, workers: int, work: Callable[..., Any], jobs: Iterable[tuple[Any, ...]]
    ) -> Iterator[Any]:
        """Yield what other processes make of jobs, in order; they read the snapshots that are current here."""
        try:
            current = {name: (self._store.numbers(name) or [0])[-1] for name in self._store.stages()}
            yield from self._started(workers).map(_work, [(work, job, current) for job in jobs])
        except BrokenProcessPool:
            raise StoreError(
                f"a process that built `{stage.name}` died",
                hint="it was killed, perhaps for lack of memory; set build.workers to a smaller number",
            ) from None

    def _groups(self, stage: Stage, count: int, workers: int) -> list[Sequence[int]]:
        """Return the partitions in the groups that are made one after the other by one worker.

        A task's episodes lie in the parts of all partitions, so that whoever makes a partition reads all of them: as
        many as memory holds are made of one reading, and no worker is without.
        """
        size = 1
        if stage.by == "task" or stage.pieced:
            size = max(1, min(-(-count // max(workers, 1)), TOGETHER * count // max(self._rows(stage), 1)))
        return [range(first, min(first + size, count)) for first in range(0, count, size)]

    def _workers(self, stage: Stage) -> int:
        if not can_start_safely():
            return 1
        if self._config.build.workers:
            return self._config.build.workers
        return min(os.cpu_count() or 1, _MOST) if self._rows(stage) >= _WORTH else 1

    def _rows(self, stage: Stage) -> int:
        """Return the rows of the largest table that a stage needs."""
        current = [(table, self._store.current(stage_of(table))) for table in stage.needs]
        return max((snapshot.rows(table) for table, snapshot in current if snapshot is not None), default=0)

    def _started(self, workers: int) -> Executor:
        return self.start(workers, _begin, self._store.place.resolved(), self._config, self._project)


def _begin(place: Folder, config: Config, project: Path) -> None:
    """Prepare a worker.

    Raises:
        StoreError: it does not see the store.
    """
    global _prepared  # noqa: PLW0603 - a pool's process has no other place to keep something
    _prepared = store_at(place), config, project


def _work(job: tuple[Callable[..., Any], tuple[Any, ...], Mapping[str, int]]) -> Any:
    if _prepared is None:
        raise RuntimeError("the worker was not prepared")
    work, arguments, current = job
    _prepared[0].hold(current)
    return work(_prepared, *arguments)


def _made(prepared: tuple[Store, Config, Path], stage: str, numbers: Sequence[int]) -> list[Done]:
    return list(make_partitions(stage_named(stage), *prepared, numbers))


def _called(prepared: tuple[Store, Config, Path], work: Callable[..., Any], call: tuple[Any, ...]) -> Any:
    return work(prepared[0], *call)
