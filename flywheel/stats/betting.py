"""Evidence that a mean of bounded differences is above zero, valid however often one looks.

A gambler who bets the share b of the stake on each paired difference d in [-1, 1] multiplies it by 1 + bd. Where the
mean is at most 0 no strategy makes the stake grow, so a stake of 1/alpha is seen with probability at most alpha, at any
look and for any distribution of d (Ville 1939; Waudby-Smith and Ramdas, JRSS-B 2024). Here the stake is spread over b
by a fixed prior, so the evidence does not depend on the order of the differences. No symmetry is needed: nine in ten
gaining one case while one in ten loses nine has mean zero, and holds its level.

The level that a candidate's evidence must reach is `stats.planning.candidate_level`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from flywheel.stats.paired import Interval

if TYPE_CHECKING:
    Floats = npt.NDArray[np.float64]

_BETS = np.linspace(0.0, 1.0, 66)[1:-1]
_PEAKED = _BETS**2 * (1 - _BETS) ** 5  # most improvements are small: Beta(3, 6), with its mode at 2/7
# Half of the stake is spread evenly, for improvements that are large.
_LOG_PRIOR = np.log(0.5 / len(_BETS) + 0.5 * _PEAKED / _PEAKED.sum())
_BOLDEST = _BETS**64 / (_BETS**64).sum()  # Beta(65, 1)
_MEANS = 401  # grid of possible means for an interval
_BLOCK = 4096  # differences that are multiplied at once


def log_e(differences: Sequence[float] | Floats, *, bold: float = 0.0) -> float:
    """Return log E of "their mean is at most 0"; 0 without differences.

    Args:
        differences: independent given the past, each in [-1, 1].
        bold: share of the stake on the highest bets, the rest evenly on all. Means of many cases vary so little that
            almost any improvement is worth the highest bets. Never chosen by what the differences are.

    Raises:
        ValueError: a difference lies outside [-1, 1].
    """
    stakes = _log_stakes(_checked(differences))
    return float(_spread(stakes, np.log((1 - bold) / len(_BETS) + bold * _BOLDEST) if bold else _LOG_PRIOR))


def _checked(differences: Sequence[float] | Floats) -> Floats:
    data = np.asarray(differences, dtype=np.float64)
    if len(data) and (data.min() < -1 or data.max() > 1):
        raise ValueError("differences must lie in [-1, 1]")
    return data


def _log_stakes(data: Floats) -> Floats:
    """Return the log of each bet's stake after all differences; equal ones are multiplied once."""
    values, counts = np.unique(data, return_counts=True)
    total = np.zeros(len(_BETS))
    for start in range(0, len(values), _BLOCK):
        block = slice(start, start + _BLOCK)
        total += np.log1p(np.outer(_BETS, values[block])) @ counts[block].astype(np.float64)
    return total


def _spread(log_stakes: Floats, log_prior: Floats = _LOG_PRIOR) -> np.float64:
    terms = log_stakes + log_prior
    most = terms.max()
    return np.float64(most + np.log(np.exp(terms - most).sum()))


def interval(differences: Sequence[float] | Floats, *, alpha: float = 0.05) -> Interval:
    """Return the means in [-1, 1] that neither a bet above nor a bet below has ruled out, to a two-hundredth.

    At the look where it is made it covers with probability 1 - alpha, and so do all looks together.
    """
    data = _checked(differences)
    if len(data) == 0:
        return Interval(-1.0, 1.0)
    bound = math.log(2 / alpha)
    low, high = _lowest(data, bound), -_lowest(-data, bound)
    return Interval(min(low, float(data.mean())), max(high, float(data.mean())))


def _lowest(data: Floats, bound: float) -> float:
    """Return the least mean m that the bets above it have not ruled out: (d - m) / (1 + m) lies in [-1, 1]."""
    means = np.linspace(-1.0, 1.0, _MEANS)
    low, high = 0, _MEANS - 1  # the evidence against "at most m" falls with m
    while low < high:
        middle = (low + high) // 2
        shifted = np.maximum((data - means[middle]) / (1 + max(means[middle], 0.0)), -1.0)
        if _spread(_log_stakes(shifted)) >= bound:
            low = middle + 1
        else:
            high = middle
    return float(means[max(low - 1, 0)])


# Codes of what looks end in: a weight, and the counts that each supposes before the first look. Looks that decide
# nothing cost the first little; the second (Krichevsky and Trofimov's, 1981) expects many to decide.
_CODES = (
    (0.75, {"open": 10.0, "promoted": 0.1, "rejected": 0.6}),
    (0.25, {"open": 0.5, "promoted": 0.5, "rejected": 0.5}),
)


def transcript_bits(outcomes: Sequence[str]) -> float:
    """Return the length of a code for what decisions have made known, in bits.

    A candidate chosen after these outcomes may be chosen *by* them. Cases that were looked at before it then count with
    2^-bits: over all transcripts these weights sum to 1, so whichever candidate came of it, its expected evidence is at
    most 1 where it is not better (a union bound; compare Dwork et al. 2015). A transcript's weight is the weighted mean
    of two codes' weights.

    Args:
        outcomes: of each look, oldest first: 'open', 'promoted' or 'rejected'.

    Raises:
        ValueError: another word.
    """
    shorter, longer = sorted(_coded(outcomes, counts) - math.log2(share) for share, counts in _CODES)
    return max(0.0, shorter - math.log2(1.0 + 2.0 ** (shorter - longer)))


def _coded(outcomes: Sequence[str], before: Mapping[str, float]) -> float:
    """Return the length of outcomes in bits, each coded by how often it came before."""
    counts, bits, total = dict(before), 0.0, sum(before.values())
    for outcome in outcomes:
        if outcome not in counts:
            raise ValueError(f"no such outcome of a look: {outcome}")
        bits -= math.log2(counts[outcome] / total)
        counts[outcome], total = counts[outcome] + 1, total + 1
    return bits
