"""Turns that the user rejected: whether their steps were good is unclear, however the conversation ended.

A user who corrects an answer, asks again or complains, and then gets what they wanted, makes a conversation that
succeeded with a turn in it that perhaps did not. In: steps, and the votes on single steps. Out: P(success) of each step
of such a turn.
"""

from __future__ import annotations

import polars as pl

from flywheel.stages.signals.dialogue import BY_USER
from flywheel.stages.signals.rows import ANSWERED, REJECTIONS

SIGNALS = (*REJECTIONS, *(ANSWERED + name for name in REJECTIONS))
_FULL = -1.0  # a vote of less: the user may have changed their mind
# Words are read well enough to doubt a turn, not to condemn it: in real support talks that ended well most of those
# that repeat a request or complain, of something, do not speak of what the agent did.
UNCLEAR = 0.5


def rejected_turns(steps: pl.DataFrame, rewards: pl.DataFrame) -> pl.DataFrame:
    """Return {episode_id, index, p_turn} of the steps of rejected turns."""
    voted = rewards.filter(
        pl.col("signal").is_in(SIGNALS)
        & pl.col("step").is_not_null()
        & (pl.col("score") <= _FULL)
        & (pl.col("weight") > 0)
    ).select("episode_id", index="step")
    turns = (
        steps.join(voted.select("episode_id").unique(), on="episode_id", how="semi")
        .sort("episode_id", "index")
        .select(
            "episode_id",
            "index",
            turn=pl.col("observation").str.contains(BY_USER, literal=True).cum_sum().over("episode_id"),
        )
    )
    rejected = turns.join(voted, on=["episode_id", "index"]).select("episode_id", "turn").unique()
    return turns.join(rejected, on=["episode_id", "turn"], how="semi", maintain_order="left").select(
        "episode_id", "index", p_turn=pl.lit(UNCLEAR)
    )


def rejected_steps(returns: pl.DataFrame) -> pl.DataFrame:
    """Return {episode_id, step} of the steps whose turn went worse than their episode."""
    whole = returns.filter(pl.col("step").is_null()).select("episode_id", _whole="p_success")
    steps = returns.filter(pl.col("step").is_not_null()).join(whole, on="episode_id", maintain_order="left")
    return steps.filter(pl.col("p_success") < pl.col("_whole")).select("episode_id", "step")
