"""Labelled single actions: demonstrations for SFT where the label is true, unpaired rows for KTO either way.

In: episodes, steps and returns of complete tasks. Out: rows of the examples table, one for each distinct (prompt,
completion) with a known label; every other step is dropped with a counted reason. The rules are in `_label`. A step
that a user corrected gives one more row, a demonstration: the step as the user would have had it.
"""

from __future__ import annotations

import json
from typing import Any

import polars as pl

from flywheel.config import RewardsConfig
from flywheel.contracts import frame_of
from flywheel.funnel import Funnel
from flywheel.models.calls import is_reproducible
from flywheel.records import Example, ToolStatus, canonical_json, content_id
from flywheel.stages.common.canonical import parse
from flywheel.stages.credit.rejected import rejected_steps
from flywheel.stages.datasets.context import NEEDS_IMAGE, PROVISIONAL, UNFIT, contexts, needing_images, unfit
from flywheel.stages.datasets.edits import corrected
from flywheel.stages.datasets.grounding import ungrounded
from flywheel.stages.values.keys import LEVELS

DESIRABLE = 0.7
UNDESIRABLE = 0.3
LIKELIER = 0.001  # by which the opposite of its episode is likelier of a step that does not follow it
BY_NAME_ALONE = 0.5  # the same of a step whose action is only known by the names of its tools, at other intents
CORRECTED = 0.95  # probability that a user's edit is right


def build_examples(
    episodes: pl.DataFrame, steps: pl.DataFrame, returns: pl.DataFrame, cfg: RewardsConfig, funnel: Funnel
) -> pl.DataFrame:
    """Label the steps of episodes with a known outcome; both splits, sorted by id. `cfg` holds what risk costs."""
    edited = steps.filter(pl.col("correction").is_not_null()) if "correction" in steps.columns else steps.clear()
    funnel.considered += steps.height + edited.height
    complete = funnel.drop(steps, pl.col("episode_id").is_in(unfit(episodes)), UNFIT)
    edited = funnel.drop(edited, pl.col("episode_id").is_in(unfit(episodes)), UNFIT)
    shown = needing_images(steps)
    complete, edited = (_without(frame, shown, funnel) for frame in (complete, edited))
    labelled = _label(_with_returns(complete, returns), cfg, funnel)
    parts = [_rows(labelled, episodes, steps), _demonstrations(edited, episodes, steps, funnel)]
    rows = _one_per_text(pl.concat(parts), funnel)
    funnel.kept += rows.height
    funnel.note("corrections", rows.filter(pl.col("source") == "correction").height)
    for label, name in ((True, "desirable"), (False, "undesirable")):
        funnel.note(name, rows.filter(pl.col("label") == label).height)
    return rows.sort("example_id")


def _without(steps: pl.DataFrame, shown: pl.DataFrame, funnel: Funnel) -> pl.DataFrame:
    """Drop the steps that need an image."""
    marked = steps.join(shown.with_columns(_shown=pl.lit(value=True)), on=["episode_id", "index"], how="left")
    return funnel.drop(marked, pl.col("_shown"), NEEDS_IMAGE).drop("_shown")


def _with_returns(steps: pl.DataFrame, returns: pl.DataFrame) -> pl.DataFrame:
    """Return the steps with their episode's p_success, weight and known, and what is believed of each of them."""
    episodes = returns.filter(pl.col("step").is_null()).select(
        "episode_id", "p_success", "weight", "known", "provisional"
    )
    of_step = returns.filter(pl.col("step").is_not_null())
    by_name = (pl.col("level") == LEVELS[-1]).alias("_by_name")
    credit = of_step.select("episode_id", "p_better", "p_worse", "risk", by_name, index="step")
    rejected = rejected_steps(returns).select("episode_id", index="step", _rejected=pl.lit(value=True))
    return (
        steps.join(episodes, on="episode_id", how="left")
        .join(credit, on=["episode_id", "index"], how="left")
        .join(rejected, on=["episode_id", "index"], how="left")
        .with_columns(
            pl.col("known", "provisional", "_rejected", "_by_name").fill_null(value=False),
            pl.col("p_better", "p_worse", "risk").fill_null(0.0),
        )
        .sort("episode_id", "index")
    )


def _label(steps: pl.DataFrame, cfg: RewardsConfig, funnel: Funnel) -> pl.DataFrame:
    """Give each step a label and a weight, or drop it.

    A call that failed or did not parse is undesirable with certainty, whatever the outcome of its episode. Any other
    step follows its episode, as far as the user did not reject its turn and other attempts do not show the opposite: it
    counts by the probability that it is not worse than what else is done there (in a failure: not better), and is
    dropped where it is likelier worse than better: copying it is expected to lose (`benchmarks/loop.py`). What a tool
    is worth at other intents shows little of what it was called with, and everything that is called with it would go
    together: there it has to be much likelier (decision 0122). A demonstration that was risky in itself counts by the
    part of its success that the risk leaves of it, and is dropped where nothing is left.
    """
    failed = pl.col("malformed") | pl.col("tool_status").list.contains(ToolStatus.FAILED.value)
    steps = funnel.drop(steps, ~pl.col("known"), "unknown outcome").with_columns(failed=failed)
    steps = funnel.drop(steps, pl.col("provisional"), PROVISIONAL)
    good, bad = pl.col("p_success") >= DESIRABLE, pl.col("p_success") <= UNDESIRABLE
    opposite = pl.when("failed").then(0.0).when(good).then("p_worse").when(bad).then("p_better").otherwise(0.0)
    agrees = pl.when("failed").then(0.0).when(good).then("p_better").when(bad).then("p_worse").otherwise(0.0)
    steps = steps.with_columns(_opposite=opposite, _agrees=agrees)
    steps = funnel.drop(steps, ~pl.col("failed") & ~good & ~bad, "unclear outcome")
    steps = funnel.drop(steps, good & ~pl.col("failed") & pl.col("_rejected"), "rejected by its user")
    least = pl.when("_by_name").then(BY_NAME_ALONE).otherwise(LIKELIER)
    steps = funnel.drop(steps, pl.col("_opposite") - pl.col("_agrees") > least, "credit against outcome")
    steps = steps.with_columns(label=good & ~pl.col("failed"), _left=_left_of_success(cfg))
    steps = funnel.drop(steps, pl.col("label") & (pl.col("_left") <= 0), "risk")
    left = pl.when("label").then("_left").otherwise(1.0)
    steps = steps.with_columns(weight=(pl.col("weight") * (1 - pl.col("_opposite")) * left).round(12))
    return funnel.drop(steps, pl.col("weight") <= 0, "no confidence")


def _left_of_success(cfg: RewardsConfig) -> pl.Expr:
    """Return which part of a success the step's own risk leaves, in the units of R; 1 without a risk."""
    rules = cfg.scheme == "rules"
    success = pl.lit(cfg.rules.success) if rules else cfg.alpha * (2 * pl.col("p_success") - 1)
    cost = (-cfg.rules.risk if rules else cfg.gamma) * pl.col("risk")
    return pl.when(cost <= 0).then(1.0).when(cost >= success).then(0.0).otherwise(1 - cost / success)


def _rows(labelled: pl.DataFrame, episodes: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    facts = {row[0]: row[1:] for row in episodes.select("episode_id", "split", "tools", "user").iter_rows()}
    context_of = contexts(steps, set(labelled.select("episode_id", "index").rows()))
    rows: list[dict[str, Any]] = []
    copied = ("task_id", "state_key", "label", "p_success", "weight", "episode_id")
    for row in labelled.select(*copied, "index").iter_rows(named=True):
        step = row.pop("index")
        context = context_of[row["episode_id"], step]
        split, tools, user = facts[row["episode_id"]]
        texts = {"prompt": context.prompt, "completion": context.completion, "tools": tools}
        # Task and tools are part of the identity: one greeting may begin several tasks, held out or not.
        about = {"split": split, "step": step, "user": user, "source": "outcome"}
        rows.append({**row, **texts, **about, "example_id": content_id(row["task_id"], *texts.values())})
    return frame_of(rows, Example)


def _demonstrations(edited: pl.DataFrame, episodes: pl.DataFrame, steps: pl.DataFrame, funnel: Funnel) -> pl.DataFrame:
    """Return a desirable row for each step that a user corrected, with the correction in the step's place.

    A correction with facts that only the user knew is left out: it would teach to make things up.
    """
    facts = {row[0]: row[1:] for row in episodes.select("episode_id", "split", "tools").iter_rows()}
    context_of = contexts(steps, set(edited.select("episode_id", "index").rows()))
    rows: list[dict[str, Any]] = []
    for row in edited.iter_rows(named=True):
        context = context_of[row["episode_id"], row["index"]]
        split, tools = facts[row["episode_id"]]
        before = json.loads(context.completion)[0]
        message = corrected(before, row["correction"])
        if message is None:
            funnel.dropped["correction without effect on the action"] += 1
        elif ungrounded(message, before, context.prompt, tools):
            funnel.dropped["correction not grounded"] += 1
        else:
            texts = {"prompt": context.prompt, "completion": canonical_json([message]), "tools": tools}
            about = {"split": split, "step": row["index"], "user": row["editor"], "source": "correction"}
            worth = {"label": True, "p_success": CORRECTED, "weight": 2 * CORRECTED - 1}
            copied = {name: row[name] for name in ("task_id", "state_key", "episode_id")}
            rows.append(
                {**copied, **texts, **about, **worth, "example_id": content_id(row["task_id"], *texts.values())}
            )
    return frame_of(rows, Example)


def _one_per_text(rows: pl.DataFrame, funnel: Funnel) -> pl.DataFrame:
    """Keep one row for each (prompt, completion): of the label with more weight behind it, the heaviest.

    Actions without any text or call are dropped first: there is nothing to learn from them. So are those that cannot be
    shown as they were written.
    """
    actions = [parse(text, exact=False)[0] for text in rows["completion"]]
    rows = rows.with_columns(
        _empty=pl.Series(map(_is_empty, actions), dtype=pl.Boolean),
        _cut=pl.Series(
            [not is_reproducible(a, tools=t is not None) for a, t in zip(actions, rows["tools"], strict=True)],
            dtype=pl.Boolean,
        ),
    )
    rows = funnel.drop(rows, pl.col("_empty"), "empty action")
    rows = funnel.drop(rows, pl.col("_cut"), "not as written")
    vote = pl.when("label").then("weight").otherwise(-pl.col("weight"))
    rows = rows.sort("episode_id", "step").with_columns(_vote=vote.sum().over("example_id").round(9))
    rows = funnel.drop(rows, pl.col("_vote") == 0, "conflicting labels")
    rows = funnel.drop(rows, pl.col("label") != (pl.col("_vote") > 0), "outvoted label")
    rows = rows.sort("weight", "episode_id", "step", descending=[True, False, False])
    rows = funnel.drop(rows, pl.col("example_id").is_first_distinct().not_(), "duplicate")
    return rows.drop("_empty", "_cut", "_vote")


def _is_empty(message: dict[str, Any]) -> bool:
    return not message.get("tool_calls") and not str(message.get("content") or "").strip()
