"""Fast to type: what help and status may import, asserted by name (a clock in a test would lie)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = {
    "torch",
    "transformers",
    "trl",
    "peft",
    "datasets",
    "polars",
    "pyarrow",
    "duckdb",
    "matplotlib",
    "jinja2",
    "scipy",
}
RUN = """
import sys
sys.argv = ["flywheel", *sys.argv[1:]]
from flywheel.cli.app import main
try:
    main()
finally:
    sys.stderr.write("MODULES " + " ".join(sys.modules))
"""


def modules(*arguments: str) -> set[str]:
    done = subprocess.run([sys.executable, "-c", RUN, *arguments], capture_output=True, text=True, check=True)
    return {m.split(".")[0] for m in done.stderr.split("MODULES ")[1].split()}


def test_help_imports_nothing_heavy() -> None:
    loaded = modules("--help")
    assert not loaded & HEAVY
    assert "rich" not in loaded


@pytest.mark.parametrize("command", ["status", "log", "plugins"])
def test_looking_imports_nothing_heavy(command: str, tmp_path: Path) -> None:
    assert not modules("-C", str(tmp_path), command) & HEAVY


def test_the_check_can_fail() -> None:
    """The same harness does see a heavy package when a command needs one."""
    done = subprocess.run(
        [sys.executable, "-c", RUN.replace("main()", "main.__globals__; import polars", 1)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "polars" in done.stderr.split("MODULES ")[1].split()
