"""From rewards to returns: one label of each episode, and its credit step by step.

In: episodes, steps and rewards of a set of tasks. Out: the table `returns`: R = alpha * (2p - 1) - beta * cost -
gamma * risk for each episode, skill and luck for each of its steps. Tasks are independent of each other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from flywheel.config import RewardsConfig
from flywheel.contracts import conform, frame_of
from flywheel.funnel import Funnel
from flywheel.records import Labelled, Return
from flywheel.stages.credit.estimators import NO_LEVEL, Credits, tree_credit
from flywheel.stages.credit.modes import error_local, plain, whole_credit
from flywheel.stages.credit.paths import Paths, read_paths
from flywheel.stages.credit.posterior import skills, valued
from flywheel.stages.credit.rejected import rejected_turns
from flywheel.stages.labelling.label import Label, label_episodes
from flywheel.stages.labelling.posterior import Posterior
from flywheel.stages.values.model import Values


def build_labels(
    episodes: pl.DataFrame,
    rewards: pl.DataFrame,
    cfg: RewardsConfig,
    funnel: Funnel,
    *,
    reliability: pl.DataFrame | None = None,
) -> pl.DataFrame:
    """Return the label of each episode, all of which are kept; without `reliability` the priors hold.

    An episode without votes has p_success 0.5, known false and weight 0.
    """
    labels = label_episodes(episodes, rewards, cfg, Posterior.read(reliability))
    ids = episodes.select("episode_id", "task_id").sort("task_id", "episode_id").rows()
    rows = [_row(episode_id, task_id, labels[episode_id]) for episode_id, task_id in ids]
    funnel.considered += len(rows)
    funnel.kept += len(rows)
    funnel.note("episodes without votes", sum(not row["known"] for row in rows))
    funnel.note("episodes not mature yet", sum(row["provisional"] for row in rows))
    funnel.note("episodes with a suspect reward", sum(row["basis"] == "suspect" for row in rows))
    return conform(frame_of(rows, Labelled), Labelled).collect()


class Attempts(NamedTuple):
    """The attempts at a set of tasks."""

    episodes: pl.DataFrame
    steps: pl.DataFrame
    rewards: pl.DataFrame


def credited(
    attempts: Attempts, labels: pl.DataFrame, values: pl.DataFrame | None, cfg: RewardsConfig, funnel: Funnel
) -> pl.DataFrame:
    """Return the table `returns`: one row per episode and one per step; counts episodes, all of which are kept.

    A step's weight is how sure the sign of its credit is; a step that is like no other attempt's has credit 0 and
    weight 0. Without the table `values`, credit is that of the prefix tree.
    """
    episodes, steps, rewards = attempts
    funnel.considered += labels.height
    funnel.kept += labels.height
    funnel.note("steps", steps.height)
    known = dict(labels.filter("known").select("episode_id", "value").iter_rows())
    outcomes = {episode: known.get(episode) for episode in labels["episode_id"]}
    credit = step_credit(episodes, steps, rewards, outcomes, cfg, funnel)
    rejected = rejected_turns(steps, rewards)
    funnel.note("steps of turns that their user rejected", rejected.height)
    if cfg.credit == "values" and values is not None:
        measured = skills(episodes, steps, labels, Values.read(values), cfg, rejected)
        _note_levels(funnel, measured)
        credit = valued(credit, measured)
    credit = credit.join(_own_risk(rewards), on=["episode_id", "step"], how="left", maintain_order="left")
    credit = credit.with_columns(pl.col("risk").fill_null(0.0))
    return conform(_of_turns(_with_steps(labels, credit), rejected), Return).collect()


def _note_levels(funnel: Funnel, measured: pl.DataFrame) -> None:
    for level, name in enumerate(("same task and history", "same intent and position", "same tool anywhere")):
        funnel.note(f"steps valued by the {name}", measured.filter(pl.col("level") == level).height)
    funnel.note("steps like no other attempt's", measured["level"].null_count())


def _own_risk(rewards: pl.DataFrame) -> pl.DataFrame:
    """Return {episode_id, step, risk}: the highest severity of the risks that count at a step."""
    risks = rewards.filter((pl.col("kind") == "risk") & pl.col("step").is_not_null() & (pl.col("weight") > 0))
    return risks.group_by("episode_id", "step").agg(risk=pl.col("score").max())


def _with_steps(episodes: pl.DataFrame, credit: pl.DataFrame) -> pl.DataFrame:
    """Return the episodes' rows and below them the steps', which repeat what is known of their episode."""
    own = [name for name in credit.columns if name != "episode_id"]
    steps = credit.join(episodes.drop(own), on="episode_id", how="left", maintain_order="left")
    missing = [pl.lit(None).alias(name) for name in episodes.columns if name not in steps.columns]
    steps = steps.with_columns(missing)
    return pl.concat([episodes, steps.select(pl.col(name).cast(kind) for name, kind in episodes.schema.items())])


def _of_turns(returns: pl.DataFrame, rejected: pl.DataFrame) -> pl.DataFrame:
    """Give the steps of rejected turns the P(success) of their turn, where it is lower than their episode's."""
    at = returns.select("episode_id", "step").join(
        rejected.rename({"index": "step"}), on=["episode_id", "step"], how="left", maintain_order="left"
    )
    return returns.with_columns(p_success=pl.min_horizontal(pl.col("p_success"), at["p_turn"].fill_null(1.0)))


def _row(episode_id: str, task_id: str, label: Label) -> dict[str, Any]:
    return {
        "episode_id": episode_id,
        "task_id": task_id,
        "step": None,
        **label._asdict(),
        "luck": 0.0,
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
    if cfg.credit == "values" or cfg.credit == "prefix_tree":  # noqa: PLR1714 - so that types narrow
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
