"""The votes of a set of episodes, one row an episode, signal and family: what one signal says of several steps is one.

In: rewards. Out: a frame sorted by its key, on which `reliability` learns and `returns` decides alike.
"""

from __future__ import annotations

import polars as pl

LEAST_VOTE = 0.25  # fainter votes say too little to learn a signal's reliability from
# What must be read of the rewards table.
VOTE_COLUMNS = ("episode_id", "step", "signal", "family", "kind", "score", "weight", "arrived", "inclusion")


def summed(rewards: pl.DataFrame) -> pl.DataFrame:
    """Return (episode_id, kind, signal, family, score, weight, worst, arrived, inclusion).

    The score is the steps' weighted mean, 0 where all weights are 0; the weight their mean; `worst` the highest score;
    `arrived` the first time that anything was said.
    """
    key = ("episode_id", "kind", "signal", "family")
    weights = pl.col("weight").sum()
    return (
        rewards.select(VOTE_COLUMNS)
        .sort("episode_id", "signal", "step", "family")
        .group_by(key, maintain_order=True)
        .agg(
            score=pl.when(weights > 0).then((pl.col("score") * pl.col("weight")).sum() / weights).otherwise(0.0),
            weight=pl.col("weight").mean(),
            worst=pl.col("score").max(),
            arrived=pl.col("arrived").min(),
            inclusion=pl.col("inclusion").max(),
        )
        .sort(key)
    )
