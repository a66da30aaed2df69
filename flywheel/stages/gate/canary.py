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
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from flywheel.records import content_id
from flywheel.stages.gate.evidence import BOLD, STARTS, over_starts
from flywheel.stats.betting import interval, log_e
from flywheel.stats.paired import Interval

STRATA = 5  # take nine tenths of the variance that many would take (Cochran 1968)
_STRATUM = 20  # units that each stratum but one has on the smaller side: in small ones sides differ in size by chance
SHARE_P = 0.001  # chance, over all looks together, that a canary with its share of users seems to lack it
TWICE = 2.0  # times the old share of attempts with errors, from which a canary fails
_TILTS = np.array([[0.7], [1.4], [2.8], [5.6], [11.2]])  # of failing; e^0.7: the odds are twice as high
_DRAWN = 500  # units whose draws are counted together
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
    return _at_its_largest(log_es, len(nights))


def _at_its_largest(log_es: Mapping[int, Sequence[float]], nights: int) -> float:
    by_night = (
        over_starts({start: found[night - start] for start, found in log_es.items() if start <= night})
        for night in range(1, nights + 1)
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
    past: dict[str, tuple[float, float]] = {}
    for group, sides in _fresh(nights, start):
        for night in group:
            _add(past, night.before)
        yield [d for stratum in _strata(sides, past) for d in _paired(stratum)]


def _fresh(nights: Sequence[Sides], start: int) -> Iterator[tuple[Sequence[Sides], list[dict[str, float]]]]:
    """Yield the nights up to `start`, then each later one, with the means of both sides' units that are new in them."""
    seen: tuple[set[str], set[str]] = (set(), set())
    for group in [nights[:start], *([night] for night in nights[start:])]:
        sides = []
        for side in (0, 1):
            sums: dict[str, tuple[float, float]] = {}
            for night in group:
                _add(sums, {unit: scores for unit, scores in night[side].items() if unit not in seen[side]})
            seen[side].update(sums)
            sides.append({unit: total / attempts for unit, (total, attempts) in sums.items()})
        yield group, sides


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


def log_e_failing(nights: Sequence[Sides]) -> float:
    """Return the largest log E, of any night, of "whoever serves a unit, as many of its attempts fail".

    Fisher's randomisation test as an e-value: each of the canary's units multiplies the stake by e to a tilt times its
    share of failed attempts, and the product is divided by its mean over all draws of so many units for the canary. So
    users may fail at rates of their own, and few of them show what fails for nearly all.

    Args:
        nights: failed attempts and all attempts with an outcome, by unit.
    """
    log_es: dict[int, list[float]] = {}
    for start in (start for start in STARTS if start <= len(nights)):
        stakes, log_es[start] = np.zeros(len(_TILTS)), []
        for _, sides in _fresh(nights, start):
            stakes = stakes + _stakes(sides)
            log_es[start].append(float(np.logaddexp.reduce(stakes)) - math.log(len(_TILTS)))
    return _at_its_largest(log_es, len(nights))


def _stakes(sides: Sequence[Mapping[str, float]]) -> npt.NDArray[np.float64]:
    """Return the log stake of each tilt: units in blocks by chance, the draws within each."""
    both = sorted((content_id("unit", unit), value, side) for side in (0, 1) for unit, value in sides[side].items())
    total = np.zeros(len(_TILTS))
    for first in range(0, len(both), _DRAWN):
        block = both[first : first + _DRAWN]
        drawn = sum(side for _, _, side in block)
        fewer = int(2 * drawn <= len(block))  # what the one side draws, the other leaves
        log_weights = (_TILTS if fewer else -_TILTS) * np.array([value for _, value, _ in block])
        n = min(drawn, len(block) - drawn)
        total += log_weights[:, [side == fewer for _, _, side in block]].sum(axis=1) - _log_mean(log_weights, n)
    return total


def _log_mean(log_weights: npt.NDArray[np.float64], drawn: int) -> npt.NDArray[np.float64]:
    """Return the log mean of the product of `drawn` weights over all ways to draw them, for each row of weights."""
    means = np.full((len(log_weights), drawn + 1), -np.inf)
    means[:, 0] = 0.0
    drawn_of = np.arange(drawn + 1)
    for n in range(1, log_weights.shape[1] + 1):
        with np.errstate(divide="ignore"):
            without, taken = np.log(np.maximum(n - drawn_of, 0) / n), np.log(drawn_of[1:] / n)
        more = means[:, :-1] + log_weights[:, n - 1 : n] + taken
        means += without
        means[:, 1:] = np.logaddexp(means[:, 1:], more)
    return np.asarray(means[:, drawn])


def share_level(look: int) -> float:
    """Return the p-value below which the canary's share is off at this look; over all looks they add up to SHARE_P."""
    return SHARE_P / (max(1, look) * (max(1, look) + 1))
