"""The spread of true differences: known answers in worlds without any, with a few, and with many."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from flywheel.stats.effects import SIZES, Differences, Floats, Prior, fit_prior, posterior
from hypothesis import given
from hypothesis import strategies as st

ANY = Prior(shares=np.full((1, len(SIZES)), 1 / len(SIZES)))


def seen(x: Floats, variance: float) -> Differences:
    return Differences(np.asarray(x, dtype=np.float64), np.full(len(x), variance), np.zeros(len(x)), np.zeros(len(x)))


def observed(true: Floats, noise: float, seed: int = 0) -> Differences:
    rng = np.random.default_rng(seed + 1000)
    return seen(true + rng.normal(0, noise, len(true)), noise**2)


def test_where_nothing_differs_nothing_is_believed() -> None:
    for seed in range(5):
        sample = observed(np.zeros(400), 0.3, seed)
        found = posterior(sample, fit_prior(sample))
        assert np.maximum(found.above, found.below).max() < 0.8


def believed(n: int, share: float, size: float, noise: float, seeds: int) -> tuple[Floats, Floats]:
    """Return what is claimed with .8 or more of n differences, and whether it is right, over all seeds."""
    claimed, right = list[float](), list[bool]()
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        signs = rng.choice([-1.0, 1.0], n) * (rng.random(n) < share)
        sample = observed(size * signs, noise, seed)
        found = posterior(sample, fit_prior(sample))
        most = np.maximum(found.above, found.below)
        claimed += most[most >= 0.8].tolist()
        right += (np.sign(found.mean) == signs)[most >= 0.8].tolist()
    return np.array(claimed), np.array(right, dtype=np.float64)


@pytest.mark.parametrize(
    ("n", "share", "size", "noise"),
    [
        (600, 0.2, 0.97, 0.3),
        (600, 0.5, 0.58, 0.3),
        (600, 1.0, 0.35, 0.3),
        (200, 0.2, 1.1, 0.41),
        (200, 0.2, 0.82, 0.48),
    ],
    ids=["a fifth", "half", "all alike", "one decision of five", "the same with 15 % wrong labels"],
)
def test_what_is_claimed_is_as_often_true(n: int, share: float, size: float, noise: float) -> None:
    claimed, right = believed(n, share, size, noise, seeds=6 if n == 600 else 40)
    assert len(right) >= 100
    assert claimed.mean() == pytest.approx(right.mean(), abs=0.05)


def test_a_few_facts_are_enough_where_all_of_them_matter() -> None:
    """Four intents of five decisions each, 32 attempts at 40 tasks: differences of .235 with a noise of .12."""
    claimed, right = believed(20, 1.0, 0.235, 0.12, seeds=20)
    sure = claimed >= 0.85
    assert sure.sum() >= 20 * 20 / 2
    assert right[sure].mean() >= 0.98


def test_means_are_right_on_average() -> None:
    rng = np.random.default_rng(3)
    true = np.where(rng.random(4000) < 0.3, rng.choice([-0.58, 0.58], 4000), 0.0)
    sample = observed(true, 0.3, 4)
    found = posterior(sample, fit_prior(sample))
    for low, high in ((-2, -0.4), (-0.4, -0.1), (-0.1, 0.1), (0.1, 0.4), (0.4, 2)):
        inside = (found.mean > low) & (found.mean <= high)
        assert found.mean[inside].mean() == pytest.approx(true[inside].mean(), abs=0.05)


def test_a_few_differences_show_nothing_by_themselves() -> None:
    prior = fit_prior(seen(np.array([0.6, -0.6]), 0.2))
    assert prior.none > 0.6
    assert posterior(seen(np.array([0.6]), 0.2), prior).above[0] < 0.5


def test_an_observation_counts_once() -> None:
    """What made a hypothesis likely does not speak for its own difference a second time."""
    sample = seen(np.array([0.9, *np.zeros(19)]), 0.1)
    prior = fit_prior(sample)
    nothing = prior.weights @ (prior.shares[:, 0] == 1)
    found = posterior(sample, prior)
    assert found.above[0] + found.below[0] <= 1 - nothing + 1e-12
    spread = prior._replace(weights=np.ones(1), shares=prior.weights[None] @ prior.shares)
    assert found.above[0] < posterior(sample, spread).above[0] - 0.01


def test_what_a_difference_explains_is_no_noise() -> None:
    """With outcomes of -1 and 1, half of them with each action, .97 explains a quarter of their variance."""
    one = seen(np.array([0.95]), 0.2)
    some = fit_prior(seen(np.tile([0.95, -0.95], 40), 0.2))
    narrow, wide = posterior(one._replace(explained=np.array([0.05])), some), posterior(one, some)
    assert narrow.below[0] < wide.below[0]
    assert narrow.sd[0] < wide.sd[0]


def test_what_was_observed_elsewhere_may_differ_here_only_where_something_differs() -> None:
    here = seen(np.array([0.6]), 0.02)
    elsewhere = here._replace(apart=np.array([0.3]))
    near, far = (fit_prior(sample) for sample in (here, elsewhere))
    nothing = [prior.weights[prior.shares[:, 0] == 1].sum() for prior in (near, far)]
    assert max(nothing) < 0.01, "a difference of four standard deviations"
    assert posterior(elsewhere, far).sd[0] > posterior(here, near).sd[0]


@given(st.floats(-2, 2), st.floats(0.01, 4))
def test_a_difference_has_no_direction_of_its_own(x: float, variance: float) -> None:
    one, other = (posterior(seen(np.array([sign * x]), variance), ANY) for sign in (1, -1))
    assert one.mean[0] == pytest.approx(-other.mean[0], abs=1e-12)
    assert one.above[0] == pytest.approx(other.below[0], abs=1e-12)
    assert one.above[0] + one.below[0] <= 1 + 1e-12
    priors = [fit_prior(seen(np.array([sign * x]), variance)) for sign in (1, -1)]
    assert priors[0].weights == pytest.approx(priors[1].weights)


def test_what_was_not_observed_has_the_prior() -> None:
    found = posterior(seen(np.array([0.3]), np.inf), ANY)
    assert (found.mean[0], found.above[0]) == (pytest.approx(0.0), pytest.approx((1 - ANY.none) / 2))


FITTED = """
import numpy as np
from flywheel.stats.effects import Differences, fit_prior
rng = np.random.default_rng(7)
zeros = np.zeros(5000)
prior = fit_prior(Differences(rng.normal(0, 0.3, 5000), rng.uniform(0.01, 0.2, 5000), zeros, zeros))
print(prior.weights.tobytes().hex(), prior.shares.tobytes().hex())
"""


def test_other_cpus_learn_the_same() -> None:
    """OpenBLAS chooses its kernels by the CPU, and they add up in other orders."""
    kernels: tuple[dict[str, str], ...] = ({}, {"OPENBLAS_CORETYPE": "Sandybridge"}, {"OPENBLAS_CORETYPE": "Zen"})
    command = [sys.executable, "-c", FITTED]
    fitted = {subprocess.check_output(command, env=os.environ | kernel) for kernel in kernels}
    assert len(fitted) == 1
