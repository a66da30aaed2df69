"""How many cases a decision needs, how likely it is to be reached, and how small a difference could be seen.

`discordance` is the share of cases that exactly one policy gets right; `difference` the candidate's rate minus the
baseline's. Tests are one-sided. All formulae are normal approximations and meant for planning, never for deciding.
"""

from __future__ import annotations

import math
from statistics import NormalDist

_NORMAL = NormalDist()
_HALVINGS = 60


def _needed(discordance: float, difference: float, *, alpha: float, power: float) -> float:
    z_alpha, z_beta = -_NORMAL.inv_cdf(alpha), _NORMAL.inv_cdf(power)
    spread = math.sqrt(max(0.0, discordance - difference**2))
    return (z_alpha * math.sqrt(discordance) + z_beta * spread) ** 2 / difference**2


def cases_for_superiority(discordance: float, difference: float, *, alpha: float = 0.05, power: float = 0.8) -> int:
    """Return the paired cases that McNemar's test needs to see this difference.

    Raises:
        ValueError: the difference is not positive, or greater than the discordance, which cannot be.
    """
    if not 0 < difference <= discordance <= 1:
        raise ValueError("the difference must be positive and at most the discordance")
    return math.ceil(_needed(discordance, difference, alpha=alpha, power=power))


def superiority_power(n: float, discordance: float, difference: float, *, alpha: float = 0.05) -> float:
    """Return how likely McNemar's test on n cases is to see this difference."""
    if n <= 0 or discordance <= 0:
        return 0.0
    spread = math.sqrt(max(discordance - difference**2, 1e-12))
    z_alpha = -_NORMAL.inv_cdf(alpha)
    return _NORMAL.cdf((difference * math.sqrt(n) - z_alpha * math.sqrt(discordance)) / spread)


def least_difference(n: float, discordance: float, *, alpha: float = 0.05, power: float = 0.8) -> float | None:
    """Return the least difference that n cases would show with this power; None where they could show none."""
    if n <= 0 or discordance <= 0 or _needed(discordance, discordance, alpha=alpha, power=power) > n:
        return None
    low, high = 0.0, discordance
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if middle > 0 and _needed(discordance, middle, alpha=alpha, power=power) <= n:
            high = middle
        else:
            low = middle
    return high


def cases_for_non_inferiority(
    discordance: float, margin: float, *, guardrails: int = 1, alpha: float = 0.05, beta: float = 0.2
) -> int:
    """Return the paired cases needed to show that an equal candidate is not worse by the margin.

    All guardrails must pass, so each one's chance of failing although nothing is wrong is kept to beta / guardrails;
    alpha needs no correction for the same reason.
    """
    z = _NORMAL.inv_cdf(1 - alpha) + _NORMAL.inv_cdf(1 - beta / guardrails)
    return math.ceil(z * z * discordance / margin**2)
