"""Holm's correction."""

from __future__ import annotations

import pytest
from flywheel.stats.multiple import holm
from hypothesis import given
from hypothesis import strategies as st


def test_a_worked_example() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])


def test_nothing_to_correct() -> None:
    assert holm([]) == []
    assert holm([0.03]) == [0.03]


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20))
def test_between_no_correction_and_bonferroni(p_values: list[float]) -> None:
    adjusted = holm(p_values)

    assert all(p <= a <= min(1.0, len(p_values) * p) + 1e-12 for p, a in zip(p_values, adjusted, strict=True))
