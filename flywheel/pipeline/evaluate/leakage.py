"""What a round was trained on already: its tasks, and the own cases whose request is one of its rows.

In: a round with all that it descends from, and the project's own cases, which people write from the same logs. Out:
task ids, and the cases whose last user message a trained row holds, compared by its words.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import polars as pl

from flywheel.io.files import read_rows
from flywheel.pipeline.context import Context
from flywheel.registry.registry import DATASET
from flywheel.stages.evaluate.suites.own_cases import LEAST_WORDS

if TYPE_CHECKING:
    from flywheel.stages.evaluate.suites.own_cases import OwnCase

__all__ = ["asked_in_training", "trained_tasks"]


def asked_in_training(ctx: Context, rounds: Iterable[int], cases: Sequence[OwnCase]) -> set[str]:
    """Return the ids of the cases whose last user message is one of a row that one of the rounds was trained on."""
    wanted: dict[str, set[str]] = {}
    for case in cases:
        asked = [text for m in case.prompt if m["role"] == "user" and (text := _words(m))]
        if asked and len(asked[-1].split()) >= LEAST_WORDS:
            wanted.setdefault(asked[-1], set()).add(case.case_id)
    if not wanted:
        return set()
    trained = {text for number in rounds for text in _asked(ctx, number)}
    return {case for text, ids in wanted.items() if text in trained for case in ids}


def _asked(ctx: Context, number: int) -> set[str]:
    path = ctx.registry.folder(number) / DATASET
    return {_words(m) for row in read_rows(path) for m in row.get("prompt") or () if m.get("role") == "user"}


def _words(message: Mapping[str, Any]) -> str:
    return " ".join(str(message.get("content") or "").casefold().split())


def trained_tasks(ctx: Context, number: int) -> set[str]:
    """Return every task that the round or one it descends from was trained on."""
    tasks: set[str] = set()
    for member in ctx.registry.lineage(number):
        path = ctx.registry.folder(member) / DATASET
        tasks |= {row["task_id"] for row in read_rows(path)}
    return tasks | _merged_into(ctx, tasks)


def _merged_into(ctx: Context, tasks: set[str]) -> set[str]:
    """Return the tasks of today that go on from the given ones: two can turn out to be one."""
    if ctx.store.current("tasks") is None:
        return set()
    table = ctx.store.table("tasks", "tasks").select("task_id", "formerly").explode("formerly").unique()
    return set(table.filter(pl.col("formerly").is_in(sorted(tasks))).collect()["task_id"].to_list())
