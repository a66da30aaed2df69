"""flywheel diff and flywheel champion on real rounds: what changed, what to serve, and no damaged adapter."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from flywheel.errors import StoreError, UsageError
from flywheel.project import Project
from tests.cli.test_eval_logs import write
from tests.projects import train


@pytest.fixture(scope="module")
def folder(projects: Callable[[str], Path]) -> Path:
    """Two rounds: the second with other settings and more logs."""
    made = projects("trained")
    config = made / "flywheel.toml"
    config.write_text(config.read_text().replace("max_steps = 4", "max_steps = 2"))
    more = write(made / "more.jsonl", [(f"new {n}", f"Please look after parcel {n}", 1.0) for n in range(40)], "agent")
    second = Project(made)
    second.ingest([Path(more)])
    train(second, "--force", "--reason", "another agent's log")
    return made


def test_what_changed_between_two_rounds_is_named(folder: Path) -> None:
    answer = Project(folder).diff("1", "latest")

    assert (answer.before, answer.now) == (1, 2)
    assert answer.config == ["train.max_steps 4 → 2"]
    assert {"episodes", "examples"} <= set(answer.inputs)
    assert answer.rows_added > 0
    assert answer.rows_added + answer.rows_kept == 12
    assert any(line.startswith("considered ") for line in answer.funnel)


def test_a_round_does_not_differ_from_itself(folder: Path) -> None:
    answer = Project(folder).diff("2", "2")

    assert not (answer.made)
    assert not (answer.config)
    assert not (answer.inputs)
    assert not (answer.funnel)
    assert (answer.rows_added, answer.rows_dropped) == (0, 0)
    assert answer.rows_kept == 12


def test_the_base_model_is_no_round_to_compare(folder: Path) -> None:
    with pytest.raises(UsageError, match="base model"):
        Project(folder).diff("base", "1")


def test_the_champion_is_what_was_decided_and_nothing_else(folder: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(folder, tmp_path / "agent"))
    project = Project(copy)
    before = project.champion()
    project.promote(2, force=True, reason="a test")
    answer = project.champion()

    assert (before.round, before.adapter, before.decision) == (None, "", "")
    assert (answer.round, answer.decision, answer.reason) == (2, "forced", "a test")
    assert answer.name == "agent-round-2"
    assert Path(answer.adapter, "adapter_model.safetensors").is_file()
    weights = Path(answer.adapter, "adapter_model.safetensors")
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")
    with pytest.raises(StoreError, match="not the one its manifest names") as refused:
        project.champion()
    assert "rollback" in refused.value.hint
