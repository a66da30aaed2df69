"""What the attempts at some tasks show about actions: sums, which add up over partitions.

In: episodes and steps of complete tasks with their labels. Out: rows of the table `evidence`, sums of outcomes by state
and action at each level. A user counts once in a state and action, however many attempts they made there, so their sums
stay apart until all partitions are known; attempts without a user are one sum. An outcome is the return of the attempt.
"""

from __future__ import annotations

import polars as pl

from flywheel.config import RewardsConfig
from flywheel.contracts import polars_schema
from flywheel.records import Evidence
from flywheel.stages.values.keys import LEVELS, action_column, keyed, state_column

_COMPARED = 2  # attempts at a state, from which there is something to compare


def unit(cfg: RewardsConfig) -> float:
    """Return half of what a success is worth more than a failure: outcomes are measured in it."""
    worth = cfg.alpha if cfg.scheme == "signals" else (cfg.rules.success - cfg.rules.failure) / 2
    return abs(worth) or 1.0


def outcomes(
    episodes: pl.DataFrame,
    steps: pl.DataFrame,
    labels: pl.DataFrame,
    cfg: RewardsConfig,
    rejected: pl.DataFrame | None = None,
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the keyed steps of all episodes, and those that count: once a state and action, with outcome and weight.

    The second has the columns voter (null without a user), outcome (in units) and weight in addition. The outcome of a
    step of a turn that its user rejected (`credit.rejected`) is that of the turn.
    """
    keys = keyed(episodes, steps)
    facts = attempts(labels, cfg).join(
        episodes.select("episode_id", "task_id", "policy", voter="user"), on="episode_id", how="left"
    )
    seen = keys.join(facts, on="episode_id", how="inner", maintain_order="left")
    if rejected is not None and not rejected.is_empty():
        of_turn = seen.select("episode_id", "index").join(
            rejected, on=["episode_id", "index"], how="left", maintain_order="left"
        )
        lost = 2 * (pl.col("p_success") - of_turn["p_turn"].fill_null(1.0)).clip(lower_bound=0.0)
        seen = seen.with_columns(outcome=pl.col("outcome") - lost)
    return keys, seen.drop("p_success")


def attempts(labels: pl.DataFrame, cfg: RewardsConfig) -> pl.DataFrame:
    """Return {episode_id, outcome, weight, p_success} of the episodes with a label that can be learned from.

    P(success) is an expected outcome, so that its mean over attempts is not biased by what is uncertain about each; it
    needs no weight for that. How mature the evidence is, and how far its user can be trusted, is a weight.
    """
    of_episode = labels.filter(
        pl.col("step").is_null() & pl.col("known") & ~pl.col("provisional").fill_null(value=False)
    )
    weight = pl.col("maturity").fill_null(1.0) * pl.col("trust").fill_null(1.0)
    outcome = pl.col("value") / unit(cfg)
    return of_episode.select("episode_id", "p_success", outcome=outcome, weight=weight).filter(pl.col("weight") > 0)


def build_evidence(
    episodes: pl.DataFrame,
    steps: pl.DataFrame,
    labels: pl.DataFrame,
    cfg: RewardsConfig,
    rejected: pl.DataFrame | None = None,
) -> pl.DataFrame:
    """Return the rows of the table `evidence` of some tasks, sorted by key."""
    _, seen = outcomes(episodes, steps, labels, cfg, rejected)
    names = list(polars_schema(Evidence))
    tables = [_summed(seen, level).select(names) for level in LEVELS]
    return pl.concat(tables).sort(Evidence.key, nulls_last=False)


def one_policy() -> pl.Expr:
    """Return who made all attempts of a group; null where several policies did."""
    return pl.when(pl.col("policy").n_unique() == 1).then(pl.col("policy").first())


def _summed(seen: pl.DataFrame, level: int) -> pl.DataFrame:
    """Return the sums of a level; of exact states only those that several attempts met."""
    state, action = state_column(level), action_column(level)
    once = seen.unique([state, action, "episode_id"], keep="first", maintain_order=True)
    if level == 0:
        once = once.filter(pl.len().over(state) >= _COMPARED)
    above = (None, None) if level == LEVELS[-1] else (state_column(level + 1), action_column(level + 1))
    parents = [pl.col(name).first() if name else pl.lit(None, dtype=pl.String).first() for name in above]
    weight, outcome = pl.col("weight"), pl.col("outcome")
    return (
        once.sort(state, action, "task_id", "episode_id")
        .group_by(state, action, "task_id", "voter", maintain_order=True)
        .agg(
            count=pl.len().cast(pl.Int64),
            weight=weight.sum(),
            total=(weight * outcome).sum(),
            squares=(weight * outcome**2).sum(),
            policy=one_policy(),
            parent_state=parents[0],
            parent_action=parents[1],
            sample_episode=pl.col("episode_id").first(),
            sample_step=pl.col("index").first(),
        )
        .rename({state: "state", action: "action"})
        .with_columns(level=pl.lit(level, dtype=pl.Int64))
    )
