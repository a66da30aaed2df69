"""What SFT and DPO share: the start adapter, TRL's settings, checkpoints that are whole, the adapter's folder."""

from __future__ import annotations

import dataclasses
import difflib
import json
import math
import shutil
import time
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flywheel.errors import ConfigError
from flywheel.extensions import TrainResult, TrainSpec
from flywheel.files import atomic_folder, atomic_write
from flywheel.models.load import base_identity, load_base, quiet

if TYPE_CHECKING:
    from transformers import TrainerCallback

__all__ = ["finish", "last_checkpoint", "prepare", "recorder", "trl_arguments", "with_adapter"]

_COMPLETE = "complete"
_VERSIONS = ("torch", "transformers", "trl", "peft", "datasets", "flywheel-rl")


def prepare(spec: TrainSpec) -> None:
    """Seed everything and make CPU arithmetic repeatable."""
    import torch
    from transformers import set_seed

    quiet()
    if spec.config.train.threads:
        torch.set_num_threads(spec.config.train.threads)
    torch.use_deterministic_algorithms(mode=True, warn_only=True)
    set_seed(spec.seed)


def with_adapter(spec: TrainSpec) -> Any:
    """Return the base model with a fresh LoRA (seeded), or with the start adapter, ready to train."""
    from peft import LoraConfig, PeftModel, get_peft_model

    base = load_base(spec.config.model)
    if spec.start_adapter is not None:
        return PeftModel.from_pretrained(base, str(spec.start_adapter), is_trainable=True, use_safetensors=True)
    lora = spec.config.train.lora
    config = LoraConfig(
        r=lora.r,
        lora_alpha=lora.alpha,
        lora_dropout=lora.dropout,
        target_modules=lora.target_modules,
        task_type="CAUSAL_LM",
    )
    return get_peft_model(base, config)


def trl_arguments(kind: type[Any], spec: TrainSpec, **values: Any) -> Any:
    """Return a TRL config with flywheel's settings, the method's values and the user's `[train.trl]` on top.

    Raises:
        ConfigError: a key under [train.trl] is no field of the installed TRL's config.
    """
    import torch

    known = {f.name for f in dataclasses.fields(kind)}
    for key in spec.config.train.trl:
        if key not in known:
            near = difflib.get_close_matches(key, sorted(known), n=1)
            hint = f"did you mean `{near[0]}`?" if near else f"see the fields of trl.{kind.__name__}"
            raise ConfigError(f"unknown key `train.trl.{key}` for the installed trl {version('trl')}", hint=hint)
    train, gpu = spec.config.train, torch.cuda.is_available()
    settings: dict[str, Any] = {
        "output_dir": str(spec.work_dir / "checkpoints"),
        "num_train_epochs": train.epochs,
        "max_steps": train.max_steps,
        "per_device_train_batch_size": train.batch_size,
        "gradient_accumulation_steps": train.accumulation,
        "lr_scheduler_type": "linear",
        "warmup_steps": 0.05,
        "max_grad_norm": 1.0,
        "seed": spec.seed,
        "data_seed": spec.seed,
        "logging_steps": 1,
        "save_strategy": "steps",
        "save_steps": train.checkpoint_every,
        "save_total_limit": 2,
        "report_to": [],
        "use_cpu": not gpu,
        "bf16": gpu and spec.config.model.dtype == "bfloat16",
        "gradient_checkpointing": gpu,
        "disable_tqdm": True,
        "dataloader_pin_memory": gpu,
        "max_length": None,
    }
    return kind(**{**settings, **values, **train.trl})


def recorder(spec: TrainSpec, tokens_per_row: float) -> TrainerCallback:
    """Return a callback that appends metrics.jsonl and marks checkpoints as whole, the marker last."""
    from transformers import TrainerCallback

    path, per_step = spec.work_dir / "metrics.jsonl", spec.config.train.batch_size * spec.config.train.accumulation
    started, first = time.monotonic(), -1

    class Recorder(TrainerCallback):  # type: ignore[misc]
        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:  # noqa: ARG002
            nonlocal first
            first = state.global_step - 1 if first < 0 else first
            steps, seconds = max(1, state.global_step - first), max(time.monotonic() - started, 1e-9)
            numbers = {k: v for k, v in (logs or {}).items() if isinstance(v, (int, float)) and math.isfinite(v)}
            row = {
                "step": state.global_step,
                "of": state.max_steps,
                **numbers,
                "tokens_per_s": round(tokens_per_row * per_step * steps / seconds, 1),
                "eta_s": round(seconds / steps * (state.max_steps - state.global_step), 1),
            }
            with path.open("a", encoding="utf-8") as handle:
                handle.write(json.dumps(row) + "\n")

        def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002
            atomic_write(Path(args.output_dir) / f"checkpoint-{state.global_step}" / _COMPLETE, "")

    return Recorder()


def last_checkpoint(spec: TrainSpec) -> str | None:
    """Return the newest whole checkpoint; half-written ones are removed."""
    folder, whole = spec.work_dir / "checkpoints", []
    for path in sorted(folder.glob("checkpoint-*")) if folder.is_dir() else []:
        if (path / _COMPLETE).exists():
            whole.append(path)
        else:
            shutil.rmtree(path)
    return str(max(whole, key=lambda p: int(p.name.rpartition("-")[2]))) if whole else None


def finish(
    spec: TrainSpec, model: Any, *, steps: int, tokens: int, checks: dict[str, float], started: float
) -> TrainResult:
    """Write the adapter's folder whole (safetensors only, without a frozen copy) and return the result."""
    with atomic_folder(spec.out_dir) as partial:
        model.save_pretrained(partial, selected_adapters=["default"], safe_serialization=True)
        config = json.loads((partial / "adapter_config.json").read_text(encoding="utf-8"))
        config["base_model_name_or_path"] = spec.base_model
        config["revision"] = base_identity(spec.config.model).sha256
        config["target_modules"] = sorted(config["target_modules"])
        atomic_write(partial / "adapter_config.json", json.dumps(config, indent=1, sort_keys=True) + "\n")
        for extra in [
            p for p in partial.iterdir() if p.name not in {"adapter_config.json", "adapter_model.safetensors"}
        ]:
            shutil.rmtree(extra) if extra.is_dir() else extra.unlink()
    return TrainResult(
        steps=steps,
        tokens=tokens,
        checks=checks,
        timings_s={"training": round(time.monotonic() - started, 3)},
        versions={name: version(name) for name in _VERSIONS},
    )
