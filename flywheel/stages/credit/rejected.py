"""Turns that the user rejected: their steps are labelled by that, however the conversation ended.

A user who corrects an answer, asks again or complains, and then gets what they wanted, makes a conversation that
succeeded with a turn in it that did not. In: steps, and the votes on single steps. Out: P(success) of each step of such
a turn, at even odds before the vote.
"""

from __future__ import annotations

import math

import polars as pl

from flywheel.stages.labelling.priors import log_odds

SIGNALS = ("complaint", "correction", "rephrase", "retry")  # of a user's next words about what a turn gave
_FULL = -1.0  # a vote of less: the user may have changed their mind
_BY_USER = '"role":"user"'  # as canonical JSON writes it; inside a text the quotes would be escaped


def rejected_turns(steps: pl.DataFrame, rewards: pl.DataFrame) -> pl.DataFrame:
    """Return {episode_id, index, p_turn} of the steps of rejected turns, p_turn that of the strongest vote."""
    votes = rewards.filter(
        pl.col("signal").is_in(SIGNALS)
        & pl.col("step").is_not_null()
        & (pl.col("score") <= _FULL)
        & (pl.col("weight") > 0)
    ).sort("episode_id", "step", "signal")
    odds = [log_odds(signal, _FULL * weight) for signal, weight in votes.select("signal", "weight").iter_rows()]
    chances = pl.Series("p_turn", [round(1 / (1 + math.exp(-own)), 12) for own in odds], dtype=pl.Float64)
    voted = votes.select("episode_id", index="step").with_columns(chances)
    turns = (
        steps.join(voted.select("episode_id").unique(), on="episode_id", how="semi")
        .sort("episode_id", "index")
        .select(
            "episode_id",
            "index",
            turn=pl.col("observation").str.contains(_BY_USER, literal=True).cum_sum().over("episode_id"),
        )
    )
    by_turn = turns.join(voted, on=["episode_id", "index"]).group_by("episode_id", "turn").agg(pl.col("p_turn").min())
    return turns.join(by_turn, on=["episode_id", "turn"], maintain_order="left").drop("turn")


def rejected_steps(returns: pl.DataFrame) -> pl.DataFrame:
    """Return {episode_id, step} of the steps whose turn went worse than their episode."""
    whole = returns.filter(pl.col("step").is_null()).select("episode_id", _whole="p_success")
    steps = returns.filter(pl.col("step").is_not_null()).join(whole, on="episode_id", maintain_order="left")
    return steps.filter(pl.col("p_success") < pl.col("_whole")).select("episode_id", "step")
