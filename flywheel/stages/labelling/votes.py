"""The votes on a set of episodes, one row an episode, signal and family: a signal's votes on several steps are one.

In: rewards. Out: a frame sorted by its key, which both `reliability` and `returns` read.
"""

from __future__ import annotations

import polars as pl

LEAST_VOTE = 0.25  # weaker votes are left out when a signal's reliability is learned
# Columns to read from the rewards table.
VOTE_COLUMNS = ("episode_id", "step", "signal", "family", "kind", "score", "weight", "arrived", "inclusion")


def summed(rewards: pl.DataFrame) -> pl.DataFrame:
    """Return (episode_id, kind, signal, family, score, weight, worst, arrived, inclusion).

    The score is the steps' weighted mean, 0 where all weights are 0; the weight their mean; `worst` the highest score;
    `arrived` the time of the first vote.
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
