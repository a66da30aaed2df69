"""Cases that share a task are not independent: everything here treats the task, not the case, as the unit.

In: one number a case (candidate's score minus the baseline's) and the case's task. Treating rows as independent where
they are not gives intervals that are far too short: with 60 clusters of 10 rows and an intraclass correlation of .3 a
row bootstrap's 95 % interval covers the truth two times in three.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from statistics import NormalDist
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import stdtrit

from flywheel.stats.paired import Interval, mcnemar_better

if TYPE_CHECKING:
    Floats = npt.NDArray[np.float64]

_DRAWS = 10_000
_LEAST_DRAWS = 1_000
_MOST_CELLS = 200_000_000  # draws x clusters; above, fewer draws
_CHUNK_CELLS = 4_000_000
_EXACT_CLUSTERS = 2_000
_NORMAL_FROM = 2_000  # tasks; from here on a mean is normal, if no single task has much of its spread
_MOST_OF_SPREAD = 0.01
_LEAST_TASKS = 20  # a bootstrap interval over fewer is too short; Student's t is not
_ENUMERATED = 14  # real-valued sums: 2^14 patterns of signs are enumerated, more are sampled
_EPSILON = 1e-12


class Clusters(NamedTuple):
    """Differences by task: sums and numbers of cases, one entry a task in order of its name; squares over all cases."""

    sums: list[float]
    sizes: list[int]
    squares: float

    @property
    def n(self) -> int:
        """All cases."""
        return sum(self.sizes)

    @property
    def mean(self) -> float:
        """Mean difference over all cases."""
        return math.fsum(self.sums) / self.n

    @property
    def clustered(self) -> bool:
        """Whether any task has more than one case."""
        return self.n > len(self.sizes)

    @property
    def between(self) -> float:
        """Variance of the mean, tasks being the units; infinite for a single task."""
        tasks, mean = len(self.sums), self.mean
        if tasks == 1:
            return math.inf
        spread = math.fsum((s - size * mean) ** 2 for s, size in zip(self.sums, self.sizes, strict=True))
        return spread * tasks / (tasks - 1) / self.n**2


def cluster(differences: Sequence[float], tasks: Sequence[str]) -> Clusters:
    """Return the differences summed by task."""
    if len(set(tasks)) == len(tasks) == len(differences):
        alone = [d for _, d in sorted(zip(tasks, differences, strict=True))]
        return Clusters(alone, [1] * len(alone), math.fsum(d * d for d in alone))
    by_task: dict[str, list[float]] = {}
    for difference, task in zip(differences, tasks, strict=True):
        by_task.setdefault(task, []).append(difference)
    ordered = [by_task[task] for task in sorted(by_task)]
    squares = math.fsum(d * d for d in differences)
    return Clusters([math.fsum(values) for values in ordered], [len(values) for values in ordered], squares)


def design_effect(data: Clusters) -> float:
    """Return how many times the variance of the mean exceeds that of as many independent cases; from 1 to n.

    n divided by it is the number of independent cases that the data are worth. It is 1 with one case a task, n with a
    single task, and never taken to be less than 1: a lucky pattern does not make data worth more.
    """
    n = data.n
    if not data.clustered:
        return 1.0
    if len(data.sums) == 1:
        return float(n)
    independent = (data.squares / n - data.mean**2) / (n - 1)
    if independent <= _EPSILON:
        return 1.0
    return min(float(n), max(1.0, data.between / independent))


def task_quantile(tasks: int, confidence: float) -> float:
    """Return Student's quantile with tasks as units; infinite for one task, which does not represent others."""
    if tasks <= 1:
        return math.inf
    return float(stdtrit(tasks - 1, confidence))


def critical_value(data: Clusters, confidence: float) -> float:
    """Return the quantile below which `confidence` of a standardised mean lies: Student's over tasks if clustered.

    The normal quantile where each task has one case.
    """
    return task_quantile(len(data.sums), confidence) if data.clustered else NormalDist().inv_cdf(confidence)


def paired_t_interval(data: Clusters) -> Interval:
    """Return the 95 % t interval of the mean difference, tasks being the units; (-inf, inf) for a single task."""
    tasks = len(data.sums)
    if tasks == 1:
        return Interval(-math.inf, math.inf)
    half = task_quantile(tasks, 0.975) * math.sqrt(data.between)
    return Interval(data.mean - half, data.mean + half)


# --- sign flips: exact where policies are exchangeable -----------------------------------------------------------


def sign_flip_better(data: Clusters, *, seed: int = 0) -> float:
    """Return the one-sided p-value of "the candidate is not better", by flipping the sign of whole tasks.

    If the policies are equally good, swapping them within a task changes nothing, so every pattern of signs was equally
    likely. With one binary case a task this is McNemar's exact test. Integer sums are counted exactly up to 2,000 tasks
    (a normal approximation beyond); real ones are enumerated up to 14 tasks, sampled with the seed beyond, and normal
    above 2,000 unless a few tasks have most of the spread.
    """
    sums = [s for s in data.sums if abs(s) > _EPSILON]
    if not sums:
        return 1.0
    if all(s.is_integer() for s in sums):
        return _integer_flips([int(s) for s in sums])
    return _real_flips(sums, seed)


def _integer_flips(sums: list[int]) -> float:
    if all(abs(s) == 1 for s in sums):
        wins = sums.count(1)
        return mcnemar_better(wins, len(sums) - wins)
    if len(sums) > _EXACT_CLUSTERS:
        return NormalDist().cdf(-(sum(sums) - 0.5) / math.sqrt(sum(s * s for s in sums)))
    # probability[k] belongs to a sum of k among the positively flipped magnitudes: observed + total over 2
    total = sum(abs(s) for s in sums)
    probability = np.zeros(total + 1)
    probability[0] = 1.0
    for size, times in sorted(Counter(abs(s) for s in sums).items()):
        for _ in range(times):
            shifted = np.zeros_like(probability)
            shifted[size:] = probability[:-size]
            probability = 0.5 * (probability + shifted)
    return min(1.0, float(probability[(sum(sums) + total) // 2 :].sum()))


def _real_flips(sums: list[float], seed: int) -> float:
    sizes, observed = np.abs(np.array(sums)), math.fsum(sums)
    if len(sums) > _NORMAL_FROM and _even(sizes):
        return NormalDist().cdf(-observed / math.sqrt(float((sizes**2).sum())))
    if len(sums) <= _ENUMERATED:
        patterns = np.arange(2 ** len(sums))[:, None] >> np.arange(len(sums)) & 1
        return float(((2 * patterns - 1) @ sizes >= observed - _EPSILON).mean())
    rng, reached, draws = np.random.default_rng(seed), 0, 0
    for chunk in _chunks(len(sums)):
        signs = 2 * rng.integers(0, 2, (chunk, len(sums))) - 1
        reached += int((signs @ sizes >= observed - _EPSILON).sum())
        draws += chunk
    return (1 + reached) / (1 + draws)


# --- bootstrap: whole tasks resampled --------------------------------------------------------------------------


def _chunks(width: int) -> Iterator[int]:
    """Yield how many draws to make at a time, so that memory stays bounded; their sum is the number of draws."""
    draws = max(_LEAST_DRAWS, min(_DRAWS, _MOST_CELLS // max(1, width)))
    step = max(1, _CHUNK_CELLS // max(1, width))
    yield from (min(step, draws - done) for done in range(0, draws, step))


def _bootstrap_means(data: Clusters, seed: int) -> Floats:
    rng, tasks = np.random.default_rng(seed), len(data.sums)
    sums, sizes = np.array(data.sums), np.array(data.sizes)
    if np.ptp(sums / sizes) == 0:  # every draw has the same mean
        return np.full(sum(_chunks(tasks)), data.mean)
    means = []
    for chunk in _chunks(tasks):
        sampled = rng.integers(0, tasks, (chunk, tasks))
        means.append(sums[sampled].sum(axis=1) / sizes[sampled].sum(axis=1))
    return np.concatenate(means)


def _even(spread: Floats) -> bool:
    """Return whether no task has much of the spread, so that a sum over many is normal."""
    squares = spread**2
    return float(squares.max(initial=0.0)) <= _MOST_OF_SPREAD * float(squares.sum())


def _is_normal(data: Clusters) -> bool:
    spread = np.array(data.sums) - np.array(data.sizes) * data.mean
    return len(data.sums) > _NORMAL_FROM and bool(spread.any()) and _even(spread)


class Tested(NamedTuple):
    """A mean difference of scores: 95 % interval, how it was made, one-sided p-values of not better and not worse."""

    interval: Interval
    method: str
    p_better: float
    p_worse: float


def mean_difference(data: Clusters, *, seed: int = 0) -> Tested:
    """Return the interval and both p-values of a mean difference of scores that are not binary.

    Whole tasks are resampled, once for the interval and both tests; with fewer than 20 tasks the interval
    is Student's, with more than 2,000 (none of which has over a hundredth of the spread) the p-values are too. A
    p-value is never below that of `sign_flip_better`: the bootstrap alone would call three tasks out of three certain.
    """
    tasks, worse = len(data.sums), data._replace(sums=[-s for s in data.sums])
    flips = sign_flip_better(data, seed=seed), sign_flip_better(worse, seed=seed)
    if _is_normal(data):
        upper = NormalDist().cdf(data.mean / math.sqrt(data.between))
        method = f"t over {tasks} tasks"
        return Tested(paired_t_interval(data), method, max(1 - upper, flips[0]), max(upper, flips[1]))
    means = _bootstrap_means(data, seed)
    p_better, p_worse = ((1 + int((sign * means <= 0).sum())) / (1 + len(means)) for sign in (1, -1))
    low, high = (float(q) for q in np.quantile(means, [0.025, 0.975]))
    resampled = Interval(low, high), f"bootstrap over {tasks} tasks"
    few = paired_t_interval(data), f"t over {tasks} tasks"
    return Tested(*(few if tasks < _LEAST_TASKS else resampled), max(p_better, flips[0]), max(p_worse, flips[1]))
