"""From opinions to one judgement of each episode: probability of success, cost, risk and the return R.

In: episodes and rewards of a set of tasks, and what the log as a whole says of the signals (`reliability`). Out: one
`Judgement` an episode. Votes add up as log-odds, signals of one family share one vote, a verifier decides alone, and a
reviewer's answer above it. An episode whose reward is suspect is judged by nothing and judges nothing.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Literal, NamedTuple

import polars as pl

from flywheel.stages.labelling.posterior import Belief, Vote, scope_of
from flywheel.stages.labelling.votes import summed
from flywheel.stages.signals.rows import AUDIT, VERIFIER

if TYPE_CHECKING:
    from flywheel.config import RewardsConfig, RulesConfig

QUESTIONS = "questions"  # not a cost on a scale but a price each
ENOUGH_EPISODES = 5  # from which a task has cost quantiles of its own
SUSPECT: Literal["suspect"] = "suspect"
_DECIDING = frozenset({VERIFIER, AUDIT})
_ADOPTED = {"adopted", "user_edit"}

Basis = Literal["audit", "verifier", "signals", "suspect", "none"]


class Judgement(NamedTuple):
    """All that is known of one episode."""

    p_success: float
    cost: float
    risk: float
    value: float
    known: bool
    n_support: int
    p_raw: float = 0.5
    basis: Basis = "none"
    maturity: float = 1.0
    provisional: bool = False
    trust: float = 1.0

    @property
    def weight(self) -> float:
        """Confidence: how decided it is, how much evidence has had time to come, how far its user is trusted."""
        return abs(2 * self.p_success - 1) * self.maturity * self.trust if self.known else 0.0


class _Facts(NamedTuple):
    """What is read of an episode."""

    task_id: str
    user: str | None
    policy: str
    started: datetime | None
    ended: datetime | None
    n_steps: int
    n_tool_errors: int
    suspect: bool


@dataclass(slots=True)
class _Heard:
    """An episode's rewards, sorted by what they are for; none of the votes has weight 0."""

    votes: list[Vote] = field(default_factory=list)
    risk: float = 0.0
    costs: dict[str, float] = field(default_factory=dict)  # by unit

    @property
    def spoken(self) -> set[str]:
        """Names of the signals that voted, whatever it is worth."""
        return {v.signal for v in self.votes if v.score or v.family in _DECIDING}

    def basis(self, said: frozenset[str]) -> Basis:
        """Return what a probability made from the votes rests on."""
        families = {vote.family for vote in self.votes}
        if AUDIT in families:
            return "audit"
        return "verifier" if VERIFIER in families else "signals" if said else "none"


def judge(
    episodes: pl.DataFrame, rewards: pl.DataFrame, cfg: RewardsConfig, belief: Belief | None = None
) -> dict[str, Judgement]:
    """Return the judgement of each episode of a partition of tasks, in order of episode id."""
    believed = belief or Belief()
    facts, heard = _facts(episodes), _heard(rewards)
    silent = _Heard()
    judged = {
        episode: _success(believed, heard.get(episode, silent), one, cfg) for episode, one in sorted(facts.items())
    }
    costs = normalised_costs(
        [
            (episode, facts[episode].task_id, unit, cost, one.p_success)
            for episode, one in judged.items()
            if episode in heard and one.basis != SUSPECT
            for unit, cost in heard[episode].costs.items()
            if unit != QUESTIONS
        ]
    )
    return {
        episode: _valued(one, heard.get(episode, silent), facts[episode], costs.get(episode, 0.0), cfg)
        for episode, one in judged.items()
    }


def _success(belief: Belief, heard: _Heard, facts: _Facts, cfg: RewardsConfig) -> Judgement:
    """Return a judgement of success alone."""
    if facts.suspect:
        return Judgement(0.5, 0.0, heard.risk, 0.0, known=False, n_support=0, basis=SUSPECT)
    scope = scope_of(cfg.scope, facts.started, facts.policy)
    p_success, p_raw, said = belief.judged(heard.votes, scope)
    basis = heard.basis(said)
    mature = 1.0 if basis in {"audit", "verifier"} else belief.maturity(heard.spoken, belief.age(facts.ended))
    return Judgement(
        p_success,
        0.0,
        heard.risk,
        0.0,
        known=bool(said),
        n_support=len(said),
        p_raw=p_raw,
        basis=basis,
        maturity=mature,
        provisional=mature < cfg.min_maturity,
        trust=_trust(belief.users, facts.user, basis),
    )


def _trust(users: Mapping[str, float], user: str | None, basis: Basis) -> float:
    """Return how far the user is trusted, where their votes decide."""
    return users.get(user or "", 1.0) if basis == "signals" else 1.0


def _valued(one: Judgement, heard: _Heard, facts: _Facts, cost: float, cfg: RewardsConfig) -> Judgement:
    if cfg.scheme == "rules":
        value = _by_rules(one, heard, facts, cfg.rules)
    else:
        asked = cfg.kappa * heard.costs.get(QUESTIONS, 0.0)
        value = cfg.alpha * (2 * one.p_success - 1) - cfg.beta * cost - cfg.gamma * one.risk - asked
    return one._replace(cost=cost, value=value)


def _by_rules(one: Judgement, heard: _Heard, facts: _Facts, rules: RulesConfig) -> float:
    """Return the hand-set reward: a sum over what happened."""
    won = one.known and one.p_success > 0.5  # noqa: PLR2004 (more likely than not)
    lost = one.known and one.p_success < 0.5  # noqa: PLR2004
    took = any(vote.signal in _ADOPTED and vote.score > 0 for vote in heard.votes)
    return math.fsum(
        (
            rules.success * won,
            rules.failure * lost,
            rules.step * facts.n_steps,
            rules.tool_error * facts.n_tool_errors,
            rules.adopted * took,
            rules.risk * one.risk,
        )
    )


def _facts(episodes: pl.DataFrame) -> dict[str, _Facts]:
    suspect = pl.col("tags").list.contains(SUSPECT).fill_null(value=False)
    columns = [name for name in _Facts._fields if name != "suspect"]
    rows = episodes.select("episode_id", *columns, suspect=suspect)
    return {row[0]: _Facts(*row[1:]) for row in rows.iter_rows()}


def _heard(rewards: pl.DataFrame) -> dict[str, _Heard]:
    """Sort the rewards by episode; what one signal says about several steps is one vote, their weighted mean."""
    found: dict[str, _Heard] = defaultdict(_Heard)
    columns = ("episode_id", "kind", "signal", "family", "score", "weight", "worst")
    for episode, kind, signal, family, score, weight, worst in summed(rewards).select(columns).iter_rows():
        one = found[episode]
        if kind == "risk":
            one.risk = max(one.risk, worst if weight > 0 else 0.0)
        elif weight <= 0:
            continue
        elif kind == "cost":
            one.costs[family] = score
        else:
            one.votes.append(Vote(signal, family, score, weight))
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
