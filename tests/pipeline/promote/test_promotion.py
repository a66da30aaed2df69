"""Decisions on stored reports: what is spent, what is repeated, what is tampered with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from flywheel.errors import UsageError
from flywheel.io import files
from flywheel.pipeline.promote.promotion import decide_round, force, roll_back
from flywheel.project import Project
from flywheel.records import EvalReport, MetricRow, OffPolicyEstimate, Promotion, Verdict
from flywheel.registry.registry import ADAPTER_WEIGHTS
from tests.reports import estimate, manifest, report, row

TASKS = [f"task {i:03d}" for i in range(100)]


@pytest.fixture
def project(tmp_path: Path) -> Project:
    made = Project(tmp_path)
    for number in (1, 2, 3):
        weights = made.registry.folder(number) / "adapter" / ADAPTER_WEIGHTS
        weights.parent.mkdir(parents=True)
        weights.write_text(f"weights {number}")
        made.registry.save(manifest(number, adapter_sha256=files.hash_file(weights)))
    return made


def evaluated(project: Project, number: int, head: MetricRow, **rest: Any) -> EvalReport:
    """Store an evaluation of a round beside the champion, on tasks that nobody has spent."""
    champion, registry = project.registry.champion, project.registry
    made = report(
        head,
        number=number,
        candidate_adapter_sha256=registry.manifest(number).adapter_sha256,
        baseline="base" if champion is None else str(champion),
        baseline_adapter_sha256="" if champion is None else registry.manifest(champion).adapter_sha256,
        **({"spends": TASKS} | rest),
    )
    registry.save_report(made)
    return made


def decided(project: Project, number: int) -> Promotion:
    with project.locked("test") as ctx:
        return decide_round(ctx, number, by="test")


def test_a_decision_spends_its_tasks_once(project: Project) -> None:
    evaluated(project, 1, row(30, 1, 100))
    first = decided(project, 1)

    assert (first.verdict, project.registry.champion) == (Verdict.PROMOTE, 1)
    assert project.registry.spent("another look") == set(TASKS)
    assert decided(project, 1) == first
    assert len(project.registry.promotions()) == 1
    assert len((project.registry.root / "spent.jsonl").read_text().splitlines()) == 1
    assert project.registry.problems([1]) == []


def test_a_report_on_tasks_that_were_spent_since_is_blocked(project: Project) -> None:
    evaluated(project, 2, row(30, 1, 100), cases_sha256="c2")
    evaluated(project, 1, row(6, 3, 100), cases_sha256="c1")
    decided(project, 1)

    found = decided(project, 2)
    assert found.verdict == Verdict.BLOCKED
    assert "100 of its fresh tasks were spent by a later decision" in found.rules[0].message


def test_a_blocked_night_spends_nothing(project: Project) -> None:
    evaluated(project, 1, row(30, 1, 100), leaked_tasks=3)

    found = decided(project, 1)
    assert found.verdict == Verdict.BLOCKED
    assert "3 cases of 100 were of tasks trained on" in found.rules[0].message
    assert not (project.registry.root / "spent.jsonl").exists()


def test_tampering_blocks_with_the_reason(project: Project) -> None:
    evaluated(project, 1, row(30, 1, 100))
    decided(project, 1)
    path = project.registry.root / "promotions.jsonl"
    path.write_text(path.read_text().replace('"verdict":"PROMOTE"', '"verdict":"REJECT"'))
    evaluated(project, 2, row(30, 1, 100), spends=["new"])

    found = decided(project, 2)
    assert (found.verdict, project.registry.champion) == (Verdict.BLOCKED, 1)
    assert "the end of promotions.jsonl was changed or cut off" in found.rules[0].message
    evaluated(project, 3, row(30, 1, 100), spends=["newer"])
    again = decided(project, 3)
    assert "promotions.jsonl line 2 does not follow from the line before" in again.rules[0].message


def test_lines_that_are_no_decisions_block_too(project: Project) -> None:
    evaluated(project, 1, row(30, 1, 100))
    (project.registry.root / "promotions.jsonl").write_text('{"forged": true}\n')

    found = decided(project, 1)
    assert found.verdict == Verdict.BLOCKED
    assert "promotions.jsonl line 1 does not fit its schema" in found.rules[0].message


def test_a_swapped_adapter_blocks(project: Project) -> None:
    evaluated(project, 1, row(30, 1, 100))
    (project.registry.folder(1) / "adapter" / ADAPTER_WEIGHTS).write_text("other weights")

    found = decided(project, 1)
    assert found.verdict == Verdict.BLOCKED
    assert "round 1: the adapter file is not the one its manifest names" in found.rules[0].message


def test_what_was_rolled_back_never_comes_back(project: Project) -> None:
    evaluated(project, 1, row(30, 1, 100))
    decided(project, 1)
    with project.locked("test") as ctx:
        roll_back(ctx, "base", reason="harm", by="test")
        with pytest.raises(UsageError, match="round 1 was rolled back and never becomes champion again"):
            force(ctx, 1, reason="please", by="test")
    for number, parent in ((2, 1), (3, 2)):
        project.registry.save(project.registry.manifest(number).model_copy(update={"parent": parent}))
        evaluated(project, number, row(30, 1, 100), cases_sha256=f"c{number}", spends=[f"{number}"])

    assert "its parent, round 1, was rolled back" in decided(project, 2).rules[0].message
    assert "it descends from round 1, which was rolled back" in decided(project, 3).rules[0].message


def test_an_estimate_that_says_the_opposite_holds_a_promotion_and_spends_its_tasks(project: Project) -> None:
    evaluated(project, 1, row(30, 1, 100), off_policy=[estimate(0.5)])

    found = decided(project, 1)
    assert (found.decision, found.verdict, project.registry.champion) == ("held", Verdict.INCONCLUSIVE, None)
    assert found.rules[-1].rule == "off_policy"
    assert found.rules[-1].message == (
        "Vetoed by the logs: DR estimates [0.400, 0.500] for the candidate (n 200); the policies that acted earned "
        "0.600."
    )
    assert project.registry.spent("another look") == set(TASKS)


def test_every_rule_of_a_decision_is_explained(project: Project) -> None:
    evaluated(project, 1, row(30, 1, 100), off_policy=[estimate(0.5)])
    found = decided(project, 1)

    lines = project.explain("gate").lines
    for rule in found.rules:
        assert any(line.startswith(f"{rule.rule}: ") for line in lines), rule.rule
        assert f"  {'✓' if rule.passed else '✗'} round 1: {rule.message}" in lines


@pytest.mark.parametrize(
    "told",
    [
        estimate(0.5, target="baseline"),
        estimate(0.5, name="IPS"),
        estimate(None),
        estimate(0.61),
    ],
)
def test_no_other_estimate_holds_one(project: Project, told: OffPolicyEstimate) -> None:
    evaluated(project, 1, row(30, 1, 100), off_policy=[told])
    assert decided(project, 1).verdict == Verdict.PROMOTE


def test_no_estimate_makes_a_promotion(project: Project) -> None:
    evaluated(project, 1, row(6, 5, 100), off_policy=[estimate(0.99)])
    found = decided(project, 1)
    assert found.verdict == Verdict.INCONCLUSIVE
    assert [rule.passed for rule in found.rules if rule.rule == "off_policy"] == [True]
