"""Betting on differences: known answers, levels that hold in odd worlds, and codes whose weights sum to one."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from flywheel.stats.betting import interval, log_e, transcript_bits
from hypothesis import given
from hypothesis import strategies as st

DIFFERENCES = st.lists(st.floats(-1, 1, allow_nan=False), max_size=40)


def test_known_answers() -> None:
    assert log_e([]) == 0.0
    assert log_e([0.0] * 50) == pytest.approx(0.0, abs=1e-12)
    assert log_e([1.0] * 18 + [-1.0]) == pytest.approx(7.378637696536786)
    assert log_e([0.2] * 60, bold=0.5) == pytest.approx(60 * math.log(1.2), abs=1)
    # one win doubles the stake that is bet wholly: the mean bet is (1/2 + 1/3) / 2 to the grid's accuracy
    assert math.exp(log_e([1.0])) == pytest.approx(1 + (0.5 + 1 / 3) / 2, abs=1e-3)


@given(DIFFERENCES, st.randoms())
def test_the_order_of_the_differences_is_irrelevant(differences: list[float], random: object) -> None:
    shuffled = list(differences)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert log_e(shuffled) == pytest.approx(log_e(differences), abs=1e-9)


@given(DIFFERENCES)
def test_a_win_raises_the_evidence_and_a_loss_lowers_it(differences: list[float]) -> None:
    assert log_e([*differences, -1.0]) < log_e(differences) + 1e-12 < log_e([*differences, 1.0]) + 1e-9


def test_a_difference_beyond_one_is_refused() -> None:
    with pytest.raises(ValueError, match="differences"):
        log_e([1.5])


@pytest.mark.parametrize(
    ("values", "chances"),
    [
        ([1.0, -1.0, 0.0], [0.075, 0.075, 0.85]),
        ([1 / 9, -1.0], [0.9, 0.1]),  # nine in ten gain a case, one loses nine: symmetric tests reject in .35 of runs
        ([1.0, -1 / 9], [0.1, 0.9]),
    ],
)
def test_a_mean_of_zero_is_seldom_taken_for_more_however_often_one_looks(
    values: list[float], chances: list[float]
) -> None:
    rng, crossed, runs = np.random.default_rng(3), 0, 400
    for _ in range(runs):
        differences = rng.choice(values, 120, p=chances)
        crossed += any(log_e(differences[:n]) >= math.log(20) for n in range(10, 121, 10))

    assert crossed / runs <= 0.05


def test_intervals_cover_and_shrink() -> None:
    rng, covered, runs = np.random.default_rng(4), 0, 120
    for _ in range(runs):
        low, high = interval(rng.choice([1.0, -1.0, 0.0], 200, p=[0.1, 0.05, 0.85]))
        covered += low <= 0.05 <= high
    assert covered / runs >= 0.95
    assert interval([]) == (-1.0, 1.0)
    wide, narrow = interval([0.5, -0.5] * 10), interval([0.5, -0.5] * 200)
    assert wide.low < narrow.low < 0 < narrow.high < wide.high


@pytest.mark.parametrize("length", [1, 3, 6])
def test_the_weights_of_all_transcripts_sum_to_one(length: int) -> None:
    weights = [2 ** -transcript_bits(t) for t in itertools.product(["open", "promoted", "rejected"], repeat=length)]
    assert math.fsum(weights) == pytest.approx(1.0)


def test_looks_that_decide_nothing_give_away_little() -> None:
    assert transcript_bits([]) == 0.0
    assert transcript_bits(["open"] * 60) < 2.5
    assert transcript_bits(["open"] * 9 + ["rejected"]) < 6.1
    assert transcript_bits((["open"] * 9 + ["promoted"]) * 6) == pytest.approx(34.4, abs=0.1)
    with pytest.raises(ValueError, match="outcome"):
        transcript_bits(["whatever"])


def test_looks_that_all_decide_give_away_less_than_their_number_suggests() -> None:
    assert transcript_bits(["promoted", "rejected"]) == pytest.approx(5.88, abs=0.01)
    assert transcript_bits(["rejected"] * 10) < 7
    assert transcript_bits(["promoted", "rejected"] * 600) > 1_024  # 2 to that power is no float
