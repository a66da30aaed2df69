"""What an episode's votes make of its success, by the table `reliability` or, without one, by the priors.

In: the small table, and one episode's votes, age and user. Out: a probability, what it rests on, how mature it is, and
how far its user is trusted. `reliability` scores audited episodes with the same functions as `returns` does all.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from flywheel.stages.labelling.priors import (
    PRAISE,
    PRAISE_ALONE,
    SENTIMENT_CAP,
    SURE,
    Rates,
    full_log_odds,
    prior_rates,
)
from flywheel.stages.signals.rows import AUDIT, VERIFIER
from flywheel.stats.calibration import Curve
from flywheel.stats.delays import Delays, maturity

if TYPE_CHECKING:
    import polars as pl

ALL = "all"
_NOTHING = 1e-9  # log-odds
_REMEMBERED = 100_000  # distinct sets of votes


class Vote(NamedTuple):
    """One signal's opinion of an episode's success."""

    signal: str
    family: str
    score: float
    weight: float


class Part(NamedTuple):
    """What a vote adds to the log-odds once its family's share and the cap on praise are taken."""

    vote: Vote
    log_odds: float
    rates: Rates
    source: str


class Judged(NamedTuple):
    """What an episode's votes come to."""

    success: float
    score: float
    said: frozenset[str]  # signals that say something: a vote at odds x 1 says nothing


class Late(NamedTuple):
    """A signal that often speaks after the end of an episode."""

    signal: str
    family: str
    delays: Delays
    horizon: float


@dataclass(frozen=True)
class Belief:
    """How far each signal is believed; made by `Belief.read`, or empty: then the priors hold."""

    rates: dict[tuple[str, str, int], tuple[Rates, str]] = field(default_factory=dict)  # scope, signal, sign
    priors: dict[str, float] = field(default_factory=dict)  # P(success) by scope
    curve: Curve = field(default_factory=lambda: Curve((), ()))
    late: tuple[Late, ...] = ()
    users: dict[str, float] = field(default_factory=dict)  # trust
    now: float | None = None
    _known: dict[tuple[str, tuple[Vote, ...]], Judged] = field(default_factory=dict, repr=False)

    @classmethod
    def read(cls, table: pl.DataFrame | None) -> Belief:
        """Return the belief that a table of `Reliability` rows tells."""
        if table is None:
            return cls()
        rows = list(table.sort("kind", "scope", "name", "sign").iter_rows(named=True))
        of = {kind: [row for row in rows if row["kind"] == kind] for kind in {row["kind"] for row in rows}}
        curves = [Curve(tuple(row["x"]), tuple(row["y"])) for row in of.get("calibration", ())]
        return cls(
            {(r["scope"], r["name"], r["sign"]): (Rates(r["tpr"], r["tnr"]), r["source"]) for r in of.get("vote", ())},
            {r["scope"]: r["value"] for r in of.get("class", ())},
            curves[0] if curves else Curve((), ()),
            tuple(
                Late(r["name"], r["family"], Delays(tuple(r["x"]), tuple(r["y"])), r["value"])
                for r in of.get("delay", ())
            ),
            {r["name"]: r["value"] for r in of.get("user", ())},
            next((r["value"] for r in of.get("time", ())), None),
        )

    def rates_of(self, scope: str, signal: str, sign: int) -> tuple[Rates, str]:
        """Return the rates of a vote, and where they come from."""
        found = self.rates.get((scope, signal, sign)) or self.rates.get((ALL, signal, sign))
        return found or (prior_rates(signal, sign), "prior")

    def prior(self, scope: str) -> float:
        """Return P(success) of an episode before its votes."""
        return self.priors.get(scope, self.priors.get(ALL, 0.5))

    def parts(self, votes: Sequence[Vote], scope: str = ALL) -> list[Part]:
        """Return what each vote adds: a family's votes are averaged, and praise adds at most log 2 in all."""
        families: dict[str, list[Part]] = defaultdict(list)
        for vote in votes:
            if vote.score and vote.weight and vote.family not in {AUDIT, VERIFIER}:
                sign = 1 if vote.score > 0 else -1
                rates, source = self.rates_of(scope, vote.signal, sign)
                odds = vote.weight * abs(vote.score) * full_log_odds(rates, sign)
                families[vote.family].append(Part(vote, odds, rates, source))
        return [part for family in sorted(families) for part in _shared(family, families[family])]

    def judged(self, votes: Sequence[Vote], scope: str = ALL) -> Judged:
        """Return what votes come to; the same votes, which a large log repeats, are thought over once."""
        key = scope, tuple(votes)
        if key not in self._known:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            said = {part.vote.signal for part in self.parts(votes, scope) if abs(part.log_odds) > _NOTHING}
            said |= {vote.signal for vote in votes if vote.family in {AUDIT, VERIFIER}}
            self._known[key] = Judged(self.success(votes, scope), self.score(votes, scope), frozenset(said))
        return self._known[key]

    def score(self, votes: Sequence[Vote], scope: str = ALL) -> float:
        """Return P(success) by the signals alone: not calibrated, audits left out; see `success`."""
        verdicts = [vote for vote in votes if vote.family == VERIFIER and vote.weight > 0]
        if verdicts:
            return _decided(verdicts)
        parts = self.parts(votes, scope)
        if not parts:
            return 0.5
        prior = self.prior(scope)
        odds = math.log(prior / (1 - prior)) + math.fsum(part.log_odds for part in parts)
        p = 1 / (1 + math.exp(-min(max(odds, -500.0), 500.0)))
        return _held(min(max(p, 1 - SURE), SURE), parts)

    def success(self, votes: Sequence[Vote], scope: str = ALL) -> float:
        """Return P(success): a reviewer's answer if there is one, else the calibrated score; 0.5 without any vote.

        A verifier decides alone: a fractional verdict is taken as the probability, within its reliability.
        """
        answers = [vote for vote in votes if vote.family == AUDIT and vote.weight > 0]
        if answers:
            return _decided(answers)
        p = self.curve.at(self.score(votes, scope))
        parts = self.parts(votes, scope)
        if any(vote.family == VERIFIER and vote.weight > 0 for vote in votes):
            return min(max(p, 1 - SURE), SURE)
        return _held(min(max(p, 1 - SURE), SURE), parts) if parts else 0.5

    def age(self, ended: datetime | None) -> float | None:
        """Return how many seconds ago an episode ended; None where the log has no times."""
        return None if ended is None or self.now is None else max(self.now - ended.timestamp(), 0.0)

    def maturity(self, spoken: set[str], age: float | None) -> float:
        """Return the least share of late evidence that has had time to come, over the signals that are silent so far.

        Args:
            spoken: names of the signals that have voted.
            age: as by `age`; an episode without times is taken to be whole.
        """
        shares = [share for _, share in self.waiting(spoken, age)]
        return min(shares, default=1.0)

    def waiting(self, spoken: set[str], age: float | None) -> Iterator[tuple[Late, float]]:
        """Yield each late signal that is silent so far, and the share of its evidence that would have come."""
        if age is not None:
            for late in self.late:
                if late.signal not in spoken:
                    yield late, maturity(late.delays, age, late.horizon)


def scope_of(scope: str, started: datetime | None, policy: str) -> str:
    """Return the scope that an episode belongs to, by `rewards.scope`."""
    if scope == "policy":
        return f"policy {policy}"
    return f"{started:%Y-%m}" if scope == "month" and started is not None else ALL


def _decided(votes: Sequence[Vote]) -> float:
    mean = sum(v.score * v.weight for v in votes) / sum(v.weight for v in votes)
    return min(max((mean + 1) / 2, 1 - SURE), SURE)


def _shared(family: str, parts: list[Part]) -> list[Part]:
    whole = math.fsum(part.log_odds for part in parts) / len(parts)
    kept = SENTIMENT_CAP / whole if family == PRAISE and whole > SENTIMENT_CAP else 1.0
    return [part._replace(log_odds=part.log_odds * kept / len(parts)) for part in parts]


def _held(p: float, parts: Sequence[Part]) -> float:
    """Return p, held below what a chosen action needs where praise is all that speaks for success."""
    backed = any(part.log_odds > 0 and part.vote.family != PRAISE for part in parts)
    return p if backed else min(p, PRAISE_ALONE)
