"""On a terminal something moves after two seconds; elsewhere nothing ever does. A real pseudo-terminal tells."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

import pytest

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


def drawn(seconds: float, *, progress: bool = True, terminal: bool = True) -> str:
    """Return what a command that takes this long writes to stderr."""
    code = CODE.format(seconds=seconds, progress=progress)
    if not terminal:
        return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stderr
    ours, theirs = pty.openpty()
    process = subprocess.Popen([sys.executable, "-c", code], stderr=theirs, env={**os.environ, "TERM": "xterm"})
    os.close(theirs)
    written = b""
    while True:
        try:
            chunk = os.read(ours, 4096)
        except OSError:  # Linux's way to say that the other side was closed
            break
        if not chunk:
            break
        written += chunk
    os.close(ours)
    assert process.wait() == 0
    return written.decode()


def test_a_long_command_shows_that_it_works() -> None:
    seen = drawn(2.8)
    assert "judging" in seen
    assert "one suite done" in seen
    assert "loss 0.5" in seen


@pytest.mark.parametrize(
    ("seconds", "progress", "terminal"),
    [(0.1, True, True), (2.8, False, True), (2.8, True, False)],
    ids=["a quick command", "--no-progress", "no terminal"],
)
def test_nothing_is_drawn(seconds: float, progress: bool, terminal: bool) -> None:  # noqa: FBT001 - parametrised
    seen = drawn(seconds, progress=progress, terminal=terminal).replace("\r\n", "\n")
    assert seen == "one suite done\n"
