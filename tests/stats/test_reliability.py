"""pass^k: known values and exact unbiasedness."""

from __future__ import annotations

from math import comb

import pytest
from flywheel.stats.reliability import pass_all


def test_known_values() -> None:
    assert pass_all([(4, 4), (2, 4), (0, 4)], 1) == pytest.approx((0.5, 3))
    assert pass_all([(4, 4), (2, 4), (0, 4)], 2) == pytest.approx(((1 + 1 / 6 + 0) / 3, 3))
    assert pass_all([(3, 3), (1, 2)], 3) == (1.0, 1)
    assert pass_all([(1, 1)], 2) is None


@pytest.mark.parametrize("k", [1, 2, 3])
def test_it_is_unbiased(k: int) -> None:
    p, n = 0.7, 5
    expected = sum(
        comb(n, c) * p**c * (1 - p) ** (n - c) * found[0]
        for c in range(n + 1)
        if (found := pass_all([(c, n)], k)) is not None
    )
    assert expected == pytest.approx(p**k)
