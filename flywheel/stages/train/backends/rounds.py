"""The trainer of a round in another system: score, start, follow, check, and bring its adapter home."""

from __future__ import annotations

import json
import shutil
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from flywheel.config import masked
from flywheel.errors import TrainError
from flywheel.extensions import TrainResult, TrainSpec
from flywheel.io.files import atomic_folder, atomic_write, read_json, read_rows
from flywheel.models.load import base_folder, quiet, require_safetensors
from flywheel.stages.train.backends.job import FILES, Follower, Job, System, read_items, run
from flywheel.stages.train.backends.numbers import first_step, measure, refuse_other
from flywheel.stages.train.backends.own import CHECKPOINTS, Own
from flywheel.stages.train.backends.swift import Swift
from flywheel.stages.train.kl import COLUMN

_SYSTEMS: dict[str, System] = {"swift": Swift()}
_SCALE = ("r", "lora_alpha", "use_rslora", "use_dora", "rank_pattern", "alpha_pattern")
_KEPT = ("adapter_config.json", "adapter_model.safetensors")


def train(spec: TrainSpec) -> TrainResult:
    """Train one round in the system that `train.backend` names.

    Raises:
        TrainError: it failed, its first step is not that of this round, or its adapter is not to be used.
        ConfigError: its `arguments` set what the round's plan decides.
    """
    started = time.monotonic()
    quiet()
    if spec.config.train.threads:
        torch.set_num_threads(spec.config.train.threads)
    items = read_items(spec.work_dir / FILES)
    if not items:
        raise TrainError(
            "no row can be written as one text of its tokens", hint='`[train] backend = "trl"` trains them'
        )
    job = Job(spec, items, base_folder(spec.config.model))
    system = _SYSTEMS.get(spec.config.train.backend, Own())
    expected = first_step(job)
    command, arguments = system.begin(job)
    steps, checks = _steps(job, system, command, expected)
    adapter = system.finished(job)
    if adapter is None:
        raise TrainError(f"{job.backend.title} left no adapter", hint=f"see `{spec.out_dir.parent / 'train.log'}`")
    trained = time.monotonic()
    checks["rows_refused"] = float(len(read_rows(spec.data)) - len(items))
    kl, after = measure(job, _whole(job, adapter))
    atomic_write(
        spec.work_dir / "metrics.jsonl",
        (spec.work_dir / "metrics.jsonl").read_text(encoding="utf-8")
        + json.dumps({"step": steps, "of": steps, COLUMN: kl})
        + "\n",
    )
    _bring_home(spec, adapter)
    return TrainResult(
        steps=steps,
        stopped="steps",
        kl=[(steps, kl)],
        tokens=sum(len(side.ids) for item in job.items for side in item.sides),
        checks={name: round(value, 6) for name, value in {**checks, **after}.items()},
        timings_s={"training": round(trained - started, 3), "distance": round(time.monotonic() - trained, 3)},
        versions={name: version(name) for name in ("torch", "transformers", "peft", "flywheel-rl")},
        arguments=masked(arguments),
    )


def _steps(job: Job, system: System, command: list[str], expected: dict[str, float]) -> tuple[int, dict[str, float]]:
    """Run the system, and return the steps it took and the numbers of its first one."""
    follower = Follower(system.metrics(job), system.row, job.spec.work_dir / "metrics.jsonl")

    def watch() -> None:
        for row in follower.news():
            if row["step"] == 1:
                _checked(job, expected, row)

    if system.finished(job) is None:
        run(job, command, watch)
    watch()
    first = follower.rows.get(1)
    if first is None:
        raise TrainError(
            f"{job.backend.title} logged no first step: it cannot be checked",
            hint=f"see docs/backends.md and `{job.spec.out_dir.parent / 'train.log'}`",
        )
    shared = _checked(job, expected, first)
    checks = {f"{name.replace('/', '_')}_step0": value for name, value in shared.items()}
    return max(follower.rows), {**checks, "step0_gap": max(abs(shared[name] - expected[name]) for name in shared)}


def _checked(job: Job, expected: dict[str, float], row: dict[str, Any]) -> dict[str, float]:
    """Return the known numbers of the first step; checkpoints that came after a wrong one are removed."""
    try:
        return refuse_other(job, expected, row)
    except TrainError:
        shutil.rmtree(job.folder / CHECKPOINTS, ignore_errors=True)
        raise


def _whole(job: Job, adapter: Path) -> Path:
    """Return an adapter's folder whose configuration is one that PEFT applies.

    Raises:
        TrainError: it is not a LoRA, has an alpha of 0, as veRL's merger writes it where a file is missing, or another
            scale than the round's adapter, by which it is scored.
    """
    require_safetensors(adapter)
    config = read_json(adapter / "adapter_config.json")
    if config.get("peft_type") != "LORA" or not config.get("lora_alpha") or not config.get("r"):
        raise TrainError(
            f"{job.backend.title} left an adapter without the rank and the alpha of a LoRA", hint="see docs/backends.md"
        )
    lora, start = job.spec.config.train.lora, job.spec.start_adapter
    fresh = {"r": lora.r, "lora_alpha": lora.alpha, "use_rslora": lora.rslora, "use_dora": lora.dora}
    wanted = fresh if start is None else read_json(start / "adapter_config.json")
    for name in _SCALE:
        if (config.get(name) or None) != (wanted.get(name) or None):
            raise TrainError(
                f"{job.backend.title} left an adapter whose {name} is {config.get(name)}, the round's is "
                f"{wanted.get(name)}: its distance could not be measured",
                hint="`settings.lora` of job.json, or the start adapter, has it",
            )
    return adapter


def _bring_home(spec: TrainSpec, adapter: Path) -> None:
    """Write the adapter's folder atomically: weights and configuration, with the base's name as configured."""
    with atomic_folder(spec.out_dir) as partial:
        for name in _KEPT:
            shutil.copyfile(adapter / name, partial / name)
        config = read_json(partial / "adapter_config.json")
        config |= {"base_model_name_or_path": spec.base_model, "inference_mode": True}
        if isinstance(config.get("target_modules"), list):
            config["target_modules"].sort()
        atomic_write(partial / "adapter_config.json", json.dumps(config, indent=1, sort_keys=True) + "\n")
