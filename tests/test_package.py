"""What a user installs: the wheel holds all that the commands need, and nothing else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory, root: Path) -> zipfile.ZipFile:
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(out)]
    subprocess.run(command, cwd=root, check=True, capture_output=True)
    (made,) = out.glob("*.whl")
    return zipfile.ZipFile(made)


def test_schemas_recipes_and_sample_logs_travel_with_the_code(wheel: zipfile.ZipFile, root: Path) -> None:
    names = set(wheel.namelist())
    for folder in ("schemas", "pipelines", "sample_logs"):
        here = {str(p.relative_to(root)) for p in (root / folder).rglob("*") if p.is_file()}
        assert {f"flywheel/_shipped/{name}" for name in here} <= names
    assert "flywheel/py.typed" in names
    assert not [n for n in names if not n.startswith(("flywheel/", "flywheel_rl-"))]
    (entry_points,) = (n for n in names if n.endswith("entry_points.txt"))
    assert "flywheel = flywheel.cli.start:main" in wheel.read(entry_points).decode()
    assert [n for n in names if n.endswith("LICENSE")]


def test_the_installed_package_needs_no_checkout(wheel: zipfile.ZipFile, tmp_path: Path) -> None:
    wheel.extractall(tmp_path / "site")
    (tmp_path / "project").mkdir()

    def run(*arguments: str) -> str:
        code = "import sys; from flywheel.cli.app import main; sys.argv[0] = 'flywheel'; main()"
        done = subprocess.run(
            [sys.executable, "-c", code, "-C", str(tmp_path / "project"), *arguments],
            cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(tmp_path / "site")},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert json.loads(run("schema", "episode"))["title"]
    run("init")
    assert (tmp_path / "project" / "pipelines" / "nightly.toml").is_file()


def test_data_of_the_readers_travels_with_them(wheel: zipfile.ZipFile) -> None:
    assert "flywheel/stages/ingest/readers/tracers/aliases.toml" in wheel.namelist()
    assert "flywheel/stages/ingest/readers/tracers/spans.toml" in wheel.namelist()
