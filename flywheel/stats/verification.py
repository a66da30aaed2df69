"""How many succeeded, where somebody looked at some only: by chance, by what was seen of them, or by their outcome.

In: counts by cell (a cell is one pattern of evidence), or rates of evidence. Out: the share of successes under each
way of choosing, and how well each fits. What depends on both the outcome and the pattern no verdict shows: bounds
remain.

Sources: Holt and Smith, J. R. Stat. Soc. A 142 (1979), for post-stratification; Lipton, Wang and Smola, ICML 2018
(arXiv:1802.03916), for label shift by moments; Manski (2003) for the bounds, in `flywheel.stats.missing`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import chdtrc

Floats = npt.NDArray[np.float64]
_ROUNDS = 20  # of reweighting; it converges in three or four


class Shift(NamedTuple):
    """A share of successes from rates of evidence, and the p-value of "the same rates explain all episodes"."""

    share: float
    p_value: float


def same_share_p(seen: Floats, total: Floats) -> float:
    """Return the chi-square p-value of "every cell was looked at with the same probability"; 1 where nothing differs.

    Args:
        seen: episodes looked at, by cell.
        total: all episodes of the cell.
    """
    rows = total > 0
    seen, total = seen[rows], total[rows]
    share = seen.sum() / total.sum() if total.sum() else 0.0
    if len(total) < 2 or not 0 < share < 1:  # noqa: PLR2004 (nothing to compare)
        return 1.0
    square = ((seen - total * share) ** 2 / (total * share * (1 - share))).sum()
    return float(chdtrc(len(total) - 1, square))


def post_stratified(good: Floats, seen: Floats, total: Floats) -> tuple[float, float]:
    """Return the share of successes with cells weighted by size, and the share of episodes in cells looked at.

    Right where looking depends on nothing but the cell.
    """
    rows = seen > 0
    if not rows.any():
        return 0.5, 0.0
    inside = float(total[rows].sum())
    return float((total[rows] * good[rows] / seen[rows]).sum() / inside), inside / float(total.sum())


def label_shift(after_success: Floats, after_failure: Floats, overall: Floats, n: tuple[float, float, float]) -> Shift:
    """Return the share of successes that explains how often each piece of evidence is seen among all episodes.

    Right where looking depends on nothing but the outcome: then evidence is as frequent after the successes that were
    looked at as after all of them.

    Args:
        after_success: (J) rate of each piece of evidence among the successes that were looked at.
        after_failure: (J) the same of the failures.
        overall: (J) among all episodes.
        n: successes and failures looked at, and all episodes.
    """
    successes, failures, episodes = (max(count, 1.0) for count in n)
    gap, share, fits = after_success - after_failure, 0.5, np.zeros(len(overall))
    for _ in range(_ROUNDS):
        variance = (
            share**2 * _spread(after_success, successes)
            + (1 - share) ** 2 * _spread(after_failure, failures)
            + _spread(overall, episodes)
        )
        strength = float((gap**2 / variance).sum())
        if strength <= 0:
            return Shift(0.5, 1.0)
        share = float(np.clip(((overall - after_failure) * gap / variance).sum() / strength, 0.0, 1.0))
        fits = (overall - share * after_success - (1 - share) * after_failure) ** 2 / variance
    return Shift(share, float(chdtrc(max(len(overall) - 1, 1), fits.sum())))


def _spread(rate: Floats, n: float) -> Floats:
    smooth = (rate * n + 0.5) / (n + 1)
    return np.asarray(smooth * (1 - smooth) / n)
