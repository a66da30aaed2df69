"""One turn of the wheel as a user types it: what each command prints, and where it leaves the project.

Snapshots are in `__snapshots__/`; after a change that is meant, `pytest tests/cli --snapshot-update` and read the diff.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from flywheel.registry.registry import Registry
from tests.projects import FLYWHEEL, REAL, Projects

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion

STEPS: dict[str, tuple[str, ...]] = {
    "ingest": ("ingest",),
    "ingest again": ("ingest", "logs/"),
    "build": ("build",),
    "build again": ("build",),
    "plan": ("plan",),
    "train too far": ("train", "--round", "12"),
    "train": ("train",),
    "train again": ("train", "--round", "1"),
    "eval": ("eval", "--promote"),
    "promote against the gate": ("promote", "1"),
    "promote by force": ("promote", "1", "--force", "--yes", "--reason", "rehearsal"),
    "status": ("status",),
    "log": ("log",),
    "report": ("report",),
    "report as Markdown": ("report", "--since", "24h", "--as-of", "2026-10-03", "--md"),
    "view": ("view",),
    "rollback": ("rollback", "--yes", "--reason", "rehearsal over"),
    "log after rollback": ("log",),
    "explain": ("explain", "1"),
    "explain pairs": ("explain", "pairs"),
    "nightly": ("run", "nightly", "--detailed-exitcode"),
    "unknown subject": ("show", "nothing"),
}

# Steps that a project of the session was made by: it takes the place of what came before.
MADE = {"ingest": "ingested", "build": "built", "train": "trained", "eval": "evaluated", "promote by force": "promoted"}

_MASKS = (
    (r" +\d+\.\d s\b", "  T s"),  # the column is wider where a stage takes ten seconds
    (r"\b\d+(\.\d+)? [kMG]?B\b", "N B"),
    (r"\b[0-9a-f]{12,64}\b", "HASH"),
    (r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d)?\S*", "TIME"),
    (r"(seconds of [^\n,]+, a case) [\d.]+ [\d.]+", r"\1 S S"),
    (r" +(?=\n)", ""),
)


def masked(text: str, project: Path) -> str:
    """Leave out what differs between runs and machines: times, sizes, hashes, the project's own folder."""
    text = text.replace(str(project), "PROJECT")
    text = re.sub(r"(?m)^(?:measured|tokens of|seconds of) .*$", lambda line: " ".join(line[0].split()), text)
    for pattern, word in _MASKS:
        text = re.sub(pattern, word, text)
    return text


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory, session_projects: Projects) -> tuple[Path, dict[str, str]]:
    """The project after one turn, and what every command printed."""
    project = tmp_path_factory.mktemp("wheel") / "agent"
    printed = {}
    for name, arguments in STEPS.items():
        if name in MADE:
            assert session_projects.COMMANDS[MADE[name]] == arguments
            shutil.rmtree(project, ignore_errors=True)
            session_projects.copy(MADE[name], project)
            out = session_projects.printed(MADE[name])
        else:
            done = subprocess.run([FLYWHEEL, *arguments], capture_output=True, text=True, check=False, cwd=project)
            out = f"exit {done.returncode}\n{done.stdout}--- stderr\n{done.stderr}"
        out = f"$ flywheel {' '.join(arguments)}\n{out}"
        printed[name] = masked(out, project).replace(str(session_projects.model), "TINY")
    return project, printed


@pytest.mark.parametrize("step", STEPS)
def test_what_a_user_sees(step: str, wheel: tuple[Path, dict[str, str]], snapshot: SnapshotAssertion) -> None:
    assert wheel[1][step] == snapshot


def test_where_it_ends(wheel: tuple[Path, dict[str, str]]) -> None:
    project, _ = wheel
    registry = Registry(project / "rounds")
    assert registry.champion is None
    assert [p.decision for p in registry.promotions()] == ["held", "forced", "rolled_back"]
    assert (project / "rounds" / "0001" / "report.html").is_file()


def test_a_manifest_says_where_every_byte_comes_from(wheel: tuple[Path, dict[str, str]]) -> None:
    shown = subprocess.run([FLYWHEEL, "show", "1", "--json"], capture_output=True, text=True, check=True, cwd=wheel[0])
    manifest = json.loads(shown.stdout)["record"]
    for key in (
        "parent",
        "base_model_sha256",
        "inputs",
        "dataset",
        "config",
        "seed",
        "versions",
        "reference",
        "outputs",
    ):
        assert key in manifest, key
    assert {"examples", "pairs", "returns", "episodes", "steps"} <= set(manifest["inputs"])
    assert all(len(i["sha256"]) == 64 and i["snapshot"] for i in manifest["inputs"].values())


def test_the_second_command_ends_at_once_and_names_the_holder(wheel: tuple[Path, dict[str, str]]) -> None:
    project, _ = wheel
    first = subprocess.Popen(
        [REAL, "ingest", "-"], cwd=project, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and not (project / ".flywheel" / "lock.json").is_file():
            time.sleep(0.02)
        second = subprocess.run(
            [FLYWHEEL, "build"], capture_output=True, text=True, check=False, cwd=project, timeout=30
        )
        assert first.poll() is None, "the first was still at work"
    finally:
        first.kill()
        first.communicate()
    assert second.returncode == 4
    assert f"`ingest` (process {first.pid} on " in second.stderr
