"""One turn of the wheel by the installed command, a process a command: what the other tests fork is started here.

The tables are made twice, by interpreters that hash strings differently, and must be equal.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.projects import HELD, REAL, Projects, champion_is_valid, digest

TABLES: tuple[tuple[str, ...], ...] = (("ingest",), ("build",))
TURN: dict[tuple[str, ...], int] = {
    ("plan",): 0,
    ("train",): 0,
    ("eval", "--promote"): HELD,
    ("status",): 0,
    ("report",): 0,
    ("view",): 0,
    ("forget", "--user", "user04@shop.example", "--yes"): 0,
}


def _run(project: Path, *arguments: str, seed: int) -> int:
    """Run a command in a process of its own, whose strings are hashed with a seed; return its exit code."""
    environment = {**os.environ, "PYTHONHASHSEED": str(seed)}
    command = [REAL, "-C", str(project), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode in {0, HELD}, f"{arguments} → {done.returncode}\n{done.stdout}{done.stderr}"
    return done.returncode


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory, session_projects: Projects) -> tuple[Path, Path]:
    """Two projects on the same logs, each made by processes with another hash seed."""
    folder = tmp_path_factory.mktemp("real")
    one, two = (session_projects.copy("logs", folder / name) for name in ("one", "two"))
    for seed, project in ((1, one), (2, two)):
        for command in TABLES:
            assert _run(project, *command, seed=seed) == 0
    return one, two


def test_tables_do_not_depend_on_how_strings_are_hashed(tables: tuple[Path, Path], session_projects: Projects) -> None:
    one, two = map(digest, tables)

    assert one["tables"]
    assert one == two == digest(session_projects.made("built"))


def test_a_turn_of_the_wheel_in_real_processes(tables: tuple[Path, Path], tmp_path: Path) -> None:
    project = shutil.copytree(tables[0], tmp_path / "p", symlinks=True)

    assert {command: _run(project, *command, seed=3) for command in TURN} == TURN

    done = digest(project)
    assert [decision["round"] for decision in done["reports"]] == [1]
    assert len(done["decisions"]) == 1
    assert champion_is_valid(project)
    assert (project / "rounds" / "forgotten.jsonl").is_file()
