"""Ways round the gate without --force: each ends BLOCKED, counts as a candidate, or changes nothing."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from flywheel.pipeline.evaluate.protocol import differences, protocol_of, registered, sha256_of
from flywheel.project import Project
from flywheel.records import Promotion, Verdict

if TYPE_CHECKING:
    from flywheel.registry.candidates import CandidateLedger


@pytest.fixture(scope="module")
def trained(projects: Callable[[str], Path]) -> Path:
    return projects("trained")


@pytest.fixture
def folder(trained: Path, tmp_path: Path) -> Path:
    """A project with one trained round, not evaluated."""
    copy = tmp_path / "agent"
    shutil.copytree(trained, copy, symlinks=True)
    return copy


@pytest.fixture(scope="module")
def once(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same project after one look."""
    copy = tmp_path_factory.mktemp("once") / "agent"
    shutil.copytree(trained, copy, symlinks=True)
    Project(copy).evaluate(1)
    return copy


@pytest.fixture
def looked(once: Path, tmp_path: Path) -> Path:
    """A project with one trained round that was looked at."""
    copy = tmp_path / "agent"
    shutil.copytree(once, copy, symlinks=True)
    return copy


def decided(folder: Path, *, suites: list[str] | None = None) -> Promotion:
    promotion = Project(folder).evaluate(1, suites=suites, promote=True).promotion
    assert promotion is not None
    return promotion


def reason(promotion: Promotion) -> str:
    return next(rule.message for rule in promotion.rules if rule.rule == "validity")


def ledger(folder: Path) -> CandidateLedger:
    return Project(folder).registry.candidates


def test_a_look_without_promote_is_a_look(looked: Path) -> None:
    Project(looked).evaluate(1)

    (candidate,) = ledger(looked).candidates()
    assert (candidate.place, len(candidate.looks)) == (1, 1)  # nothing new was there the second time
    assert decided(looked).verdict == Verdict.INCONCLUSIVE
    assert len(ledger(looked).candidates()[0].looks) == 1


@pytest.mark.parametrize(
    "suite",
    [
        pytest.param("preference", marks=pytest.mark.e2e),
        "flywheel.stages.evaluate.suites.next_action:next_action",
    ],
)
def test_another_suite_than_the_registered_ones_is_another_candidate_and_blocked(looked: Path, suite: str) -> None:
    """Also the same one by another name."""
    found = decided(looked, suites=[suite])

    assert found.verdict == Verdict.BLOCKED
    assert "another protocol (suites) than round 1 was registered with" in reason(found)
    assert [c.place for c in ledger(looked).candidates()] == [1, 2]


@pytest.mark.parametrize(
    "settings",
    [
        "[gate]\nalpha = 0.9\nmin_cases = 1\n",
        pytest.param("[gate]\nrules = ['superiority']\nmargin = 0.9\n", marks=pytest.mark.e2e),
    ],
)
def test_a_changed_gate_does_not_apply_to_a_round_that_is_trained(looked: Path, settings: str) -> None:
    before = decided(looked)
    config = looked / "flywheel.toml"
    config.write_text(config.read_text() + settings)
    after = decided(looked)

    assert [rule.rule for rule in after.rules] == [rule.rule for rule in before.rules]
    assert after.model_copy(update={"at": before.at}) == before  # it is the same report: decided once


def test_edited_cases_and_another_share_of_held_out_tasks_are_another_protocol(folder: Path) -> None:
    cases = folder / "evals" / "mine.jsonl"
    cases.parent.mkdir()
    case = {"id": "any", "prompt": "Say something.", "checks": [{"check": "exact", "any_of": ["no"]}]}
    cases.write_text(json.dumps(case) + "\n")
    config = folder / "flywheel.toml"
    config.write_text(config.read_text().replace('suites = ["next_action"]', 'suites = ["mine"]'))
    with Project(folder).locked("test") as ctx:
        before = protocol_of(ctx)
    cases.write_text(cases.read_text().replace("no", "yes"))
    config.write_text(config.read_text() + "\n[episodes]\nholdout_share = 0.5\n")
    with Project(folder).locked("test") as ctx:
        after = protocol_of(ctx)

    assert differences(before, after) == ["holdout", "suites"]
    assert sha256_of(before) != sha256_of(after)


@pytest.mark.e2e
def test_suites_and_slices_that_are_changed_later_are_not_used(folder: Path) -> None:
    config = folder / "flywheel.toml"
    config.write_text(
        config.read_text().replace('suites = ["next_action"]', 'suites = ["preference"]\nseed = 7\nsamples = 3')
        + '\n[[eval.slices]]\nname = "mine"\nrequest = "x"\n'
    )
    report = Project(folder).evaluate(1).report

    assert report.metrics[0].suite == "next_action"
    assert all("mine" not in row.slice for row in report.metrics)


def test_a_report_that_was_edited_is_blocked(looked: Path) -> None:
    path = looked / "rounds" / "0001" / "eval" / "report.json"
    report = json.loads(path.read_text())
    report["evidence"] |= {"log_e_best": 50.0, "log_e": 50.0, "mean": 0.5}
    path.write_text(json.dumps(report))

    found = Project(looked).promote(1)
    assert found.verdict == Verdict.BLOCKED
    assert "its report is not of the looks that the ledger of candidates has" in reason(found)


def test_a_look_that_was_edited_in_the_ledger_is_blocked(looked: Path) -> None:
    path = looked / "rounds" / "candidates.jsonl"
    first, *looks = path.read_text().splitlines()
    path.write_text(
        "\n".join([first, *(look.replace('"units":{"', '"units":{"forged":[1.0,1],"') for look in looks), ""])
    )

    assert Project(looked).promote(1).verdict == Verdict.BLOCKED


def test_a_ledger_that_was_deleted_makes_no_new_start(looked: Path) -> None:
    first = decided(looked)
    (looked / "rounds" / "candidates.jsonl").unlink()

    assert decided(looked) == first
    lacking = "candidates.jsonl lacks a line that a decision wrote into it"
    assert lacking in Project(looked).registry.problems([1])


@pytest.mark.e2e
def test_another_base_model_is_another_protocol(folder: Path, tmp_path: Path) -> None:
    """The baseline of a first round is the base model: a worse one would make any round better."""
    config = folder / "flywheel.toml"
    base = next(line.partition('"')[2].rstrip('"') for line in config.read_text().splitlines() if "base =" in line)
    worse = tmp_path / "worse"
    shutil.copytree(base, worse)
    settings = json.loads((worse / "config.json").read_text())
    (worse / "config.json").write_text(json.dumps(settings | {"rope_theta": 1.0}))
    config.write_text(config.read_text().replace(base, str(worse)))

    found = decided(folder)
    assert found.verdict == Verdict.BLOCKED
    assert "another protocol (model)" in reason(found)


@pytest.mark.parametrize(
    "edited",
    [
        pytest.param("mine.py", id="edited", marks=pytest.mark.e2e),
        pytest.param("mine/__init__.py", id="a package that comes before it"),
    ],
)
def test_a_rule_of_the_project_that_was_edited_after_the_look_is_blocked(folder: Path, edited: str) -> None:
    (folder / "mine.py").write_text("from flywheel.stages.gate import superiority as rule\n")
    config = folder / "flywheel.toml"
    config.write_text(config.read_text() + '\n[gate]\nrules = ["validity", "mine:rule"]\n')
    manifest = folder / "rounds" / "0001" / "manifest.json"
    with Project(folder).locked("test") as ctx:  # as if the round had been trained with it
        registered = json.loads(manifest.read_text()) | {"protocol": protocol_of(ctx)}
        manifest.write_text(json.dumps(registered))
        ledger_file = folder / "rounds" / "candidates.jsonl"
        ledger_file.unlink()
        ctx.registry.candidates.trained(1, registered["adapter_sha256"], sha256_of(registered["protocol"]))
    Project(folder).evaluate(1)
    (folder / edited).parent.mkdir(exist_ok=True)
    (folder / edited).write_text("from flywheel.stages.gate import off_policy as rule\n")

    found = Project(folder).promote(1)
    assert found.verdict == Verdict.BLOCKED
    assert "a rule's code is not what the round was registered with" in reason(found)


def test_a_round_of_before_a_setting_of_the_gate_is_decided_as_it_was_registered(folder: Path) -> None:
    """It waited while a version came that has `gate.min_effect`."""
    manifest = folder / "rounds" / "0001" / "manifest.json"
    with Project(folder).locked("test") as ctx:
        protocol = protocol_of(ctx)
        del protocol["gate"]["min_effect"]
        manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"protocol": protocol}))
        (folder / "rounds" / "candidates.jsonl").unlink()
        ctx.registry.candidates.trained(1, json.loads(manifest.read_text())["adapter_sha256"], sha256_of(protocol))
        assert registered(ctx, ctx.registry.manifest(1)).gate.min_effect == 0

    assert decided(folder).verdict == Verdict.INCONCLUSIVE


def test_looks_that_were_cut_off_the_ledger_are_missed(looked: Path) -> None:
    """A chain cannot show that its end is missing, and nothing was decided on these; the scores are still there."""
    path = looked / "rounds" / "candidates.jsonl"
    trained, *_ = path.read_text().splitlines(keepends=True)
    path.write_text(trained)

    assert Project(looked).registry.problems([]) == ["candidates.jsonl lacks a candidate that round 1 was"]
    found = Project(looked).promote(1)
    assert found.verdict == Verdict.BLOCKED
    assert "lacks a candidate that round 1 was" in reason(found)


def test_a_protocol_that_was_edited_in_the_manifest_is_blocked(folder: Path) -> None:
    path = folder / "rounds" / "0001" / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["protocol"]["gate"]["alpha"] = 0.9
    path.write_text(json.dumps(manifest))

    found = decided(folder)
    assert found.verdict == Verdict.BLOCKED
    assert "the protocol in the manifest of round 1 is not the one it was trained with" in reason(found)


@pytest.mark.e2e
def test_another_baseline_is_another_candidate_and_not_promoted(looked: Path) -> None:
    Project(looked).promote(1, force=True, reason="to have a champion")
    found = Project(looked).evaluate(1, against="base").report

    assert found.baseline == "base"
    assert Project(looked).promote(1).decision in {"held", "forced"}
    assert Project(looked).registry.champion == 1


def test_deleting_the_scores_of_a_look_changes_no_evidence(looked: Path) -> None:
    """Nor when new attempts at the same tasks come afterwards: which of their cases count already is not known."""
    before = Project(looked).registry.report(1)
    assert before is not None
    shutil.rmtree(looked / "rounds" / "0001" / "eval" / "looks")
    after = Project(looked).evaluate(1).report
    assert after.evidence == before.evidence

    (candidate,) = ledger(looked).candidates()
    ledger(looked).look(candidate, dict.fromkeys(candidate.tasks, "fewer attempts"), {}, "s", holdout_sha256="fewer")
    Project(looked).evaluate(1)
    (candidate,) = ledger(looked).candidates()
    assert len(candidate.looks) == 3  # at other tasks alone, which the first look had no room for
    assert candidate.looks[0].tasks.keys() & candidate.looks[2].tasks.keys() == set()
    assert decided(looked).verdict != Verdict.PROMOTE
