"""Is there enough new evidence for another round? What is missing is counted, so that a waiting night can report it.

Two things are needed. Rows that no round was trained on: without them a round repeats what its parent knows. And
held-out tasks that no decision has used, with outcomes that have had time to become known: the gate tests on nothing
else. After some held rounds in a row, as many tasks as the last decision would have needed: more attempts on too little
are more chances of luck, each at the price of the tasks it spends.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING

import polars as pl

from flywheel.io.files import lines
from flywheel.pipeline.build.tables import read_table
from flywheel.pipeline.context import Context
from flywheel.pipeline.train.mix import trained_on
from flywheel.pipeline.train.plan import differing_keys
from flywheel.records import Need, Promotion, Split, Verdict
from flywheel.stages.gate.superiority import RULE
from flywheel.stats.planning import cases_for_superiority

if TYPE_CHECKING:
    from flywheel.pipeline.train.plan import PlannedRound


def rebuild_is_due(ctx: Context, number: int) -> bool:
    """Return whether this round is to replace those that a forgotten user's rows had tainted."""
    return any(c.tainted and c.rebase_round == number for c in ctx.registry.certificates())


def lacks_tasks(ctx: Context) -> list[Need]:
    """Return what is missing to judge another round by; known before it is planned, and cheaper."""
    return _if_missing(_tasks(ctx))


def lacks_rows(ctx: Context, planned: PlannedRound) -> list[Need]:
    """Return what the planned round lacks to be worth training."""
    return _if_missing(_rows(ctx, planned))


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
    judged = read_table(ctx.store, "returns").filter(
        pl.col("step").is_null() & pl.col("known") & ~pl.col("provisional")
    )
    held_out = read_table(ctx.store, "episodes").filter(pl.col("split") == Split.HOLDOUT.value)
    tasks = held_out.join(judged.select("episode_id"), on="episode_id", how="semi").select("task_id").unique().collect()
    fresh = set(tasks["task_id"].to_list()) - ctx.registry.spent("")
    return Need(what="held-out tasks with a known outcome that no decision has used", have=len(fresh), need=_need(ctx))


def _need(ctx: Context) -> int:
    """Return how many unused held-out tasks the next decision needs."""
    gate, nightly = ctx.config.gate, ctx.config.nightly
    held = _held_in_a_row(ctx.registry.promotions())
    if len(held) < nightly.patience:
        return gate.min_cases
    numbers = next((r.numbers for r in held[-1].rules if r.rule == RULE), {})
    cases = _deciding_cases(numbers, nightly.difference, gate.alpha)
    tasks = math.ceil(cases * numbers.get("n_tasks", 0.0) / numbers["n"]) if numbers.get("n_tasks") else cases
    return min(max(gate.min_cases, tasks), ctx.config.eval.max_cases)  # no more cases than these are ever looked at


def _held_in_a_row(decisions: list[Promotion]) -> list[Promotion]:
    """Return the newest decisions back to the last that moved the champion; blocked ones tested nothing."""
    last = max((i for i, p in enumerate(decisions) if p.decision != "held"), default=-1)
    return [p for p in decisions[last + 1 :] if p.verdict != Verdict.BLOCKED]


def _deciding_cases(numbers: dict[str, float], difference: float, alpha: float) -> int:
    """Return the cases that would decide: as the decision named them, else enough to see the difference."""
    if "needed_n" in numbers:
        return int(numbers["needed_n"])
    if "mde" in numbers:  # what n cases could show; the number grows with the square of how much less is to be seen
        return math.ceil(numbers["n"] * (numbers["mde"] / difference) ** 2)
    discordance = max(numbers.get("discordance", difference), difference)
    return cases_for_superiority(discordance, difference, alpha=numbers.get("alpha_t", alpha))
