"""Ratings that only some give: what they imply for all users.

Sources: Manski, Partial Identification of Probability Distributions (2003), for the worst-case bounds.
"""

from __future__ import annotations

from collections.abc import Mapping

THUMBS_SENTENCE = "thumbs alone identify nothing: those who do not rate may be all content or all not"
_LEAST_PROPENSITY = 0.05


def worst_case_bounds(response_rate: float, mean: float) -> tuple[float, float]:
    """Return the least and greatest mean over all users, given the mean in [0, 1] of those who answered."""
    low = response_rate * mean
    return low, low + 1 - response_rate


def inverse_response_mean(cells: Mapping[str, tuple[int, int, float]]) -> float | None:
    """Return the mean rating weighted by 1 / P(rated | cell), as if ratings were missing at random within a cell.

    Args:
        cells: by name: episodes, ratings, sum of the ratings in [0, 1]. Probabilities are held above 0.05.
    """
    total = weights = 0.0
    for name in sorted(cells):
        episodes, ratings, good = cells[name]
        if ratings:
            weight = 1 / max(ratings / episodes, _LEAST_PROPENSITY)
            total, weights = total + weight * good, weights + weight * ratings
    return total / weights if weights else None
