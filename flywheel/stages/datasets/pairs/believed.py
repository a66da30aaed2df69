"""What is believed of a pair: the posterior of the difference between both actions, from every comparable attempt.

In: candidates that compare two logged actions of different attempts, and the values of actions. Out: the candidates
with P(chosen is better) and the expected difference, turned round where the evidence is. What a builder saw in the
attempts at one task is a part of that evidence; it proposes, and the posterior decides.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from flywheel.config import RewardsConfig
from flywheel.stages.datasets.pairs.across import known_actions
from flywheel.stages.values.evidence import attempts, unit
from flywheel.stages.values.keys import keyed
from flywheel.stages.values.model import Sides, Values, against

CHEAPER = "efficiency"  # builder whose pairs are not about success
POOLED = "pooled"  # builder whose pairs are across tasks
BACKED = "_backed"  # users behind the weaker side, at the level with most of the evidence
_KEYS = ["state_1", "action_1", "state_2", "action_2"]
_DIGITS = 12


@dataclass(frozen=True)
class Shown:
    """What the whole log shows: values of actions, actions of other tasks, and the scale of returns."""

    values: Values
    alternatives: pl.DataFrame
    rewards: RewardsConfig


def believed(
    candidates: pl.DataFrame, episodes: pl.DataFrame, steps: pl.DataFrame, returns: pl.DataFrame, shown: Shown
) -> pl.DataFrame:
    """Return the candidates, those between attempts with p_better, margin and weight of the posterior.

    A pair's own certainty is its soft label, so its weight is 1.
    """
    ends = [pl.col(f"{side}_episode") for side in ("chosen", "rejected")]
    numbered = candidates.with_row_index("_row")
    compared = numbered.filter(pl.col("prompt").is_null() & (ends[0] != ends[1]) & (pl.col("builder") != CHEAPER))
    if compared.is_empty():
        return candidates.with_columns(pl.lit(0, dtype=pl.Int64).alias(BACKED))
    actions = known_actions(episodes, steps, returns).drop("value", "weight")
    actions = actions.join(attempts(returns, shown.rewards), on="episode_id", how="inner", maintain_order="left")
    judged = _judged(compared, actions, keyed(episodes, steps), shown)
    rest = numbered.join(judged.select("_row"), on="_row", how="anti").with_columns(
        pl.lit(0, dtype=pl.Int64).alias(BACKED)
    )
    return pl.concat([judged.select(rest.columns), rest]).sort("_row").drop("_row")


def _judged(compared: pl.DataFrame, actions: pl.DataFrame, keys: pl.DataFrame, shown: Shown) -> pl.DataFrame:
    actions = actions.join(keys.select("episode_id", "index", *_KEYS), on=["episode_id", "index"], how="left")
    at = {side: _at(compared, actions, side) for side in ("chosen", "rejected")}
    anchor = _shared_anchor(at["chosen"], at["rejected"])
    own = _sums(actions, anchor)
    rows = {side: frame.with_columns(state_0=anchor) for side, frame in at.items()}
    here = {side: _own(frame, own) for side, frame in rows.items()}
    beside = {side: shown.values.beside(frame, own) for side, frame in rows.items()}
    never = pl.Series(np.zeros(compared.height, dtype=bool))
    sides = {0: against(here["chosen"], here["rejected"], never)}
    for level in (1, 2):
        same = rows["chosen"].select(f"state_{level}", f"action_{level}").rename(lambda name: f"{name}_chosen")
        both = pl.concat([same, rows["rejected"].select(f"state_{level}", f"action_{level}")], how="horizontal")
        apart = both.select(
            pl.col(f"state_{level}").ne_missing(pl.col(f"state_{level}_chosen"))
            | pl.col(f"action_{level}").eq_missing(pl.col(f"action_{level}_chosen"))
        ).to_series()
        made = {side: shown.values.policies(frame, level) for side, frame in rows.items()}
        apart |= ~made["chosen"].eq(made["rejected"]).fill_null(value=False)
        sides[level] = against(beside["chosen"][level][0], beside["rejected"][level][0], apart)
    return _turned(compared, sides, shown)


def _turned(compared: pl.DataFrame, sides: dict[int, Sides], shown: Shown) -> pl.DataFrame:
    """Return the candidates with their posterior, turned round where the other action is the better one."""
    difference, level = shown.values.model.combined(sides)
    found = shown.values.model.posterior(difference)
    least = np.stack([np.minimum(s.n, s.other_n) for _, s in sorted(sides.items())])
    backed = least[np.maximum(level, 0), np.arange(len(level))]
    mean = np.round(found.mean, _DIGITS) * unit(shown.rewards)
    judged = compared.with_columns(
        margin=pl.Series(np.abs(mean)),
        p_better=pl.Series(np.clip(np.round(np.maximum(found.above, found.below), _DIGITS), 0, 1)),
        weight=pl.lit(1.0),
        _turn=pl.Series(mean < 0),
    ).with_columns(pl.Series(BACKED, np.floor(backed + 1e-6).astype(np.int64)))
    other = {"chosen": "rejected", "rejected": "chosen"}
    swapped = [
        pl.when("_turn").then(f"{other[side]}_{name}").otherwise(f"{side}_{name}").alias(f"{side}_{name}")
        for side in other
        for name in ("episode", "step")
    ]
    return judged.with_columns(swapped).with_columns(p_chosen=pl.when("_turn").then(None).otherwise("p_chosen"))


def _at(compared: pl.DataFrame, actions: pl.DataFrame, side: str) -> pl.DataFrame:
    """Return each candidate's step on one side with its anchors, action and keys."""
    found = actions.select("episode_id", "index", "seen", "exact", "rough", "act", *_KEYS)
    return compared.select(episode_id=f"{side}_episode", index=f"{side}_step").join(
        found, on=["episode_id", "index"], how="left", maintain_order="left"
    )


def _shared_anchor(one: pl.DataFrame, other: pl.DataFrame) -> pl.Series:
    """Return the state that both sides share: with the same course of calls, else word for word, else roughly."""
    both = pl.concat([one, other.rename(lambda name: f"{name}_other")], how="horizontal")
    return both.select(
        pl.coalesce(
            pl.when(pl.col(name) == pl.col(f"{name}_other")).then(pl.col(name)) for name in ("exact", "seen", "rough")
        )
    ).to_series()


def _sums(actions: pl.DataFrame, anchors: pl.Series) -> pl.DataFrame:
    """Return the attempts at the anchors, as state_0; n and total are of a user's attempts at it as one.

    Attempts of several policies may meet there: an outcome counts by how far it is from its policy's others, so that an
    action is not taken for good because a good policy takes it.
    """
    wanted = anchors.drop_nulls().unique().implode()
    parts = []
    for name in ("seen", "exact", "rough"):
        met = actions.filter(pl.col(name).is_in(wanted))
        once = met.unique([name, "act", "episode_id"], keep="first", maintain_order=True)
        mean = (pl.col("weight") * pl.col("outcome")).sum() / pl.col("weight").sum()
        once = once.with_columns(outcome=pl.col("outcome") - mean.over(name, "policy") + mean.over(name))
        share = once.with_columns(n=pl.col("weight") / pl.len().over(name, "act", "voter"))
        own = ("act", *_KEYS, "voter", "weight", "outcome", "n")
        parts.append(share.select(*own, total=pl.col("n") * pl.col("outcome"), state_0=pl.col(name)))
    return pl.concat(parts)


def _own(rows: pl.DataFrame, own: pl.DataFrame) -> pl.DataFrame:
    sums = own.group_by("state_0", "act", maintain_order=True).agg(pl.col("n").sum(), pl.col("total").sum())
    joined = rows.select("state_0", "act").join(sums, on=["state_0", "act"], how="left", maintain_order="left")
    return joined.select(pl.col("n").fill_null(0.0), pl.col("total").fill_null(0.0))
