"""From rewards to returns: one label of each episode, and its credit step by step.

In: episodes, steps and rewards of a set of tasks. Out: the table `returns`: R = alpha * (2p - 1) - beta * cost -
gamma * risk for each episode, skill and luck for each of its steps. Tasks are independent of each other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import polars as pl

from flywheel.contracts import conform, polars_schema
from flywheel.records import Return
from flywheel.stages.credit.estimators import NO_LEVEL, Credits, tree_credit
from flywheel.stages.credit.modes import error_local, plain, whole_credit
from flywheel.stages.credit.paths import Paths, read_paths
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

    An episode without votes has p_success 0.5, known false and weight 0. A step's weight is the confidence in its
    credit; a step that no other attempt at the task took has credit 0 and weight 0. Without `reliability` the priors
    hold.
    """
    labels = label_episodes(episodes, rewards, cfg, Posterior.read(reliability))
    ids = episodes.select("episode_id", "task_id").sort("task_id", "episode_id").rows()
    rows = [_row(episode_id, task_id, labels[episode_id]) for episode_id, task_id in ids]
    funnel.considered += len(rows)
    funnel.kept += len(rows)
    funnel.note("episodes without votes", sum(not row["known"] for row in rows))
    funnel.note("episodes not mature yet", sum(row["provisional"] for row in rows))
    funnel.note("episodes with a suspect reward", sum(row["basis"] == "suspect" for row in rows))
    funnel.note("steps", steps.height)
    schema = polars_schema(Return)
    rows_of_episodes = pl.DataFrame({name: [row[name] for row in rows] for name in schema}, schema=schema)
    values = {episode: label.value if label.known else None for episode, label in labels.items()}
    return conform(
        _with_steps(rows_of_episodes, step_credit(episodes, steps, rewards, values, cfg, funnel)), Return
    ).collect()


def _with_steps(episodes: pl.DataFrame, credit: pl.DataFrame) -> pl.DataFrame:
    """Return the episodes' rows and below them the steps', which repeat what is known of their episode."""
    own = [name for name in credit.columns if name != "episode_id"]
    steps = credit.join(episodes.drop(own), on="episode_id", how="left", maintain_order="left")
    return pl.concat([episodes, steps.select(pl.col(name).cast(kind) for name, kind in episodes.schema.items())])


def _row(episode_id: str, task_id: str, label: Label) -> dict[str, Any]:
    return {
        "episode_id": episode_id,
        "task_id": task_id,
        "step": None,
        **label._asdict(),
        "luck": 0.0,
        "level": None,
        "weight": label.weight,
    }


def step_credit(
    episodes: pl.DataFrame,
    steps: pl.DataFrame,
    rewards: pl.DataFrame,
    values: Mapping[str, float | None],
    cfg: RewardsConfig,
    funnel: Funnel,
) -> pl.DataFrame:
    """Return {episode_id, step, value, luck, weight, n_support, level} of every step, by task, episode and step.

    Args:
        episodes: of complete tasks.
        steps: all of their steps; those of other episodes are left out.
        rewards: of these episodes; only `process` reads the votes on single steps.
        values: each episode's return; None where unknown.
        cfg: the way of giving credit.
        funnel: gets a note of how many steps were measured at each grain.
    """
    episodes = episodes.sort("task_id", "episode_id")
    steps = steps.join(episodes.select("episode_id"), on="episode_id", how="semi")
    steps = steps.sort("task_id", "episode_id", "index")
    paths = read_paths(episodes, steps, [values.get(episode) for episode in episodes["episode_id"]])
    credits_ = _credits(paths, steps, rewards, cfg)
    _note(funnel, credits_)
    level = credits_.level
    return steps.select("episode_id", step=pl.col("index")).with_columns(
        value=pl.Series(credits_.skill),
        luck=pl.Series(credits_.luck),
        weight=pl.Series(credits_.weight),
        n_support=pl.Series(credits_.n_support),
        level=pl.Series(level).replace(NO_LEVEL, None),
    )


def _credits(paths: Paths, steps: pl.DataFrame, rewards: pl.DataFrame, cfg: RewardsConfig) -> Credits:
    if cfg.credit == "prefix_tree":
        return tree_credit(paths, shrinkage=cfg.shrinkage, min_support=cfg.min_support, stratum=cfg.stratum)
    if cfg.credit == "error_local":
        return plain(paths, np.array(error_local(paths.episode.tolist(), _calls(steps)), dtype=np.float64))
    rated = _rated(steps, rewards) if cfg.credit == "process" else np.zeros(steps.height)
    return whole_credit(cfg.credit, paths, rated, omega=cfg.omega, discount=cfg.discount)


def _calls(steps: pl.DataFrame) -> list[tuple[list[str], list[str]]]:
    rows = steps.select("tool_names", "tool_status", "malformed").iter_rows()
    return [(names, ["failed"] * len(names) if broken else status) for names, status, broken in rows]


def _rated(steps: pl.DataFrame, rewards: pl.DataFrame) -> npt.NDArray[np.float64]:
    """Return the mean vote on each step, 0 without votes."""
    votes = (
        rewards.filter(pl.col("step").is_not_null() & pl.col("kind").is_in(["outcome", "implicit"]))
        .sort("episode_id", "step", "signal")
        .group_by("episode_id", "step", maintain_order=True)
        .agg(_vote=(pl.col("score") * pl.col("weight")).mean())
    )
    joined = steps.select("episode_id", step="index").join(
        votes, on=["episode_id", "step"], how="left", maintain_order="left"
    )
    return joined["_vote"].fill_null(0.0).to_numpy()


def _note(funnel: Funnel, credits_: Credits) -> None:
    """Note how many steps were measured at each grain; the rest only has its episode's advantage."""
    names = ("same history", "same calls so far", "same place and tool")
    funnel.note("steps with credit", int((credits_.weight > 0).sum()))
    for level, name in enumerate(names):
        funnel.note(f"steps measured by the {name}", int((credits_.level == level).sum()))
    funnel.note("steps that no other attempt took", int(np.sum(credits_.level == NO_LEVEL)))
