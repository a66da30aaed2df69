"""LORD++ and the e-process: known answers, and what they promise under the null."""

from __future__ import annotations

import math

import numpy as np
import pytest
from flywheel.stats.online import e_process, gamma, lord_level

P = [0.001, 0.2, 0.0005, 0.3, 0.0004, 0.04, 0.0001, 0.009]
LEVELS = [0.002675839, 0.003257749, 0.001077535, 0.006259482, 0.001925444, 0.006994665, 0.002556448, 0.007545047]
PATTERN = [1, 0, 0, 1, -1, 0, 1, 1, 0, 0]


def decide(p_values: list[float], *, alpha: float, initial_wealth: float) -> list[tuple[float, bool]]:
    """Return (level, rejected) of each test in turn."""
    decisions: list[tuple[float, bool]] = []
    for t, p in enumerate(p_values, 1):
        rejections = [earlier for earlier, (_, rejected) in enumerate(decisions, 1) if rejected]
        level = lord_level(t, rejections, alpha=alpha, initial_wealth=initial_wealth)
        decisions.append((level, p <= level))
    return decisions


def test_gammas() -> None:
    known = (0.05351677091260086, 0.011638205782941741, 0.0038982519052638913)

    assert (gamma(1), gamma(2), gamma(10)) == pytest.approx(known, rel=1e-12)
    assert gamma(0) == 0.0
    assert math.fsum(gamma(j) for j in range(1, 100_000)) < 1


def test_the_ledger() -> None:
    found = decide(P, alpha=0.1, initial_wealth=0.05)

    assert [level for level, _ in found] == pytest.approx(LEVELS, abs=5e-10)
    assert [t for t, (_, rejected) in enumerate(found, 1) if rejected] == [1, 3, 5, 7]


def test_a_level_looks_only_back() -> None:
    assert lord_level(3, [1, 3, 7], alpha=0.1, initial_wealth=0.05) == lord_level(
        3, [1], alpha=0.1, initial_wealth=0.05
    )


def test_wealth_beyond_alpha_is_refused() -> None:
    with pytest.raises(ValueError, match="initial wealth"):
        lord_level(1, [], alpha=0.05, initial_wealth=0.06)


def test_null_nights_seldom_promote() -> None:
    nights = np.random.default_rng(1).random((2_000, 60))
    histories = [decide([float(p) for p in night], alpha=0.1, initial_wealth=0.05) for night in nights]
    fooled = sum(any(rejected for _, rejected in history) for history in histories) / len(histories)

    assert fooled <= 0.05


def test_the_e_process() -> None:
    log_e = list(e_process(PATTERN * 6))

    assert [log_e[t - 1] for t in (10, 30, 60)] == pytest.approx(
        [0.4477572920545282, 2.3051837957999526, 5.091323551418092], abs=1e-9
    )
    assert next(t for t, value in enumerate(log_e, 1) if value >= math.log(20)) == 34


def test_peeking_at_an_e_process_stays_honest() -> None:
    rng, crossed, repeats = np.random.default_rng(2), 0, 400
    for _ in range(repeats):
        differences = rng.choice([-1.0, 0.0, 1.0], 500, p=[0.075, 0.85, 0.075])
        crossed += max(e_process(differences)) >= math.log(20)

    assert crossed / repeats <= 0.05


def test_a_difference_beyond_one_is_refused() -> None:
    with pytest.raises(ValueError, match="differences"):
        list(e_process([0.5, 1.5]))
