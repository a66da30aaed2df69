"""The champion is what was decided: whatever is edited by hand is noticed, and the way out is a command."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from flywheel.errors import FlywheelError, StoreError, UsageError
from flywheel.io import files
from flywheel.project import Project
from flywheel.records import FileHash, Verdict
from flywheel.registry.registry import ADAPTER_WEIGHTS, Registry, files_sha256
from tests.reports import manifest, report, row

GUARDED: tuple[Callable[[Project], object], ...] = (
    lambda project: project.champion(),
    lambda project: project.deploy_merge(project.folder / "merged"),
    lambda project: project.deploy_vllm("http://127.0.0.1:9"),
)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """Round 1 was champion, round 2 is, round 3 was held."""
    made = Project(tmp_path)
    for number in (1, 2, 3):
        folder = made.registry.folder(number)
        (folder / "adapter").mkdir(parents=True)
        (folder / "adapter" / ADAPTER_WEIGHTS).write_text(f"weights {number}")
        (folder / "adapter" / "adapter_config.json").write_text("{}")
        _remake(made.registry, number)
        made_of = made.registry.manifest(number)
        made.registry.candidates.trained(number, made_of.adapter_sha256, "", files_sha256(made_of))
    for number in (1, 2):
        made.promote(number, force=True, reason=f"the {number}")
    made.registry.save_report(report(row(1, 30, 100), number=3, baseline="2"))
    assert made.promote(3).decision == "held"
    return Project(tmp_path)


def _remake(registry: Registry, number: int) -> None:
    """Write a manifest that fits the round's files, as somebody does who hides what was swapped."""
    folder = registry.folder(number)
    listed = [
        FileHash(path=p.relative_to(folder).as_posix(), sha256=files.hash_file(p), size_bytes=p.stat().st_size)
        for p in sorted((folder / "adapter").iterdir())
    ]
    weights = files.hash_file(folder / "adapter" / ADAPTER_WEIGHTS)
    registry.save(manifest(number, adapter_sha256=weights, outputs=listed, state="trained"))


def _edit(path: Path, **changes: Any) -> None:
    files.write_json(path, json.loads(path.read_text()) | changes)


def _doctor(project: Project) -> str:
    checks = [check for check in project.doctor().checks if check.name == "rounds" and check.state == "failed"]
    return " ".join(f"{check.says} {check.fix}" for check in checks)


def test_a_pointer_edited_by_hand_serves_nothing_and_is_set_again(project: Project) -> None:
    """Also `previous`, to which a rollback goes."""
    pointer = project.registry.root / "aliases.json"
    _edit(pointer, champion=3, previous=3)

    with pytest.raises(StoreError, match="names round 3 as champion, the decisions round 2") as caught:
        project.champion()
    assert "flywheel build" in caught.value.hint
    assert "names round 3 as champion" in _doctor(project)
    assert project.status().champion == 2

    said: list[str] = []
    assert Project(project.folder, say=said.append).rollback().champion_after == 1
    assert "aliases.json names round 3 as champion" in said[0]
    assert project.champion().round == 1


def test_swapped_weights_with_a_fitting_manifest_are_not_what_was_decided(project: Project) -> None:
    (project.registry.folder(2) / "adapter" / ADAPTER_WEIGHTS).write_text("other weights")
    _remake(project.registry, 2)

    for command in GUARDED:
        with pytest.raises(StoreError, match="round 2: its manifest names other files than was decided on"):
            command(project)
    assert "was decided on" in _doctor(project)
    assert project.rollback(reason="swapped").champion_after == 1
    assert project.champion().round == 1


@pytest.mark.parametrize("number", [2, 3])
def test_a_configuration_of_an_adapter_is_covered_too(project: Project, number: int) -> None:
    """Round 3 was only trained: the ledger has what training left."""
    (project.registry.folder(number) / "adapter" / "adapter_config.json").write_text('{"lora_alpha": 1e9}')
    _remake(project.registry, number)

    assert "its manifest names other files than" in _doctor(project)
    if number == 3:
        with pytest.raises(UsageError, match="than training left"):
            project.promote(3, force=True, reason="try")


def test_a_forged_decision_is_not_carried_out_and_the_way_out_is_said(project: Project) -> None:
    path = project.registry.root / "promotions.jsonl"
    whole = path.read_text()
    last = json.loads(whole.splitlines()[-1])
    forged = {**last, "decision": "promoted", "champion_after": 3, "previous_sha256": project.registry.head}
    path.write_text(whole + json.dumps(forged) + "\n")

    said: list[str] = []
    Project(project.folder, say=said.append).gc()  # any command that finishes what a kill left

    assert project.registry.champion == 2
    for command in GUARDED:
        with pytest.raises(StoreError, match="remove those after line 3"):
            command(project)
    assert "remove those after line 3" in _doctor(project)
    path.write_text(whole)
    assert project.champion().round == 2


def test_a_missing_pointer_is_not_the_base(project: Project) -> None:
    (project.registry.root / "aliases.json").unlink()

    for command in GUARDED:
        with pytest.raises(StoreError, match=r"aliases\.json is missing"):
            command(project)
    assert "aliases.json is missing" in _doctor(project)
    project.promote(2, force=True, reason="it was lost")
    assert project.champion().round == 2


def test_a_missing_pointer_is_decided_again_by_a_rollback_too(tmp_path: Path, project: Project) -> None:
    (tmp_path / "rounds" / "aliases.json").unlink()
    project.rollback("base", reason="it was lost")
    assert project.champion().round is None


@pytest.mark.parametrize("gate", ["", '[gate]\nrules = ["superiority"]\n'])
def test_an_edited_report_of_a_held_round_is_not_promoted(project: Project, gate: str) -> None:
    """Whatever rules the project has: what the registry finds blocks."""
    (project.folder / "flywheel.toml").write_text(gate)
    path = project.registry.folder(3) / "eval" / "report.json"
    _edit(path, metrics=[row(60, 0, 100).model_dump(mode="json")])

    decision = Project(project.folder).promote(3)

    assert (decision.decision, decision.verdict, project.registry.champion) == ("held", Verdict.BLOCKED, 2)
    assert any("its report is not of the looks" in rule.message for rule in decision.rules)


@pytest.mark.parametrize("name", ["adapter_model.bin", "chat_template.jinja", "more/x.py"])
def test_a_file_added_to_an_adapter_is_noticed(project: Project, name: str) -> None:
    added = project.registry.folder(2) / "adapter" / name
    added.parent.mkdir(exist_ok=True)
    added.write_text("pickled")

    for command in GUARDED:
        with pytest.raises(StoreError, match=f"`adapter/{name}` is not a file of its manifest; remove it"):
            command(project)
    added.unlink()
    assert project.champion().round == 2


def test_a_link_that_leads_elsewhere_is_noticed_and_set_again(project: Project, tmp_path: Path) -> None:
    link = project.registry.root / "champion"
    link.unlink()
    link.symlink_to(tmp_path)

    with pytest.raises(StoreError, match="does not lead to the champion's adapter"):
        project.champion()
    project.gc()
    assert link.resolve() == (project.registry.folder(2) / "adapter").resolve()
    assert project.champion().round == 2


def test_an_adapter_behind_a_link_is_noticed(project: Project) -> None:
    weights = project.registry.folder(2) / "adapter" / ADAPTER_WEIGHTS
    moved = project.registry.root / "moved"
    weights.rename(moved)
    weights.symlink_to(moved)
    with pytest.raises(FlywheelError, match=f"`adapter/{ADAPTER_WEIGHTS}` is a link"):
        project.champion()


def test_the_head_is_printed_for_keeping_elsewhere_and_covers_what_was_decided(project: Project) -> None:
    head = project.champion().decisions_sha256
    lines = (project.registry.root / "promotions.jsonl").read_text().splitlines()
    assert head == files.hash_text(lines[-1])
    project.promote(1, force=True, reason="again")
    assert head in (project.registry.root / "promotions.jsonl").read_text().splitlines()[-1]
