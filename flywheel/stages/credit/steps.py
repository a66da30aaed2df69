"""The step rows of the table `returns`: who deserves each episode's return, by the configured way of giving credit.

In: episodes, steps, rewards and each episode's return. Out: a frame of one row a step with its credit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import polars as pl

from flywheel.stages.credit.estimators import NO_LEVEL, Credits, tree_credit
from flywheel.stages.credit.modes import error_local, plain, whole_credit
from flywheel.stages.credit.paths import Paths, read_paths

if TYPE_CHECKING:
    from flywheel.config import RewardsConfig
    from flywheel.funnel import Funnel


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
        episodes: of whole tasks.
        steps: all of their steps; those of other episodes are left out.
        rewards: of these episodes; only `process` looks at what was said of single steps.
        values: each episode's return; None where nobody judged it.
        cfg: the way of giving credit.
        funnel: gets a note of how many steps were judged at each grain.
    """
    episodes = episodes.sort("task_id", "episode_id")
    steps = steps.join(episodes.select("episode_id"), on="episode_id", how="semi")
    steps = steps.sort("task_id", "episode_id", "index")
    paths = read_paths(episodes, steps, [values.get(episode) for episode in episodes["episode_id"]])
    found = _credits(paths, steps, rewards, cfg)
    _note(funnel, found)
    level = np.where(found.level == NO_LEVEL, -1, found.level)
    return steps.select("episode_id", step=pl.col("index")).with_columns(
        value=pl.Series(found.skill),
        luck=pl.Series(found.luck),
        weight=pl.Series(found.weight),
        n_support=pl.Series(found.n_support),
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
    """Return the mean vote on each step, 0 where nobody voted on it."""
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


def _note(funnel: Funnel, found: Credits) -> None:
    """Say how many steps were judged at each grain; the rest only has its episode's advantage."""
    names = ("same history", "same calls so far", "same place and tool")
    funnel.note("steps with credit", int((found.weight > 0).sum()))
    for level, name in enumerate(names):
        funnel.note(f"steps judged by the {name}", int((found.level == level).sum()))
    funnel.note("steps that nobody else took", int(np.sum(found.level == NO_LEVEL)))
