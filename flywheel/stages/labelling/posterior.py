"""P(success) of an episode given its votes, by the table `reliability` or, without one, by the priors.

In: the small table, and one episode's votes, age and user. Out: the probability, the signals it rests on, and its
maturity. The stage `reliability` scores audited episodes with the same functions as `returns` does all.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from flywheel.stages.labelling.priors import (
    BACKS,
    FAINT,
    PEERS_ALONE,
    PEERS_KEPT,
    PRAISE,
    PRAISE_ALONE,
    SENTIMENT_CAP,
    SURE,
    UNBACKED,
    Rates,
    full_log_odds,
    prior_rates,
)
from flywheel.stages.signals.cohorts import DEEDS
from flywheel.stages.signals.rows import AUDIT, VERIFIER
from flywheel.stats.calibration import Curve
from flywheel.stats.delays import Delays, maturity

if TYPE_CHECKING:
    import polars as pl

ALL = "all"
_WITHIN = " | "  # between a source and a month or policy of it
NO_VOTE = "no vote"  # name of the calibration of episodes without any vote
_NO_EFFECT = 1e-9  # log-odds
_MOST_CACHED = 100_000  # distinct sets of votes


class Vote(NamedTuple):
    """One signal's vote on an episode's success, in [-1, 1]."""

    signal: str
    family: str
    score: float
    weight: float


class Contribution(NamedTuple):
    """What a vote adds to the log-odds, after its family's share and the cap on praise."""

    vote: Vote
    log_odds: float
    rates: Rates
    source: str


class Estimate(NamedTuple):
    """P(success) given an episode's votes."""

    success: float
    score: float  # by the signals alone, not calibrated
    signals: frozenset[str]  # those that moved it: a vote with odds ratio 1 does not


class LateSignal(NamedTuple):
    """A signal that often votes after the end of an episode."""

    signal: str
    family: str
    delays: Delays
    horizon: float


@dataclass(frozen=True)
class Posterior:
    """P(success | votes): rates of each signal, priors, calibration; read from a table, or empty: priors only."""

    rates: dict[tuple[str, str, int], tuple[Rates, str]] = field(default_factory=dict)  # scope, signal, sign
    priors: dict[str, float] = field(default_factory=dict)  # P(success) by scope
    curve: Curve = field(default_factory=lambda: Curve((), ()))
    silent: float = 0.5  # P(success) of an episode without any vote
    late: tuple[LateSignal, ...] = ()
    users: dict[str, float] = field(default_factory=dict)  # trust
    now: float | None = None
    _cache: dict[tuple[str, tuple[Vote, ...]], Estimate] = field(default_factory=dict, repr=False)

    @classmethod
    def read(cls, table: pl.DataFrame | None) -> Posterior:
        """Return the posterior by a table of `Reliability` rows; None: by the priors."""
        if table is None:
            return cls()
        rows = list(table.sort("kind", "scope", "name", "sign").iter_rows(named=True))
        of = {kind: [row for row in rows if row["kind"] == kind] for kind in {row["kind"] for row in rows}}
        calibrations = {row["name"]: row for row in of.get("calibration", ())}
        curve = calibrations.get("", {"x": (), "y": ()})
        return cls(
            {(r["scope"], r["name"], r["sign"]): (Rates(r["tpr"], r["tnr"]), r["source"]) for r in of.get("vote", ())},
            {r["scope"]: r["value"] for r in of.get("class", ())},
            Curve(tuple(curve["x"]), tuple(curve["y"])),
            calibrations.get(NO_VOTE, {"value": 0.5})["value"],
            tuple(
                LateSignal(r["name"], r["family"], Delays(tuple(r["x"]), tuple(r["y"])), r["value"])
                for r in of.get("delay", ())
            ),
            {r["name"]: r["value"] for r in of.get("user", ())},
            next((r["value"] for r in of.get("time", ())), None),
        )

    def rates_of(self, scope: str, signal: str, sign: int) -> tuple[Rates, str]:
        """Return the rates of a vote, and where they come from."""
        fitted = next((rates for name in _levels(scope) if (rates := self.rates.get((name, signal, sign)))), None)
        return fitted or (prior_rates(signal, sign), "prior")

    def prior(self, scope: str) -> float:
        """Return P(success) of an episode before its votes."""
        return next((self.priors[name] for name in _levels(scope) if name in self.priors), 0.5)

    def contributions(self, votes: Sequence[Vote], scope: str = ALL) -> list[Contribution]:
        """Return what each vote adds: a family's votes are averaged, and praise adds at most log 2 in all."""
        families: dict[str, list[Contribution]] = defaultdict(list)
        for vote in votes:
            if vote.score and vote.weight and vote.family not in {AUDIT, VERIFIER}:
                sign = 1 if vote.score > 0 else -1
                rates, source = self.rates_of(scope, vote.signal, sign)
                odds = vote.weight * abs(vote.score) * full_log_odds(rates, sign)
                families[vote.family].append(Contribution(vote, odds, rates, source))
        contributions = []
        for family, members in sorted(families.items()):
            mean = math.fsum(one.log_odds for one in members) / len(members)
            kept = SENTIMENT_CAP / mean if family == PRAISE and mean > SENTIMENT_CAP else 1.0
            contributions += [one._replace(log_odds=one.log_odds * kept / len(members)) for one in members]
        return contributions

    def estimate(self, votes: Sequence[Vote], scope: str = ALL) -> Estimate:
        """Return P(success) given votes; cached, because a large log repeats the same votes."""
        key = scope, tuple(votes)
        if key not in self._cache:
            if len(self._cache) >= _MOST_CACHED:
                self._cache.clear()
            signals = {c.vote.signal for c in self.contributions(votes, scope) if abs(c.log_odds) > _NO_EFFECT}
            signals |= {vote.signal for vote in votes if vote.family in {AUDIT, VERIFIER}}
            self._cache[key] = Estimate(self.success(votes, scope), self.score(votes, scope), frozenset(signals))
        return self._cache[key]

    def score(self, votes: Sequence[Vote], scope: str = ALL) -> float:
        """Return P(success) by the signals alone: not calibrated, audits left out; see `success`."""
        verdicts = [vote for vote in votes if vote.family == VERIFIER and vote.weight > 0]
        if verdicts:
            return _mean_vote(verdicts)
        contributions = self.contributions(votes, scope)
        if not contributions:
            return 0.5
        return _capped(self.prior(scope), contributions)

    def success(self, votes: Sequence[Vote], scope: str = ALL) -> float:
        """Return P(success): a reviewer's answer if there is one, else the calibrated score.

        A verifier decides alone: a fractional verdict is taken as the probability, within its reliability. Without any
        vote it is what an audit found of such episodes, else 0.5.
        """
        answers = [vote for vote in votes if vote.family == AUDIT and vote.weight > 0]
        if answers:
            return _mean_vote(answers)
        score = self.score(votes, scope)
        p = self.curve.at(score)
        contributions = self.contributions(votes, scope)
        if any(vote.family == VERIFIER and vote.weight > 0 for vote in votes):
            return min(max(p, 1 - SURE), SURE)
        if not contributions:
            return self.silent
        hold, _ = _hold(contributions)
        return hold._replace(bound=max(hold.bound, score)).applied(min(max(p, 1 - SURE), SURE))

    def trusted(self, votes: Sequence[Vote], user: str | None) -> list[Vote]:
        """Return the votes with the weights that what this account does has."""
        trust = self.users.get(user or "", 1.0)
        if trust >= 1:
            return list(votes)
        return [vote._replace(weight=vote.weight * trust) if vote.family in DEEDS else vote for vote in votes]

    def age(self, ended: datetime | None) -> float | None:
        """Return how many seconds ago an episode ended; None where the log has no times."""
        return None if ended is None or self.now is None else max(self.now - ended.timestamp(), 0.0)

    def maturity(self, voted: set[str], age: float | None) -> float:
        """Return the least share of late evidence that should have arrived, over the signals that are silent so far.

        Args:
            voted: names of the signals that have voted.
            age: as by `age`; an episode without times is taken to be mature.
        """
        return min((share for _, share in self.waiting(voted, age)), default=1.0)

    def waiting(self, voted: set[str], age: float | None) -> Iterator[tuple[LateSignal, float]]:
        """Yield each late signal that is silent so far, and the share of its evidence that should have arrived."""
        if age is not None:
            for late in self.late:
                if late.signal not in voted:
                    yield late, maturity(late.delays, age, late.horizon)


def scope_of(scope: str, started: datetime | None, policy: str, source: str = "") -> str:
    """Return the scope that an episode belongs to: a month or a policy, by `rewards.scope`, of its source."""
    if scope == "policy":
        return scope_in(source, f"policy {policy}")
    return scope_in(source, f"{started:%Y-%m}" if scope == "month" and started is not None else ALL)


def scope_in(source: str, part: str) -> str:
    """Return the name of a part of a source; of the log where the source is ''."""
    return f"{source}{_WITHIN}{part}" if source else part


def _levels(scope: str) -> Iterator[str]:
    """Yield the scopes whose rates hold for an episode of this one, the closest first."""
    source, within, part = scope.partition(_WITHIN)
    yield scope
    if within:
        yield source
        yield part
    yield ALL


def _mean_vote(votes: Sequence[Vote]) -> float:
    """Return the weighted mean of deciding votes as a probability."""
    mean = sum(v.score * v.weight for v in votes) / sum(v.weight for v in votes)
    return min(max((mean + 1) / 2, 1 - SURE), SURE)


class _Hold(NamedTuple):
    """How far a probability is held down: the bound, and the share of it that other evidence has not lifted."""

    bound: float
    share: float

    def applied(self, p: float) -> float:
        """Return p within the bound."""
        return p - self.share * max(p - self.bound, 0.0)


def _hold(contributions: Sequence[Contribution]) -> tuple[_Hold, float]:
    """Return how far p is held below what a chosen action needs, and the log-odds without what is held.

    It is held where nothing but praise and agreement speaks for success: users who are easily bought, and an agent that
    errs the same way every time. Other evidence for success lifts the bound, wholly from the log-odds `BACKS` on.
    """
    families: dict[str, float] = defaultdict(float)
    for one in contributions:
        families[one.vote.family] += one.log_odds
    bought = {family for family in UNBACKED if families.get(family, 0.0) > _NO_EFFECT}
    backs = (odds for family, odds in sorted(families.items()) if family not in UNBACKED and odds > _NO_EFFECT)
    backing = math.fsum(backs)
    share = 1.0 - min(max(backing - FAINT, 0.0) / (BACKS - FAINT), 1.0) if bought or not backing else 0.0
    rest = math.fsum(odds for family, odds in sorted(families.items()) if family not in bought)
    return _Hold(PRAISE_ALONE if bought <= {PRAISE} else PEERS_ALONE, share), rest if backing else -math.inf


def _capped(prior: float, contributions: Sequence[Contribution]) -> float:
    """Return P(success) by the votes, held, and never below what the votes give without those that are held.

    Agreement keeps its order: whoever only compares episodes loses nothing.
    """
    before = math.log(prior / (1 - prior))
    hold, rest = _hold(contributions)
    p = _sure(before + math.fsum(c.log_odds for c in contributions))
    if hold.bound == PRAISE_ALONE:
        held = hold.applied(p)
    else:
        squeezed = 1 - (PEERS_ALONE - PEERS_KEPT) / (SURE - PEERS_KEPT)
        held = p - hold.share * max(p - PEERS_KEPT, 0.0) * squeezed
    return max(held, min(_sure(before + rest), p)) if math.isfinite(rest) else held


def _sure(odds: float) -> float:
    """Return the probability of log-odds, no surer than a verdict."""
    return min(max(1 / (1 + math.exp(-min(max(odds, -500.0), 500.0))), 1 - SURE), SURE)
