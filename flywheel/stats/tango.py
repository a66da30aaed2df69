"""Tango's score method for the difference of two paired rates: an interval, and a test of non-inferiority.

The counts may be fractions: several cases of one task count for fewer, so wins, losses and n are divided by the design
effect (`clusters.design_effect`) before they come here.
"""

from __future__ import annotations

import math
from statistics import NormalDist

from flywheel.stats.paired import Interval

_HALVINGS = 60


def tango_z(wins: float, losses: float, n: float, difference: float) -> float:
    """Return the score statistic of "the true difference is `difference`"; positive when more was observed."""
    b, c, d = wins, losses, difference
    big_a, big_b, big_c = 2 * n, -b - c + (2 * n - b + c) * d, -c * d * (1 - d)
    root = math.sqrt(max(0.0, big_b * big_b - 4 * big_a * big_c))
    q = (root - big_b) / (2 * big_a)
    variance = n * (2 * q + d * (1 - d))
    gap = b - c - n * d
    if variance <= 0:
        return 0.0 if gap == 0 else math.copysign(math.inf, gap)
    return gap / math.sqrt(variance)


def _solve(wins: float, losses: float, n: float, target: float) -> float:
    """Return the difference at which the statistic, which falls as the difference rises, equals `target`."""
    low, high = -1.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if tango_z(wins, losses, n, middle) > target:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def tango_interval(wins: float, losses: float, n: float, *, quantile: float | None = None) -> Interval:
    """Return the score interval of candidate's minus baseline's rate; the whole range without cases.

    Args:
        wins: cases that only the candidate got right.
        losses: cases that only the baseline got right.
        n: all cases.
        quantile: two-sided critical value; by default the normal one of a 95 % interval.
    """
    if n <= 0:
        return Interval(-1.0, 1.0)
    z = NormalDist().inv_cdf(0.975) if quantile is None else quantile
    return Interval(_solve(wins, losses, n, z), _solve(wins, losses, n, -z))


def non_inferiority_z(wins: float, losses: float, n: float, margin: float) -> float:
    """Return the score statistic of "the candidate is worse by `margin` or more"; above 1.645 rejects that at 5 %."""
    return tango_z(wins, losses, n, -margin)
