"""Worker processes for partitions: this process alone, or as many as there are cores when there is much to do.

In: a stage. Out: the output of each partition, in order, whichever process made it, so that the number of processes
changes nothing. Workers write parts, which are named by content; only the first process commits.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from types import TracebackType
from typing import Self

from flywheel.config import Config
from flywheel.errors import StoreError
from flywheel.io.processes import Processes
from flywheel.io.safe_path import can_start_safely
from flywheel.pipeline.build.partition import SLICE, Done, make_partition
from flywheel.pipeline.build.registry import STAGES, Stage, stage_of
from flywheel.store import Store

_WORTH = 150_000  # rows of a stage's largest table; below this, starting processes takes longer than the work
_MOST = 16

_prepared: tuple[Store, Config, Path] | None = None


class Workers:
    """Runs stages over their partitions; processes start when first needed and end with it.

    Args:
        store: of the tables.
        config: the project's; `build.workers` sets how many processes.
        project: its folder, where extensions by path are looked for.
    """

    def __init__(self, store: Store, config: Config, project: Path) -> None:
        self._store, self._config, self._project = store, config, project
        self._pool: Processes | None = None

    def __enter__(self) -> Self:
        """Return it; no process has started yet."""
        return self

    def __exit__(self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> None:
        """End the processes; after an error, without finishing what waits."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=kind is not None)

    def run(self, stage: Stage) -> Iterator[Done]:
        """Yield the output of each partition, in order.

        Raises:
            StoreError: a process died.
        """
        numbers: list[int | None] = [*range(self._store.partitions if stage.by != "all" else 1)]
        workers = min(self._workers(stage), len(numbers))
        if workers < 2:  # noqa: PLR2004
            for number in [None] if stage.by == "task" and self._rows(stage) <= SLICE else numbers:
                yield make_partition(stage, self._store, self._config, self._project, number)
            return
        try:
            yield from self._started(workers).map(_work, [(stage.name, number) for number in numbers])
        except BrokenProcessPool:
            raise StoreError(
                f"a process that built `{stage.name}` died",
                hint="it was killed, perhaps for lack of memory; set build.workers to a smaller number",
            ) from None

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

    def _started(self, workers: int) -> Processes:
        if self._pool is None:
            self._pool = Processes(workers, _begin, self._store.root, self._config, self._project)
        return self._pool


def _begin(root: Path, config: Config, project: Path) -> None:
    """Prepare a worker process."""
    global _prepared  # noqa: PLW0603 - a pool's process has no other place to keep something
    _prepared = Store(root), config, project


def _work(job: tuple[str, int]) -> Done:
    if _prepared is None:
        raise RuntimeError("the worker was not prepared")
    name, number = job
    stage = next(stage for stage in STAGES if stage.name == name)
    return make_partition(stage, *_prepared, number)
