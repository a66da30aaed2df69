"""From opinions to one judgement of each episode: probability of success, cost, risk and the return R.

In: the rewards of a set of tasks. Out: one `Judgement` an episode. Votes add up as log-odds, as if signals of different
families were independent; signals of one family share one vote, since thanks and a thumb up are the same pleasure. The
even prior and the fixed reliabilities are uncalibrated; a label model that learns them takes the place of `success`.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from flywheel.stages.returns.priors import SENTIMENT_CAP, SURE, log_odds

if TYPE_CHECKING:
    import polars as pl

    from flywheel.config import RewardsConfig

__all__ = ["Judgement", "Vote", "judge", "normalised_costs", "success"]

VERIFIER = "verifier"
PRAISE = "sentiment_pos"
QUESTIONS = "questions"  # not a cost on a scale but a price each
PRAISE_ALONE = 0.65  # most that praise alone can prove: below what a chosen action needs
ENOUGH_EPISODES = 5  # from which a task has cost quantiles of its own


class Vote(NamedTuple):
    """One signal's opinion of an episode's success."""

    signal: str
    family: str
    score: float
    weight: float


class Judgement(NamedTuple):
    """All that is known of one episode."""

    p_success: float
    cost: float
    risk: float
    value: float
    known: bool
    n_support: int


@dataclass(slots=True)
class _Heard:
    """An episode's rewards, sorted by what they are for."""

    votes: list[Vote] = field(default_factory=list)
    risk: float = 0.0
    costs: dict[str, float] = field(default_factory=dict)  # by unit


def success(votes: Sequence[Vote]) -> float:
    """Return the probability of success given the votes; 0.5 without any.

    A verifier decides alone (a fractional verdict is taken as the probability, within its reliability). Otherwise each
    family's votes are averaged, praise adds at most log 2, and alone proves no more than 0.65.
    """
    verdicts = [vote for vote in votes if vote.family == VERIFIER and vote.weight > 0]
    if verdicts:
        mean = sum(v.score * v.weight for v in verdicts) / sum(v.weight for v in verdicts)
        return min(max((mean + 1) / 2, 1 - SURE), SURE)
    families: dict[str, list[float]] = defaultdict(list)
    for vote in votes:
        if vote.score and vote.weight:
            families[vote.family].append(vote.weight * log_odds(vote.signal, vote.score))
    odds = {family: math.fsum(parts) / len(parts) for family, parts in sorted(families.items())}
    if PRAISE in odds:
        odds[PRAISE] = min(odds[PRAISE], SENTIMENT_CAP)
    p = 1 / (1 + math.exp(-math.fsum(odds.values())))
    only_praised = all(part <= 0 for family, part in odds.items() if family != PRAISE)
    return min(p, PRAISE_ALONE) if only_praised else p


def judge(episodes: pl.DataFrame, rewards: pl.DataFrame, cfg: RewardsConfig) -> dict[str, Judgement]:
    """Return the judgement of each episode of a partition of tasks, in order of episode id."""
    heard = _heard(rewards)
    tasks = dict(episodes.select("episode_id", "task_id").sort("episode_id").iter_rows())
    p_success = {episode: success(heard[episode].votes) if episode in heard else 0.5 for episode in tasks}
    costs = normalised_costs(
        [
            (episode, tasks[episode], unit, cost, p_success[episode])
            for episode in tasks
            if episode in heard
            for unit, cost in heard[episode].costs.items()
            if unit != QUESTIONS
        ]
    )
    judged = {}
    for episode, p in p_success.items():
        one = heard.get(episode, _Heard())
        voting = {vote.signal for vote in one.votes if vote.weight > 0 and (vote.score or vote.family == VERIFIER)}
        cost = costs.get(episode, 0.0)
        asked = cfg.kappa * one.costs.get(QUESTIONS, 0.0)
        value = cfg.alpha * (2 * p - 1) - cfg.beta * cost - cfg.gamma * one.risk - asked
        judged[episode] = Judgement(p, cost, one.risk, value, bool(voting), len(voting))
    return judged


def _heard(rewards: pl.DataFrame) -> dict[str, _Heard]:
    """Sort the rewards by episode; what one signal says about several steps is one vote, their weighted mean."""
    import polars as pl

    means = (
        rewards.sort("episode_id", "signal", "step", "family")
        .group_by("episode_id", "kind", "signal", "family", maintain_order=True)
        .agg(
            total=(pl.col("score") * pl.col("weight")).sum(),
            weights=pl.col("weight").sum(),
            weight=pl.col("weight").mean(),
            worst=pl.col("score").max(),
        )
        .sort("episode_id", "kind", "signal", "family")
    )
    found: dict[str, _Heard] = defaultdict(_Heard)
    for episode, kind, signal, family, total, weights, weight, worst in means.iter_rows():
        one = found[episode]
        if kind == "risk":
            one.risk = max(one.risk, worst if weights > 0 else 0.0)
        elif weights <= 0:
            continue
        elif kind == "cost":
            one.costs[family] = total / weights
        else:
            one.votes.append(Vote(signal, family, total / weights, weight))
    return dict(found)


def normalised_costs(costs: Iterable[tuple[str, str, str, float, float]]) -> dict[str, float]:
    """Return each episode's cost on a scale from 0 (the median or less) to 1 (the 90th percentile or more).

    Args:
        costs: (episode, task, unit, raw cost, probability of success). Quantiles are those of the task's episodes that
            probably succeeded; with fewer than five of them, of all its episodes; with fewer than five of these too,
            nothing is known to be dear. Other tasks never matter, so that a partition's rows are the same in any
            partitioning. Where the median is the 90th percentile, nothing is dear. Of several units, the highest.
    """
    rows = list(costs)
    won: dict[tuple[str, str], list[float]] = defaultdict(list)
    tried: dict[tuple[str, str], list[float]] = defaultdict(list)
    for _, task, unit, cost, p in rows:
        tried[unit, task].append(cost)
        if p > 0.5:  # noqa: PLR2004 (more likely than not)
            won[unit, task].append(cost)
    ends: dict[tuple[str, str], tuple[float, float]] = {}
    for key, everything in tried.items():
        known = won[key] if len(won[key]) >= ENOUGH_EPISODES else everything
        ends[key] = _median_and_high(known) if len(known) >= ENOUGH_EPISODES else (0.0, 0.0)
    scaled: dict[str, float] = {}
    for episode, task, unit, cost, _ in rows:
        low, high = ends[unit, task]
        dear = min(max((cost - low) / (high - low), 0.0), 1.0) if high > low else 0.0
        scaled[episode] = max(dear, scaled.get(episode, 0.0))
    return scaled


def _median_and_high(costs: list[float]) -> tuple[float, float]:
    ordered = sorted(costs)

    def quantile(share: float) -> float:
        place = share * (len(ordered) - 1)
        below = math.floor(place)
        above = min(below + 1, len(ordered) - 1)
        return ordered[below] + (place - below) * (ordered[above] - ordered[below])

    return quantile(0.5), quantile(0.9)
