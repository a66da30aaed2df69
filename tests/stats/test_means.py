"""Means of scores: textbook values, and coverage in worlds whose mean is known."""

from __future__ import annotations

import numpy as np
import pytest
from flywheel.stats.means import difference_interval, mean_interval

DRAWS = 2_000


def test_textbook_values() -> None:
    """Student's t with 4 degrees of freedom is 2.776; Welch's interval as R's t.test gives it."""
    values = [0.2, 0.4, 0.5, 0.6, 0.8]
    low, high = mean_interval(values)
    assert (low + high) / 2 == pytest.approx(0.5)
    assert high - low == pytest.approx(2 * 2.776445 * np.std(values, ddof=1) / 5**0.5, rel=1e-6)
    assert mean_interval([0.3]) == (0.0, 1.0)
    assert mean_interval([0.9, 1.0])[1] == 1.0
    assert difference_interval([0.5, 0.5], [0.25, 0.25]) == (0.25, 0.25)
    assert difference_interval([0.5], [0.25, 0.3]) == (-1.0, 1.0)


@pytest.mark.parametrize(("a", "b"), [(2.0, 2.0), (5.0, 1.5)])
def test_intervals_hold_the_truth_nineteen_times_of_twenty(a: float, b: float) -> None:
    rng = np.random.default_rng(7)
    ours, theirs = rng.beta(a, b, (DRAWS, 25)), rng.beta(2.0, 3.0, (DRAWS, 40))
    mean, other = a / (a + b), 0.4
    means = [mean_interval(list(row)) for row in ours]
    differences = [difference_interval(list(x), list(y)) for x, y in zip(ours, theirs, strict=True)]
    assert np.mean([low <= mean <= high for low, high in means]) > 0.93
    assert np.mean([low <= mean - other <= high for low, high in differences]) > 0.93
