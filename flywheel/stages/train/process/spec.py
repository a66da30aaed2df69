"""What crosses the border to the trainer's process, and launching it.

The spec is a JSON file; metrics come back as lines of metrics.jsonl, the result as result.json, everything that the
libraries print goes to train.log. The worker dies with its parent: a killed `flywheel train` leaves no process behind.
TensorBoard, Weights & Biases and MLflow write into the round's folder `tracking/`, if the user has and asks for them.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from flywheel.config import Config
from flywheel.errors import ConfigError, TrainError
from flywheel.extensions import TrainResult, TrainSpec
from flywheel.io.files import lines, write_json
from flywheel.stages.train.process.checkpoints import trim_metrics
from flywheel.stages.train.process.distributed import command

_POLL_S = 0.1
_PACKAGES = {"tensorboard": ("tensorboard", "tensorboardX"), "wandb": ("wandb",), "mlflow": ("mlflow",)}
_PATHS = ("data", "out_dir", "work_dir", "start_adapter", "cache_dir", "project_dir")

# No telemetry, no hub: the libraries' own switches.
_ENVIRONMENT = {
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "DO_NOT_TRACK": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "PYTHONUNBUFFERED": "1",
    "PYTHONSAFEPATH": "1",  # for the workers of launchers; see flywheel.io.safe_path
}


def write_spec(spec: TrainSpec, path: Path) -> None:
    """Write a spec as JSON."""
    values = {**spec.__dict__, "config": spec.config.model_dump(mode="json")}
    write_json(path, {k: str(v) if k in _PATHS and v is not None else v for k, v in values.items()})


def read_spec(path: Path) -> TrainSpec:
    """Read what `write_spec` wrote."""
    raw: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    raw |= {k: Path(raw[k]) for k in _PATHS if raw[k] is not None}
    config = Config.model_validate(raw["config"])
    return TrainSpec(**{**raw, "config": config.placed_in(raw["project_dir"]) if raw["project_dir"] else config})


def write_result(result: TrainResult, path: Path) -> None:
    """Write a result as JSON: the worker's last word."""
    write_json(path, asdict(result))


class _Tail:
    """Reports the lines that are appended to a file of metrics.

    Args:
        path: the file; it need not exist yet.
        on_metrics: gets each new line, parsed.
    """

    def __init__(self, path: Path, on_metrics: Callable[[dict[str, Any]], None]) -> None:
        self._path, self._on_metrics = path, on_metrics
        self._offset = 0

    def report(self) -> None:
        """Report the complete lines that came since the last call; one that is not JSON is skipped."""
        if not self._path.exists():
            return
        with self._path.open(encoding="utf-8", errors="replace") as handle:
            handle.seek(self._offset)
            text = handle.read()
        complete = text[: text.rfind("\n") + 1]
        self._offset += len(complete.encode("utf-8", "replace"))
        for line in lines(complete):
            with contextlib.suppress(ValueError):
                self._on_metrics(json.loads(line))


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
    tail = _Tail(spec.work_dir / "metrics.jsonl", on_metrics)
    train = spec.config.train
    arguments = command(path, train.accelerate, spec.method)
    trackers = tracker_environment(train.report_to, spec.out_dir.parent / "tracking", os.environ)
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
                tail.report()
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()
    tail.report()
    return process.returncode


def tracker_environment(report_to: Sequence[str], folder: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables that lead the trackers into a folder; the user's own win.

    Trackers stay offline: a server is contacted only where the user's own environment names it (WANDB_MODE,
    MLFLOW_TRACKING_URI). They get numbers and settings, never rows.

    Raises:
        ConfigError: a tracker is not installed.
    """
    for name in report_to:
        if not any(find_spec(package) for package in _PACKAGES[name]):
            raise ConfigError(f"train.report_to: {name} is not installed", hint=f"pip install {name}")
    if report_to:
        folder.mkdir(parents=True, exist_ok=True)
    wanted = {"WANDB_DISABLED": "true"} if "wandb" not in report_to else {}
    own = {
        "TENSORBOARD_LOGGING_DIR": str(folder / "tensorboard"),
        "WANDB_DIR": str(folder),
        "WANDB_MODE": "offline",
        "MLFLOW_TRACKING_URI": f"sqlite:///{folder / 'mlflow.db'}",
        "MLFLOW_EXPERIMENT_NAME": "flywheel",
    }
    return wanted | {k: environ.get(k, v) for k, v in own.items()}
