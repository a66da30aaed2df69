"""Two policies that serve different users at the same time: differences of units, valid night after night.

A unit is a user over all nights, or an attempt where users are unknown: a user who comes back adds cases, not a unit.
The two sides are different users, so units are paired by chance: the larger side is cut into as many blocks as the
smaller one has units, and a difference is that of a block's mean from a unit's. Under "equal" differences are
independent with mean zero, whatever users differ in.

Like is paired with like: units are sorted into strata by how they did before the canary, and paired by chance within
them. What was before is alike for both sides, so given the strata each unit of a pair could as well have been on the
other side: the level holds exactly, whether the past shows much or nothing (blocking; Imbens and Rubin 2015, chapter
9). A stratum keeps differences in [-1, 1], which subtracting a prediction would not; and few strata lose few pairs.

As in `stages.gate.evidence`, a part of the stake begins at the first, the seventh and the thirtieth night, with all
users' means as they are then; users who come later add their first night.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from flywheel.records import content_id
from flywheel.stages.gate.evidence import BOLD, STARTS, over_starts
from flywheel.stats.betting import interval, log_e
from flywheel.stats.paired import Interval

STRATA = 5  # take nine tenths of the variance that many would take (Cochran 1968)
_STRATUM = 20  # units that each stratum but one has on the smaller side: in small ones sides differ in size by chance
SHARE_P = 0.001  # chance, over all looks together, that a canary with its share of users seems to lack it
TWICE = 2.0  # times the old share of attempts with errors, from which a canary fails
_PRIOR = 5.0  # attempts that pull a unit's past to the mean: users who differ by sd .2 around one half

Sums = Mapping[str, Sequence[float]]  # unit → [sum of its scores, attempts]


class Sides(NamedTuple):
    """One night's attempts with an outcome, by unit, and what became known of units before the canary."""

    old: Sums
    new: Sums
    before: Sums = MappingProxyType({})


def log_e_better(nights: Sequence[Sides]) -> float:
    """Return the largest log E, of any night, of "the new policy is not better"."""
    return _largest(nights, 0.0, 1.0)


def log_e_harm(nights: Sequence[Sides], margin: float) -> float:
    """Return the largest log E, of any night, of "the new policy is worse by less than the margin"."""
    return _largest(nights, margin, -1.0)


def _largest(nights: Sequence[Sides], margin: float, sign: float) -> float:
    log_es: dict[int, list[float]] = {}  # start → log E at each night from it on
    for start in (start for start in STARTS if start <= len(nights)):
        bets: list[float] = []
        log_es[start] = []
        for group in _groups(nights, start):
            bets += [sign * (d + margin) / (1 + margin) for d in group]
            same = log_es[start][-1:] if not group else []
            log_es[start] += same or [log_e(bets, bold=BOLD * (start > 1))]
    by_night = (
        over_starts({start: found[night - start] for start, found in log_es.items() if start <= night})
        for night in range(1, len(nights) + 1)
    )
    return max(by_night, default=0.0)


def confidence_sequence(nights: Sequence[Sides], *, alpha: float = 0.05) -> Interval:
    """Return where the mean difference lies, true at all nights together with probability 1 - alpha."""
    bounds = [
        interval(differences(nights, start), alpha=alpha * share)
        for start, share in STARTS.items()
        if start <= len(nights)
    ]
    if not bounds:
        return Interval(-1.0, 1.0)
    low, high = max(b.low for b in bounds), min(b.high for b in bounds)
    return Interval(low, high) if low <= high else bounds[-1]


def differences(nights: Sequence[Sides], start: int) -> list[float]:
    """Return the differences of units, in [-1, 1]: over all nights up to `start`, then new units night by night."""
    return [difference for group in _groups(nights, start) for difference in group]


def _groups(nights: Sequence[Sides], start: int) -> Iterator[list[float]]:
    """Yield the differences of the units that came up to night `start`, then of those that came in each later one."""
    seen: tuple[set[str], set[str]] = (set(), set())
    past: dict[str, tuple[float, float]] = {}
    for group in [nights[:start], *([night] for night in nights[start:])]:
        for night in group:
            _add(past, night.before)
        sides = []
        for side in (0, 1):
            sums: dict[str, tuple[float, float]] = {}
            for night in group:
                _add(sums, {unit: scores for unit, scores in night[side].items() if unit not in seen[side]})
            seen[side].update(sums)
            sides.append({unit: total / attempts for unit, (total, attempts) in sums.items()})
        yield [d for stratum in _strata(sides, past) for d in _paired(stratum)]


def _add(sums: dict[str, tuple[float, float]], more: Sums) -> None:
    for unit, (total, attempts) in more.items():
        before = sums.get(unit, (0.0, 0.0))
        sums[unit] = before[0] + total, before[1] + attempts


def _strata(
    sides: Sequence[Mapping[str, float]], past: Mapping[str, tuple[float, float]]
) -> Iterator[list[dict[str, float]]]:
    """Yield both sides' units of each stratum: alike in how they did before, in the middle where nothing is known."""
    units = sorted({*sides[0], *sides[1]}, key=lambda unit: content_id("unit", unit))
    known = [past[unit] for unit in units if unit in past]
    mean = math.fsum(total for total, _ in known) / math.fsum(n for _, n in known) if known else 0.0
    expected = {
        unit: (past[unit][0] + _PRIOR * mean) / (past[unit][1] + _PRIOR) if unit in past else mean for unit in units
    }
    units.sort(key=expected.__getitem__)
    strata = min(STRATA, 1 + min(map(len, sides)) // _STRATUM) if known else 1
    for i in range(strata):
        stratum = set(units[i * len(units) // strata : (i + 1) * len(units) // strata])
        yield [{unit: value for unit, value in side.items() if unit in stratum} for side in sides]


def _paired(sides: Sequence[Mapping[str, float]]) -> list[float]:
    """Return new minus old of units that are paired by chance; the larger side is cut into blocks."""
    pairs = min(map(len, sides))
    means = ([side[unit] for unit in sorted(side, key=lambda unit: content_id("unit", unit))] for side in sides)
    old, new = (list(_blocks(values, pairs)) for values in means)
    return [round(b - a, 12) for a, b in zip(old, new, strict=True)]


def _blocks(values: Sequence[float], n: int) -> Iterator[float]:
    for i in range(n):
        block = values[i * len(values) // n : (i + 1) * len(values) // n]
        yield math.fsum(block) / len(block)


def sample_ratio_p(new: int, old: int, share: float) -> float:
    """Return the chi-square p-value of "the new side got its share"; 1 without data.

    Args:
        new: units that the new policy served.
        old: units that the old one served.
        share: what the new one should have got, in (0, 1).
    """
    total = new + old
    if total == 0:
        return 1.0
    square = (new - total * share) ** 2 / (total * share * (1 - share))
    return math.erfc(math.sqrt(square / 2))


def log_e_failing(looks: Iterable[tuple[int, int, int, int]]) -> float:
    """Return the largest log E, of any look, of "the new policy's attempts fail no more often than the old one's".

    Where they fail alike, each failed attempt is the new side's with the probability of its share of the attempts; the
    bet is that it fails twice as often. Attempts are the units.

    Args:
        looks: failed attempts and all attempts of the old side, then of the new one.
    """
    total = best = 0.0
    for old_failed, old, new_failed, new in looks:
        if old and new:
            share = new / (old + new)
            bet = TWICE * share / (1 + (TWICE - 1) * share)
            total += new_failed * math.log(bet / share) + old_failed * math.log((1 - bet) / (1 - share))
            best = max(best, total)
    return best


def share_level(look: int) -> float:
    """Return the p-value below which the canary's share is off at this look; over all looks they add up to SHARE_P."""
    return SHARE_P / (max(1, look) * (max(1, look) + 1))
