"""Several tests at once: Holm's step-down correction, weighted where some tests matter more."""

from __future__ import annotations

import math
from collections.abc import Sequence


def holm(p_values: Sequence[float], weights: Sequence[float] | None = None) -> list[float]:
    """Return the adjusted p-values, in the given order: those at most alpha are rejected at family-wise alpha.

    Args:
        p_values: one a test.
        weights: each test's share of alpha, positive, in any unit (Holm 1979, section 4); equal by default.
    """
    share = [1.0] * len(p_values) if weights is None else list(weights)
    order = sorted(range(len(p_values)), key=lambda i: (p_values[i] / share[i], i))
    adjusted, highest = [0.0] * len(p_values), 0.0
    for rank, i in enumerate(order):
        left = math.fsum(share[k] for k in order[rank:])
        highest = max(highest, min(1.0, p_values[i] * left / share[i]))
        adjusted[i] = highest
    return adjusted
