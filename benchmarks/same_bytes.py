"""Whether two checkouts make the same bytes: `python benchmarks/same_bytes.py OLD/bin/flywheel NEW/bin/flywheel`.

Both command lines ingest, build, export and train on `sample_logs/` with one redaction key; every table part, snapshot,
exported row, training row and adapter is compared by SHA-256. Exit code 1 and the differing files where any differs.
A change that should not change behaviour is checked with it. About five minutes on two cores; `--tables` (the first
argument) leaves training out and takes 20 seconds.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SAMPLE_LOGS = Path(__file__).resolve().parents[1] / "sample_logs"
CONFIG = """name = "demo"
[model]
dtype = "float32"
[pairs]
max_per_task = 1
[train]
method = "{method}"
max_rows = 16
probe_prompts = 4
batch_size = 2
threads = 1
"""
COMPARED = (".flywheel/tables", ".flywheel/snapshots", "out", "rounds/*/data", "rounds/*/adapter")


def hashes(flywheel: str, folder: Path, *, methods: tuple[str, ...]) -> dict[str, str]:
    """Return the SHA-256 of each compared file of a project that a command line makes."""
    (folder / "logs").mkdir(parents=True)
    for log in sorted(SAMPLE_LOGS.glob("*.jsonl*")):
        shutil.copy(log, folder / "logs")
    environment = {**os.environ, "FLYWHEEL_KEY": "a-fixed-key-for-comparisons", "HF_HUB_OFFLINE": "1"}

    def run(*arguments: str) -> None:
        subprocess.run([flywheel, "-C", str(folder), "-q", *arguments], check=True, env=environment, cwd=folder)

    config = folder / "flywheel.toml"
    config.write_text(CONFIG.format(method="auto"), encoding="utf-8")
    run("ingest", "logs")
    run("build")
    run("export", "out")
    for method in methods:
        config.write_text(CONFIG.format(method=method), encoding="utf-8")
        run("train")
    files = sorted(p for pattern in COMPARED for at in folder.glob(pattern) for p in at.rglob("*") if p.is_file())
    return {str(p.relative_to(folder)): hashlib.sha256(content(p)).hexdigest() for p in files}


def content(path: Path) -> bytes:
    """Return what is compared of a file: all of it, but of a snapshot not its funnel, whose reasons are sentences."""
    if path.parent.parent.name != "snapshots":
        return path.read_bytes()
    return json.dumps({key: value for key, value in json.loads(path.read_bytes()).items() if key != "funnel"}).encode()


def main() -> int:
    """Compare two command lines; return the exit code."""
    arguments = [a for a in sys.argv[1:] if a != "--tables"]
    methods = () if "--tables" in sys.argv else ("sft", "dpo")
    with tempfile.TemporaryDirectory() as work:
        old, new = (
            hashes(flywheel, Path(work) / side / "p", methods=methods)
            for side, flywheel in zip(("old", "new"), arguments, strict=True)
        )
    differing = sorted(name for name in {*old, *new} if old.get(name) != new.get(name))
    for name in differing:
        print(f"differs: {name}")
    adapters = sum(name.endswith(".safetensors") for name in new)
    print(
        f"{len(new) - len(differing)} of {len({*old, *new})} files have the same bytes, {adapters} adapters among them"
    )
    return bool(differing)


if __name__ == "__main__":
    sys.exit(main())
