"""Means of scores between 0 and 1, and of their difference: Student's and Welch's intervals.

For outcomes other than yes and no: an interval of a rate (Wilson's) takes fractions for the widest that they can be.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from scipy.special import stdtrit

from flywheel.stats.paired import Interval

_SIDE = 0.975  # of a two-sided 95 % interval


def mean_interval(values: Sequence[float]) -> Interval:
    """Return the 95 % interval of the mean of scores in [0, 1], within these; all of it for fewer than two scores."""
    n = len(values)
    if n < 2:  # noqa: PLR2004
        return Interval(0.0, 1.0)
    mean, variance = _moments(values)
    half = float(stdtrit(n - 1, _SIDE)) * math.sqrt(variance / n)
    return Interval(max(0.0, mean - half), min(1.0, mean + half))


def difference_interval(values: Sequence[float], baseline: Sequence[float]) -> Interval:
    """Return the 95 % interval of the difference of two means of scores in [0, 1] (Welch 1947)."""
    if min(len(values), len(baseline)) < 2:  # noqa: PLR2004
        return Interval(-1.0, 1.0)
    (mean, variance), (before, spread) = _moments(values), _moments(baseline)
    shares = variance / len(values), spread / len(baseline)
    error = math.fsum(shares)
    if not error:
        return Interval(mean - before, mean - before)
    freedom = error**2 / (shares[0] ** 2 / (len(values) - 1) + shares[1] ** 2 / (len(baseline) - 1))
    half = float(stdtrit(freedom, _SIDE)) * math.sqrt(error)
    return Interval(max(-1.0, mean - before - half), min(1.0, mean - before + half))


def _moments(values: Sequence[float]) -> tuple[float, float]:
    mean = math.fsum(values) / len(values)
    return mean, math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)
