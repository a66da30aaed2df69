"""Outcomes as they are shown: a recorded one as the log has it, and scores between 0 and 1 as means, never as rates.

A recorded outcome has P(success) `SURE` at most, because a verifier errs too; what is shown of outcomes takes them as
they are. An outcome between its worst and its best value is *graded*: half a score is not half a success.
"""

from __future__ import annotations

import polars as pl

from flywheel.pipeline.build.tables import read_table
from flywheel.stages.signals.rows import AUDIT, VERIFIER
from flywheel.store import Store

_EXACT = 1e-9
_RECORDED = ("audit", "verifier")


def success(store: Store) -> pl.LazyFrame:
    """Return episode_id, known, basis, success and graded of every episode with a return.

    `success` is in [0, 1]: the recorded outcome where P(success) rests on one, else P(success). `graded` is whether it
    is an outcome between worst and best.
    """
    returns = read_table(store, "returns").filter(pl.col("step").is_null())
    deciding = (pl.col("kind") == "outcome") & pl.col("family").is_in([AUDIT, VERIFIER]) & (pl.col("weight") > 0)
    outcome = (pl.col("score") * pl.col("weight")).sum() / pl.col("weight").sum()
    by_family = (
        read_table(store, "rewards").filter(deciding).group_by("episode_id", "family").agg(outcome=(outcome + 1) / 2)
    )
    told = pl.col("basis").replace_strict(dict(zip(_RECORDED, (AUDIT, VERIFIER), strict=True)), default=None)
    recorded = pl.col("outcome").is_not_null()
    graded = recorded & (pl.col("basis") == "verifier") & pl.col("outcome").is_between(_EXACT, 1 - _EXACT)
    return (
        returns.select("episode_id", "known", "basis", "p_success", family=told)
        .join(by_family, on=["episode_id", "family"], how="left")
        .select(
            "episode_id",
            "known",
            "basis",
            success=pl.coalesce(pl.col("outcome").clip(0, 1), "p_success"),
            graded=graded.fill_null(value=False),
        )
    )


def recorded(store: Store) -> pl.LazyFrame:
    """Return episode_id and `outcome`, in [0, 1], of every episode whose P(success) rests on a recorded outcome."""
    return success(store).filter(pl.col("basis").is_in(_RECORDED)).select("episode_id", outcome="success")
