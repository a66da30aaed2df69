"""Whether a calibrated probability holds for each group by itself: every policy, every intent.

In: residuals (truth minus probability) of audited rows, with weights, users and groups. Out: for each group its mean
residual with an interval over users, corrected for the number of groups, and a verdict. A policy that has learned to
please the signals has a residual below zero.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

from flywheel.stats.clusters import task_quantile

MARGIN = 0.03
LEAST_CLUSTERS = 20
Verdict = Literal["PASS", "FAIL", "INCONCLUSIVE"]


class Transport(NamedTuple):
    """One group's verdict: `residual` is the weighted mean of truth minus probability."""

    group: str
    n: int
    clusters: int
    residual: float
    low: float
    high: float
    verdict: Verdict


def transport_audit(
    residuals: Sequence[float],
    weights: Sequence[float],
    clusters: Sequence[str],
    groups: Sequence[str],
    *,
    margin: float = MARGIN,
    alpha: float = 0.05,
) -> list[Transport]:
    """Return the verdict on each group, in order of its name.

    PASS: the interval lies within +-margin. FAIL: it lies wholly outside. INCONCLUSIVE: anything else, and always with
    fewer than 20 clusters unless it failed. Intervals are Student's over clusters, at alpha / number of groups.

    Args:
        residuals: truth minus probability.
        weights: 1 / inclusion probability.
        clusters: whose rows are not independent (the user).
        groups: what is tested separately (policy, intent).
        margin: how far a mean residual may lie from 0.
        alpha: error rate over all groups together.
    """
    members: dict[str, list[int]] = {}
    for index, group in enumerate(groups):
        members.setdefault(group, []).append(index)
    level = 1 - alpha / (2 * len(members)) if members else 1.0
    verdicts = []
    for group, rows in sorted(members.items()):
        mean, half, units = _clustered(rows, residuals, weights, clusters, level)
        low, high = mean - half, mean + half
        verdict: Verdict = "INCONCLUSIVE"
        if low > margin or high < -margin:
            verdict = "FAIL"
        elif -margin <= low and high <= margin and units >= LEAST_CLUSTERS:
            verdict = "PASS"
        verdicts.append(Transport(group, len(rows), units, mean, low, high, verdict))
    return verdicts


def _clustered(
    rows: Sequence[int], residuals: Sequence[float], weights: Sequence[float], clusters: Sequence[str], level: float
) -> tuple[float, float, int]:
    """Return the weighted mean, half its interval, and the number of clusters."""
    mass = math.fsum(weights[i] for i in rows)
    mean = math.fsum(weights[i] * residuals[i] for i in rows) / mass
    sums: dict[str, list[float]] = {}
    for i in rows:
        sums.setdefault(clusters[i], []).append(weights[i] * (residuals[i] - mean))
    units = len(sums)
    if units == 1:
        return mean, math.inf, units
    spread = math.fsum(math.fsum(values) ** 2 for values in sums.values()) * units / (units - 1)
    return mean, task_quantile(units, level) * math.sqrt(spread) / mass, units
