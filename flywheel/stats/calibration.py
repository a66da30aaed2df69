"""Calibration of probabilities: isotonic regression on audited rows, and measures of the remaining error.

In: scores, known outcomes and weights. Out: a rising curve from score to probability, cross-fitted so that its own
error is not flattered, and the two usual measures of error.

Sources: Ayer et al., Ann. Math. Stat. 26 (1955), for pooling adjacent violators; Zadrozny and Elkan, KDD 2002.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import NamedTuple


def pool_adjacent_violators(values: Sequence[float], weights: Sequence[float] | None = None) -> list[float]:
    """Return the closest rising sequence in weighted least squares."""
    blocks: list[tuple[float, float, int]] = []  # mean, weight, length
    for value, weight in zip(values, weights or [1.0] * len(values), strict=True):
        mean, mass, length = value, weight, 1
        while blocks and blocks[-1][0] >= mean:
            before, heavy, long = blocks.pop()
            mean = (before * heavy + mean * mass) / (heavy + mass)
            mass, length = heavy + mass, long + length
        blocks.append((mean, mass, length))
    return [mean for mean, _, length in blocks for _ in range(length)]


class Curve(NamedTuple):
    """A rising curve through its knots, straight between them and level outside."""

    scores: tuple[float, ...]
    values: tuple[float, ...]

    def at(self, score: float) -> float:
        """Return the curve's value; the score itself where there are no knots."""
        from bisect import bisect_left

        if not self.scores:
            return score
        place = bisect_left(self.scores, score)
        if place == 0 or place == len(self.scores):
            return self.values[min(place, len(self.scores) - 1)]
        (x0, x1), (y0, y1) = self.scores[place - 1 : place + 1], self.values[place - 1 : place + 1]
        return min(y0 + (y1 - y0) * ((score - x0) / (x1 - x0)), y1)

    def shrunk_to_identity(self, share: float) -> Curve:
        """Return the curve shrunk towards "a score is its own probability": 0 leaves it, 1 replaces it."""
        values = [(1 - share) * y + share * x for x, y in zip(self.scores, self.values, strict=True)]
        return Curve(self.scores, tuple(values))


def isotonic(scores: Sequence[float], outcomes: Sequence[float], weights: Sequence[float]) -> Curve:
    """Return the rising curve from score to P(outcome); equal scores are one knot."""
    pooled: dict[float, list[tuple[float, float]]] = {}
    for score, outcome, weight in zip(scores, outcomes, weights, strict=True):
        pooled.setdefault(score, []).append((outcome, weight))
    xs = sorted(pooled)
    masses = [sum(sorted(w for _, w in pooled[x])) for x in xs]
    means = [sum(sorted(y * w for y, w in pooled[x])) / m for x, m in zip(xs, masses, strict=True)]
    return Curve(tuple(xs), tuple(pool_adjacent_violators(means, masses)))


def cross_fitted(
    scores: Sequence[float], outcomes: Sequence[float], weights: Sequence[float], names: Sequence[str], folds: int = 5
) -> list[float]:
    """Return each row's calibrated probability by a curve that was fitted without the row's fold.

    Args:
        scores: uncalibrated probabilities.
        outcomes: known outcomes, in [0, 1].
        weights: 1 / inclusion probability.
        names: the task or user of each row; its hash decides the fold, so order does not matter.
        folds: how many.
    """
    fold = [fold_of(name, folds) for name in names]
    calibrated = list(scores)
    for number in range(folds):
        rest = [i for i, f in enumerate(fold) if f != number]
        if len(rest) == len(fold):
            continue
        curve = isotonic([scores[i] for i in rest], [outcomes[i] for i in rest], [weights[i] for i in rest])
        for i, f in enumerate(fold):
            calibrated[i] = curve.at(scores[i]) if f == number else calibrated[i]
    return calibrated


def fold_of(name: str, folds: int = 5) -> int:
    """Return the fold of a task or user, by its hash."""
    return int(hashlib.sha256(name.encode()).hexdigest()[:8], 16) % folds


def expected_calibration_error(
    scores: Sequence[float], outcomes: Sequence[float], weights: Sequence[float] | None = None, bins: int = 10
) -> float:
    """Return the weighted mean distance between score and outcome over equal bins of [0, 1]."""
    sums: dict[int, list[float]] = {}
    for score, outcome, weight in zip(scores, outcomes, weights or [1.0] * len(scores), strict=True):
        place = sums.setdefault(min(int(score * bins), bins - 1), [0.0, 0.0])
        place[0] += weight * (outcome - score)
        place[1] += weight
    total = sum(mass for _, mass in sums.values())
    return sum(abs(gap) for gap, _ in sums.values()) / total if total > 0 else 0.0


def brier(scores: Sequence[float], outcomes: Sequence[float], weights: Sequence[float] | None = None) -> float:
    """Return the weighted mean squared distance between score and outcome."""
    rows = list(zip(scores, outcomes, weights or [1.0] * len(scores), strict=True))
    total = sum(weight for _, _, weight in rows)
    return sum(weight * (outcome - score) ** 2 for score, outcome, weight in rows) / total if total > 0 else 0.0
