"""The spread of true differences: known answers in worlds without any, with a few, and with many."""

from __future__ import annotations

import numpy as np
import pytest
from flywheel.stats.effects import SIZES, Floats, fit_prior, posterior
from hypothesis import given
from hypothesis import strategies as st


def observed(true: Floats, noise: float, seed: int = 0) -> tuple[Floats, Floats]:
    rng = np.random.default_rng(seed + 1000)
    return true + rng.normal(0, noise, len(true)), np.full(len(true), noise**2)


def test_where_nothing_differs_nothing_is_believed() -> None:
    for seed in range(5):
        x, variance = observed(np.zeros(400), 0.3, seed)
        found = posterior(x, variance, fit_prior(x, variance))
        assert np.maximum(found.above, found.below).max() < 0.8


@pytest.mark.parametrize(("share", "size", "short"), [(0.2, 0.97, 0.05), (0.5, 0.58, 0.05), (1.0, 0.35, 0.12)])
def test_what_is_claimed_is_as_often_true(share: float, size: float, short: float) -> None:
    """Where all differences are alike and as small as their noise, some pass for none, and claims fall short."""
    claimed, right = [], []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        signs = rng.choice([-1.0, 1.0], 600) * (rng.random(600) < share)
        x, variance = observed(size * signs, 0.3, seed)
        found = posterior(x, variance, fit_prior(x, variance))
        sure = np.maximum(found.above, found.below) >= 0.8
        claimed += np.maximum(found.above, found.below)[sure].tolist()
        right += (np.sign(found.mean[sure]) == signs[sure]).tolist()
    assert len(right) >= 100
    assert np.mean(right) - short <= np.mean(claimed) <= np.mean(right) + 0.05


def test_means_are_right_on_average() -> None:
    rng = np.random.default_rng(3)
    true = np.where(rng.random(4000) < 0.3, rng.choice([-0.58, 0.58], 4000), 0.0)
    x, variance = observed(true, 0.3, 4)
    found = posterior(x, variance, fit_prior(x, variance))
    for low, high in ((-2, -0.4), (-0.4, -0.1), (-0.1, 0.1), (0.1, 0.4), (0.4, 2)):
        inside = (found.mean > low) & (found.mean <= high)
        assert found.mean[inside].mean() == pytest.approx(true[inside].mean(), abs=0.05)


def test_a_few_differences_show_nothing_by_themselves() -> None:
    shares = fit_prior(np.array([0.6, -0.6]), np.array([0.2, 0.2]))
    assert shares[0] > 0.6
    assert posterior(np.array([0.6]), np.array([0.2]), shares).above[0] < 0.5


@given(st.floats(-2, 2), st.floats(0.01, 4))
def test_a_difference_has_no_direction_of_its_own(x: float, variance: float) -> None:
    shares = np.full(len(SIZES), 1 / len(SIZES))
    one, other = (posterior(np.array([sign * x]), np.array([variance]), shares) for sign in (1, -1))
    assert one.mean[0] == pytest.approx(-other.mean[0], abs=1e-12)
    assert one.above[0] == pytest.approx(other.below[0], abs=1e-12)
    assert one.above[0] + one.below[0] <= 1 + 1e-12
    assert fit_prior(np.array([x]), np.array([variance])) == pytest.approx(
        fit_prior(np.array([-x]), np.array([variance]))
    )


def test_what_was_not_observed_has_the_prior() -> None:
    shares = np.full(len(SIZES), 1 / len(SIZES))
    found = posterior(np.array([0.3]), np.array([np.inf]), shares)
    assert (found.mean[0], found.above[0]) == (pytest.approx(0.0), pytest.approx((1 - shares[0]) / 2))
