"""Tables as every reader sees them: episodes, steps and opinions under the task that the stage `tasks` gave them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flywheel.pipeline.build.registry import stage_of
from flywheel.stages.tasks.build import follow_tasks

if TYPE_CHECKING:
    import polars as pl

    from flywheel.store import Store

RECORDED = frozenset({"episodes", "steps", "opinions", "corrections"})  # made before tasks were known


def read_table(store: Store, name: str) -> pl.LazyFrame:
    """Return a table's rows; before the stage `tasks` has run, under their own request's task."""
    frame = store.table(name, stage_of(name))
    if name not in RECORDED or store.current("tasks") is None:
        return frame
    return follow_tasks(frame, store.table("tasks", "tasks"))
