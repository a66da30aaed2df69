"""Measures against their limits: forgetting rejects, growth over a champion round holds."""

from __future__ import annotations

from typing import Any

import pytest
from flywheel.config import GateConfig
from flywheel.records import MeasureRow, RuleResult, Verdict
from flywheel.stages.gate import no_deterioration
from tests.reports import given_input, report, row

CFG = GateConfig(limits={"kl_to_base": 1.0}, growth={"tokens": 0.1})


def measure(name: str, **rest: Any) -> MeasureRow:
    values = {"suite": "forgetting", "measure": name, "unit": "nats a token", "n": 15, "baseline": 0.2, "value": 0.3}
    return MeasureRow(**{**values, **rest})


def tokens(ratio: float, low: float, high: float) -> MeasureRow:
    return measure("tokens", suite="next_action", baseline=40.0, value=40 * ratio, ratio=ratio, low=low, high=high)


def judged(*measures: MeasureRow, baseline: str = "1") -> RuleResult:
    return no_deterioration(given_input(report(row(9, 0, 30), baseline=baseline, measures=list(measures))), CFG)


def test_a_measure_above_its_limit_rejects_with_its_numbers() -> None:
    found = judged(measure("kl_to_base", value=1.4))

    assert (found.passed, found.verdict) == (False, Verdict.REJECT)
    assert "Beyond the limit: kl_to_base 1.4 nats a token on 15 cases, above gate.limits 1." in found.message


@pytest.mark.parametrize("row_", [measure("kl_to_base", value=1.0), measure("perplexity", value=900.0)])
def test_at_the_limit_or_without_one_nothing_is_wrong(row_: MeasureRow) -> None:
    found = judged(row_)
    assert (found.passed, found.verdict) == (True, Verdict.PROMOTE)


def test_growth_holds_only_when_it_is_sure_and_over_a_round() -> None:
    sure, unsure = tokens(1.4, 1.2, 1.6), tokens(1.4, 1.05, 1.75)

    found = judged(sure)
    assert (found.passed, found.verdict) == (False, Verdict.INCONCLUSIVE)
    assert "tokens of next_action 40.0 -> 56.0 on 15 cases, 1.40 times [1.20, 1.60], above gate.growth" in found.message
    assert judged(unsure).passed
    assert judged(sure, baseline="base").passed
    assert "1 measure within the limits" in judged(unsure).message


def test_a_measure_without_cases_says_nothing() -> None:
    found = judged(MeasureRow(suite="forgetting", measure="kl_to_base", unit="nats a token", n=0))
    assert found.passed
    assert "limit" not in found.message
