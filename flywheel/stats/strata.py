"""Exact tests of one side's share against another's over several strata, and how many of them can show anything.

In: counts of two sides, a pair a stratum. Out: P-values by the conditional distribution given all margins (Fisher's
noncentral hypergeometric, Mantel and Haenszel's strata), and Tarone's number of tests.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import gammaln

Floats = npt.NDArray[np.float64]


class Sides(NamedTuple):
    """The answers of two sides in one stratum: how many of how many are yes."""

    yes: int
    n: int
    others_yes: int
    others_n: int


class Excess(NamedTuple):
    """P(at least so many yes on the first side), and the least that it could have been given the margins."""

    p: float
    least: float


def excess(strata: Iterable[Sides], ratio: float = 1.0) -> Excess:
    """Return the exact P-value of H0: in no stratum are the first side's odds of a yes more than `ratio` times.

    Args:
        strata: each with margins of its own; those that can differ in one way only add nothing.
        ratio: of odds, that is tolerated.
    """
    chances, over = np.ones(1), 0  # of the number of yes on the first side, from the least possible one on
    for yes, n, others_yes, others_n in strata:
        total = yes + others_yes
        least, most = max(total - others_n, 0), min(n, total)
        if most > least:
            chances = np.convolve(chances, _noncentral(n, others_n, total, np.arange(least, most + 1), ratio))
            over += yes - least
    return Excess(min(float(chances[over:].sum()), 1.0), min(float(chances[-1]), 1.0))


def _noncentral(n: int, others: int, total: int, yes: npt.NDArray[np.int64], ratio: float) -> Floats:
    """Return P(so many yes of n) given the total, at an odds ratio."""
    odds = _log_choose(n, yes) + _log_choose(others, total - yes) + yes * np.log(ratio)
    weights = np.exp(odds - odds.max())
    return np.asarray(weights / weights.sum(), dtype=np.float64)


def _log_choose(n: int, k: npt.NDArray[np.int64]) -> Floats:
    return np.asarray(gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1), dtype=np.float64)


def reachable(least: Sequence[float] | Floats, alpha: float) -> int:
    """Return the number of tests to divide alpha by: those that could reach what is left of it (Tarone 1990).

    Rejecting P-values up to alpha / `reachable` keeps the family-wise error at alpha, as Bonferroni's does with all.
    """
    numbers = np.arange(1, len(least) + 2)
    could = np.searchsorted(np.sort(np.asarray(least, dtype=np.float64)), alpha / numbers, side="right")
    return int(numbers[could <= numbers][0])
