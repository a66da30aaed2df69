"""Validity: every reason to distrust a comparison blocks it, by name."""

from __future__ import annotations

from typing import Any

import pytest
from flywheel.config import GateConfig
from flywheel.extensions import GateInput
from flywheel.records import CaseGap, RuleResult, Verdict
from flywheel.stages.gate.validity import validity
from tests.reports import entry, given_input, manifest, report, row

HEAD = row(9, 0, 40)


def judge(given: GateInput) -> RuleResult:
    return validity(given, GateConfig())


def counts(**rest: int) -> dict[str, int]:
    return {"next_action: offered": 45, "next_action: scored": 40} | {
        k.replace("_", ": ", 1): v for k, v in rest.items()
    }


def test_a_sound_comparison() -> None:
    found = judge(given_input(report(HEAD)))

    assert (found.passed, found.verdict) == (True, Verdict.PROMOTE)
    assert "40 of 40 cases" in found.message


BLOCKED: list[tuple[dict[str, Any], str]] = [
    ({"leaked_tasks": 2}, "2 cases of 40 were of tasks trained on"),
    ({"candidate_adapter_sha256": "other"}, "the evaluated adapter is not the one that round 2's manifest names"),
    ({"baseline": "2", "baseline_adapter_sha256": "x"}, "round 2 was compared with itself"),
    ({"baseline": "1"}, "the adapter of the baseline, round 1, is unknown"),
    ({"metrics": [HEAD, HEAD]}, "2 metrics are marked primary"),
    (
        {"coverage": {"a: offered": 4, "a: scored": 3, "a: gap": 1, "b: gap: form": 2}},
        "the candidate lacks 1 case of a that the baseline has; the candidate lacks 2 cases of b form",
    ),
    (
        {
            "coverage": {"next_action: gap": 7},
            "gaps": [
                CaseGap(slice="all", lacking=7, of=40, names=[f"c{i}" for i in range(7)]),
                CaseGap(slice="tool=refund", lacking=4, of=6, names=["c0"]),
            ],
        },
        "next_action that the baseline has; it lacks more than half of the cases in 1 slice",
    ),
]


@pytest.mark.parametrize(("changes", "said"), BLOCKED)
def test_what_the_report_gives_away(changes: dict[str, Any], said: str) -> None:
    found = judge(given_input(report(HEAD, **changes)))

    assert (found.passed, found.verdict) == (False, Verdict.BLOCKED)
    assert said in found.message


def test_what_the_registry_found() -> None:
    found = judge(given_input(report(HEAD), problems=["promotions.jsonl line 3 does not follow from the line before"]))

    assert found.verdict == Verdict.BLOCKED
    assert "line 3" in found.message


def test_a_round_without_adapter_or_of_another_number() -> None:
    assert "round 2 has no adapter" in judge(given_input(report(HEAD), adapter_sha256="")).message

    swapped = GateInput(report(HEAD, number=3), manifest(2), [])
    assert "the report is about round 3" in judge(swapped).message


def test_a_rolled_back_round_and_its_children() -> None:
    history = [entry("rolled_back", number=1)]

    again = judge(given_input(report(HEAD, number=1), history=history))
    child = judge(given_input(report(HEAD), history=history, parent=1))
    cousin = judge(given_input(report(HEAD), history=history, parent=None))

    assert "round 1 was rolled back" in again.message
    assert "its parent, round 1, was rolled back" in child.message
    assert cousin.passed


def test_a_few_missing_cases_are_reported_and_many_are_a_selection() -> None:
    few = judge(given_input(report(HEAD, coverage=counts())))
    many = judge(given_input(report(HEAD, coverage={"next_action: offered": 60, "next_action: scored": 40})))

    assert few.passed
    assert (many.passed, many.verdict) == (False, Verdict.INCONCLUSIVE)
    assert many.message == (
        "Only 40 of 60 cases of the primary suite could be scored; at least 80% are needed, or the rest is a selection."
    )


def test_no_primary_row_blocks_nothing_by_itself() -> None:
    assert judge(given_input(report())).passed
