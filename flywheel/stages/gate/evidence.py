"""All looks at one candidate → the evidence for and against it, valid however often one looks.

In: each look's units with their differences. Out: a `GateEvidence`. A unit is a user where users are known, else a
task; a look adds units that came since, and new cases of units that came before.

E is a stake that grows with every unit in which the candidate is ahead (see `stats.betting`). Two things need care:

returning units   A unit's mean changes while its cases come in, and a bet can't be taken back. So the stake is divided
                  over starting points: E_s begins at look s (the first, the seventh, the thirtieth) with the means of
                  all units as they are then, and adds later units as they first come. Under the null their weighted
                  sum ever reaches 1 / level with a probability of at most level (1 + .95 level); decision 0038 has the
                  proof. Means of several looks vary little, so the later starts bet more boldly (`BOLD`).
known units       Where an earlier candidate was looked at on a unit, this one may have been chosen by what was seen
                  there. Such units enter a part of the stake only, which is discounted by what earlier outcomes can
                  have given away (`stats.betting.transcript_bits`); the rest of the stake is on fresh units alone.
                  The part is a fifth, or the share of known units in the first look where that is more.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

from flywheel.records import GateEvidence
from flywheel.stats.betting import interval, log_e, transcript_bits
from flywheel.stats.planning import LAST_START, pace

REUSED = (0.2, 0.95)  # least and largest share of the stake that is also put on units known before
STARTS = {1: 0.7, 7: 0.2, LAST_START: 0.1}  # look → share of the stake; nights, most often: at once, a week, a month
_RECURRING = {1: 0.1, 7: 0.87, LAST_START: 0.03}  # the same where all units were known at the first look
BOLD, _BOLDER = 0.5, 0.95  # share of a later start's stake on the highest bets; where all units were known
_LN2 = math.log(2)

Units = Mapping[str, tuple[float, int]]


def weigh(
    looks: Sequence[Units], *, candidate: int, level: float, known: Collection[str] = (), outcomes: Sequence[str] = ()
) -> GateEvidence | None:
    """Return the evidence of a candidate's looks; None where no unit has a paired case.

    Args:
        looks: unit → (sum of the differences of its new cases, their number), oldest first; differences in [-1, 1].
        candidate: its place among all candidates.
        level: it is promoted when E reaches 1 / level.
        known: units on which an earlier candidate was looked at.
        outcomes: of all looks before it was registered.
    """
    looks = [look for look in looks if look]
    if not looks:
        return None
    bits = transcript_bits(outcomes) if known else 0.0
    histories = [_Histories(looks[: n + 1], known, bits) for n in range(len(looks))]
    now = histories[-1]
    means = now.means(len(looks))
    differences = list(means.values())
    bounds = interval(differences)
    return GateEvidence(
        candidate=candidate,
        level=level,
        looks=len(looks),
        units=len(means),
        fresh=sum(unit not in known for unit in means),
        returning=sum(sum(unit in look for look in looks) > 1 for unit in means),
        mean=math.fsum(differences) / len(differences),
        low=bounds.low,
        high=bounds.high,
        discordance=math.fsum(d * d for d in differences) / len(differences),
        log_e=now.log_e(),
        log_e_best=max(h.log_e() for h in histories),
        log_e_worse=max(h.log_e(sign=-1.0) for h in histories),
        log_e_fresh=now.spread({unit for unit in means if unit not in known}),
        bits=bits,
        recent=pace(looks),
    )


class _Histories:
    """A candidate's looks up to one of them."""

    def __init__(self, looks: Sequence[Units], known: Collection[str], bits: float) -> None:
        self._looks, self._first_of_all, self._bits = looks, not known, bits
        self._units = {unit for look in looks for unit in look}
        self._fresh = {unit for unit in self._units if unit not in known}
        shown = sum(unit in known for unit in looks[0]) / len(looks[0])  # whose units they are, not how they went
        self._reused = min(max(shown, REUSED[0]), REUSED[1])
        self._starts = {start: share + shown * (_RECURRING[start] - share) for start, share in STARTS.items()}
        self._bold = BOLD + shown * (_BOLDER - BOLD)

    def log_e(self, sign: float = 1.0) -> float:
        """Return log E: fresh units, and with a discounted share of the stake all of them.

        The stake is divided from the first look on, also before a known unit comes: it cannot be divided afterwards.
        """
        if self._first_of_all:
            return self.spread(self._units, sign)
        fresh = math.log(1 - self._reused) + self.spread(self._fresh, sign)
        every = self.spread(self._units, sign, self._starts, self._bold)
        every += math.log(self._reused) - self._bits * _LN2
        return _log_sum([fresh, every])

    def spread(
        self,
        chosen: Collection[str],
        sign: float = 1.0,
        starts: Mapping[int, float] = STARTS,
        bold: float = BOLD,
    ) -> float:
        """Return log E of the chosen units, with the stake divided over the starting points."""
        means = {start: self.means(start) for start in starts if start <= len(self._looks)}
        log_es = {
            start: log_e([sign * d for unit, d in m.items() if unit in chosen], bold=bold * (start > 1))
            for start, m in means.items()
        }
        return over_starts(log_es, starts)

    def means(self, start: int) -> dict[str, float]:
        """Return each unit's mean difference up to look `start`, or of the later look where it first came."""
        sums: dict[str, tuple[float, int]] = {}
        for number, look in enumerate(self._looks, 1):
            for unit, (total, cases) in look.items():
                before = sums.get(unit, (0.0, 0))
                if number <= start or unit not in sums:
                    sums[unit] = (before[0] + total, before[1] + cases)
        return {unit: max(-1.0, min(1.0, total / cases)) for unit, (total, cases) in sorted(sums.items())}


def over_starts(log_es: Mapping[int, float], starts: Mapping[int, float] = STARTS) -> float:
    """Return log E of the stake divided over the starts; what starts later is not at stake yet and is worth 1."""
    idle = math.fsum(share for start, share in starts.items() if start not in log_es)
    terms = [math.log(starts[start]) + log_e for start, log_e in log_es.items()]
    return _log_sum([*terms, math.log(idle)] if idle else terms)


def _log_sum(terms: Sequence[float]) -> float:
    most = max(terms)
    return most + math.log(math.fsum(math.exp(term - most) for term in terms))
