"""Delays, isotonic regression, bounds, thresholds, chains, draws and transport against numbers worked out elsewhere."""

from __future__ import annotations

import math

import numpy as np
import pytest
from flywheel.stats.calibration import (
    brier,
    cross_fitted,
    expected_calibration_error,
    isotonic,
    pool_adjacent_violators,
)
from flywheel.stats.delays import Delays, kaplan_meier, late_after_silence, maturity, thinned
from flywheel.stats.missing import inverse_response_mean, worst_case_bounds
from flywheel.stats.sampling import allocate, draw
from flywheel.stats.transport import transport_audit
from hypothesis import given
from hypothesis import strategies as st


def test_late_complaints_are_counted_before_they_come() -> None:
    rng = np.random.default_rng(1)
    n = 200_000
    ages, delays = rng.uniform(0, 14, n), np.where(rng.random(n) < 0.12, rng.exponential(3, n), np.inf)
    came = delays <= ages
    curve = kaplan_meier(np.minimum(delays, ages), came)
    assert came.mean() == pytest.approx(0.0951, abs=0.002), "what a naive rate says"
    assert curve.shares[-1] == pytest.approx(0.1194, abs=0.002)
    assert maturity(curve, 3, 14) == pytest.approx((1 - math.exp(-1)) / (1 - math.exp(-14 / 3)), abs=0.02)
    assert thinned(curve, 64).shares[-1] == curve.shares[-1]
    assert thinned(curve, 64).at(3.0) == pytest.approx(curve.at(3.0), abs=0.003)


def test_silence_becomes_worth_more_with_age() -> None:
    found = [late_after_silence(0.12, 1 - math.exp(-age / 3)) for age in (0, 1, 3, 7, 14)]
    assert found == pytest.approx([0.12, 0.089, 0.0478, 0.0131, 0.0013], abs=1e-4)


def test_a_small_curve_by_hand() -> None:
    curve = kaplan_meier(np.array([1.0, 2.0, 2.0, 3.0, 4.0]), np.array([True, False, True, True, False]))
    assert curve.times == (1.0, 2.0, 3.0)
    assert curve.shares == pytest.approx((0.2, 0.4, 0.7))
    assert [curve.at(0.5), curve.at(2.5)] == pytest.approx([0.0, 0.4])
    assert maturity(Delays((), ()), 0, 5) == 1.0


def test_items_that_are_alike_may_be_counted() -> None:
    watched, came = np.array([3.0, 1.0, 2.0, 2.0, 4.0]), np.array([True, False, True, False, True])
    counts = np.array([2, 1, 4, 3, 2])
    assert kaplan_meier(watched, came, counts) == kaplan_meier(np.repeat(watched, counts), np.repeat(came, counts))


def test_pooling_adjacent_violators() -> None:
    assert pool_adjacent_violators([0, 1, 0, 1, 1, 0]) == pytest.approx([0, 0.5, 0.5, 2 / 3, 2 / 3, 2 / 3])
    assert pool_adjacent_violators([1, 0], [3, 1]) == pytest.approx([0.75, 0.75])


@given(st.lists(st.tuples(st.floats(0, 1), st.booleans(), st.floats(0.5, 20)), min_size=1, max_size=40))
def test_a_calibration_curve_rises_and_keeps_the_mean(rows: list[tuple[float, bool, float]]) -> None:
    scores, outcomes, weights = (list(column) for column in zip(*rows, strict=True))
    curve = isotonic(scores, [float(y) for y in outcomes], weights)
    fitted = [curve.at(s) for s in sorted(scores)]
    assert fitted == sorted(fitted)
    mean = sum(w * curve.at(s) for s, w in zip(scores, weights, strict=True)) / sum(weights)
    assert mean == pytest.approx(sum(w * y for y, w in zip(outcomes, weights, strict=True)) / sum(weights))


def test_calibration_mends_an_overconfident_score() -> None:
    rng = np.random.default_rng(2)
    truth = rng.random(4000)
    outcomes = (rng.random(4000) < truth).astype(float).tolist()
    odds = np.clip(truth, 1e-3, 1 - 1e-3)
    scores = (odds**3 / (odds**3 + (1 - odds) ** 3)).tolist()
    mended = cross_fitted(scores, outcomes, [1.0] * 4000, [str(i) for i in range(4000)])
    assert expected_calibration_error(scores, outcomes) > 0.1
    assert expected_calibration_error(mended, outcomes) < 0.03
    assert brier(mended, outcomes) < brier(scores, outcomes)
    assert expected_calibration_error([0.2, 0.2, 0.9], [0, 1, 1]) == pytest.approx((2 * 0.3 + 0.1) / 3)
    assert brier([0.2, 0.9], [0, 1], [1, 3]) == pytest.approx((0.04 + 0.03) / 4)


def test_bounds_of_ratings_that_few_give() -> None:
    assert worst_case_bounds(0.03, 0.62) == pytest.approx((0.0186, 0.9886))
    assert inverse_response_mean({"a": (100, 50, 50.0), "b": (100, 10, 0.0)}) == pytest.approx(0.5)
    assert inverse_response_mean({"a": (10, 0, 0.0)}) is None


def test_allocation() -> None:
    assert allocate({"big": 900, "small": 100, "tiny": 1, "none": 0}, 21) == {"big": 15, "small": 5, "tiny": 1}
    assert allocate({"a": 2, "b": 3}, 50) == {"a": 2, "b": 3}
    with pytest.raises(ValueError, match="fewer draws"):
        allocate({"a": 2, "b": 3}, 1)


def test_weights_of_a_draw_stand_for_the_whole() -> None:
    members = {"s": [f"s{i}" for i in range(1000)], "f": [f"f{i}" for i in range(100)]}
    drawn = draw(members, 80, seed="1")
    assert len(drawn) == 80
    assert sum(1 / p for p in drawn.values()) == pytest.approx(1100)
    assert draw({k: v[::-1] for k, v in members.items()}, 80, seed="1") == drawn
    assert set(draw(members, 80, seed="2")) != set(drawn)
    share = [sum(1 / p for name, p in draw(members, 80, seed=str(n)).items() if name < "s0") for n in range(5)]
    assert share == pytest.approx([100] * 5), "rare strata are neither more nor less than they are"


def test_a_policy_that_pleases_the_signals_fails_alone() -> None:
    rng = np.random.default_rng(4)
    honest, flatterer = rng.normal(0, 0.1, 900), rng.normal(-0.2, 0.1, 900)
    users = [f"u{i % 60}" for i in range(900)]
    found = transport_audit(
        [*honest, *flatterer, -0.5], [1.0] * 1801, [*users, *users, "u0"], ["a"] * 900 + ["b"] * 900 + ["c"]
    )
    assert [(t.group, t.verdict) for t in found] == [("a", "PASS"), ("b", "FAIL"), ("c", "INCONCLUSIVE")]
    assert found[1].residual == pytest.approx(-0.2, abs=0.02)
    assert (found[0].clusters, found[2].low) == (60, -math.inf)
    few = transport_audit([0.0, 0.001] * 9, [1.0] * 18, [f"u{i}" for i in range(18)], ["a"] * 18)
    assert few[0].verdict == "INCONCLUSIVE", "eighteen users cannot pass"
    assert transport_audit([], [], [], []) == []
