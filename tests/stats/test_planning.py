"""Sample sizes, power and least differences against known answers and against each other."""

from __future__ import annotations

import pytest
from flywheel.stats.planning import (
    cases_for_non_inferiority,
    cases_for_superiority,
    least_difference,
    superiority_power,
)
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("discordance", "difference", "n"), [(0.2, 0.05, 493), (0.1, 0.03, 685), (0.15, 0.02, 2317), (0.3, 0.1, 184)]
)
def test_cases_for_superiority(discordance: float, difference: float, n: int) -> None:
    assert cases_for_superiority(discordance, difference) == n


@pytest.mark.parametrize(
    ("discordance", "margin", "guardrails", "n"),
    [(0.1, 0.05, 1, 248), (0.1, 0.05, 5, 462), (0.15, 0.03, 5, 1922), (0.05, 0.02, 3, 1238)],
)
def test_cases_for_non_inferiority(discordance: float, margin: float, guardrails: int, n: int) -> None:
    assert cases_for_non_inferiority(discordance, margin, guardrails=guardrails) == n


@pytest.mark.parametrize(("n", "expected"), [(100, 0.095), (200, 0.068), (500, 0.043), (1000, 0.030)])
def test_least_difference(n: int, expected: float) -> None:
    assert least_difference(n, 0.15) == pytest.approx(expected, abs=5e-4)


@given(st.floats(0.05, 0.9), st.floats(0.05, 0.95))
def test_needed_cases_have_the_power_asked_for(discordance: float, share: float) -> None:
    difference = share * discordance
    n = cases_for_superiority(discordance, difference, alpha=0.01, power=0.8)

    assert superiority_power(n, discordance, difference, alpha=0.01) == pytest.approx(0.8, abs=0.2)
    assert superiority_power(n, discordance, difference, alpha=0.01) >= 0.8 - 1e-9
    assert least_difference(n, discordance, alpha=0.01) == pytest.approx(difference, rel=0.25)


def test_too_few_cases_could_show_nothing() -> None:
    assert least_difference(2, 0.1) is None
    assert least_difference(0, 0.5) is None
    assert superiority_power(0, 0.5, 0.1) == 0.0
    assert superiority_power(10, 0.0, 0.0) == 0.0


@pytest.mark.parametrize(("discordance", "difference"), [(0.1, 0.0), (0.1, -0.05), (0.1, 0.2)])
def test_no_number_of_cases_shows_what_is_not_there(discordance: float, difference: float) -> None:
    with pytest.raises(ValueError, match="difference must be positive"):
        cases_for_superiority(discordance, difference)
