"""A step's credit from the values of actions: the posterior of its skill, without its own attempt.

In: the steps of complete tasks with their labels, and the table `values`. Out: for each step its skill Q(state,
action) - V(state), with an interval and the probabilities that the action is better, or worse, than what else is done
there. The own attempt is left out at every level, or its outcome would praise or blame all of its steps alike.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from flywheel.config import RewardsConfig
from flywheel.stages.values.evidence import outcomes, unit
from flywheel.stages.values.model import Values, against_rest

INTERVAL = 1.645  # standard deviations on each side of the mean: 90 %
_DIGITS = 12  # beyond them lies only the rounding of sums
_NOTHING = 1e-9  # attempts; below it there are none, only the rounding of differences of sums


def valued(credit: pl.DataFrame, measured: pl.DataFrame) -> pl.DataFrame:
    """Return the prefix tree's credit with skills from the posterior; the difference is luck, so that sums stay.

    Args:
        credit: {episode_id, step, value, luck, weight, n_support, level} of every step.
        measured: of the same steps, as `skills` returns it.
    """
    joined = credit.drop("weight", "n_support", "level").join(
        measured, on=["episode_id", "step"], how="left", maintain_order="left"
    )
    return joined.with_columns(value=pl.col("skill"), luck=pl.col("luck") + pl.col("value") - pl.col("skill")).select(
        *credit.columns, "low", "high", "p_better", "p_worse"
    )


def skills(
    episodes: pl.DataFrame,
    steps: pl.DataFrame,
    labels: pl.DataFrame,
    values: Values,
    cfg: RewardsConfig,
    rejected: pl.DataFrame | None = None,
) -> pl.DataFrame:
    """Return {episode_id, step, skill, low, high, p_better, p_worse, weight, n_support, level} of every step."""
    keys, seen = outcomes(episodes, steps, labels, cfg, rejected)
    once = seen.unique(["state_0", "action_0", "episode_id"], keep="first", maintain_order=True)
    share = pl.len().over("state_0", "action_0", pl.coalesce("voter", "episode_id"))
    own = once.with_columns(n=pl.col("weight") / share).with_columns(total=pl.col("n") * pl.col("outcome"))
    here = _exact(keys, own)
    sides = {0: against_rest(here["action"], here["state"])}
    beside = values.beside(keys, once)
    sides |= {level: against_rest(*pair) for level, pair in beside.items()}
    difference, level = values.model.combined(sides)
    found = values.model.posterior(difference)
    n, rest = (np.stack([getattr(s, name) for _, s in sorted(sides.items())]) for name in ("n", "other_n"))
    at, rows = np.maximum(level, 0), np.arange(len(level))
    # V(state) holds the action itself, as often as it is taken: skill is the lead over the rest times the rest's share.
    part = (rest[at, rows] / np.maximum(n[at, rows] + 1 + rest[at, rows], 1)) * unit(cfg)
    none = level < 0
    mean, sd = (np.where(none, 0.0, part * x) for x in (found.mean, found.sd))
    better, worse = (np.where(none, 0.0, x) for x in (found.above, found.below))
    return keys.select("episode_id", step="index").with_columns(
        skill=pl.Series(np.round(mean, _DIGITS) + 0.0),
        low=pl.Series(np.round(mean - INTERVAL * sd, _DIGITS)),
        high=pl.Series(np.round(mean + INTERVAL * sd, _DIGITS)),
        p_better=pl.Series(np.clip(np.round(better, _DIGITS), 0, 1)),
        p_worse=pl.Series(np.clip(np.round(worse, _DIGITS), 0, 1)),
        weight=pl.Series(np.clip(np.round(np.abs(better - worse), _DIGITS), 0, 1)),
        n_support=pl.Series(np.where(none, 0, np.ceil(n[at, rows])).astype(np.int64) + 1),
        level=pl.Series(np.where(none, -1, level)).replace(-1, None),
    )


def _exact(keys: pl.DataFrame, own: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """Return the sums of each step's exact action and state, without the step's own attempt."""
    sums = [pl.col("n").sum(), pl.col("total").sum()]
    at = {"action": ["state_0", "action_0"], "state": ["state_0"]}
    by = ["state_0", "action_0", "episode_id"]
    mine = keys.select(by).join(own.select(*by, "n", "total"), on=by, how="left", maintain_order="left").fill_null(0.0)
    of_state = own.group_by("state_0", "episode_id", maintain_order=True).agg(*sums)
    there = ["state_0", "episode_id"]
    again = keys.select(there).join(of_state, on=there, how="left", maintain_order="left").fill_null(0.0)
    result = {}
    for (name, keys_of), less in zip(at.items(), (mine, again), strict=True):
        whole = (
            keys.select(keys_of)
            .join(own.group_by(keys_of, maintain_order=True).agg(*sums), on=keys_of, how="left", maintain_order="left")
            .fill_null(0.0)
        )
        left = (whole["n"] - less["n"]).clip(0)
        some = left > _NOTHING
        result[name] = pl.select(
            n=pl.when(some).then(left).otherwise(0.0),
            total=pl.when(some).then(whole["total"] - less["total"]).otherwise(0.0),
        )
    return result
