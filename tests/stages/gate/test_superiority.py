"""Superiority at the edges: no cases, few units, no discordance, harm, futility, several cases a task."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from flywheel.config import GateConfig
from flywheel.extensions import CaseScore
from flywheel.pipeline.evaluate.looks import paired_units
from flywheel.records import GateEvidence, MetricRow, RuleResult, Verdict
from flywheel.stages.evaluate.compare import compare
from flywheel.stages.gate.evidence import weigh
from flywheel.stages.gate.superiority import superiority
from tests.reports import given_input, report, row

CFG = GateConfig()


def judge(*metrics: MetricRow, cfg: GateConfig = CFG, **rest: Any) -> RuleResult:
    return superiority(given_input(report(*metrics, **rest)), cfg)


@pytest.mark.parametrize("metrics", [[], [row(0, 0, 0)], [row(5, 0, 9, primary=False)], [row(5, 0, 9, slice="a=b")]])
def test_without_a_case_on_the_primary_metric(metrics: list[MetricRow]) -> None:
    found = judge(*metrics)

    assert (found.passed, found.verdict, found.numbers) == (False, Verdict.INCONCLUSIVE, {"n": 0.0})


def test_too_few_units_decide_nothing() -> None:
    found = judge(row(4, 0, 4))

    assert (found.passed, found.verdict, found.numbers["needed_n"]) == (False, Verdict.INCONCLUSIVE, 5)
    assert found.message.endswith(": a decision needs at least 5 tasks.")


@pytest.mark.parametrize("table", [(0, 0, 30), (3, 6, 60)])
def test_a_candidate_that_is_not_ahead_names_no_number_of_units(table: tuple[int, int, int]) -> None:
    found = judge(row(*table))

    assert (found.verdict, "needed_n" in found.numbers) == (Verdict.INCONCLUSIVE, False)
    assert "it is not ahead" in found.message


def test_harm_ends_a_candidate() -> None:
    found = judge(row(2, 30, 100))

    assert (found.passed, found.verdict) == (False, Verdict.REJECT)
    assert "to 1 that it is worse" in found.message


def looked(nights: int, differences: list[float], level: float = 0.03) -> GateEvidence | None:
    looks = [{f"{night} {i}": (d, 1) for i, d in enumerate(differences)} for night in range(nights)]
    return weigh(looks, candidate=1, level=level)


@pytest.mark.parametrize(
    ("night", "looks"), [([1.0, -1.0] + [0.0] * 18, 20), ([1.0] * 2 + [-1.0] * 6 + [0.0] * 32, 2), ([0.0] * 56, 2)],
    ids=["level", "behind", "neither ever succeeds"],
)  # fmt: skip
def test_a_candidate_out_of_reach_is_given_up_from_its_second_look_on(night: list[float], looks: int) -> None:
    wins, losses = night.count(1.0), night.count(-1.0)
    once, late = (judge(row(wins * n, losses * n, len(night) * n), evidence=looked(n, night)) for n in (1, looks))
    assert once.verdict == Verdict.INCONCLUSIVE
    assert late.verdict == Verdict.REJECT
    assert "out of reach" in late.message


def test_a_candidate_that_gains_too_little_to_wait_for_is_given_up() -> None:
    """It wins 3 and loses 1 of 200 a night: at most 1.7 points after five nights, within reach in ten more."""
    night, looks = [1.0] * 3 + [-1.0] + [0.0] * 196, 5
    found, patient = (
        judge(row(3 * looks, looks, 200 * looks), evidence=looked(looks, night), cfg=CFG.model_copy(update=changes))
        for changes in ({}, {"min_effect": 0.0})
    )
    assert (found.verdict, patient.verdict) == (Verdict.REJECT, Verdict.INCONCLUSIVE)
    assert "less than gate.min_effect 0.02" in found.message


def test_a_candidate_that_may_still_reach_its_level_stays() -> None:
    for nights in (2, 4):
        ahead = judge(row(3 * nights, nights, 40 * nights), evidence=looked(nights, [1.0] * 3 + [-1.0] + [0.0] * 36))
        assert ahead.verdict == Verdict.INCONCLUSIVE


def test_a_candidate_that_gains_stays_and_names_the_looks_it_needs() -> None:
    found = judge(row(12, 6, 120), evidence=looked(6, [1.0, 1.0, -1.0] + [0.0] * 17))

    assert found.verdict == Verdict.INCONCLUSIVE
    # 555 units in all at discordance .15 and +5 points, 20 a look
    assert found.numbers["needed_n"] == pytest.approx(555, abs=2)
    assert found.numbers["nights"] == math.ceil((found.numbers["needed_n"] - 120) / 20)


def test_a_later_candidate_needs_more_evidence() -> None:
    assert judge(row(12, 1, 40), evidence=looked(1, [1.0] * 12 + [-1.0] + [0.0] * 27, level=0.03)).passed
    assert not judge(row(12, 1, 40), evidence=looked(1, [1.0] * 12 + [-1.0] + [0.0] * 27, level=0.01)).passed


def test_evidence_that_was_reached_at_an_earlier_look_decides() -> None:
    looks = [{f"a{i}": (1.0, 1) for i in range(12)}, {f"b{i}": (-1.0, 1) for i in range(6)}]
    evidence = weigh(looks, candidate=1, level=0.03)

    assert evidence is not None
    assert evidence.log_e < math.log(1 / 0.03) < evidence.log_e_best
    assert judge(row(12, 6, 18), evidence=evidence).passed


def test_scores_that_are_not_binary() -> None:
    def side(values: list[float]) -> list[CaseScore]:
        return [CaseScore(f"c{i}", f"t{i}", "m", v, binary=False, primary=True) for i, v in enumerate(values)]

    def judged(gain: float) -> RuleResult:
        ours = side([0.4 + gain + 0.05 * (i % 5) for i in range(40)])
        theirs = side([0.4 + 0.05 * (i % 7) for i in range(40)])
        evidence = weigh([paired_units(ours, theirs)], candidate=1, level=0.03)
        return judge(*compare(ours, theirs, suite="s").metrics, evidence=evidence)

    better, even = judged(0.3), judged(0.06)
    assert better.passed
    assert not even.passed
    assert "pp" not in even.message
    assert "needed_n" not in judged(-0.1).numbers


def test_ten_won_cases_of_two_tasks_are_two_wins() -> None:
    def side(value: float) -> list[CaseScore]:
        return [CaseScore(f"c{i:02d}", f"t{i // 5}", "m", value, primary=True) for i in range(10)]

    evidence = weigh([paired_units(side(1.0), side(0.0))], candidate=1, level=0.03)
    found = judge(*compare(side(1.0), side(0.0), suite="s").metrics, evidence=evidence)

    assert (found.passed, found.numbers["units"]) == (False, 2)


@pytest.mark.e2e
def test_null_candidates_are_seldom_promoted_however_often_they_are_looked_at() -> None:
    rng, promoted, runs = np.random.default_rng(5), 0, 150
    for _ in range(runs):
        looks = [
            {f"{night} {i}": (float(d), 1) for i, d in enumerate(rng.choice([1.0, -1.0, 0.0], 20, p=[0.1, 0.1, 0.8]))}
            for night in range(12)
        ]
        evidence = weigh(looks, candidate=1, level=0.05)
        promoted += evidence is not None and evidence.log_e_best >= math.log(20)

    assert promoted / runs <= 0.05
