"""The command that tests type is the installed one: same streams, exit codes and signals."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.commands import FLYWHEEL, REAL

BOTH = (REAL, FLYWHEEL)


def in_full(*arguments: str) -> Any:
    """Arguments of a test that `make e2e` runs: each starts a real process."""
    return pytest.param(arguments, marks=pytest.mark.e2e)


def ended(command: str, *arguments: str, **options: Any) -> tuple[int, str, str]:
    done = subprocess.run([command, *arguments], capture_output=True, text=True, check=False, **options)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("arguments", [in_full("--help"), ("stat", "\udcff"), in_full("show", "1")])
def test_it_prints_and_ends_as_the_installed_command(arguments: tuple[str, ...], tmp_path: Path) -> None:
    real, forked = (ended(command, *arguments, cwd=tmp_path) for command in BOTH)

    assert forked == real


@pytest.mark.parametrize(
    "environment",
    [
        pytest.param({"FLYWHEEL_PROJECT": "elsewhere"}, marks=pytest.mark.e2e),
        {"PYTHONIOENCODING": "ascii:replace", "FLYWHEEL_PROJECT": "Żółw"},
        pytest.param(
            {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "FLYWHEEL_PROJECT": "Żółw"},
            marks=pytest.mark.e2e,
        ),
    ],
)
def test_it_has_the_environment_that_it_is_given(environment: Mapping[str, str], tmp_path: Path) -> None:
    env = {**os.environ, **environment}
    real, forked = (ended(command, "status", cwd=tmp_path, env=env) for command in BOTH)

    assert forked == real


@pytest.mark.e2e
def test_it_reads_its_standard_input(tmp_path: Path) -> None:
    arguments = ("ingest", "-", "--dry-run", "--format", "native")
    real, forked = (ended(command, *arguments, cwd=tmp_path, input='{"broken') for command in BOTH)

    assert forked == real


@pytest.mark.parametrize(
    ("full", "arguments", "unbuffered"), [("stdout", ("status",), ""), ("stderr", ("nothing",), "1")]
)
def test_a_stream_that_takes_nothing(full: str, arguments: tuple[str, ...], unbuffered: str, tmp_path: Path) -> None:
    """On a full disk the last flush decides the exit code."""
    env = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    with Path("/dev/full").open("w", encoding="utf-8") as disk:
        streams: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, full: disk}
        codes = [
            subprocess.run([command, *arguments], check=False, cwd=tmp_path, env=env, **streams).returncode
            for command in BOTH
        ]
    assert codes[0] != 0
    assert codes[1] == codes[0]


@pytest.mark.e2e
def test_it_knows_a_terminal_and_a_pipe_that_nobody_reads(tmp_path: Path) -> None:
    shown = []
    for command in BOTH:
        ours, theirs = pty.openpty()
        reader, writer = os.pipe()
        os.close(reader)
        terminal = subprocess.run([command, "status"], cwd=tmp_path, stdin=theirs, stdout=theirs, check=False)
        pipe = subprocess.run([command, "status"], cwd=tmp_path, stdout=writer, stderr=theirs, check=False)
        shown.append((terminal.returncode, pipe.returncode, os.read(ours, 1 << 16)))
        for number in (ours, theirs, writer):
            os.close(number)
    assert shown[1] == shown[0]


@pytest.mark.parametrize(
    "number",
    [signal.SIGINT, *(pytest.param(other, marks=pytest.mark.e2e) for other in (signal.SIGKILL, signal.SIGHUP))],
)
def test_it_ends_by_the_signals_that_it_is_sent(number: signal.Signals, tmp_path: Path) -> None:
    ends: list[tuple[int, str, str]] = []
    for command in BOTH:
        project = tmp_path / str(len(ends))
        (project / "logs").mkdir(parents=True)
        event = '{"kind": "outcome", "conversation_id": "c", "seq": 1, "payload": {"name": "reward", "value": 1}}\n'
        (project / "logs" / "a.jsonl").write_text(event)
        arguments = ("ingest", "--follow", "--interval", "0.2", "--format", "native")
        following = subprocess.Popen(
            [command, *arguments], cwd=project, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert following.stdout is not None
        first = following.stdout.readline()  # when it has read the log
        following.send_signal(number)
        _, errors = following.communicate(timeout=30)
        ends.append((following.returncode, first, errors))
    assert ends[1] == ends[0]
