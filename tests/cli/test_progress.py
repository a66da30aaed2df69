"""On a terminal something moves after two seconds; elsewhere nothing ever does. A real pseudo-terminal tells."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

import pytest
from flywheel.cli.progress import counted
from flywheel.cli.session import Output

CODE = """
import sys, time
from flywheel.cli.progress import training, working
from flywheel.cli.session import Output
out = Output(progress={progress})
with working(out, "judging"):
    time.sleep({seconds})
    out.say("one suite done")
with training(out) as show:
    show({{"step": 1, "of": 4, "loss": 0.5}})
    time.sleep({seconds})
"""


LONG = 2.8  # seconds
# Name → how long each of two commands takes, whether progress is wanted, whether stderr is a terminal.
WAYS = {
    "a long command": (LONG, True, True),
    "a quick command": (0.1, True, True),
    "--no-progress": (LONG, False, True),
    "no terminal": (LONG, True, False),
}


@pytest.fixture(scope="module")
def drawn() -> dict[str, str]:
    """Return what each way writes to stderr; they wait at the same time."""
    started = {name: _started(*way) for name, way in WAYS.items()}
    return {name: _written(process, ours) for name, (process, ours) in started.items()}


def _started(seconds: float, progress: bool, terminal: bool) -> tuple[subprocess.Popen[bytes], int]:  # noqa: FBT001
    code = CODE.format(seconds=seconds, progress=progress)
    ours, theirs = pty.openpty() if terminal else os.pipe()
    process = subprocess.Popen([sys.executable, "-c", code], stderr=theirs, env={**os.environ, "TERM": "xterm"})
    os.close(theirs)
    return process, ours


def _written(process: subprocess.Popen[bytes], ours: int) -> str:
    written = b""
    while True:
        try:
            chunk = os.read(ours, 4096)
        except OSError:  # Linux's way to say that the other side of a terminal was closed
            break
        if not chunk:
            break
        written += chunk
    os.close(ours)
    assert process.wait() == 0
    return written.decode()


def test_a_long_command_shows_that_it_works(drawn: dict[str, str]) -> None:
    seen = drawn["a long command"]
    assert "judging" in seen
    assert "one suite done" in seen
    assert "loss 0.5" in seen


@pytest.mark.parametrize("way", ["a quick command", "--no-progress", "no terminal"])
def test_nothing_is_drawn(way: str, drawn: dict[str, str]) -> None:
    assert drawn[way].replace("\r\n", "\n") == "one suite done\n"


def test_a_further_part_of_the_work_has_a_rate_of_its_own(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    with counted(Output(progress=False), "scoring") as show:
        for second, done in ((0, 1), (40, 11), (300, 1), (340, 11)):
            now[0] = second
            show("scoring round 1", done, 40)
    assert capsys.readouterr().err.splitlines()[::2] == ["scoring round 1: 11 of 40, 4.0 s each, 116.0 s left"] * 2
