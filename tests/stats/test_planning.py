"""Levels of candidates and sample sizes against known answers."""

from __future__ import annotations

import math

import pytest
from flywheel.stats.planning import candidate_level, cases_for_non_inferiority, cases_needed, growth


@pytest.mark.parametrize(
    ("discordance", "margin", "guardrails", "n"),
    [(0.1, 0.05, 1, 248), (0.1, 0.05, 5, 462), (0.15, 0.03, 5, 1922), (0.05, 0.02, 3, 1238)],
)
def test_cases_for_non_inferiority(discordance: float, margin: float, guardrails: int, n: int) -> None:
    assert cases_for_non_inferiority(discordance, margin, guardrails=guardrails) == n


def test_levels_of_candidates() -> None:
    levels = [candidate_level(place, 0, alpha=0.05) for place in range(1, 10_000)]
    assert levels[:3] == pytest.approx([0.03, 0.01, 0.05 * 0.4 / 6])
    assert 0.0499 < math.fsum(levels) < 0.05
    assert candidate_level(2, 1, alpha=0.05) == pytest.approx(0.02)  # a promotion earns a level back
    assert candidate_level(1, 5, alpha=0.05) == 0.05


def test_how_many_cases_are_needed() -> None:
    # wins .10, losses .05: the best bet is a third of the stake
    assert growth(0.15, 0.05) == pytest.approx(0.1 * math.log(4 / 3) + 0.05 * math.log(2 / 3))
    assert cases_needed(0.15, 0.05, level=0.03) == pytest.approx(554, abs=1)
    assert (growth(0.1, 0.0), cases_needed(0.1, -0.1, level=0.03)) == (0.0, math.inf)
