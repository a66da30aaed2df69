"""Comparing two windows of a log: how far a mix moved, a slope, a ratio of sums.

In: counts, or one number a unit with the unit's cluster. Out: an estimate with its standard error. Rows of one cluster
(an episode's steps, a task's episodes) are one unit in standard errors.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import NormalDist
from typing import NamedTuple

from scipy.special import chdtri

_HALF = 0.5  # added to every count, so that a kind that one window lacks is not infinitely far


class Estimate(NamedTuple):
    """A number, its standard error, and how many units it rests on."""

    value: float
    error: float
    n: int

    @property
    def low(self) -> float:
        """Lower end of the 95 % interval."""
        return self.value - one_sided(0.975) * self.error

    @property
    def high(self) -> float:
        """Upper end of the 95 % interval."""
        return self.value + one_sided(0.975) * self.error


def one_sided(confidence: float) -> float:
    """Return the normal quantile."""
    return NormalDist().inv_cdf(confidence)


def psi(before: Mapping[str, int], now: Mapping[str, int]) -> float:
    """Return the population stability index of two mixes: the sum of (q - p) log(q / p) over the kinds in either."""
    kinds = sorted({*before, *now})
    totals = [sum(mix.values()) + _HALF * len(kinds) for mix in (before, now)]
    terms = []
    for kind in kinds:
        p, q = ((mix.get(kind, 0) + _HALF) / total for mix, total in zip((before, now), totals, strict=True))
        terms.append((q - p) * math.log(q / p))
    return math.fsum(terms)


def psi_by_chance(kinds: int, units_before: int, units_now: int, confidence: float = 0.99) -> float:
    """Return what the index stays below by chance alone if nothing moved: (1/n + 1/m) times a chi-square quantile."""
    return (1 / units_before + 1 / units_now) * float(chdtri(max(kinds - 1, 1), 1 - confidence))


def ratio(parts: Sequence[float], wholes: Sequence[float]) -> Estimate:
    """Return sum(parts) / sum(wholes), one entry a cluster; by linearisation."""
    total = math.fsum(wholes)
    value = math.fsum(parts) / total
    n = len(parts)
    spread = math.fsum((p - value * w) ** 2 for p, w in zip(parts, wholes, strict=True)) * n / max(n - 1, 1)
    return Estimate(value, math.sqrt(spread) / total, n)


def mean(values: Sequence[float], clusters: Sequence[str] | None = None) -> Estimate:
    """Return the mean, with clusters (each value its own where none are given) as units."""
    if clusters is None:
        return ratio(values, [1.0] * len(values))
    sums: dict[str, list[float]] = {}
    for value, name in zip(values, clusters, strict=True):
        total = sums.setdefault(name, [0.0, 0.0])
        total[0] += value
        total[1] += 1.0
    ordered = [sums[name] for name in sorted(sums)]
    return ratio([total for total, _ in ordered], [n for _, n in ordered])


def slope(xs: Sequence[float], ys: Sequence[float], clusters: Sequence[str]) -> Estimate | None:
    """Return the least-squares slope of y on x with a cluster-robust error; None where x does not vary."""
    n = len(xs)
    mean_x, mean_y = math.fsum(xs) / n, math.fsum(ys) / n
    spread = math.fsum((x - mean_x) ** 2 for x in xs)
    if spread <= 1e-12 * n:
        return None
    value = math.fsum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True)) / spread
    scores: dict[str, float] = {}
    for x, y, name in zip(xs, ys, clusters, strict=True):
        rest = y - mean_y - value * (x - mean_x)
        scores[name] = scores.get(name, 0.0) + (x - mean_x) * rest
    g = len(scores)
    meat = math.fsum(score * score for score in scores.values()) * g / max(g - 1, 1)
    return Estimate(value, math.sqrt(meat) / spread, n)
