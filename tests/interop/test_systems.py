"""Each system's own readers, types, parsers and trainers take what flywheel exports; run by `make interop`."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from pathlib import Path

import pytest
from flywheel.io.files import write_json
from flywheel.pipeline.serve.targets.export import write_files
from flywheel.pipeline.serve.targets.table import TARGETS
from tests.interop.environments import HOME, SYSTEMS, python_of, source_of
from tests.mined import mined

pytestmark = pytest.mark.interop
CHECKS = Path(__file__).parent / "checks"
WANTED = os.environ.get("SYSTEM", "").split() or list(SYSTEMS)


@pytest.mark.parametrize("name", WANTED)
def test_a_system_takes_what_was_exported(name: str, tiny_model: Path) -> None:
    """The result is kept for the table, whether it is good or bad."""
    python = python_of(name)
    source = source_of(name) if "repository" in SYSTEMS[name] else HOME
    if not python.is_file() or not source.is_dir():
        pytest.skip(f"there is no .interop/{name}")
    contents = mined(tiny_model)
    with tempfile.TemporaryDirectory() as folder:
        for target in (name, "jsonl"):
            (Path(folder) / target).mkdir()
            write_files(TARGETS[target], contents, Path(folder) / target)
        check = CHECKS / f"check_{name.replace('-', '_')}.py"
        call = [str(python), str(check), str(Path(folder) / name), str(Path(folder) / "jsonl"), str(tiny_model)]
        offline = {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "RAY_USAGE_STATS_ENABLED": "0"}
        offline |= {f"{name.upper()}_SOURCE": str(source)} if "repository" in SYSTEMS[name] else {}
        environment = {**os.environ, **offline, "OMP_NUM_THREADS": "1", "HF_HOME": str(Path(folder) / "hf")}
        done = subprocess.run(call, capture_output=True, text=True, env=environment, check=False, cwd=folder)
    (HOME / "logs").mkdir(parents=True, exist_ok=True)
    (HOME / "logs" / f"{name}.txt").write_text(done.stdout + done.stderr, encoding="utf-8")
    found = [line for line in done.stdout.splitlines() if line.startswith("RESULTS ")]
    assert found, done.stderr[-2000:]
    cells = json.loads(found[-1].removeprefix("RESULTS "))
    write_json(HOME / "results" / f"{name}.json", cells)
    assert all(cell["passed"] for cell in cells.values()), cells
