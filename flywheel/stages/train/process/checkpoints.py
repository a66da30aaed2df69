"""Complete checkpoints: Transformers writes one file after the other, so a kill can leave half of one.

A marker, written last, shows that a checkpoint is complete; without it a checkpoint is removed. Metrics logged after
the newest complete checkpoint belong to steps that will be taken again, so they are removed with it.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from flywheel.extensions import TrainSpec
from flywheel.io.files import atomic_write, lines

_WHOLE = "complete"


def checkpoints(spec: TrainSpec) -> Path:
    """Return the folder that the trainer writes its checkpoints to."""
    return spec.work_dir / "checkpoints"


def mark_whole(checkpoint: Path) -> None:
    """Mark a checkpoint as complete."""
    atomic_write(checkpoint / _WHOLE, "")


def _step(checkpoint: Path) -> int:
    return int(checkpoint.name.rpartition("-")[2])


def newest(spec: TrainSpec) -> Path | None:
    """Return the newest complete checkpoint, or None; incomplete ones are removed."""
    complete = []
    for path in checkpoints(spec).glob("checkpoint-*"):
        if (path / _WHOLE).exists():
            complete.append(path)
        else:
            shutil.rmtree(path, ignore_errors=True)  # of several processes another may be quicker
    return max(complete, key=_step, default=None)


def trim_metrics(spec: TrainSpec) -> None:
    """Keep only the metrics of steps that the newest complete checkpoint holds; a torn last line goes too."""
    path, last = spec.work_dir / "metrics.jsonl", newest(spec)
    if not path.exists():
        return
    kept = []
    for line in lines(path.read_text(encoding="utf-8", errors="replace")):
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if last is not None and row["step"] <= _step(last) and "train_runtime" not in row:
            kept.append(line + "\n")
    atomic_write(path, "".join(kept))
