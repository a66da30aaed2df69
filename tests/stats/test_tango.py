"""Tango's interval and non-inferiority test against known intervals, and their size by enumeration."""

from __future__ import annotations

import math
from itertools import product

import pytest
from flywheel.stats.tango import non_inferiority_z, tango_interval, tango_z
from hypothesis import given
from hypothesis import strategies as st

KNOWN = [
    (12, 9, 200, (-0.0321, 0.0636)),
    (4, 9, 200, (-0.0663, 0.0118)),
    (25, 10, 300, (0.0120, 0.0912)),
    (2, 0, 50, (-0.0342, 0.1346)),
]


@pytest.mark.parametrize(("wins", "losses", "n", "expected"), KNOWN)
def test_known_intervals(wins: int, losses: int, n: int, expected: tuple[float, float]) -> None:
    assert tango_interval(wins, losses, n) == pytest.approx(expected, abs=5e-5)


TABLES = st.tuples(st.integers(0, 60), st.integers(0, 60), st.integers(1, 200))


@given(TABLES)
def test_the_interval_holds_the_observed_difference_and_mirrors(drawn: tuple[int, int, int]) -> None:
    wins, losses, concordant = drawn
    n = wins + losses + concordant
    low, high = tango_interval(wins, losses, n)
    mirrored = tango_interval(losses, wins, n)

    assert -1 <= low <= (wins - losses) / n <= high <= 1
    assert (-mirrored.high, -mirrored.low) == pytest.approx((low, high), abs=1e-9)


@given(TABLES)
def test_interval_and_test_of_no_difference_agree_with_mcnemar_z(drawn: tuple[int, int, int]) -> None:
    wins, losses, concordant = drawn
    n = wins + losses + concordant
    expected = (wins - losses) / math.sqrt(wins + losses) if wins + losses else 0.0

    assert tango_z(wins, losses, n, 0.0) == pytest.approx(expected, abs=1e-6)


def test_fewer_independent_cases_widen_the_interval() -> None:
    plain, halved = tango_interval(20, 10, 100), tango_interval(10, 5, 50)

    assert halved.high - halved.low > plain.high - plain.low


def test_without_cases_everything_is_possible() -> None:
    assert tango_interval(0, 0, 0) == (-1.0, 1.0)


def test_an_infinite_quantile_gives_the_whole_range() -> None:
    assert tango_interval(5, 0, 5, quantile=math.inf) == pytest.approx((-1.0, 1.0))


@pytest.mark.parametrize(
    ("n", "discordance", "margin", "size", "power"),
    [(100, 0.15, 0.02, 0.05, 0.13), (200, 0.15, 0.02, 0.05, 0.175), (200, 0.05, 0.02, 0.05, 0.32)],
)
def test_size_at_the_margin_and_power_at_equality(
    n: int, discordance: float, margin: float, size: float, power: float
) -> None:
    passes = [
        (b, c) for b, c in product(range(n // 2), repeat=2) if b + c <= n and non_inferiority_z(b, c, n, margin) > 1.645
    ]

    def chance(p_win: float, p_loss: float) -> float:
        rest = math.log(1 - p_win - p_loss)
        return sum(
            math.exp(
                math.lgamma(n + 1) - math.lgamma(b + 1) - math.lgamma(c + 1) - math.lgamma(n - b - c + 1)
                + b * math.log(p_win) + c * math.log(p_loss) + (n - b - c) * rest
            )
            for b, c in passes
        )  # fmt: skip

    assert chance((discordance - margin) / 2, (discordance + margin) / 2) == pytest.approx(size, abs=0.004)
    assert chance(discordance / 2, discordance / 2) == pytest.approx(power, abs=0.01)
