"""kill -9 at seeded moments of every stage, then the same command again: equal to never having been killed.

Real processes are killed for real, with everything they started. `make test` kills 30 times, `make e2e` 200.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
from tests.projects import REAL, champion_is_valid, digest, flywheel, write_config

TABLES = ("run", "nightly", "--until", "groups")
ROUND = ("run", "nightly", "--from", "train")
HELD_OR_DONE = {0, 3}
KILLS = 3  # in each of ten runs


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


def timed(project: Path, command: tuple[str, ...]) -> float:
    started = time.monotonic()
    done = flywheel(project, *command, check=False)
    assert done.returncode in HELD_OR_DONE, done.stderr
    return time.monotonic() - started


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory, sample_logs: Path) -> Path:
    """A project with logs in it and nothing else."""
    project = tmp_path_factory.mktemp("fresh")
    (project / "logs").mkdir()
    for log in sample_logs.iterdir():
        if log.name.endswith((".jsonl", ".jsonl.gz")):
            shutil.copy(log, project / "logs")
    return project


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, logs: Path, tiny_model: Path) -> tuple[Path, float]:
    """The same project with its tables built, and how long that takes."""
    write_config(logs, tiny_model)
    project = tmp_path_factory.mktemp("built") / "p"
    shutil.copytree(logs, project)
    return project, timed(project, TABLES)


@pytest.fixture(scope="module")
def turned(tmp_path_factory: pytest.TempPathFactory, built: tuple[Path, float]) -> tuple[Path, float]:
    """The same project after a round, and how long that takes."""
    project = tmp_path_factory.mktemp("turned") / "p"
    shutil.copytree(built[0], project)
    return project, timed(project, ROUND)


def _check(start: Path, work: Path, command: tuple[str, ...], moments: list[float], reference: Path) -> int:
    """Kill the command at each moment in turn on one project, let it finish, compare; return the kills.

    Every moment is a kill: where the command was done before it (a busy machine made the reference slow), the project
    is started anew and killed earlier.
    """
    shutil.copytree(start, work)
    for moment in moments:
        while not kill_after(work, command, moment):
            shutil.rmtree(work)
            shutil.copytree(start, work)
            moment *= 0.7  # noqa: PLW2901 - earlier
        assert champion_is_valid(work)
    done = flywheel(work, *command, check=False)
    assert done.returncode in HELD_OR_DONE, done.stderr
    assert digest(work) == digest(reference)
    assert list(work.rglob("*.partial")) == []
    shutil.rmtree(work)
    return len(moments)


@pytest.mark.parametrize("seed", range(8))
def test_killed_while_ingesting_and_building(seed: int, logs: Path, built: tuple[Path, float], tmp_path: Path) -> None:
    reference, seconds = built
    moments = sorted(random.Random(seed).uniform(0.3, seconds) for _ in range(KILLS))  # noqa: S311 - reproducible moments

    assert _check(logs, tmp_path / "p", TABLES, moments, reference) == KILLS


@pytest.mark.parametrize("seed", range(2))
def test_killed_while_training_evaluating_and_deciding(
    seed: int, built: tuple[Path, float], turned: tuple[Path, float], tmp_path: Path
) -> None:
    reference, seconds = turned
    moments = sorted(random.Random(100 + seed).uniform(1.0, seconds) for _ in range(KILLS))  # noqa: S311 - as above

    assert _check(built[0], tmp_path / "p", ROUND, moments, reference) == KILLS


@pytest.mark.e2e
def test_killed_two_hundred_times(
    logs: Path, built: tuple[Path, float], turned: tuple[Path, float], tmp_path: Path
) -> None:
    rng, kills = random.Random(2026), 0  # noqa: S311 - as above
    while kills < 140:
        moments = [rng.uniform(0.3, built[1]) for _ in range(4)]
        kills += _check(logs, tmp_path / "p", TABLES, moments, built[0])
    while kills < 200:
        moments = [rng.uniform(1.0, turned[1]) for _ in range(4)]
        kills += _check(built[0], tmp_path / "p", ROUND, moments, turned[0])
