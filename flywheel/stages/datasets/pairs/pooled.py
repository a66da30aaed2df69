"""Pairs across the tasks of an intent: what an attempt did, against what attempts at other tasks did in its position.

In: attempts, what the whole log shows, and the actions of other tasks. Out: candidates, unfiltered, with the posterior.
A production log has one attempt a task, so no two of them share a history; but requests of one intent are equal but for
numbers, ids and names, and an action of one can be put into another with its own (`values.alternatives`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from flywheel.records import canonical_json
from flywheel.stages.datasets.context import StepContext, contexts
from flywheel.stages.datasets.pairs.believed import BACKED, POOLED, Shown
from flywheel.stages.datasets.pairs.sides import finish, sides
from flywheel.stages.values.alternatives import shown_before, transplanted
from flywheel.stages.values.evidence import outcomes, unit
from flywheel.stages.values.keys import requests
from flywheel.stages.values.model import Sides

_DIGITS = 12
_AT = ["state_1", "action_1"]  # what decides which alternatives a call has


def pooled(
    episodes: pl.DataFrame, steps: pl.DataFrame, returns: pl.DataFrame, shown: Shown, least: float
) -> pl.DataFrame:
    """Return pairs of a step's action with the action of other tasks that differs from it with most certainty.

    Both sides name the step itself: the other action was never taken there, as with an edit. p_better and margin are
    the posterior's; p_chosen is P(success) of the attempts with the chosen action.

    Args:
        episodes: of complete tasks.
        steps: all of their steps.
        returns: rows of the returns table.
        shown: what the whole log shows.
        least: p_better from which an action is put into another attempt.
    """
    own = _own_calls(episodes, steps, returns, shown)
    best = own.join(_best(own, shown, least), on=_AT, how="inner").sort("episode_id", "index")
    best = best.join(
        shown_before(steps, best["episode_id"]), on=["episode_id", "index", "shown"], how="semi", maintain_order="left"
    )
    context_of = contexts(steps, set(best.select("episode_id", "index").rows()))
    asked = dict(requests(steps).iter_rows())
    pairs = []
    for row in best.iter_rows(named=True):
        pair = _pair(row, context_of[row["episode_id"], row["index"]], asked.get(row["episode_id"]))
        if pair is not None:
            pairs.append(pair)
    backed = [pair.pop(BACKED) for pair in pairs]
    return finish(pairs, episodes).with_columns(pl.Series(BACKED, backed, dtype=pl.Int64))


def _own_calls(episodes: pl.DataFrame, steps: pl.DataFrame, returns: pl.DataFrame, shown: Shown) -> pl.DataFrame:
    """Return each call of an attempt whose outcome is known, with its state and action of level 1."""
    keys, _ = outcomes(episodes, steps, returns, shown.rewards)
    calls = steps.filter(pl.col("action_key").is_not_null() & ~pl.col("malformed"))
    known = returns.filter(pl.col("step").is_null() & pl.col("known"))
    return (
        keys.select("episode_id", "index", *_AT)
        .join(calls.select("episode_id", "index", "task_id", "state_key"), on=["episode_id", "index"], how="inner")
        .join(known.select("episode_id"), on="episode_id", how="semi")
    )


def _best(own: pl.DataFrame, shown: Shown, least: float) -> pl.DataFrame:
    """Return the alternative of each state and action that differs from it with most certainty, if one does.

    All calls of a state and action have the same alternatives, with the same posteriors: each is computed once.
    """
    cells = shown.values.cells[1].select("state", "action", "n", "total", "voters", "policy")
    others = shown.alternatives.select("state", "action", "user", "message", "slots", "shown")
    rows = (
        own.select(_AT)
        .unique(maintain_order=True)
        .join(cells, left_on=_AT, right_on=["state", "action"], how="inner")
        .join(
            others.join(cells, on=["state", "action"], how="inner"),
            left_on="state_1",
            right_on="state",
            how="inner",
            suffix="_other",
        )
        # Of two policies each may have its own action, and the better one's would be preferred for it.
        .filter((pl.col("action") != pl.col("action_1")) & (pl.col("policy") == pl.col("policy_other")))
    )
    compared = _compared(rows, shown).filter(pl.col("p_better") >= least)
    best = compared.sort("p_better", "margin", "action", descending=[True, True, False])
    return best.unique(_AT, keep="first", maintain_order=True)


def _compared(rows: pl.DataFrame, shown: Shown) -> pl.DataFrame:
    """Return actions next to alternatives with the posterior of the better one."""
    columns = ("n", "total", "n_other", "total_other")
    sums = Sides(*(rows[name].to_numpy().astype(np.float64) for name in columns))
    model = shown.values.model
    found = model.posterior(model.combined({1: sums})[0])
    worse = pl.Series(found.below > found.above)  # the own action is the worse one
    scale = unit(shown.rewards)
    value = pl.when(worse).then(pl.col("total_other") / pl.col("n_other")).otherwise(pl.col("total") / pl.col("n"))
    return rows.with_columns(
        _worse=worse,
        p_better=pl.Series(np.clip(np.round(np.maximum(found.above, found.below), _DIGITS), 0, 1)),
        margin=pl.Series(np.round(np.abs(found.mean), _DIGITS) * scale),
        p_chosen=((value + 1) / 2).clip(0, 1).round(_DIGITS),
        _backed=pl.min_horizontal("voters", "voters_other").cast(pl.Int64),
    )


def _pair(row: dict[str, Any], here: StepContext, request: str | None) -> dict[str, Any] | None:
    message = transplanted(row["message"], row["slots"], request)
    if message is None:
        return None
    other = here._replace(completion=canonical_json([message]))
    better, worse = (other, here) if row["_worse"] else (here, other)
    both = sides(better, worse, at_chosen=not row["_worse"])
    place = {f"{side}_{name}": row[column] for side in ("chosen", "rejected")
             for name, column in (("episode", "episode_id"), ("step", "index"))}  # fmt: skip
    numbers = {name: row[name] for name in ("task_id", "state_key", "p_better", "margin", "p_chosen")}
    about = {"weight": 1.0, "builder": POOLED, "same_prefix_until": row["index"], "editor": row["user"]}
    return both | place | numbers | about | {BACKED: row["_backed"]}
