"""Superiority at the edges: no cases, few cases, no discordance, other scores, several cases a task."""

from __future__ import annotations

from typing import Any

import pytest
from flywheel.config import GateConfig
from flywheel.extensions import CaseScore
from flywheel.records import MetricRow, RuleResult, Verdict
from flywheel.stages.evaluate.compare import compare
from flywheel.stages.gate.superiority import superiority
from tests.reports import entry, given_input, report, row

CFG = GateConfig()


def judge(*metrics: MetricRow, **rest: Any) -> RuleResult:
    return superiority(given_input(report(*metrics), **rest), CFG)


@pytest.mark.parametrize("metrics", [[], [row(0, 0, 0)], [row(5, 0, 9, primary=False)], [row(5, 0, 9, slice="a=b")]])
def test_without_a_case_on_the_primary_metric(metrics: list[MetricRow]) -> None:
    found = judge(*metrics)

    assert (found.passed, found.verdict, found.numbers) == (False, Verdict.INCONCLUSIVE, {"n": 0.0})


def test_too_few_cases_are_not_tested_and_spend_nothing() -> None:
    found = judge(row(4, 0, 4))

    assert not found.passed
    assert "p" not in found.numbers
    assert found.numbers["needed_n"] == 5
    assert found.message.endswith(": a test needs at least 5 paired cases.")


def test_no_discordant_case() -> None:
    found = judge(row(0, 0, 30))

    assert found.numbers["p"] == 1.0
    assert "needed_n" not in found.numbers
    assert "no discordant cases" in found.message


def test_a_candidate_behind_names_no_number_of_cases() -> None:
    found = judge(row(3, 9, 60))

    assert "needed_n" not in found.numbers
    assert "the candidate is not ahead" in found.message


def test_the_level_falls_with_each_test() -> None:
    first = judge(row(10, 1, 40))
    assert first.passed is False
    assert first.numbers["p"] == pytest.approx(0.005859375)
    assert first.numbers["alpha_t"] == pytest.approx(0.002675839, abs=1e-9)

    second = judge(row(11, 1, 40), history=[entry("held", number=1, rules=[first], verdict=Verdict.INCONCLUSIVE)])
    assert second.numbers["test"] == 2
    assert second.numbers["alpha_t"] == pytest.approx(0.05 * 0.011638205782941741)


def test_a_report_without_p_values_is_judged_by_mcnemar() -> None:
    assert judge(row(18, 1, 47, p_better=None)).numbers == judge(row(18, 1, 47)).numbers


def test_scores_that_are_not_binary_need_their_own_p_value() -> None:
    bare = row(0, 0, 40, binary=False, p_better=None)

    assert not judge(bare).passed
    assert "with a p-value" in judge(bare).message


def test_scores_that_are_not_binary() -> None:
    def side(values: list[float]) -> list[CaseScore]:
        return [CaseScore(f"c{i}", f"t{i}", "m", v, binary=False, primary=True) for i, v in enumerate(values)]

    def judged(gain: float) -> RuleResult:
        ours = [0.4 + gain + 0.05 * (i % 5) for i in range(40)]
        theirs = [0.4 + 0.05 * (i % 7) for i in range(40)]
        return judge(*compare(side(ours), side(theirs), suite="s").metrics)

    better, even = judged(0.3), judged(0.06)
    assert better.passed
    assert not even.passed
    assert even.numbers["needed_n"] > 40
    assert 0 < even.numbers["power"] < 0.8
    assert "pp" not in even.message
    assert "needed_n" not in judged(-0.1).numbers


def test_ten_won_cases_of_two_tasks_are_two_wins() -> None:
    def side(value: float) -> list[CaseScore]:
        return [CaseScore(f"c{i:02d}", f"t{i // 5}", "m", value, primary=True) for i in range(10)]

    found = judge(*compare(side(1.0), side(0.0), suite="s").metrics)

    assert not found.passed
    assert found.numbers["p"] == 0.25
    assert found.numbers["n_tasks"] == 2
    assert found.numbers["needed_n"] > 10


def test_only_fresh_tasks_are_tested() -> None:
    whole, fresh = row(30, 1, 100), row(3, 1, 20).model_copy(update={"slice": "fresh"})

    assert superiority(given_input(report(whole)), GateConfig()).passed
    found = superiority(given_input(report(whole, fresh)), GateConfig())
    assert (found.passed, found.numbers["wins"]) == (False, 3)
    assert found.message.startswith("good on fresh tasks 45.0% -> 55.0%")


def test_without_a_fresh_task_nothing_is_tested() -> None:
    spent = row(0, 0, 0).model_copy(update={"slice": "fresh"})
    found = superiority(given_input(report(row(30, 1, 100), spent, spent=100)), GateConfig())

    assert (found.verdict, "p" in found.numbers) == (Verdict.INCONCLUSIVE, False)
    assert "earlier decisions have spent all 100 tasks" in found.message
    assert found.numbers["needed_n"] == 5
