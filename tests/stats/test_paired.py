"""McNemar, Wilson and the rule of three against published tables and scipy."""

from __future__ import annotations

import pytest
from flywheel.stats.paired import mcnemar_better, newcombe, wilson
from hypothesis import given
from hypothesis import strategies as st

COUNTS = st.integers(0, 400)

# (wins, losses, two-sided, one-sided "candidate better")
KNOWN = [
    (25, 10, 0.016673847800120715, 0.008336923900060357),
    (15, 5, 0.04138946533203125, 0.020694732666015625),
    (5, 0, 0.0625, 0.03125),
    (12, 12, 1.0, 0.5805901288986206),
    (62, 40, 0.037066767438560584, 0.018533383719280292),
]


@pytest.mark.parametrize(("wins", "losses", "two_sided", "better"), KNOWN)
def test_mcnemar_on_known_tables(wins: int, losses: int, two_sided: float, better: float) -> None:
    assert min(1.0, 2 * mcnemar_better(wins, losses)) == pytest.approx(two_sided, abs=1e-12)
    assert mcnemar_better(wins, losses) == pytest.approx(better, abs=1e-12)


@given(COUNTS, COUNTS)
def test_mcnemar_agrees_with_scipy(wins: int, losses: int) -> None:
    from scipy.stats import binomtest

    n = wins + losses
    expected = binomtest(wins, n, 0.5, alternative="greater").pvalue if n else 1.0

    assert mcnemar_better(wins, losses) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(("wins", "losses"), [(1_050, 1_000), (5_100, 4_900), (60_000, 40_000), (30_000, 30_000)])
def test_mcnemar_on_many_cases_agrees_with_scipy(wins: int, losses: int) -> None:
    from scipy.stats import binomtest

    expected = binomtest(wins, wins + losses, 0.5, alternative="greater").pvalue

    assert mcnemar_better(wins, losses) == pytest.approx(expected, rel=1e-6, abs=1e-300)


@given(COUNTS, COUNTS)
def test_no_wins_beyond_losses_is_never_evidence(wins: int, losses: int) -> None:
    better, worse = mcnemar_better(wins, losses), mcnemar_better(losses, wins)

    assert better >= 0.5 or wins > losses
    assert better + worse >= 1.0 - 1e-12


def test_no_discordant_case_is_no_evidence() -> None:
    assert mcnemar_better(0, 0) == 1.0


@given(st.integers(1, 500).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_agrees_with_scipy(drawn: tuple[int, int]) -> None:
    from scipy.stats import binomtest

    successes, n = drawn
    expected = binomtest(successes, n).proportion_ci(0.95, method="wilson")

    assert wilson(successes, n) == pytest.approx((expected.low, expected.high), abs=1e-9)


def test_without_cases_everything_is_possible() -> None:
    assert wilson(0, 0) == (0.0, 1.0)


@pytest.mark.parametrize(
    ("rates", "low", "high"),
    [((56, 70, 48, 80), 0.0524, 0.3339), ((9, 10, 3, 10), 0.1705, 0.8090), ((10, 10, 0, 20), 0.6791, 1.0)],
)
def test_newcombe_on_the_examples_of_his_paper(rates: tuple[int, int, int, int], low: float, high: float) -> None:
    found = newcombe(*rates)

    assert found.low == pytest.approx(low, abs=5e-5)
    assert found.high == pytest.approx(high, abs=5e-5)


@given(st.integers(0, 50), st.integers(0, 50), st.integers(50, 90), st.integers(50, 90))
def test_newcombe_turns_about_when_the_sides_are_exchanged(a: int, b: int, n: int, m: int) -> None:
    one, other = newcombe(a, n, b, m), newcombe(b, m, a, n)

    assert one.low == pytest.approx(-other.high)
    assert one.high == pytest.approx(-other.low)
    assert -1 <= one.low <= a / n - b / m <= one.high <= 1
