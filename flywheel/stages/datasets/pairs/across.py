"""Builders that compare attempts at one task: siblings, first divergences, and the cheaper of two good ways.

In: episodes, steps and returns of complete tasks. Out: candidates with the columns of `PreferencePair`, unfiltered.
Every user counts once in a mean, however many episodes they have: forty episodes of one person are one vote.
"""

from __future__ import annotations

import polars as pl

from flywheel.config import PairsConfig
from flywheel.stages.common.memo import cached_by_identity
from flywheel.stages.datasets.pairs.anchors import anchored
from flywheel.stages.datasets.pairs.sides import pointed

PRIOR_EPISODES = 1.0  # the state's mean counts as one more episode through each action: 1 against 1 is not certain
ACTIONS_PER_END = 8  # best and worst actions of a state that are compared: keeps a busy state linear
BACK_OFF_BELOW = 3  # episodes through an exact state; with fewer, the rough state is asked too
ROUGH_PRIOR = 2.0  # of a rough state, whose attempts differ in more than the action
SUCCEEDS, AS_GOOD = 0.8, 0.02  # P(success) of an attempt that got there; what it may lack of the best at its task
CHEAPER = 1.5  # times, at least
NEVER = 1000.0  # calls that an attempt would have needed to a success that it did not have
CHEAP_IS_BETTER, MUCH_CHEAPER = (0.8, 0.9), 3.0  # P(chosen better) at CHEAPER and from MUCH_CHEAPER on


def sibling(episodes: pl.DataFrame, steps: pl.DataFrame, returns: pl.DataFrame, cfg: PairsConfig) -> pl.DataFrame:
    """Pair different calls that attempts at one task made from the same anchor state, better mean return first.

    The anchor state is the sequence of calls so far and how each ended, not the wording around them: the prompt is the
    context of the chosen side, and the rejected call was made after a conversation of the same course. With
    `pairs.backoff`, calls whose exact state was met by fewer than three attempts are compared in the rough state too.
    margin = V(chosen) - V(rejected), the means of R over the known episodes through each action; p_better weighs their
    mean p_success, each shrunk towards the state's mean by one episode (two in a rough state).
    """
    actions = known_actions(episodes, steps, returns).filter(pl.col("action_key").is_not_null())
    tables = [_compared(actions, "exact", PRIOR_EPISODES)]
    if cfg.backoff:
        lonely = actions.filter(pl.col("episode_id").n_unique().over("exact") < BACK_OFF_BELOW)
        tables.append(_compared(lonely, "rough", ROUGH_PRIOR))
    return pointed(pl.concat(tables), episodes, "sibling")


def first_divergence(
    episodes: pl.DataFrame, steps: pl.DataFrame, returns: pl.DataFrame, cfg: PairsConfig
) -> pl.DataFrame:
    """Pair what two attempts did at the first step at which they differ, in calls or in words.

    Until then both saw the same conversation, word for word, so that a text and a call, or two texts that end their
    episodes, can be compared as two calls can. Texts in the middle of a talk are not: what comes after decides there.
    """
    del cfg
    actions = known_actions(episodes, steps, returns)
    ends = pl.col("index") == pl.col("index").max().over("episode_id")
    ways = actions.filter(pl.col("action_key").is_not_null() | ends)
    return pointed(_compared(ways, "seen", PRIOR_EPISODES), episodes, "first_divergence")


def efficiency(episodes: pl.DataFrame, steps: pl.DataFrame, returns: pl.DataFrame, cfg: PairsConfig) -> pl.DataFrame:
    """Pair two calls of one anchor state: one that leads to success with few calls, one that takes far more, or fails.

    p_better rises from 0.8, where the other way takes 1.5 times the calls, to 0.9 at three times, and where it never
    gets there; margin is 2 p_better - 1. That an attempt failed shows nothing of this call: the filter `no detour`
    looks at what both calls gave.
    """
    del cfg
    actions = known_actions(episodes, steps, returns).filter(pl.col("action_key").is_not_null())
    calls = pl.col("turn").max().over("episode_id") - pl.col("turn") + 1.0
    best = pl.col("p_success").max().over("task_id")
    succeeded = pl.col("p_success") >= pl.max_horizontal(pl.lit(SUCCEEDS), best - AS_GOOD)
    needed = pl.when(succeeded).then(calls).otherwise(NEVER)
    table = _compared(actions.with_columns(value=-needed), "exact", PRIOR_EPISODES)
    ratio = pl.col("value_rejected") / pl.col("value_chosen")
    low, high = CHEAP_IS_BETTER
    gained = (ratio - CHEAPER).clip(0, MUCH_CHEAPER - CHEAPER) / (MUCH_CHEAPER - CHEAPER)
    fair = (pl.col("mean_chosen") >= SUCCEEDS) & (ratio >= CHEAPER)
    table = table.filter(fair).with_columns(p_better=(low + (high - low) * gained).round(12))
    return pointed(table.with_columns(margin=2 * pl.col("p_better") - 1), episodes, "efficiency")


@cached_by_identity  # every builder of a partition, and the count of voters, ask for the same
def known_actions(episodes: pl.DataFrame, steps: pl.DataFrame, returns: pl.DataFrame) -> pl.DataFrame:
    """Return the steps of episodes with a known outcome, each with its anchors, return and user (`voter`)."""
    known = returns.filter(pl.col("step").is_null() & pl.col("known"))
    voter = pl.coalesce("user", "episode_id")  # without a user, every episode is a voter
    return (
        anchored(steps)
        .filter(pl.col("act").is_not_null())
        .join(known.select("episode_id", "p_success", "value", "weight"), on="episode_id", maintain_order="left")
        .join(episodes.select("episode_id", "policy", voter=voter), on="episode_id", how="left", maintain_order="left")
    )


def _compared(actions: pl.DataFrame, anchor: str, prior: float) -> pl.DataFrame:
    """Return one row per (better, worse) pair of actions of a state, with a representative step for each."""
    by = [anchor, "act"]
    met = pl.col("act").min().over(anchor) != pl.col("act").max().over(anchor)  # few states are, and only these compare
    actions = actions.filter(met).unique([*by, "episode_id"], keep="first", maintain_order=True)
    actions = actions.sort(*by, "episode_id")
    share = 1.0 / pl.len().over(*by, "voter")
    actions = actions.with_columns(_share=share)
    ranked = _ranked(actions, anchor, prior)
    kept = ["task_id", anchor, "state_key", "act", "episode_id", "index", "turn"]
    chosen = ranked.filter(pl.col("best") <= ACTIONS_PER_END).join(_typical(actions, by, kept, best=True), on=by)
    rejected = ranked.filter(pl.col("worst") <= ACTIONS_PER_END).join(_typical(actions, by, kept, best=False), on=by)
    return (
        chosen.join(rejected, on=anchor, suffix="_rejected")
        .filter((pl.col("value") > pl.col("value_rejected")) & (pl.col("act") != pl.col("act_rejected")))
        .select(
            "task_id",
            "state_key",
            margin=pl.col("value") - pl.col("value_rejected"),
            weight=pl.min_horizontal("weight", "weight_rejected"),
            value_chosen="value",
            value_rejected="value_rejected",
            mean_chosen="mean",
            mean_rejected="mean_rejected",
            p_better=probability_better(pl.col("p"), pl.col("p_rejected")),
            p_chosen="mean",
            chosen_episode="episode_id",
            chosen_step="index",
            rejected_episode="episode_id_rejected",
            rejected_step="index_rejected",
            same_prefix_until="turn",
        )
    )


def probability_better(chosen: pl.Expr, rejected: pl.Expr) -> pl.Expr:
    """Return P(chosen is right and rejected wrong), given that exactly one of them is right."""
    ahead, behind = chosen * (1 - rejected), rejected * (1 - chosen)
    return pl.when(ahead + behind > 0).then(ahead / (ahead + behind)).otherwise(0.5)


def _ranked(actions: pl.DataFrame, anchor: str, prior: float) -> pl.DataFrame:
    """Return each action of a state with its means over users, and its rank from both ends."""

    def mean(column: str) -> pl.Expr:
        return (pl.col(column) * pl.col("_share")).sum() / pl.col("_share").sum()

    return (
        actions.with_columns(p_state=mean("p_success").over(anchor))
        .group_by(anchor, "act", maintain_order=True)
        .agg(
            mean("value").round(12),
            mean("weight").round(12),
            mean=mean("p_success").round(12),
            p=((pl.col("p_success") * pl.col("_share")).sum() + prior * pl.col("p_state").first())
            / (pl.col("_share").sum() + prior),
        )
        .with_columns(pl.col("p").round(12))
        .with_columns(
            best=pl.col("value").rank("ordinal", descending=True).over(anchor),
            worst=pl.col("value").rank("ordinal").over(anchor),
        )
    )


def _typical(actions: pl.DataFrame, by: list[str], kept: list[str], *, best: bool) -> pl.DataFrame:
    """Return the representative step of each action: of its most (or least) successful episode, ties by id."""
    order = ["failed", "p_success", "value", "episode_id"] if best else ["p_success", "value", "episode_id"]
    down = [False, True, True, False] if best else [False, False, False]
    read = actions.select(*dict.fromkeys([*kept, *by, *order]))
    return read.sort(order, descending=down).unique(by, keep="first", maintain_order=True).select(kept)
