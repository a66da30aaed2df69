"""Off-policy estimates: the candidate's doubly robust one may hold a promotion, nothing else does anything."""

from __future__ import annotations

import pytest
from flywheel.config import GateConfig
from flywheel.records import OffPolicyEstimate, RuleResult, Verdict
from flywheel.stages.gate import off_policy
from tests.reports import estimate, given_input, report, row


def vetoed(*estimates: OffPolicyEstimate) -> RuleResult:
    return off_policy(given_input(report(row(9, 0, 30), off_policy=list(estimates))), GateConfig())


@pytest.mark.parametrize(
    ("found", "message"),
    [
        ([], "No veto: no off-policy estimate of the candidate was made (usable: 0)."),
        ([estimate(None)], "No veto: the off-policy estimate of the candidate is refused (usable: 0)."),
        ([estimate(0.5, target="baseline")], "No veto: no off-policy estimate of the candidate was made (usable: 0)."),
        ([estimate(0.5, name="IPS")], "No veto: no off-policy estimate of the candidate was made (usable: 0)."),
        (
            [estimate(0.6)],
            "No veto: DR estimates [0.500, 0.600] for the candidate (n 200); the policies that acted earned 0.600.",
        ),
    ],
)
def test_nothing_is_held(found: list[OffPolicyEstimate], message: str) -> None:
    rule = vetoed(*found)

    assert (rule.passed, rule.verdict, rule.message) == (True, Verdict.PROMOTE, message)


def test_an_interval_below_what_was_earned_is_a_veto() -> None:
    rule = vetoed(estimate(0.5, target="new"), estimate(0.9, target="baseline"))

    assert (rule.passed, rule.verdict) == (False, Verdict.INCONCLUSIVE)
    assert rule.message == (
        "Vetoed by the logs: DR estimates [0.400, 0.500] for the candidate (n 200); the old policy earned 0.600."
    )
    assert rule.numbers == {"low": 0.4, "high": 0.5, "earned": 0.6, "n": 200.0}
