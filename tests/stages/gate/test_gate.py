"""The gate as a whole: what it may never do, on any report, and how often it is fooled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from flywheel.config import GateConfig
from flywheel.extensions import load_extensions
from flywheel.records import EvalReport, MetricRow, RuleResult, Verdict
from flywheel.stages.gate import (
    MANDATORY,
    Decision,
    decide,
    off_policy,
    rule_names,
)
from hypothesis import given
from hypothesis import strategies as st
from tests.reports import entry, estimate, evidence_of, given_input, guard, report, row

if TYPE_CHECKING:
    from flywheel.extensions import GateInput, GateRule

CFG = GateConfig()
RULES: dict[str, GateRule] = load_extensions("gates", CFG.rules)


def judge(evaluation: EvalReport, **rest: Any) -> Decision:
    return decide(given_input(evaluation, **rest), RULES, CFG)


def result_of(decision: Decision, name: str) -> RuleResult:
    return next(r for r in decision.rules if r.rule == name)


# --- what it says --------------------------------------------------------------------------------------------------


def test_a_clear_improvement_is_promoted() -> None:
    found = judge(report(row(18, 1, 47), guard(0, 0, 47)))

    assert found.verdict == Verdict.PROMOTE
    assert all(r.passed for r in found.rules)
    assert result_of(found, "superiority").message == (
        "good 31.9% -> 68.1%, +36.2 pp [+21, +51], n 47 (47 tasks, +18/-1): 1,121 to 1 against chance, "
        "33 to 1 is enough (candidate 1, level 0.03), 1 look."
    )


def test_a_small_improvement_is_inconclusive_and_says_what_is_missing() -> None:
    found = judge(report(row(6, 3, 20)))

    result = result_of(found, "superiority")
    assert found.verdict == Verdict.INCONCLUSIVE
    assert result.numbers["needed_n"] == 185
    assert result.message == (
        "good 42.5% -> 57.5%, +15.0 pp [-15, +43], n 20 (20 tasks, +6/-3): 1.2 to 1 against chance, "
        "33 to 1 is needed (candidate 1, level 0.03), 1 look; about 185 units needed if this difference is true (9 "
        "more looks at this pace)."
    )


def test_a_clear_loss_is_rejected() -> None:
    found = judge(report(row(9, 24, 239)))

    assert found.verdict == Verdict.REJECT
    assert not result_of(found, "no_deterioration").passed


def test_a_gain_on_fifty_to_eight_is_promoted() -> None:
    assert judge(report(row(50, 8, 239))).verdict == Verdict.PROMOTE


def test_a_slice_that_gets_worse_under_a_better_total_is_rejected() -> None:
    refunds = row(1, 17, 60, slice="intent=refunds")

    found = judge(report(row(60, 20, 400), refunds))

    assert result_of(found, "superiority").passed
    assert found.verdict == Verdict.REJECT
    assert "intent=refunds" in result_of(found, "no_deterioration").message


def test_blocked_goes_before_reject_and_reject_before_the_rest() -> None:
    bad = report(row(0, 30, 60))

    assert judge(bad).verdict == Verdict.REJECT
    assert judge(bad, problems=["the chain of decisions is broken"]).verdict == Verdict.BLOCKED


def test_without_rules_nothing_is_promoted() -> None:
    assert decide(given_input(report(row(50, 0, 60))), {}, CFG).verdict == Verdict.INCONCLUSIVE


@pytest.mark.parametrize("verdict", list(Verdict))
def test_a_rule_that_did_not_pass_never_promotes(verdict: Verdict) -> None:
    def odd(given: GateInput, cfg: GateConfig) -> RuleResult:  # noqa: ARG001
        return RuleResult(rule="odd", passed=False, verdict=verdict, message="No.")

    expected = Verdict.INCONCLUSIVE if verdict == Verdict.PROMOTE else verdict
    assert decide(given_input(report(row(50, 0, 60))), RULES | {"odd": odd}, CFG).verdict == expected


BETTER = row(60, 8, 400)
HOLDS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {  # what makes a rule, and it alone, change the verdict
    "validity": ({}, {"problems": ["the chain of decisions is broken"]}),
    "superiority": ({"metrics": [row(6, 3, 20)], "evidence": evidence_of(row(6, 3, 20))}, {}),
    "non_inferior": ({"metrics": [BETTER, guard(185, 215, 2_000)]}, {}),
    "slices": ({"metrics": [BETTER, row(4, 4, 40, slice="slice refunds=yes", standing="declared")]}, {}),
    "no_deterioration": ({"metrics": [BETTER, guard(1, 7, 60)]}, {}),
    "off_policy": ({"off_policy": [estimate(0.5)]}, {}),
}


def test_every_rule_that_can_change_a_verdict_is_listed() -> None:
    assert rule_names(CFG) == list(RULES) == list(HOLDS)
    assert judge(report(BETTER)).verdict == Verdict.PROMOTE
    for name, (changes, rest) in HOLDS.items():
        found = judge(report(BETTER, **changes), **rest)

        assert found.verdict != Verdict.PROMOTE, name
        assert [r.rule for r in found.rules if not r.passed] == [name]


def test_a_mandatory_rule_applies_where_it_is_not_listed_and_promotes_nothing_alone() -> None:
    assert rule_names(GateConfig(rules=["superiority"])) == ["superiority", *MANDATORY]
    assert rule_names(GateConfig(rules=["off_policy", "superiority"])) == ["off_policy", "superiority"]
    assert decide(given_input(report(BETTER)), {"off_policy": off_policy}, CFG).verdict == Verdict.INCONCLUSIVE


# --- what it may never do ------------------------------------------------------------------------------------------

TABLE = st.tuples(st.integers(0, 80), st.integers(0, 80), st.integers(0, 200))


def _row(drawn: tuple[int, int, int], **rest: Any) -> MetricRow:
    wins, losses, concordant = drawn
    return row(wins, losses, wins + losses + concordant, **rest)


@given(TABLE, st.lists(TABLE, max_size=3))
def test_never_promoted_without_more_wins_than_losses(
    primary: tuple[int, int, int], others: list[tuple[int, int, int]]
) -> None:
    rows = [_row(primary), *(_row(o, metric=f"m{i}", primary=False) for i, o in enumerate(others))]

    found = judge(report(*rows))

    if primary[0] <= primary[1]:
        assert found.verdict != Verdict.PROMOTE


@given(TABLE, st.integers(1, 300))
def test_never_promoted_on_too_few_cases(primary: tuple[int, int, int], min_cases: int) -> None:
    head = _row(primary)

    found = decide(given_input(report(head)), RULES, GateConfig(min_cases=min_cases))

    if head.n < min_cases or head.n == 0:
        assert found.verdict != Verdict.PROMOTE


@given(TABLE, st.sampled_from(["problem", "leak", "gap", "adapter", "retired"]))
def test_blocked_whatever_the_numbers_say(primary: tuple[int, int, int], why: str) -> None:
    head = _row(primary)
    counts = {"next_action: offered": head.n + 1, "next_action: scored": head.n, "next_action: gap": 1}
    changes: dict[str, dict[str, Any]] = {"leak": {"leaked_tasks": 1}, "gap": {"coverage": counts}}

    found = judge(
        report(head, **changes.get(why, {})),
        problems=["changed"] if why == "problem" else [],
        history=[entry("rolled_back", number=2)] if why == "retired" else [],
        **({"adapter_sha256": "another"} if why == "adapter" else {}),
    )

    assert found.verdict == Verdict.BLOCKED


@given(TABLE, TABLE)
def test_every_rule_speaks_in_whole_sentences_with_finite_numbers(
    primary: tuple[int, int, int], other: tuple[int, int, int]
) -> None:
    found = judge(report(_row(primary), _row(other, metric="side", primary=False)))

    for rule in found.rules:
        assert rule.message.endswith(".")
        assert rule.message[0] == rule.message[0].upper() or rule.message.startswith("good")
        assert any(c.isdigit() for c in rule.message) or rule.message.startswith("There are no")
        assert all(np.isfinite(v) for v in rule.numbers.values())
