"""A command of the user's own: it gets the path of `job.json` as last argument, and leaves an adapter and metrics.

The contract is docs/backends.md; a number that it logs under one of our names must be the number that we compute.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flywheel.io.files import atomic_write, write_json
from flywheel.models.load import weights_type
from flywheel.stages.train.backends.job import TOKENS, Job

VERSION = 1
CHECKPOINTS = "checkpoints"
_JOB, _ADAPTER, _METRICS = "job.json", "adapter", "metrics.jsonl"


class Own:
    """How the user's command is started, and where it leaves what."""

    def begin(self, job: Job) -> tuple[list[str], dict[str, Any]]:
        """Write the job; a command that keeps checkpoints in their folder goes on from them."""
        spec, train = job.spec, job.spec.config.train
        settings = {
            "learning_rate": train.learning_rate(spec.method),
            "epochs": train.epochs(spec.method),
            "max_steps": train.max_steps,
            "batch_size": train.batch_size,
            "accumulation": train.accumulation,
            "checkpoint_every": train.checkpoint_every,
            "seed": spec.seed,
            "dtype": weights_type(spec.config.model),
            "lora": train.lora.model_dump(mode="json"),
            "desirable_weight": job.desirable,
            "undesirable_weight": job.undesirable,
            **({"beta": train.dpo_beta} if job.form != "sft" else {}),
            **job.own.arguments,
        }
        checkpoints = job.folder / CHECKPOINTS
        checkpoints.mkdir(exist_ok=True)
        _keep_metrics(self.metrics(job), goes_on=job.within_now or any(checkpoints.iterdir()))
        if not job.within_now:
            shutil.rmtree(job.folder / _ADAPTER, ignore_errors=True)
        document = {
            "version": VERSION,
            "round": spec.round,
            "method": spec.method,
            "form": job.form,
            "model": str(job.model),
            "start_adapter": str(spec.start_adapter) if spec.start_adapter is not None else None,
            "reference": spec.reference,
            "reference_adapter": str(job.reference) if job.reference is not None else None,
            "tokens": str(job.folder / TOKENS),
            "rows": str(spec.data),
            "settings": settings,
            "adapter": str(job.folder / _ADAPTER),
            "metrics": str(self.metrics(job)),
            "checkpoints": str(checkpoints),
        }
        write_json(job.folder / _JOB, document)
        return [*map(job.placed, job.own.command), str(job.folder / _JOB)], settings

    def metrics(self, job: Job) -> Path:
        """Return the file that it appends to."""
        return job.folder / _METRICS

    def row(self, line: Mapping[str, Any]) -> dict[str, Any]:
        """Return the numbers of a step."""
        numbers = {k: v for k, v in line.items() if isinstance(v, (int, float)) and math.isfinite(v)}
        return {**numbers, "step": int(line["step"]), "of": int(line["of"])}

    def finished(self, job: Job) -> Path | None:
        """Return the adapter's folder; a command that ended well has written it whole."""
        folder = job.folder / _ADAPTER
        return folder if (folder / "adapter_config.json").is_file() else None


def _keep_metrics(path: Path, *, goes_on: bool) -> None:
    """Keep the whole lines for a command that goes on: it does not take its first step, which is checked, again."""
    if not path.exists():
        return
    text = path.read_text(encoding="utf-8", errors="replace") if goes_on else ""
    atomic_write(path, text[: text.rfind("\n") + 1])
