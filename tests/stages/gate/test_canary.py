"""Two policies side by side: users who come back are one unit each, however often anyone looks."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from flywheel.stages.gate import canary
from flywheel.stages.gate.canary import (
    Sides,
    confidence_sequence,
    differences,
    log_e_better,
    log_e_failing,
    log_e_harm,
    sample_ratio_p,
    share_level,
)
from flywheel.stages.gate.evidence import STARTS
from flywheel.stats.betting import log_e


def nights_of(rng: np.random.Generator, users: int, share: float, delta: float, nights: int) -> list[Sides]:
    """Every user, with a rate of their own, comes back every night."""
    rates, canary = np.clip(rng.normal(0.5, 0.2, users), 0, 1), rng.permutation(users) < share * users
    found = []
    for _ in range(nights):
        successes = rng.binomial(2, np.clip(rates + delta * canary, 0, 1))
        sides: tuple[dict[str, tuple[float, int]], dict[str, tuple[float, int]]] = ({}, {})
        for user in range(users):
            sides[int(canary[user])][f"u{user}"] = (float(successes[user]), 2)
        found.append(Sides(*sides))
    return found


def failing(rng: np.random.Generator, rates: np.ndarray, canary: int, times: float, nights: int) -> list[Sides]:
    """Users who fail at rates of their own come back every night; the last of them are the canary's."""
    rates, found = rates.copy(), list[Sides]()
    rates[-canary:] = np.minimum(rates[-canary:] * times, 1.0)
    for _ in range(nights):
        attempts = rng.integers(2, 7, len(rates))
        sums = [(float(failed), int(n)) for failed, n in zip(rng.binomial(attempts, rates), attempts, strict=True)]
        units = [(f"u{i}", total) for i, total in enumerate(sums)]
        found.append(Sides(dict(units[:-canary]), dict(units[-canary:])))
    return found


def test_errors_roll_back_where_chance_does_not_explain_them() -> None:
    """A hundred users, of whom twenty are the canary's: a few who err at rates of their own are not a broken canary."""

    def reaches(spread: float, times: float, nights: int) -> float:
        rng, reached = np.random.default_rng(5), 0
        for _ in range(20):
            rates = rng.beta(0.1 * spread, 0.9 * spread, 100)
            reached += log_e_failing(failing(rng, rates, 20, times, nights)) >= math.log(100)
        return reached / 20

    assert max(reaches(spread, 1.0, 10) for spread in (1.0, 30.0)) == 0.0
    assert reaches(30.0, 3.0, 7) > 0.9
    assert log_e_failing([Sides({}, {"a": (3, 20)}), Sides({"b": (3, 20)}, {})]) == pytest.approx(0.0)


@pytest.mark.parametrize("drawn", range(1, 6))
def test_whoever_is_drawn_equal_failures_multiply_no_stake(drawn: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Six units of any rates, in all draws for the canary: the mean of E is 1, in one block and in two."""
    rates = {"a": 0.0, "b": 1.0, "c": 0.3, "d": 0.0, "e": 0.9, "f": 0.05}
    for block in (6, 3):
        monkeypatch.setattr(canary, "_DRAWN", block)
        stakes = [
            np.exp(canary._stakes([{u: x for u, x in rates.items() if u not in new}, {u: rates[u] for u in new}]))
            for new in itertools.combinations(rates, drawn)
        ]
        assert np.mean(stakes, axis=0) == pytest.approx(1.0)


def test_a_user_who_comes_back_is_one_unit() -> None:
    night = Sides({"a": (1.0, 1), "b": (0.0, 1)}, {"c": (1.0, 1)})
    again = Sides({"a": (0.0, 3), "b": (0.0, 1)}, {"c": (1.0, 1), "d": (0.0, 1)})

    assert differences([night], 1) == [0.5]  # the larger side is one block
    assert differences([night, again], 1) == [0.5]  # d has no partner that night
    assert sorted(differences([night, again], 2)) in ([-0.25, 1.0], [0.0, 0.75])  # by chance who meets whom


def test_without_a_unit_on_a_side_nothing_is_known() -> None:
    assert (log_e_better([]), log_e_harm([], 0.03), confidence_sequence([])) == (0.0, 0.0, (-1.0, 1.0))
    assert confidence_sequence([Sides({"a": (1.0, 1)}, {})]) == (-1.0, 1.0)


def test_one_night_is_a_bet_on_its_differences() -> None:
    night = Sides({f"o{i}": (0.0, 1) for i in range(12)}, {f"n{i}": (1.0, 1) for i in range(12)})

    expected = math.log(STARTS[1] * math.exp(log_e([1.0] * 12)) + 1 - STARTS[1])
    assert log_e_better([night]) == pytest.approx(expected)
    assert log_e_harm([night], 0.03) == 0.0 or log_e_harm([night], 0.03) < math.log(2)


@pytest.mark.parametrize("share", [0.2, 0.5])
def test_equal_policies_are_seldom_told_apart_though_users_differ_and_return(share: float) -> None:
    rng, promoted, rolled_back, missed, runs = np.random.default_rng(8), 0, 0, 0, 60
    for _ in range(runs):
        nights = nights_of(rng, 60, share, 0.0, 10)
        promoted += log_e_better(nights) >= math.log(20)
        rolled_back += log_e_harm(nights, 0.03) >= math.log(100)
        low, high = confidence_sequence(nights)
        missed += not low <= 0 <= high

    assert promoted / runs <= 0.05
    assert rolled_back == 0
    assert missed / runs <= 0.05


def test_whatever_was_before_equal_policies_multiply_no_stake(monkeypatch: pytest.MonkeyPatch) -> None:
    """Six users with outcomes and pasts of any kind, in all orders on the two sides: the mean of E is 1."""
    monkeypatch.setattr(canary, "_STRATUM", 2)
    users = [(0.0, (0.0, 4)), (1.0, (4.0, 4)), (0.2, (1.0, 2)), (0.9, None), (0.1, (9.0, 10)), (0.6, (1.0, 30))]
    stakes = []
    for order in itertools.permutations(users):
        sides = [{f"u{i}": (order[i][0], 1) for i in half} for half in (range(3), range(3, 6))]
        past = {f"u{i}": sums for i, (_, sums) in enumerate(order) if sums is not None}
        stakes.append(math.exp(log_e(differences([Sides(sides[0], sides[1], past)], 1))))

    assert math.fsum(stakes) / len(stakes) == pytest.approx(1.0)
    assert max(stakes) > 1.2


def test_like_users_are_compared() -> None:
    """Users do again what they did before: without it they differ by chance, with it by nothing."""
    rng = np.random.default_rng(10)
    rates = rng.choice([0.0, 0.5, 1.0], 200)
    sides = [{f"u{i}": (float(rates[i]), 1) for i in range(side, 200, 2)} for side in (0, 1)]
    past = {f"u{i}": (20.0 * rates[i], 20) for i in range(200)}

    by_chance, alike = (differences([Sides(sides[0], sides[1], before)], 1) for before in ({}, past))
    assert np.std(by_chance) > 0.5
    assert np.std(alike) < 0.25
    later = differences([Sides(*sides), Sides({}, {}, past)], 1)
    assert later == by_chance  # what becomes known later takes no bet back
    assert differences([Sides(*sides), Sides({}, {}, past)], 2) == alike


def test_a_better_and_a_harmful_canary_are_seen() -> None:
    rng = np.random.default_rng(9)
    assert log_e_better(nights_of(rng, 200, 0.5, 0.2, 8)) >= math.log(20)
    assert log_e_harm(nights_of(rng, 200, 0.5, -0.25, 8), 0.03) >= math.log(100)


def test_the_share_of_users() -> None:
    assert sample_ratio_p(0, 0, 0.5) == 1.0
    assert sample_ratio_p(50, 950, 0.05) == 1.0
    assert sample_ratio_p(65, 935, 0.05) == pytest.approx(math.erfc(math.sqrt(15**2 / 47.5 / 2)))
    assert sample_ratio_p(100, 900, 0.05) < 0.001


def test_a_canary_with_its_share_of_users_is_seldom_told_otherwise_however_often_one_looks() -> None:
    """At a fixed level of .001 it would be in more than one history of a hundred."""
    users = np.cumsum(np.random.default_rng(0).binomial(20, 0.5, (3_000, 60)), axis=1).tolist()
    ps = [[sample_ratio_p(new, 20 * n - new, 0.5) for n, new in enumerate(history, 1)] for history in users]

    assert np.mean([min(history) < 0.001 for history in ps]) > 0.01
    assert np.mean([any(p < share_level(n) for n, p in enumerate(history, 1)) for history in ps]) <= 0.001
    assert sum(map(share_level, range(1, 10_000))) <= 0.001
    assert share_level(0) == share_level(1)  # before anything is fresh
