"""A smoke test of the installed command: two processes make the tables; `tests/crash` turns the wheel with real ones.

Other tests fork what they type from one process, which hashes strings in its own way; the tables must be equal.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.projects import REAL, Projects, digest

SEED = 1


def _run(project: Path, *arguments: str) -> None:
    """Run a command in a process of its own, whose strings are hashed with a seed."""
    environment = {**os.environ, "PYTHONHASHSEED": str(SEED)}
    command = [REAL, "-C", str(project), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, f"{arguments} → {done.returncode}\n{done.stdout}{done.stderr}"


@pytest.fixture(scope="module")
def tables(projects: Callable[[str], Path]) -> Path:
    """A project whose tables were made by real processes."""
    project = projects("logs")
    for command in ("ingest", "build"):
        _run(project, command)
    return project


@pytest.mark.e2e
def test_tables_do_not_depend_on_how_strings_are_hashed(tables: Path, session_projects: Projects) -> None:
    """The other seed is random: a server for forked commands has none set."""
    assert "PYTHONHASHSEED" not in os.environ
    assert digest(tables)["tables"]
    assert digest(tables) == digest(session_projects.made("built"))
