"""Ctrl-C: whenever it comes, a command ends with code 130, a word and no traceback."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.commands import REAL


def stopped(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err


@pytest.mark.parametrize("loaded", ["flywheel.cli.app", "typer", "flywheel.project"])
def test_while_it_is_being_loaded(tmp_path: Path, loaded: str) -> None:
    """A busy machine loads for seconds."""
    code = (
        "import builtins, sys, time; from flywheel.cli.start import main; plain = builtins.__import__\n"
        "def slow(name, *rest):\n"
        f"    if name == {loaded!r}: print('now', flush=True); time.sleep(60)\n"
        "    return plain(name, *rest)\n"
        "builtins.__import__ = slow; sys.argv[1:] = ['status']; main()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], cwd=tmp_path, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "now\n"
    ended, _, err = stopped(process)
    assert (ended, err.partition("\n")[0]) == (130, "stopped")
    assert "Traceback" not in err


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_while_it_runs(tmp_path: Path, options: list[str]) -> None:
    os.mkfifo(tmp_path / "p.json")  # a plan that nobody writes
    process = subprocess.Popen(
        [REAL, *options, "train", "--plan", "p.json"],
        cwd=tmp_path, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    writer = _opened(tmp_path / "p.json")
    code, out, err = stopped(process)
    os.close(writer)
    hint = "the same command goes on from what is done"
    assert code == 130
    if options:
        assert json.loads(out) == {"error": {"message": "stopped", "hint": hint, "exit_code": 130}}
    else:
        assert err == f"stopped\n\nhint: {hint}\n"


def _opened(fifo: Path) -> int:
    """Return a writing end, once the command reads from the other."""
    for _ in range(600):
        try:
            return os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:
            time.sleep(0.1)
    raise TimeoutError
