"""Confidence sequences cover at all times; the split of users is checked."""

from __future__ import annotations

import math

import numpy as np
import pytest
from flywheel.stats.sequence import confidence_sequence, sample_ratio_p
from hypothesis import given
from hypothesis import strategies as st


def test_without_values_nothing_is_known() -> None:
    assert confidence_sequence([]) == (0.0, 1.0)
    with pytest.raises(ValueError, match=r"\[0, 1\]"):
        confidence_sequence([1.5])


@given(values=st.lists(st.floats(0, 1), min_size=1, max_size=60))
def test_it_shrinks_and_stays_within_bounds(values: list[float]) -> None:
    low, high = confidence_sequence(values)
    shorter = confidence_sequence(values[:-1])

    assert 0 <= low <= high <= 1
    assert shorter.low <= low + 1e-9
    assert high <= shorter.high + 1e-9


def test_it_misses_seldom_however_often_one_looks() -> None:
    """The sequence only shrinks, so its last value has missed if any look has."""
    rng, missed, widths = np.random.default_rng(0), 0, []
    for _ in range(200):
        low, high = confidence_sequence((rng.random(500) < 0.3).astype(float).tolist())
        missed += not low <= 0.3 <= high
        widths.append(high - low)
    assert missed <= 10  # 5 % are allowed
    assert 0.08 < float(np.mean(widths)) < 0.16  # a fixed interval: .080


def test_sample_ratio() -> None:
    assert sample_ratio_p(0, 0, 0.5) == 1.0
    assert sample_ratio_p(50, 950, 0.05) == 1.0
    assert sample_ratio_p(65, 935, 0.05) == pytest.approx(math.erfc(math.sqrt(15**2 / 47.5 / 2)))
    assert sample_ratio_p(100, 900, 0.05) < 0.001
