"""Decisions on stored reports: what is repeated, what ends a candidate, what is tampered with."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from flywheel.config import GateConfig
from flywheel.errors import BusyError, StoreError, UsageError
from flywheel.io import files
from flywheel.pipeline.evaluate.looks import evidence_of
from flywheel.pipeline.evaluate.protocol import sha256_of
from flywheel.pipeline.nightly.journal import Journal
from flywheel.pipeline.promote.promotion import decide_round, force, roll_back
from flywheel.present import outcome, rule_mark
from flywheel.project import Project
from flywheel.records import EvalReport, LedgerEntry, MetricRow, OffPolicyEstimate, Promotion, Verdict
from flywheel.registry.registry import ADAPTER_WEIGHTS
from flywheel.stages.gate.evidence import weigh
from flywheel.stats.planning import candidate_level
from tests.reports import estimate, manifest, report, row


@pytest.fixture
def project(tmp_path: Path) -> Project:
    made = Project(tmp_path)
    for number in (1, 2, 3):
        weights = made.registry.folder(number) / "adapter" / ADAPTER_WEIGHTS
        weights.parent.mkdir(parents=True)
        weights.write_text(f"weights {number}")
        made.registry.save(manifest(number, adapter_sha256=files.hash_file(weights)))
    return made


def evaluated(project: Project, number: int, head: MetricRow, *, name: str = "", **rest: Any) -> EvalReport:
    """Store a look at a round next to the champion, on as many new tasks as the primary row has cases."""
    champion, registry = project.registry.champion, project.registry
    sides = (
        registry.manifest(number).adapter_sha256,
        "" if champion is None else registry.manifest(champion).adapter_sha256,
    )
    if registry.candidates.find(*sides, "") is None:
        place, promotions = registry.candidates.next_place()
        level = candidate_level(place, promotions, alpha=0.05)
        entry = LedgerEntry(event="registered", candidate=place, round=number, level=level)
        registry.candidates.append(
            entry.model_copy(update={"candidate_sha256": sides[0], "baseline_sha256": sides[1], "baseline": "b"})
        )
    candidate = registry.candidates.find(*sides, "")
    assert candidate is not None
    outcomes = [1.0] * head.wins + [-1.0] * head.losses + [0.0] * (head.n - head.wins - head.losses)
    units = {f"{name or number} {len(candidate.looks)} {i:03d}": (d, 1) for i, d in enumerate(outcomes)}
    registry.candidates.look(candidate, dict.fromkeys(units, "h"), units, f"scores {number} {len(candidate.looks)}")
    looked_at = registry.candidates.find(*sides, "")
    assert looked_at is not None
    made = report(
        head,
        number=number,
        candidate_adapter_sha256=sides[0],
        baseline="base" if champion is None else str(champion),
        baseline_adapter_sha256=sides[1],
        **({"evidence": evidence_of(looked_at)} | rest),
    )
    registry.candidates.reported(looked_at, registry.save_report(made))
    return made


def train_by(project: Project, protocol: dict[str, Any]) -> None:
    """Record a protocol of round 1 as training does."""
    trained = project.registry.manifest(1).model_copy(update={"protocol": protocol})
    project.registry.candidates.trained(1, trained.adapter_sha256, sha256_of(protocol))
    project.registry.save(trained)


def decided(project: Project, number: int) -> Promotion:
    with project.locked("test") as ctx:
        return decide_round(ctx, number, by="test")


def test_a_report_is_decided_on_once(project: Project) -> None:
    evaluated(project, 1, row(30, 1, 100))
    first = decided(project, 1)

    assert (first.verdict, project.registry.champion) == (Verdict.PROMOTE, 1)
    assert [c.ended for c in project.registry.candidates.candidates()] == ["promoted"]
    assert decided(project, 1) == first
    assert len(project.registry.promotions()) == 1
    assert project.registry.problems([1]) == []


def test_a_report_that_was_blocked_is_decided_on_again_once_the_damage_is_mended(project: Project) -> None:
    evaluated(project, 1, row(30, 1, 100))
    weights = project.registry.folder(1) / "adapter" / ADAPTER_WEIGHTS
    trained = weights.read_text()
    weights.write_text("other weights")
    blocked = decided(project, 1)
    assert (blocked.verdict, decided(project, 1)) == (Verdict.BLOCKED, blocked)
    assert len(project.registry.promotions()) == 1
    weights.write_text(trained)

    promoted = decided(project, 1)
    assert (promoted.verdict, project.registry.champion) == (Verdict.PROMOTE, 1)
    assert decided(project, 1) == promoted


def test_a_held_candidate_stays_until_its_looks_together_decide(project: Project) -> None:
    for look in range(3):
        evaluated(project, 1, row(6, 2, 40))
        found = decided(project, 1)
        assert (found.verdict, project.registry.champion) == (Verdict.INCONCLUSIVE, None), look
    evaluated(project, 1, row(9, 1, 40))

    assert decided(project, 1).verdict == Verdict.PROMOTE
    (candidate,) = project.registry.candidates.candidates()
    assert (candidate.place, len(candidate.looks), candidate.ended) == (1, 4, "promoted")


def test_a_promotion_replaces_the_candidates_against_the_old_champion(project: Project) -> None:
    evaluated(project, 2, row(6, 3, 100))
    decided(project, 2)
    evaluated(project, 1, row(30, 1, 100))
    decided(project, 1)

    assert [c.ended for c in project.registry.candidates.candidates()] == ["replaced", "promoted"]


def test_a_rejected_candidate_has_ended(project: Project) -> None:
    evaluated(project, 1, row(1, 30, 100))

    assert decided(project, 1).verdict == Verdict.REJECT
    assert project.registry.candidates.open() == []


def test_a_killed_decision_is_settled_by_the_next(project: Project) -> None:
    evaluated(project, 1, row(30, 1, 100))
    path = project.registry.root / "candidates.jsonl"
    before = path.read_text()
    decided(project, 1)
    after = path.read_text()
    path.write_text(before)  # killed between the decision and the end of the candidate

    project.registry.settle()
    assert path.read_text() == after


def test_a_report_that_is_not_of_the_ledgers_looks_is_blocked(project: Project) -> None:
    made = evaluated(project, 1, row(6, 3, 100))
    better = weigh([{f"t{i}": (1.0, 1) for i in range(50)}], candidate=1, level=0.03)
    project.registry.save_report(made.model_copy(update={"evidence": better}))

    found = decided(project, 1)
    assert found.verdict == Verdict.BLOCKED
    assert "its report is not of the looks that the ledger of candidates has" in found.rules[0].message


def test_another_protocol_than_the_registered_one_is_blocked(project: Project) -> None:
    registered = {"suites": [{"name": "preference", "cases": ""}], "eval": {}, "gate": GateConfig().model_dump()}
    train_by(project, registered)
    evaluated(project, 1, row(30, 1, 100))

    found = decided(project, 1)
    assert found.verdict == Verdict.BLOCKED
    assert "it was evaluated by another protocol (suites) than round 1 was registered with" in found.rules[0].message


@pytest.mark.parametrize("kept", ["manifest", "ledger"])
def test_a_protocol_cannot_be_removed_from_one_of_its_two_places(project: Project, kept: str) -> None:
    train_by(project, {"suites": [], "eval": {}, "gate": GateConfig(alpha=0.9).model_dump()})
    if kept == "manifest":
        (project.registry.root / "candidates.jsonl").unlink()
    else:
        project.registry.save(project.registry.manifest(1).model_copy(update={"protocol": {}}))
    evaluated(project, 1, row(30, 1, 100))

    found = decided(project, 1)
    assert found.verdict == Verdict.BLOCKED
    assert "the protocol in the manifest of round 1 is not the one it was trained with" in found.rules[0].message


def test_rows_that_are_taken_out_of_a_report_are_missed(project: Project) -> None:
    evaluated(project, 1, row(30, 1, 100), metrics=[row(30, 1, 100), row(1, 15, 30, slice="intent=refund")])
    path = project.registry.folder(1) / "eval" / "report.json"
    made = json.loads(path.read_text())
    path.write_text(json.dumps({**made, "metrics": made["metrics"][:1]}))

    found = decided(project, 1)
    assert found.verdict == Verdict.BLOCKED
    assert "its report is not of the looks that the ledger of candidates has" in found.rules[0].message


def test_an_old_report_that_is_put_back_is_not_decided_on(project: Project) -> None:
    evaluated(project, 1, row(30, 1, 100))
    path = project.registry.folder(1) / "eval" / "report.json"
    before = path.read_text()
    evaluated(project, 1, row(1, 30, 100))
    path.write_text(before)

    assert decided(project, 1).verdict == Verdict.BLOCKED


def test_the_same_adapter_as_another_round_is_the_same_candidate(project: Project) -> None:
    evaluated(project, 1, row(6, 3, 100))
    same = project.registry.manifest(1).model_copy(update={"round": 2})
    project.registry.save(same)
    evaluated(project, 2, row(30, 1, 100))

    (candidate,) = project.registry.candidates.candidates()
    assert (candidate.place, candidate.registered.round, len(candidate.looks)) == (1, 1, 2)


@pytest.mark.parametrize("forged", [{"units": {"t": (1.0, 1)}}, {"level": 1.0}])
def test_a_ledger_that_is_written_anew_lacks_what_a_decision_rests_on(project: Project, forged: dict[str, Any]) -> None:
    """Also with a chain of hashes that is whole."""
    evaluated(project, 1, row(6, 3, 100))
    decided(project, 1)
    ledger, path = project.registry.candidates, project.registry.root / "candidates.jsonl"
    entries = ledger.entries()
    path.unlink()
    for entry in entries:
        ledger.append(entry.model_copy(update={k: v for k, v in forged.items() if getattr(entry, k)}))
    evaluated(project, 1, row(30, 1, 100))

    found = decided(project, 1)
    assert found.verdict == Verdict.BLOCKED
    assert "candidates.jsonl lacks a line that a decision wrote into it" in found.rules[0].message


def test_a_clock_that_is_set_back_changes_no_verdict(project: Project) -> None:
    evaluated(project, 1, row(6, 3, 100))
    decided(project, 1)
    evaluated(project, 2, row(6, 3, 100))
    with project.locked("test") as ctx:
        earlier = decide_round(replace(ctx, clock=lambda: datetime(1970, 1, 1, tzinfo=UTC)), 2, by="test")

    assert (earlier.verdict, project.registry.promotions()[-1]) == (Verdict.INCONCLUSIVE, earlier)
    second = project.registry.candidates.candidates()[1]
    assert (second.place, second.registered.level) == (2, candidate_level(2, 0, alpha=0.05))


def test_two_evaluations_at_once_are_one_after_the_other(project: Project) -> None:
    with project.locked("eval"), pytest.raises(BusyError, match="eval"):
        Project(project.folder).evaluate(1)


def test_a_blocked_night_ends_no_candidate(project: Project) -> None:
    evaluated(project, 1, row(30, 1, 100), leaked_tasks=3)

    found = decided(project, 1)
    assert found.verdict == Verdict.BLOCKED
    assert "3 cases of 100 were of tasks trained on" in found.rules[0].message
    assert len(project.registry.candidates.open()) == 1


def test_tampering_blocks_with_the_reason(project: Project) -> None:
    evaluated(project, 1, row(30, 1, 100))
    decided(project, 1)
    path = project.registry.root / "promotions.jsonl"
    path.write_text(path.read_text().replace('"verdict":"PROMOTE"', '"verdict":"REJECT"'))
    evaluated(project, 2, row(30, 1, 100))

    found = decided(project, 2)
    assert (found.verdict, project.registry.champion) == (Verdict.BLOCKED, 1)
    assert "the end of promotions.jsonl was changed or cut off" in found.rules[0].message
    evaluated(project, 3, row(30, 1, 100))
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
        evaluated(project, number, row(30, 1, 100))

    assert "its parent, round 1, was rolled back" in decided(project, 2).rules[0].message
    assert "it descends from round 1, which was rolled back" in decided(project, 3).rules[0].message


def test_the_page_of_a_round_that_was_rolled_back_shows_it(project: Project) -> None:
    evaluated(project, 1, row(30, 1, 100))
    project.promote(1)
    page = project.registry.folder(1) / "report.html"
    assert "Round 1 became champion" in page.read_text(encoding="utf-8")
    project.rollback("base", reason="harm")
    assert "Round 1 became champion" not in page.read_text(encoding="utf-8")
    assert "is rolled back" in page.read_text(encoding="utf-8").lower()


def test_going_back_leads_to_an_earlier_champion_alone(project: Project) -> None:
    """Neither to a round that the gate rejected nor to one that was not evaluated, trained or kept whole."""
    for number in (1, 2):
        evaluated(project, number, row(30, 1, 100))
        assert decided(project, number).verdict == Verdict.PROMOTE
    evaluated(project, 3, row(1, 30, 100))
    assert decided(project, 3).verdict == Verdict.REJECT
    project.registry.save(manifest(4, adapter_sha256="", state="built"))
    for never in (3, 4):
        with pytest.raises(UsageError, match=f"round {never} was never champion") as refused:
            project.rollback(str(never), reason="a way round the gate")
        assert refused.value.hint == f"flywheel promote {never}: the gate decides"
    weights = project.registry.folder(1) / "adapter" / ADAPTER_WEIGHTS
    trained = weights.read_text()
    weights.unlink()
    with pytest.raises(StoreError, match="round 1 has no adapter file"):
        project.rollback(reason="harm")
    assert project.registry.champion == 2
    weights.write_text(trained)

    assert project.rollback("1", reason="harm").champion_after == 1


def test_an_estimate_that_says_the_opposite_holds_a_promotion(project: Project) -> None:
    evaluated(project, 1, row(30, 1, 100), off_policy=[estimate(0.5)])

    found = decided(project, 1)
    assert (found.decision, found.verdict, project.registry.champion) == ("held", Verdict.INCONCLUSIVE, None)
    assert found.rules[-1].rule == "off_policy"
    assert found.rules[-1].message == (
        "Vetoed by the logs: DR estimates [0.400, 0.500] for the candidate (n 200); the policies that acted earned "
        "0.600."
    )
    assert len(project.registry.candidates.open()) == 1


def test_every_rule_of_a_decision_is_explained(project: Project) -> None:
    evaluated(project, 1, row(30, 1, 100), off_policy=[estimate(0.5)])
    found = decided(project, 1)

    lines = project.explain("gate").lines
    assert [line.split(":")[0] for line in lines[:3]] == ["verdict", "why", "next"]
    for rule in found.rules:
        assert any(line.startswith(f"{rule.rule}: ") for line in lines), rule.rule
        assert f"  {rule_mark(rule)} round 1: {rule.message}" in lines

    of_round = project.explain("1")
    assert [line for line in of_round.lines if line.startswith("  ✗")] == [f"  ✗ off_policy: {found.rules[-1].message}"]
    assert f"{len(found.rules) - 1} of {len(found.rules)} rules of the gate hold" in of_round.lines[-2]
    assert {line.split(":")[0][4:] for line in of_round.details if line[2:4] in {"✓ ", "- ", "✗ "}} == {
        rule.rule for rule in found.rules
    }


def test_a_night_says_what_next_as_its_decision_does(project: Project) -> None:
    evaluated(project, 1, row(30, 1, 100), off_policy=[estimate(0.5)])
    found = decided(project, 1)

    with project.locked("test") as ctx:
        journal = Journal(ctx, "nightly", trains=True)
        journal.done("gate", "held", 0.0)
        journal.update(number=1, missing=[], page="")
        assert journal.conclude().next == dict(outcome(found))["next"]


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
