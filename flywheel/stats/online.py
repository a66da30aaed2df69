"""Testing night after night without fooling oneself.

Two problems, two tools. A stream of different candidates: LORD++ gives each night's test its level, so that in the long
run at most a share alpha of the promotions is false. The same candidate while data come in: an e-process may be looked
at after every observation, and stops at 1/alpha.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

_GAMMA = 0.07720838  # makes the gammas sum to at most 1
_BET_CAP = 0.5
_PRIOR_VARIANCE = 0.25


def gamma(j: int) -> float:
    """Return the j-th share of a wealth, j counted from 1; 0 before."""
    if j < 1:
        return 0.0
    return _GAMMA * math.log(max(j, 2)) / (j * math.exp(math.sqrt(math.log(j))))


def lord_level(t: int, rejections: Sequence[int], *, alpha: float, initial_wealth: float) -> float:
    """Return the level of the t-th test (from 1), given the earlier tests that rejected.

    Valid only if a test's cases were not seen by the decisions before it.

    Raises:
        ValueError: the initial wealth exceeds alpha.
    """
    if not 0 < initial_wealth <= alpha < 1:
        raise ValueError("LORD++ needs 0 < initial wealth <= alpha < 1")
    earlier = sorted(r for r in rejections if r < t)
    level = gamma(t) * initial_wealth
    if earlier:
        level += (alpha - initial_wealth) * gamma(t - earlier[0])
    return level + alpha * math.fsum(gamma(t - r) for r in earlier[1:])


def e_process(differences: Iterable[float]) -> Iterator[float]:
    """Yield log E after each paired difference in [-1, 1]; the null is that their mean is at most 0.

    Whoever stops when E reaches 1/alpha is wrong with probability at most alpha, however often they look. As a guard
    against harm by more than m, feed it -(difference + m), scaled into [-1, 1].

    Raises:
        ValueError: a difference lies outside [-1, 1].
    """
    n, total, squares, log_e = 0, 0.0, 0.0, 0.0
    for x in differences:
        if not -1 <= x <= 1:
            raise ValueError("differences must lie in [-1, 1]")
        mean, variance = total / (n + 1), (_PRIOR_VARIANCE + squares) / (n + 1)
        bet = min(max(mean / (variance + mean * mean), 0.0), _BET_CAP)  # from the past only
        log_e += math.log1p(bet * x)
        n, total = n + 1, total + x
        squares += (x - total / (n + 1)) ** 2
        yield log_e
