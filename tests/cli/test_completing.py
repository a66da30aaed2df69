"""Completion in a shell: commands, options, and the stages, rounds and pipelines of the project at hand."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from flywheel.registry.registry import Registry
from tests.cli.test_speed import HEAVY
from tests.projects import FLYWHEEL
from tests.reports import manifest


def completed(project: Path, line: str) -> list[str]:
    """Return what a shell would offer for the last word of a line."""
    words = line.split(" ")
    asked = {"_FLYWHEEL_COMPLETE": "complete_bash", "COMP_WORDS": line.rstrip(), "COMP_CWORD": str(len(words) - 1)}
    done = subprocess.run(
        [FLYWHEEL], capture_output=True, text=True, check=False, cwd=project, env={**os.environ, **asked}
    )
    assert done.stderr == ""
    return done.stdout.split()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    registry = Registry(tmp_path / "rounds")
    for number in (1, 2, 12):
        registry.save(manifest(number))
    return tmp_path


def test_commands_options_and_values(project: Path) -> None:
    assert completed(project, "flywheel dep") == ["deploy"]
    assert completed(project, "flywheel deploy vllm --tok") == ["--token-env"]
    assert completed(project, "flywheel build --select re") == ["rewards", "reliability", "returns"]
    assert completed(project, "flywheel diff 1") == ["1", "12"]
    assert completed(project, "flywheel diff 1 @c") == ["@champion", "@challenger"]
    assert completed(project, "flywheel explain g") == ["groups", "gate"]
    assert "nightly" in completed(project, "flywheel run n")


def test_a_broken_configuration_completes_nothing(project: Path) -> None:
    (project / "flywheel.toml").write_text("[")

    assert completed(project, "flywheel diff 1") == []


def test_completing_imports_nothing_heavy(project: Path) -> None:
    code = (
        "import sys\nfrom flywheel.cli.completing import pipelines, rounds, stages, subjects\n"
        "for find in (pipelines, rounds, stages, subjects): find('')\n"
        "print(*{m.split('.')[0] for m in sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=project)
    assert not set(done.stdout.split()) & HEAVY


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_shells_script_is_printed(project: Path, shell: str) -> None:
    asked = {"_FLYWHEEL_COMPLETE": f"source_{shell}"}

    done = subprocess.run(
        [FLYWHEEL], capture_output=True, text=True, check=True, cwd=project, env={**os.environ, **asked}
    )

    assert "_FLYWHEEL_COMPLETE=complete_" in done.stdout
