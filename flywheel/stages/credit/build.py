"""From opinions to returns: one judgement of each episode, and its credit step by step.

In: episodes, steps and rewards of a set of tasks. Out: the table `returns`: R = alpha * (2p - 1) - beta * cost -
gamma * risk for each episode, skill and luck for each of its steps. Tasks are judged apart from each other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from flywheel.contracts import conform, polars_schema
from flywheel.records import Return
from flywheel.stages.credit.steps import step_credit
from flywheel.stages.labelling.label import Label, label_episodes
from flywheel.stages.labelling.posterior import Posterior

if TYPE_CHECKING:
    from flywheel.config import RewardsConfig
    from flywheel.funnel import Funnel


def build_returns(
    episodes: pl.DataFrame,
    steps: pl.DataFrame,
    rewards: pl.DataFrame,
    cfg: RewardsConfig,
    funnel: Funnel,
    *,
    reliability: pl.DataFrame | None = None,
) -> pl.DataFrame:
    """Return one row per episode and one per step; counts episodes, all of which are kept.

    An episode that nobody judged has p_success 0.5, known false and weight 0. A step's weight is the confidence in its
    credit; a step that no other attempt at the task took has credit 0 and weight 0. Without `reliability` the priors
    hold.
    """
    judged = label_episodes(episodes, rewards, cfg, Posterior.read(reliability))
    rows = [_row(episode_id, task_id, judged[episode_id]) for episode_id, task_id in _ids(episodes)]
    funnel.considered += len(rows)
    funnel.kept += len(rows)
    funnel.note("episodes nobody judged", sum(not row["known"] for row in rows))
    funnel.note("episodes too young to learn from", sum(row["provisional"] for row in rows))
    funnel.note("episodes with a suspect reward", sum(row["basis"] == "suspect" for row in rows))
    funnel.note("steps", steps.height)
    schema = polars_schema(Return)
    whole = pl.DataFrame({name: [row[name] for row in rows] for name in schema}, schema=schema)
    values = {episode: one.value if one.known else None for episode, one in judged.items()}
    return conform(_with_steps(whole, step_credit(episodes, steps, rewards, values, cfg, funnel)), Return).collect()


def _with_steps(whole: pl.DataFrame, credit: pl.DataFrame) -> pl.DataFrame:
    """Return the episodes' rows and below them the steps', which repeat what is known of their episode."""
    own = [name for name in credit.columns if name != "episode_id"]
    steps = credit.join(whole.drop(own), on="episode_id", how="left", maintain_order="left")
    return pl.concat([whole, steps.select(pl.col(name).cast(kind) for name, kind in whole.schema.items())])


def _ids(episodes: pl.DataFrame) -> list[tuple[str, str]]:
    return episodes.select("episode_id", "task_id").sort("task_id", "episode_id").rows()


def _row(episode_id: str, task_id: str, judgement: Label) -> dict[str, Any]:
    return {
        "episode_id": episode_id,
        "task_id": task_id,
        "step": None,
        **judgement._asdict(),
        "luck": 0.0,
        "level": None,
        "weight": judgement.weight,
    }
