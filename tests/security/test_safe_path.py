"""Files named like modules, in the folder where a command is typed and among the logs, never run: in real processes."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from flywheel.extensions import list_extensions, load_extension
from tests.commands import REAL

BEFORE_US = {"typing", "signal", "contextlib", "queue"}  # of `python -m` alone: Python loads them before flywheel
NAMES = ("pickle", "json", "polars", "sitecustomize", "torch", "accelerate", "typing", "signal", "contextlib", "queue")
BAIT = "import pathlib; pathlib.Path({ran!r}).touch(); raise SystemExit('a file of the working directory ran')\n"


def _bait(folder: Path, ran: Path, names: Iterable[str] = NAMES) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / f"{name}.py").write_text(BAIT.format(ran=str(ran)), encoding="utf-8")
    return folder


def _run(where: Path, *command: str) -> None:
    done = subprocess.run(command, cwd=where, capture_output=True, text=True, check=False)
    assert done.returncode in {0, 3}, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("names", "program"),
    [
        pytest.param(NAMES, (REAL,), id="flywheel"),
        pytest.param(NAMES, (sys.executable, "-P", "-m", "flywheel"), id="-P -m", marks=pytest.mark.e2e),
        pytest.param({*NAMES} - BEFORE_US, (sys.executable, "-m", "flywheel"), id="-m", marks=pytest.mark.e2e),
    ],
)
def test_nothing_in_the_current_folder_runs_when_many_processes_read(
    names: Iterable[str], program: tuple[str, ...], sample_logs: Path, tmp_path: Path
) -> None:
    ran, project = tmp_path / "ran", _bait(tmp_path / "p", tmp_path / "ran")
    here = _bait(tmp_path / "logs", ran, names)
    shutil.copy(sample_logs / "anthropic.jsonl", here)
    (project / "flywheel.toml").write_text("[ingest]\nworkers = 2\n", encoding="utf-8")

    _run(here, *program, "-C", str(project), "ingest", "anthropic.jsonl")

    assert not ran.exists()


@pytest.mark.e2e
def test_nothing_in_the_current_folder_runs_in_any_command(projects: Callable[[str], Path], tmp_path: Path) -> None:
    """Build's workers, the trainer, torch's launcher with its workers, evaluation."""
    project, ran = projects("ingested"), tmp_path / "ran"
    here = _bait(tmp_path / "here", ran)
    _bait(project, ran)
    _bait(project / "logs", ran)
    config = project / "flywheel.toml"
    config.write_text(config.read_text() + "\n[build]\nworkers = 2\n", encoding="utf-8")
    (project / "cpu.yaml").write_text("distributed_type: MULTI_CPU\nnum_processes: 2\nuse_cpu: true\n")

    for command in (["build"], ["train"], ["eval", "--promote"], ["gc"]):
        _run(here, REAL, "-C", str(project), *command)
    config.write_text(config.read_text().replace("[train]\n", f'[train]\naccelerate = "{project / "cpu.yaml"}"\n'))
    for command in (["train"], ["run", "nightly"]):
        _run(project, REAL, *command)

    assert not ran.exists()


def test_an_extension_in_the_projects_folder_takes_nobodys_place(tmp_path: Path) -> None:
    """It is found, with what lies beside it; a `json.py` beside it is not imported by others; nothing is installed."""
    ran = tmp_path / "ran"
    project = _bait(tmp_path / "p", ran)
    (project / "our_words.py").write_text("WORD = 'hello'\n")
    (project / "our_rule.py").write_text(
        "import json\nfrom our_words import WORD\n\ndef rule(i, c):\n    return WORD\n"
    )
    (project / "evil-1.dist-info").mkdir()
    (project / "evil-1.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: evil\nVersion: 1\n")
    (project / "evil-1.dist-info/entry_points.txt").write_text("[flywheel.gates]\nsuperiority = our_rule:rule\n")

    before = list_extensions()
    assert load_extension("gates", "our_rule:rule", search=project)(None, None) == "hello"

    assert list_extensions() == before
    assert not ran.exists()
