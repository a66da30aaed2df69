"""A smoke test of the installed command: two processes make the tables, one more turns the wheel with a real trainer.

Other tests fork what they type from one process, which hashes strings in its own way; the tables must be equal.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.projects import HELD, REAL, Projects, champion_is_valid, digest

SEED = 1


def _run(project: Path, *arguments: str) -> int:
    """Run a command in a process of its own, whose strings are hashed with a seed; return its exit code."""
    environment = {**os.environ, "PYTHONHASHSEED": str(SEED)}
    command = [REAL, "-C", str(project), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode in {0, HELD}, f"{arguments} → {done.returncode}\n{done.stdout}{done.stderr}"
    return done.returncode


@pytest.fixture(scope="module")
def tables(projects: Callable[[str], Path]) -> Path:
    """A project whose tables were made by real processes."""
    project = projects("logs")
    assert [_run(project, command) for command in ("ingest", "build")] == [0, 0]
    return project


def test_tables_do_not_depend_on_how_strings_are_hashed(tables: Path, session_projects: Projects) -> None:
    """The other seed is random: a server for forked commands has none set."""
    assert "PYTHONHASHSEED" not in os.environ
    assert digest(tables)["tables"]
    assert digest(tables) == digest(session_projects.made("built"))


def test_a_turn_of_the_wheel_in_real_processes(tables: Path, tmp_path: Path) -> None:
    """Planned, trained, evaluated, decided and reported by one process, and the trainer's."""
    project = shutil.copytree(tables, tmp_path / "p", symlinks=True)

    assert _run(project, "run", "nightly", "--from", "train") == HELD

    done = digest(project)
    assert [decision["round"] for decision in done["reports"]] == [1]
    assert len(done["decisions"]) == 1
    assert champion_is_valid(project)
    assert (project / "rounds" / "0001" / "report.html").is_file()
