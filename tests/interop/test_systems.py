"""Each system's own readers, types, parsers and trainers take what flywheel exports; run by `make interop`.

And its own code writes the rollouts again that `ingest` is tested on, in `tests/fixtures/`.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from flywheel.io.files import write_json
from flywheel.pipeline.serve.targets.export import write_files
from flywheel.pipeline.serve.targets.table import TARGETS
from tests.interop.environments import HOME, SYSTEMS, python_of, seconds, source_of
from tests.mined import mined

pytestmark = pytest.mark.interop
CHECKS = Path(__file__).parent / "checks"
FIXTURES = Path(__file__).parents[1] / "fixtures"
WANTED = os.environ.get("SYSTEM", "").split() or list(SYSTEMS)
DUMPS = "trainer_dumps.py"
WRITERS = {  # what lets a system's code write its rollouts, and where those of an earlier run are kept
    "trl": ("trl_completions.py", "trl/shop-grpo"),
    "art": ("art_trajectories.py", "art"),
    "agent-lightning": ("agent_lightning_v1.py", "agent_lightning"),
    **{name: (DUMPS, f"trainers/{name}") for name in ("verl", "swift", "skyrl", "areal")},
}


@pytest.mark.parametrize("name", WANTED)
def test_a_system_takes_what_was_exported(name: str, tiny_model: Path) -> None:
    """The result is kept for the table, whether it is good or bad."""
    python = python_of(name)
    source = source_of(name) if "repository" in SYSTEMS[name] else HOME
    if not python.is_file() or not source.is_dir():
        pytest.skip(f"there is no .interop/{name}")
    contents, before = mined(tiny_model), seconds()
    with tempfile.TemporaryDirectory() as folder:
        for target in (name, "jsonl"):
            (Path(folder) / target).mkdir()
            write_files(TARGETS[target], contents, Path(folder) / target)
        check = CHECKS / f"check_{name.replace('-', '_')}.py"
        call = [str(python), str(check), str(Path(folder) / name), str(Path(folder) / "jsonl"), str(tiny_model)]
        out = Path(folder) / "rollouts"
        out.mkdir()
        call += writes(name, out, tiny_model)
        offline = {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "RAY_USAGE_STATS_ENABLED": "0"}
        offline |= {f"{name.upper()}_SOURCE": str(source)} if "repository" in SYSTEMS[name] else {}
        environment = {**os.environ, **offline, "OMP_NUM_THREADS": "1", "HF_HOME": str(Path(folder) / "hf")}
        done = subprocess.run(call, capture_output=True, text=True, env=environment, check=False, cwd=folder)
        cells = results_of(done)
        if name in WRITERS:
            cells["imported"] = written_again(name, out)
    write_json(HOME / "results" / f"{name}.json", {"cells": cells, "seconds": round(seconds() - before)})
    assert all(cell["passed"] for cell in cells.values()), cells


def results_of(done: subprocess.CompletedProcess[str]) -> dict[str, dict[str, Any]]:
    """Return what a check found, by cell of the table; all that it said is kept in `.interop/logs`."""
    name = Path(done.args[1]).stem.removeprefix("check_")
    (HOME / "logs").mkdir(parents=True, exist_ok=True)
    (HOME / "logs" / f"{name}.txt").write_text(done.stdout + done.stderr, encoding="utf-8")
    found = [line for line in done.stdout.splitlines() if line.startswith("RESULTS ")]
    assert found, done.stderr[-2000:]
    cells: dict[str, dict[str, Any]] = json.loads(found[-1].removeprefix("RESULTS "))
    return cells


def writes(name: str, out: Path, model: Path) -> list[str]:
    """Return the call that lets a system's own code write rollouts."""
    if name not in WRITERS:
        return []
    script = WRITERS[name][0]
    return [str(FIXTURES / "produce" / script), *([name, str(out), str(model)] if script == DUMPS else [str(out)])]


def written_again(name: str, out: Path) -> dict[str, Any]:
    """Compare what a system's own code wrote with the fixtures that `ingest` is tested on."""
    script, kept = WRITERS[name]
    written = sorted(path.relative_to(out) for path in out.rglob("*") if path.is_file())
    files = [path for path in written if (FIXTURES / kept / path).is_file()]  # not what a system adds up
    other = [str(path) for path in files if content(out / path) != content(FIXTURES / kept / path)]
    proof = f"{other} differ" if other else f"its own code writes the same files again ({len(files)}) (`{script}`)"
    return {"passed": bool(files) and not other, "proof": proof}


def content(path: Path) -> object:
    """Return what a file says, not how Parquet packs it, nor where AReaL cuts a text: it counts tokens."""
    if path.suffix == ".parquet":
        return pq.read_table(path).to_pylist()
    if path.suffix != ".jsonl" or "rollout" not in path.parts:
        return path.read_bytes()
    rows = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return [
        {**row, "seqlen": 0, "prompt_len": 0, "prompt": "", "completion": row["prompt"] + row["completion"]}
        for row in rows
    ]
