"""The method that a user names is the one that is planned, dry-run or not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.projects import flywheel


@pytest.fixture(scope="module")
def project(projects: Callable[[str], Path]) -> Path:
    return projects("built")


@pytest.mark.parametrize("command", [["plan"], ["train", "--dry-run"]])
@pytest.mark.parametrize("method", ["kto", "grpo", "grpo-replay"])
def test_a_plan_is_of_the_method_asked_for(project: Path, command: list[str], method: str) -> None:
    told = flywheel(project, *command, "--method", method).stdout

    assert f"method     {method}: train.method asks for it" in told
    assert told.endswith(f"next  flywheel train --round 1 --method {method}\n")
    assert not (project / "rounds" / "0001").exists()


@pytest.mark.parametrize("command", [["plan"], ["train"], ["train", "--dry-run"]])
def test_an_unknown_method_is_named_with_those_there_are(project: Path, command: list[str]) -> None:
    done = flywheel(project, *command, "--method", "ppo", check=False)

    assert done.returncode == 1
    assert "unknown training method `ppo`" in done.stderr
    assert "auto, sft, expert, dpo, grpo, kto, grpo-replay" in done.stderr
    assert "Traceback" not in done.stderr
