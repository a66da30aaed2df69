"""Successive halving: who goes on, with how many tokens, and never more than the budget."""

from __future__ import annotations

import pytest
from flywheel.stages.selection.halving import Rung, halve, sizes
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(("candidates", "rungs"), [(1, []), (2, [2]), (3, [3, 2]), (4, [4, 2]), (5, [5, 3, 2])])
def test_rungs_halve_the_candidates(candidates: int, rungs: list[int]) -> None:
    assert sizes(candidates) == rungs


@given(st.lists(st.integers(0, 4), min_size=2, max_size=8), st.integers(0, 10_000))
def test_the_best_wins_ties_go_to_the_first_and_the_budget_holds(scores: list[int], budget: int) -> None:
    names = [f"m{place}" for place in range(len(scores))]
    rungs: list[Rung] = []

    def scored(rung: Rung) -> dict[str, float]:
        rungs.append(rung)
        return {name: float(scores[names.index(name)]) for name in rung.names}

    ranked = halve(names, budget, scored)
    assert ranked is not None
    assert ranked[0] == names[scores.index(max(scores))]
    assert sum(len(rung.names) * rung.tokens for rung in rungs) <= budget
    assert [len(rung.names) for rung in rungs] == sizes(len(names))


def test_a_candidate_that_failed_is_out_and_an_unknown_score_ends_it() -> None:
    assert halve(["a", "b", "c"], 10, lambda rung: {n: 1.0 for n in rung.names if n != "a"}) == ["b", "c"]
    assert halve(["a", "b"], 10, lambda _: {}) == []
    assert halve(["a", "b"], 10, lambda _: None) is None
