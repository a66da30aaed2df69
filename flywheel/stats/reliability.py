"""How reliably a task is solved: pass^k, the chance that k independent attempts at one task all succeed."""

from __future__ import annotations

import math
from collections.abc import Iterable


def pass_all(attempts: Iterable[tuple[int, int]], k: int) -> tuple[float, int] | None:
    """Return (mean of C(c, k) / C(n, k), tasks) over tasks with at least k attempts; None without one.

    The unbiased estimator of tau-bench (Yao et al. 2024).

    Args:
        attempts: (successes c, attempts n) of each task.
        k: attempts that must all succeed, 1 or more.
    """
    chances = [math.comb(c, k) / math.comb(n, k) for c, n in attempts if n >= k]
    return (math.fsum(chances) / len(chances), len(chances)) if chances else None
