"""What crosses the border to the trainer's process, and launching it.

The spec is a JSON file; metrics come back as lines of metrics.jsonl, the result as result.json, everything that the
libraries print goes to train.log. The worker dies with its parent: a killed `flywheel train` leaves nobody behind.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from flywheel.config import Config
from flywheel.errors import TrainError
from flywheel.extensions import TrainResult, TrainSpec
from flywheel.io.files import lines, write_json
from flywheel.stages.train.process.checkpoints import trim_metrics
from flywheel.stages.train.process.distributed import command
from flywheel.stages.train.process.tracking import environment

__all__ = ["launch", "read_spec", "write_result", "write_spec"]

_POLL_S = 0.1
_PATHS = ("data", "out_dir", "work_dir", "start_adapter", "cache_dir")

# No telemetry, no hub, no thread fights: the libraries' own switches.
_ENVIRONMENT = {
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "DO_NOT_TRACK": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "PYTHONUNBUFFERED": "1",
    "OMP_WAIT_POLICY": "PASSIVE",  # see flywheel.models
}


def write_spec(spec: TrainSpec, path: Path) -> None:
    """Write a spec as JSON."""
    values = {**spec.__dict__, "config": spec.config.model_dump(mode="json")}
    write_json(path, {k: str(v) if k in _PATHS and v is not None else v for k, v in values.items()})


def read_spec(path: Path) -> TrainSpec:
    """Read what `write_spec` wrote."""
    raw: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    raw |= {k: Path(raw[k]) for k in _PATHS if raw[k] is not None}
    return TrainSpec(**{**raw, "config": Config.model_validate(raw["config"])})


def write_result(result: TrainResult, path: Path) -> None:
    """Write a result as JSON: the worker's last word."""
    write_json(path, asdict(result))


class _Tail:
    """Reads the lines that are appended to a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def lines(self) -> list[str]:
        """Return the whole lines that came since the last call."""
        if not self._path.exists():
            return []
        with self._path.open(encoding="utf-8", errors="replace") as handle:
            handle.seek(self._offset)
            text = handle.read()
        whole = text[: text.rfind("\n") + 1]
        self._offset += len(whole.encode("utf-8", "replace"))
        return lines(whole)


def _report(tail: _Tail, on_metrics: Callable[[dict[str, Any]], None]) -> None:
    for line in tail.lines():
        try:
            on_metrics(json.loads(line))
        except ValueError:
            continue


def launch(spec: TrainSpec, on_metrics: Callable[[dict[str, Any]], None] = lambda _: None) -> TrainResult:
    """Train in a process of its own and return its result; a finished round is not trained again.

    Raises:
        TrainError: the worker refused, crashed or was stopped; names the log file.
    """
    done = spec.work_dir / "result.json"
    if done.exists() and spec.out_dir.is_dir():
        return TrainResult(**json.loads(done.read_text(encoding="utf-8")))
    done.unlink(missing_ok=True)
    spec.work_dir.mkdir(parents=True, exist_ok=True)
    path, refused = spec.work_dir / "spec.json", spec.work_dir / "error.json"
    write_spec(spec, path)
    refused.unlink(missing_ok=True)
    trim_metrics(spec)
    status = _run(spec, path, on_metrics)
    if refused.exists():
        error = json.loads(refused.read_text(encoding="utf-8"))
        raise TrainError(error["message"], hint=error["hint"])
    if not done.exists():
        raise _crashed(status, spec.work_dir / "train.log")
    return TrainResult(**json.loads(done.read_text(encoding="utf-8")))


def _crashed(status: int, log: Path) -> TrainError:
    if status == -signal.SIGKILL:
        return TrainError(
            "the trainer's process was killed, most likely for want of memory",
            hint="lower train.batch_size or train.max_length, then type the command again",
        )
    how = signal.Signals(-status).name if status < 0 else f"status {status}"
    return TrainError(f"the trainer's process ended without a result ({how})", hint=f"see `{log}`")


def _run(spec: TrainSpec, path: Path, on_metrics: Callable[[dict[str, Any]], None]) -> int:
    tail = _Tail(spec.work_dir / "metrics.jsonl")
    train = spec.config.train
    arguments = command(path, train.accelerate, spec.method)
    trackers = environment(train.report_to, spec.out_dir.parent / "tracking", os.environ)
    with (spec.work_dir / "train.log").open("ab") as log:
        process = subprocess.Popen(
            arguments,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**os.environ, **_ENVIRONMENT, **trackers},
        )
        try:
            while process.poll() is None:
                time.sleep(_POLL_S)
                _report(tail, on_metrics)
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()
    _report(tail, on_metrics)
    return process.returncode
