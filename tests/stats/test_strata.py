"""Shares of two sides over strata: Fisher's exact test where there is one stratum, and what several add up to."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from itertools import product

import pytest
from flywheel.stats.strata import Sides, excess, reachable

TEA = Sides(3, 4, 1, 4)  # Fisher's lady: of four cups with milk first she names three


def test_one_stratum_is_fishers_exact_test() -> None:
    assert excess([TEA]).p == pytest.approx(17 / 70)
    assert excess([TEA]).least == pytest.approx(1 / 70)


def by_counting(strata: list[Sides], ratio: float) -> Iterator[tuple[int, float]]:
    """Yield (number of yes on the first sides, weight) of every way in which the margins can come about."""
    of_each = [
        [
            (k, math.comb(s.n, k) * math.comb(s.others_n, s.yes + s.others_yes - k) * ratio**k)
            for k in range(s.n + 1)
            if 0 <= s.yes + s.others_yes - k <= s.others_n
        ]
        for s in strata
    ]
    for ways in product(*of_each):
        yield sum(k for k, _ in ways), math.prod(weight for _, weight in ways)


@pytest.mark.parametrize("seed", range(20))
def test_strata_and_odds_are_those_of_counting_every_way(seed: int) -> None:
    draw = random.Random(seed)  # noqa: S311 - a case
    strata, ratio = [], draw.choice([1.0, 2.0, 3.5])
    for _ in range(draw.randint(1, 3)):
        n, others = draw.randint(0, 6), draw.randint(0, 6)
        strata.append(Sides(draw.randint(0, n), n, draw.randint(0, others), others))
    ways = list(by_counting(strata, ratio))
    everything, seen = math.fsum(weight for _, weight in ways), sum(s.yes for s in strata)
    found = excess(strata, ratio)
    assert found.p == pytest.approx(math.fsum(weight for k, weight in ways if k >= seen) / everything)
    most = max(k for k, _ in ways)
    assert found.least == pytest.approx(math.fsum(weight for k, weight in ways if k == most) / everything)
    assert found.least <= found.p + 1e-12


def test_nothing_to_compare_with_shows_nothing() -> None:
    assert excess([]) == excess([Sides(5, 5, 0, 0)]) == (1.0, 1.0)
    assert excess([TEA, Sides(9, 9, 0, 0), Sides(0, 3, 0, 3)]).p == pytest.approx(17 / 70)


def test_thousands_of_accounts_are_no_matter() -> None:
    assert 0 < excess([Sides(4000, 4000, 0, 6)], 2.0).p < 1e-15


def test_only_tests_that_could_reach_the_level_are_counted() -> None:
    assert reachable([], 0.05) == 1
    assert reachable([1e-9] * 8, 0.05) == 8
    assert reachable([1e-9, 0.5, 0.5, 0.06], 0.05) == 1
    assert reachable([1e-9, 0.5, 0.5, 0.03], 0.05) == 2  # at .05 there are two
    assert reachable([*[1e-9] * 3, *[0.01] * 4], 0.05) == 6  # seven could reach .05 / 5, three .05 / 6
