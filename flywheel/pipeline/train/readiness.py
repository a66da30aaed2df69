"""Is there enough new evidence for another round? What is missing is counted, so that a waiting night can report it.

Two things are needed. Rows that no round was trained on: without them a round repeats what its parent knows. And a few
held-out tasks with outcomes that have had time to become known: the gate decides on nothing else.
"""

from __future__ import annotations

import json

import polars as pl

from flywheel.io.files import lines
from flywheel.pipeline.build.tables import read_table
from flywheel.pipeline.context import Context
from flywheel.pipeline.train.mix import trained_on
from flywheel.pipeline.train.plan import PlannedRound, differing_keys
from flywheel.present import count, the_round
from flywheel.records import Need, Split


def rebuild_is_due(ctx: Context, number: int) -> bool:
    """Return whether this round is to replace those that a forgotten user's rows had tainted."""
    return any(c.tainted and c.rebase_round == number for c in ctx.registry.certificates())


def lacks_tasks(ctx: Context) -> list[Need]:
    """Return what is missing to judge another round by; known before it is planned, and cheaper."""
    return _if_missing(_tasks(ctx))


def lacks_rows(ctx: Context, planned: PlannedRound) -> list[Need]:
    """Return what the planned round lacks to be worth training."""
    return _if_missing(_rows(ctx, planned))


def lacks_better(planned: PlannedRound) -> list[Need]:
    """Return that no method is worth training, where the race has shown that."""
    race = planned.plan.race
    if race is None or race.state != "lost":
        return []
    what = f"methods as good as {the_round(planned.plan.parent)} on {count(race.tasks, 'development task')}"
    return [Need(what=what, have=0, need=1)]


def _if_missing(need: Need) -> list[Need]:
    return [need] if need.have < need.need else []


def _rows(ctx: Context, planned: PlannedRound) -> Need:
    numbers = [n for n in ctx.registry.numbers() if ctx.registry.manifest(n).adapter_sha256]
    trained = [n for n in numbers if n not in ctx.registry.tainted]
    changed = trained and differing_keys(ctx.registry.manifest(trained[-1]).config, planned.plan.config)
    rows = [json.loads(line) for line in lines(planned.dataset)]
    of_logs = {row["id"] for row in rows if row.get("mix") != "golden"}
    new = of_logs.difference(*(() if changed else (trained_on(ctx, n) for n in trained)))
    return Need(what="new rows to train on", have=len(new), need=ctx.config.nightly.min_new_rows)


def _tasks(ctx: Context) -> Need:
    labelled = read_table(ctx.store, "returns").filter(
        pl.col("step").is_null() & pl.col("known") & ~pl.col("provisional")
    )
    held_out = read_table(ctx.store, "episodes").filter(pl.col("split") == Split.HOLDOUT.value)
    tasks = held_out.join(labelled.select("episode_id"), on="episode_id", how="semi").select(
        pl.col("task_id").n_unique()
    )
    return Need(
        what="held-out tasks with a known outcome", have=int(tasks.collect().item()), need=ctx.config.gate.min_cases
    )
