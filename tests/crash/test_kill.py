"""kill -9 at every place where a stage changes the disk, then the same command again: equal to never being killed.

`make test` kills forked commands at one in five of their places (`tests/forked/kill.py`), and three real processes with
all they started at seeded moments, and turns the wheel in real ones; `make e2e` kills at each place, and real processes
200 times.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import time
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from flywheel.io import files
from flywheel.pipeline.build.registry import STAGES
from flywheel.store import LAYOUT, Store
from tests.commands import killed_everywhere
from tests.projects import HELD, REAL, champion_is_valid, digest, flywheel

LOGS = {"native.jsonl", "feedback.jsonl"}
TABLES = ("run", "nightly", "--until", "groups")
ROUND = ("run", "nightly", "--from", "train")
PLACES = [5, pytest.param(1, marks=pytest.mark.e2e)]  # one place in five, and each


@pytest.fixture(scope="module")
def logs(projects: Callable[[str], Path]) -> Path:
    """A project with the logs of one agent and their feedback, an empty store of two partitions, and nothing else.

    A round trains for two steps.
    """
    project = projects("logs")
    for log in (project / "logs").iterdir():
        if log.name not in LOGS:
            log.unlink()
    config = project / "flywheel.toml"
    config.write_text(config.read_text().replace("max_steps = 4", "max_steps = 2"))
    store = Store(project / ".flywheel")
    store.partitions = 2
    store.create()
    return project


def _after(before: Path, command: tuple[str, ...], to: Path) -> Path:
    shutil.copytree(before, to, symlinks=True)
    assert flywheel(to, *command, check=False).returncode in {0, HELD}
    return to


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, logs: Path) -> Path:
    """The same project with its tables built."""
    return _after(logs, TABLES, tmp_path_factory.mktemp("built") / "p")


@pytest.fixture(scope="module")
def turned(tmp_path_factory: pytest.TempPathFactory, built: Path) -> Path:
    """The same project after a round."""
    return _after(built, ROUND, tmp_path_factory.mktemp("turned") / "p")


def _steps(project: Path) -> list[int]:
    """Return the optimiser steps of all rounds, each of which is taken once."""
    logs = sorted(project.glob("rounds/*/metrics.jsonl"))
    rows = [json.loads(line) for log in logs for line in log.read_text(encoding="utf-8").splitlines()]
    return [row["step"] for row in rows if "loss" in row]


def _check(project: Path, reference: Path) -> None:
    assert champion_is_valid(project)
    assert digest(project) == digest(reference)
    assert _steps(project) == _steps(reference)
    assert list(project.rglob("*.partial")) == []


def test_killed_at_every_place_while_the_store_is_made(tmp_path: Path) -> None:
    """Of four partitions, as a new store has."""
    log = [{"messages": [{"role": "user", "content": f"How many orders in month {n}?"}]} for n in range(24)]
    for name in ("reference", "killed"):
        (tmp_path / name / "logs").mkdir(parents=True)
        (tmp_path / name / "logs" / "log.jsonl").write_text("\n".join(map(json.dumps, log)))
    flywheel(tmp_path / "reference", "ingest")

    assert killed_everywhere(tmp_path / "killed", "ingest") == 2 * len(("header", *"0123", "snapshot"))
    _check(tmp_path / "killed", tmp_path / "reference")


@pytest.mark.parametrize("one_in", PLACES)
def test_killed_while_ingesting_and_building(logs: Path, tmp_path: Path, one_in: int) -> None:
    """Of one partition: every table of every stage. Between partitions real processes are killed below."""
    project = shutil.copytree(logs, tmp_path / "p")
    files.write_json(project / ".flywheel" / "store.json", {"layout": LAYOUT, "partitions": 1})
    reference = _after(project, TABLES, tmp_path / "reference")

    killed_everywhere(project, *TABLES, before=True, one_in=one_in)

    _check(project, reference)
    store, places = Store(project / ".flywheel"), (tmp_path / "kills").read_text().splitlines()
    snapshots = [snapshot for stage in store.stages() if (snapshot := store.current(stage)) is not None]
    written = [f"snapshots/{snapshot.stage}/1.json" for snapshot in snapshots]
    written += [part.path for snapshot in snapshots for part in snapshot.parts]
    assert len(written) > len(STAGES)
    # Which places are in the share depends on their names, and a part's name on its content.
    renamed = {f"rename .flywheel/{path} 1" for path in written}
    in_the_share = {place for place in renamed if zlib.crc32(place.encode()) % one_in == 0}
    assert in_the_share
    assert in_the_share <= set(places)


@pytest.mark.parametrize("one_in", PLACES)
def test_killed_while_training_evaluating_and_deciding(built: Path, turned: Path, tmp_path: Path, one_in: int) -> None:
    project = shutil.copytree(built, tmp_path / "p", symlinks=True)

    assert killed_everywhere(project, *ROUND, before=True, one_in=one_in) > 40 / one_in
    _check(project, turned)


def kill_after(project: Path, command: tuple[str, ...], seconds: float) -> bool:
    """Start a command in its own process group, kill the group after a while; return whether it still ran."""
    process = subprocess.Popen(
        [REAL, "-C", str(project), *command],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return True
    return False


def _killed(start: Path, work: Path, command: tuple[str, ...], moments: list[float], reference: Path) -> int:
    """Kill the command at each moment in turn on one project, let it finish, compare; return the kills.

    Every moment is a kill: where the command was done before it, the project starts over and is killed earlier.
    """
    shutil.copytree(start, work, symlinks=True)
    for moment in moments:
        while not kill_after(work, command, moment):
            shutil.rmtree(work)
            shutil.copytree(start, work, symlinks=True)
            moment *= 0.7  # noqa: PLW2901 - earlier
        assert champion_is_valid(work)
    assert flywheel(work, *command, check=False).returncode in {0, HELD}
    _check(work, reference)
    shutil.rmtree(work)
    return len(moments)


def test_real_processes_killed_while_ingesting_and_building(logs: Path, built: Path, tmp_path: Path) -> None:
    moments = sorted(random.Random(0).uniform(0.8, 2.0) for _ in range(3))  # noqa: S311 - reproducible moments

    assert _killed(logs, tmp_path / "p", TABLES, moments, built) == 3


def test_a_turn_of_the_wheel_in_real_processes(built: Path, turned: Path, tmp_path: Path) -> None:
    _check(_in_real_processes(shutil.copytree(built, tmp_path / "p", symlinks=True)), turned)


def _in_real_processes(project: Path) -> Path:
    done = subprocess.run([REAL, "-C", str(project), *ROUND], capture_output=True, text=True, check=False)
    assert done.returncode == HELD, done.stderr
    assert (project / "rounds" / "0001" / "report.html").is_file()
    return project


@pytest.mark.e2e
def test_a_turn_of_the_wheel_in_real_processes_one_killed_when_it_has_trained(
    built: Path, turned: Path, tmp_path: Path
) -> None:
    """Planned and trained by one process and its trainer, evaluated, decided and reported by another."""
    project = shutil.copytree(built, tmp_path / "p", symlinks=True)
    command = [REAL, "-C", str(project), *ROUND]
    first = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    while first.poll() is None and not (project / "rounds" / "candidates.jsonl").exists():
        time.sleep(0.05)
    os.killpg(first.pid, signal.SIGKILL)
    assert first.wait() == -signal.SIGKILL

    _check(_in_real_processes(project), turned)


def _timed(start: Path, command: tuple[str, ...], work: Path) -> float:
    shutil.copytree(start, work, symlinks=True)
    started = time.monotonic()
    subprocess.run([REAL, "-C", str(work), *command], check=False, capture_output=True)
    return time.monotonic() - started


@pytest.mark.e2e
def test_killed_two_hundred_times(logs: Path, built: Path, turned: Path, tmp_path: Path) -> None:
    rng, kills = random.Random(2026), 0  # noqa: S311 - as above
    tables, turn = _timed(logs, TABLES, tmp_path / "tables"), _timed(built, ROUND, tmp_path / "round")
    while kills < 140:
        moments = [rng.uniform(0.3, tables) for _ in range(4)]
        kills += _killed(logs, tmp_path / "p", TABLES, moments, built)
    while kills < 200:
        moments = [rng.uniform(1.0, turn) for _ in range(4)]
        kills += _killed(built, tmp_path / "p", ROUND, moments, turned)
