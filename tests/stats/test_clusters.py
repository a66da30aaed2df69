"""Clustered tests and intervals: equal to the plain ones with one case a task, honest with many."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import numpy.typing as npt
import pytest
from flywheel.stats.clusters import (
    Clusters,
    cluster,
    critical_value,
    design_effect,
    mean_difference,
    paired_t_interval,
    sign_flip_better,
)
from flywheel.stats.paired import mcnemar_better
from flywheel.stats.tango import tango_interval
from hypothesis import given
from hypothesis import strategies as st

SIGNS = st.lists(st.sampled_from([-1.0, 0.0, 1.0]), min_size=1, max_size=60)


def _singles(values: list[float]) -> Clusters:
    return cluster(values, [f"t{i}" for i in range(len(values))])


def _in_tasks(values: list[float], size: int) -> Clusters:
    return cluster(values, [f"t{i // size}" for i in range(len(values))])


def test_a_cluster_is_a_task() -> None:
    data = cluster([1.0, -1.0, 0.5], ["b", "a", "b"])

    assert data == Clusters([-1.0, 1.5], [1, 2], 2.25)
    assert (data.n, data.clustered) == (3, True)
    assert data.mean == pytest.approx(0.5 / 3)


@given(SIGNS)
def test_with_one_case_a_task_sign_flips_are_mcnemar(values: list[float]) -> None:
    data = _singles(values)

    assert sign_flip_better(data) == mcnemar_better(values.count(1.0), values.count(-1.0))
    assert design_effect(data) == 1.0


@given(st.lists(st.integers(-4, 4), min_size=1, max_size=9))
def test_sign_flips_count_every_pattern(sums: list[int]) -> None:
    patterns = list(product([-1, 1], repeat=len(sums)))
    reached = sum(sum(s * abs(v) for s, v in zip(signs, sums, strict=True)) >= sum(sums) for signs in patterns)
    data = Clusters([float(s) for s in sums], [4] * len(sums), float(sum(s * s for s in sums)))

    expected = reached / len(patterns)
    assert sign_flip_better(data) == pytest.approx(expected, abs=1e-12)


def test_real_sign_flips_agree_with_scipy() -> None:
    from scipy import stats

    values = [0.3, -0.1, 0.25, 0.4, 0.05, -0.2, 0.15]
    expected = stats.permutation_test(
        (np.array(values),), np.sum, permutation_type="samples", alternative="greater", n_resamples=np.inf
    )

    assert sign_flip_better(_singles(values)) == pytest.approx(float(expected.pvalue))


def test_sampled_and_approximate_sign_flips_come_close_to_the_exact_ones() -> None:
    from scipy import stats

    rng = np.random.default_rng(3)
    real = rng.normal(0.2, 1, 40)
    assert sign_flip_better(_singles(list(real))) == pytest.approx(
        float(stats.ttest_1samp(real, 0, alternative="greater").pvalue), abs=0.01
    )

    sums = [float(s) for s in rng.integers(-2, 4, 2_400)]
    exact = Clusters(sums[:1_900], [3] * 1_900, 1.0)
    shifted = Clusters([*sums[:1_900], *([2.0, -2.0] * 200)], [3] * 2_300, 1.0)
    assert 0 <= sign_flip_better(shifted) < 1e-6
    assert sign_flip_better(exact) < 1e-6


def test_ten_states_of_one_task_are_one_observation() -> None:
    data = _in_tasks([1.0] * 10, 10)

    assert sign_flip_better(data) == 0.5
    assert design_effect(data) == 10.0
    assert critical_value(data, 0.975) == math.inf
    assert paired_t_interval(data) == (-math.inf, math.inf)


def test_the_design_effect_sees_repetition() -> None:
    rng = np.random.default_rng(0)
    by_task = [float(v) for v in rng.choice([-1, 0, 1], 200) for _ in range(5)]
    independent = [float(v) for v in rng.choice([-1, 0, 1], 1_000)]

    assert design_effect(_in_tasks(by_task, 5)) == pytest.approx(5.0, abs=0.1)
    assert design_effect(_in_tasks(independent, 5)) == pytest.approx(1.0, abs=0.25)
    assert design_effect(_in_tasks([0.0] * 20, 5)) == 1.0


def test_the_t_interval_agrees_with_scipy() -> None:
    from scipy import stats

    values = [0.3, -0.1, 0.25, 0.4, 0.05]
    expected = stats.ttest_1samp(values, 0).confidence_interval(0.95)

    assert paired_t_interval(_singles(values)) == pytest.approx((expected.low, expected.high))


def test_critical_values() -> None:
    assert critical_value(_singles([0.0] * 5), 0.975) == pytest.approx(1.959964)
    assert critical_value(_in_tasks([0.0] * 12, 2), 0.975) == pytest.approx(2.570582)


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=30))
def test_three_good_tasks_are_not_certainty(values: list[float]) -> None:
    data = _singles(values)
    p = mean_difference(data, seed=1).p_better

    assert p == mean_difference(data, seed=1).p_better
    assert p >= sign_flip_better(data, seed=1) >= 2.0 ** -len(values) - 1e-4
    assert p >= 0.4 or data.mean > 0


def _resampled_means(data: Clusters, seed: int = 0) -> npt.NDArray[np.float64]:
    """Return the mean difference of 10,000 draws of whole tasks with replacement."""
    rng, tasks = np.random.default_rng(seed), len(data.sums)
    chunk = min(10_000, 4_000_000 // tasks)
    means = []
    for done in range(0, 10_000, chunk):
        sampled = rng.integers(0, tasks, (min(chunk, 10_000 - done), tasks))
        means.append(np.array(data.sums)[sampled].sum(axis=1) / np.array(data.sizes)[sampled].sum(axis=1))
    return np.concatenate(means)


def _nights(users: int, rows: int, icc: float, repeats: int) -> list[Clusters]:
    rng, found = np.random.default_rng(11), []
    for _ in range(repeats):
        user = rng.normal(0, math.sqrt(icc), users)
        values = user[:, None] + rng.normal(0, math.sqrt(1 - icc), (users, rows))
        found.append(_in_tasks([float(v) for v in values.ravel()], rows))
    return found


@pytest.mark.e2e
def test_clustered_intervals_cover_where_row_intervals_do_not() -> None:
    nights = _nights(60, 10, 0.3, 200)
    clustered = [mean_difference(night).interval for night in nights[:60]]
    by_task = [paired_t_interval(night) for night in nights]
    by_row = [1.96 * math.sqrt((night.squares / night.n - night.mean**2) / night.n) for night in nights]

    assert sum(low <= 0 <= high for low, high in clustered) / 60 >= 0.88
    assert sum(low <= 0 <= high for low, high in by_task) / 200 == pytest.approx(0.95, abs=0.04)
    assert sum(abs(n.mean) <= half for n, half in zip(nights, by_row, strict=True)) / 200 < 0.8


def test_tango_on_effective_counts_covers_for_binary_clusters() -> None:
    rng, covered, repeats = np.random.default_rng(5), 0, 300
    for _ in range(repeats):
        lean = rng.choice([-0.25, 0.0, 0.25], 15)  # a task's own leaning to either side: mean 0
        wins = rng.random((15, 6)) < 0.3 + lean[:, None]
        losses = ~wins & (rng.random((15, 6)) < (0.3 - lean[:, None]) / (1 - 0.3 - lean[:, None]))
        values = wins.astype(float) - losses
        data, effect = _in_tasks([float(v) for v in values.ravel()], 6), 0.0
        effect = design_effect(data)
        low, high = tango_interval(
            wins.sum() / effect, losses.sum() / effect, data.n / effect, quantile=critical_value(data, 0.975)
        )
        covered += low <= 0 <= high

    assert covered / repeats == pytest.approx(0.95, abs=0.03)


def test_clustered_sign_flips_keep_their_level() -> None:
    rng, rejected, repeats = np.random.default_rng(7), 0, 1_000
    for _ in range(repeats):
        lean = rng.choice([-1, 1], 12)  # every case of a task leans the same way
        values = np.where(rng.random((12, 5)) < 0.5, lean[:, None], 0).astype(float)
        rejected += sign_flip_better(_in_tasks([float(v) for v in values.ravel()], 5)) <= 0.05

    assert rejected / repeats <= 0.065


def test_a_hundred_thousand_cases_take_seconds_at_most() -> None:
    rng = np.random.default_rng(0)
    data = _in_tasks([float(v) for v in rng.choice([-1, 0, 0, 0, 1, 1], 100_000)], 2)

    assert sign_flip_better(data) < 1e-9
    assert design_effect(data) == pytest.approx(1.0, abs=0.05)


def test_one_draw_gives_the_interval_and_both_tests() -> None:
    rng = np.random.default_rng(8)
    data = _in_tasks([float(v) for v in rng.uniform(-0.6, 0.7, 120)], 3)
    found = mean_difference(data, seed=4)

    means = _resampled_means(data, seed=4)
    assert found.interval == pytest.approx(np.quantile(means, [0.025, 0.975]), abs=1e-12)
    assert found.p_better == max((1 + (means <= 0).sum()) / 10_001, sign_flip_better(data, seed=4))
    worse = sign_flip_better(data._replace(sums=[-s for s in data.sums]), seed=4)
    assert found.p_worse == max((1 + (means >= 0).sum()) / 10_001, worse)
    assert found.method == "bootstrap over 40 tasks"
    assert mean_difference(_in_tasks([0.5, 0.1, -0.3] * 3, 1)).method == "t over 9 tasks"


def test_thousands_of_tasks_need_no_draws() -> None:
    rng = np.random.default_rng(9)
    values = [float(v) for v in rng.normal(0.02, 0.4, 6_000).clip(-1, 1)]
    data = _in_tasks(values, 2)
    found, means = mean_difference(data), _resampled_means(data)

    assert found.method == "t over 3000 tasks"
    assert found.interval == pytest.approx(np.quantile(means, [0.025, 0.975]), abs=6e-4)
    assert found.p_better == pytest.approx((1 + (means <= 0).sum()) / (1 + len(means)), abs=2e-3)


@pytest.mark.e2e
def test_thousands_of_tasks_of_which_one_is_everything_are_drawn() -> None:
    values = [0.001] * 2_999 + [-1.0]

    assert mean_difference(_in_tasks(values, 1)).method == "bootstrap over 3000 tasks"
    assert mean_difference(_in_tasks(values, 1)).p_better > 0.05
