"""How far two windows of a log are apart."""

from __future__ import annotations

import math
import random

import pytest
from flywheel.stats.drift import mean, psi, psi_by_chance, ratio, slope


def test_stability_index_of_a_known_shift() -> None:
    big = 1_000_000
    shifted = psi({"a": big // 2, "b": big // 2}, {"a": big * 3 // 4, "b": big // 4})
    assert shifted == pytest.approx(0.25 * math.log(1.5) - 0.25 * math.log(0.5), abs=1e-5)
    assert psi({"a": 5}, {"a": 5}) == 0
    assert math.isfinite(psi({"a": 5}, {"b": 5}))


def test_chance_alone_seldom_moves_the_index_further_than_expected() -> None:
    draw = random.Random(0)  # noqa: S311 - a simulation

    def mix() -> dict[str, int]:
        rows = draw.choices("abcd", [4, 3, 2, 1], k=300)
        return {kind: rows.count(kind) for kind in "abcd"}

    bound = psi_by_chance(4, 300, 300)
    assert sum(psi(mix(), mix()) > bound for _ in range(500)) <= 12  # 1 % of 500, and three deviations


def test_a_ratio_and_its_error() -> None:
    found = ratio([1, 0, 2], [2, 2, 4])
    assert found.value == pytest.approx(3 / 8)
    rests = [1 - 0.75, -0.75, 2 - 1.5]
    assert found.error == pytest.approx(math.sqrt(sum(r * r for r in rests) * 3 / 2) / 8)
    # Rows of one cluster count as one: ten times the same rows are no surer.
    once, often = mean([0.0, 1.0, 1.0], ["a", "b", "c"]), mean([0.0, 1.0, 1.0] * 10, ["a", "b", "c"] * 10)
    assert often.value == pytest.approx(once.value)
    assert often.error == pytest.approx(once.error)


def test_a_slope_and_its_error() -> None:
    found = slope([0, 1, 2, 3], [1, 3, 5, 7], list("abcd"))
    assert found is not None
    assert [found.value, found.error] == pytest.approx([2, 0], abs=1e-12)
    assert slope([1, 1], [0, 1], ["a", "b"]) is None
    draw = random.Random(1)  # noqa: S311 - a simulation
    misses = 0
    for _ in range(200):
        xs = [draw.random() for _ in range(80)]
        one = slope(xs, [0.5 * x + draw.gauss(0, 0.3) for x in xs], [str(n) for n in range(80)])
        assert one is not None
        misses += not one.low <= 0.5 <= one.high
    assert misses / 200 == pytest.approx(0.05, abs=0.045)
