"""What all trainers share: seeds, the start adapter, TRL's settings, the metrics of each step, the adapter's folder."""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import json
import math
import os
import shutil
import time
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from flywheel.config import TrainConfig
from flywheel.errors import ConfigError
from flywheel.extensions import TrainResult, TrainSpec
from flywheel.io.files import atomic_folder, atomic_write
from flywheel.models.footprint import Footprint, rows_of_pass
from flywheel.models.load import load_base, quiet, require_safetensors, weights_type
from flywheel.models.quantised import keep_precision
from flywheel.stages.train.kl import KlStop
from flywheel.stages.train.process.checkpoints import checkpoints, mark_whole, newest
from flywheel.stages.train.process.distributed import first, keeps_layers, read_accelerate, spreads, together, world
from flywheel.stages.train.process.shards import held, in_turn, spread

if TYPE_CHECKING:
    from transformers import TrainerCallback


_VERSIONS = ("torch", "transformers", "trl", "peft", "datasets", "flywheel-rl")

# Fields of TRL's config that flywheel's guarantees depend on, and what to set instead.
_OWNED = {
    "output_dir": "",
    "max_length": "train.max_length",
    "truncation_mode": "train.max_length",
    "seed": "train.seed",
    "data_seed": "train.seed",
    "num_train_epochs": "train.sft_epochs` or `train.dpo_epochs",
    "max_steps": "train.max_steps",
    "learning_rate": "train.sft_learning_rate`, `train.dpo_learning_rate` or `train.grpo_learning_rate",
    "per_device_train_batch_size": "train.batch_size",
    "gradient_accumulation_steps": "train.accumulation",
    "save_strategy": "train.checkpoint_every",
    "save_steps": "train.checkpoint_every",
    "save_total_limit": "train.checkpoint_every",
    "save_only_model": "train.checkpoint_every",
    "push_to_hub": "",
    "packing": "",
    "padding_free": "",
    "assistant_only_loss": "",
    "label_smoothing_factor": "",
    "num_generations": "train.replay_attempts",
    "max_completion_length": "train.replay_tokens",
    "max_tool_calling_iterations": "replay.max_calls",
    "steps_per_generation": "train.batch_size",
    "generation_batch_size": "train.batch_size",
}


def prepare(spec: TrainSpec) -> None:
    """Seed everything and make CPU arithmetic repeatable."""
    from transformers import set_seed

    quiet()
    if spec.config.train.threads:
        torch.set_num_threads(spec.config.train.threads)
    os.environ.pop("ACCELERATE_USE_FSDP", None)  # set by its launcher; flywheel spreads layers itself (`shards`)
    if world() > 1 and torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    torch.use_deterministic_algorithms(mode=True, warn_only=True)
    # Deterministic mode fills new memory; nothing reads it, and it costs a tenth to a quarter of a step.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    set_seed(spec.seed)
    _score_only_actions()


def _score_only_actions() -> None:
    """Let TRL project only the trained positions to the vocabulary on CPUs, as it does on GPUs.

    TRL 1.16 scores every position where Triton is not in use, because some accelerators compile for each shape; a CPU
    does not, and of a row of 300 tokens 260 may be prompt. The name is TRL's own: without it nothing changes.
    """
    from trl.trainer import utils

    if not torch.cuda.is_available() and hasattr(utils, "_use_triton"):
        utils._use_triton = lambda _: True  # noqa: SLF001 - TRL has no public switch


def with_adapter(spec: TrainSpec) -> Any:
    """Return the base model with a fresh LoRA (seeded), or with the start adapter, ready to train.

    Where several processes train, it is spread over them as `train.accelerate` asks.
    """
    if world() == 1:
        model = _adapted(spec, load_base(spec.config.model))
        return keep_precision(model) if spec.config.model.quantise != "none" else model
    accelerate = read_accelerate(Path(spec.config.train.accelerate), spec.method)
    if not spreads(accelerate):
        model = _adapted(spec, load_base(spec.config.model))
        return _only_trained(keep_precision(model) if spec.config.model.quantise != "none" else model)
    with in_turn():
        model = spread(_adapted(spec, load_base(spec.config.model, on_host=True)), keep=keeps_layers(accelerate))
    return _only_trained(model)


def _only_trained(model: Any) -> Any:
    """Return the model, of which DDP then sends around only what is trained: the rest is read from the same files."""
    from torch.nn.parallel import DistributedDataParallel

    frozen = [name for name, parameter in model.named_parameters() if not parameter.requires_grad]
    wrapper: Any = DistributedDataParallel
    wrapper._set_params_and_buffers_to_ignore_for_model(model, frozen)  # noqa: SLF001 - torch has no other way
    return model


def _adapted(spec: TrainSpec, base: Any) -> Any:
    from peft import LoraConfig, PeftModel, get_peft_model
    from transformers import set_seed

    set_seed(spec.seed)  # again: a first load dequantises the base model, which draws random numbers
    if spec.start_adapter is not None:
        require_safetensors(spec.start_adapter)
        return PeftModel.from_pretrained(base, str(spec.start_adapter), is_trainable=True)
    lora = spec.config.train.lora
    config = LoraConfig(
        r=lora.r,
        lora_alpha=lora.alpha,
        lora_dropout=lora.dropout,
        use_rslora=lora.rslora,
        use_dora=lora.dora,
        target_modules=lora.target_modules,
        task_type="CAUSAL_LM",
    )
    return get_peft_model(base, config)


def _check_passthrough(kind: type[Any], given: dict[str, Any]) -> None:
    known = {f.name for f in dataclasses.fields(kind)}
    for key in given:
        if key not in known:
            near = difflib.get_close_matches(key, sorted(known), n=1)
            hint = f"did you mean `{near[0]}`?" if near else f"see the fields of trl.{kind.__name__}"
            raise ConfigError(f"unknown key `train.trl.{key}` for the installed trl {version('trl')}", hint=hint)
        if key in _OWNED:
            hint = f"set `{_OWNED[key]}` instead" if _OWNED[key] else "remove it"
            raise ConfigError(f"`train.trl.{key}` cannot be set: flywheel's guarantees depend on it", hint=hint)


def _passes(train: TrainConfig, tokens_per_row: int, limit: int, processes: int = 1) -> tuple[int, int]:
    """Return the rows of one forward pass, a divisor of the batch, and a process's passes of one optimiser step.

    A step trains the same rows however many processes share them.

    Raises:
        ConfigError: they cannot be shared out equally.
    """
    share, rest = divmod(train.accumulation * train.batch_size, processes)
    if rest:
        raise ConfigError(
            f"a step of {train.batch_size} x {train.accumulation} rows cannot be shared by {processes} processes",
            hint="set train.batch_size to a multiple of the processes",
        )
    rows = rows_of_pass(math.gcd(train.batch_size, share), tokens_per_row, limit)
    return rows, share // rows


def footprint(spec: TrainSpec) -> Footprint:
    """Return what this process's passes of a round hold in memory."""
    accelerate = spec.config.train.accelerate
    spread = world() > 1 and spreads(read_accelerate(Path(accelerate), spec.method))
    return Footprint(spec.config.model, spec.config.train, processes=world(), spread=spread)


def trl_arguments(kind: type[Any], spec: TrainSpec, longest: int, **values: Any) -> Any:
    """Return a TRL config with flywheel's settings, the method's values and the user's `[train.trl]` on top.

    Args:
        kind: TRL's config class.
        spec: the round.
        longest: tokens of the longest row, all its sides together.
        values: what the method adds.

    Raises:
        ConfigError: a key under [train.trl] is not a field of the installed TRL's config, or is flywheel's to set.
    """
    _check_passthrough(kind, spec.config.train.trl)
    train, gpu, memory = spec.config.train, torch.cuda.is_available(), footprint(spec)
    rows, passes = _passes(train, longest, memory.most_tokens, world())
    settings: dict[str, Any] = {
        "output_dir": str(checkpoints(spec)),
        "num_train_epochs": train.epochs(spec.method),
        "max_steps": train.max_steps,
        "per_device_train_batch_size": rows,
        "gradient_accumulation_steps": passes,
        "learning_rate": train.learning_rate(spec.method),
        "lr_scheduler_type": "linear",
        "max_grad_norm": 1.0,
        "seed": spec.seed,
        "data_seed": spec.seed,
        "logging_steps": 1,
        "save_strategy": "steps",
        "save_steps": train.checkpoint_every,
        "save_total_limit": 2,
        "report_to": list(train.report_to),
        "run_name": f"round {spec.round}",
        "use_cpu": not gpu,
        "bf16": gpu and weights_type(spec.config.model) == "bfloat16",
        "gradient_checkpointing": memory.recomputes(values.get("per_device_train_batch_size", rows) * longest),
        "disable_tqdm": True,
        "dataloader_pin_memory": gpu,
    }
    if "max_length" in {f.name for f in dataclasses.fields(kind)}:
        settings["max_length"] = None  # rows that are too long were refused already
    return kind(**{**settings, **values, **train.trl})


def recorder(spec: TrainSpec, tokens_per_row: float | None, stop: KlStop) -> TrainerCallback:
    """Return a callback that ends training by `stop`, appends metrics.jsonl, and marks checkpoints, the marker last.

    Where rows have no length of their own (`None`: attempts), tokens are those that TRL counts.
    """
    from transformers import TrainerCallback

    path, per_step = spec.work_dir / "metrics.jsonl", spec.config.train.batch_size * spec.config.train.accumulation
    started, begun = time.monotonic(), -1
    before = 0

    class Recorder(TrainerCallback):  # type: ignore[misc]
        def on_train_begin(self, args: Any, state: Any, control: Any, model: Any, **_: Any) -> None:  # noqa: ARG002
            nonlocal before
            stop.begin(model, state)
            before = state.num_input_tokens_seen
            if state.global_step >= state.max_steps:
                raise _AllStepsTaken

        def on_step_end(self, args: Any, state: Any, control: Any, model: Any, **_: Any) -> None:  # noqa: ARG002
            stop.after(model, state, control)

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:  # noqa: ARG002
            nonlocal begun
            if not first():
                return
            begun = state.global_step - 1 if begun < 0 else begun
            steps, seconds = max(1, state.global_step - begun), max(time.monotonic() - started, 1e-9)
            numbers = {k: v for k, v in (logs or {}).items() if isinstance(v, (int, float)) and math.isfinite(v)}
            counted = state.num_input_tokens_seen - before
            tokens = counted if tokens_per_row is None else tokens_per_row * per_step * steps
            row = {
                "step": state.global_step,
                "of": state.max_steps,
                **numbers,
                **stop.news(),
                "tokens_per_s": round(tokens / seconds, 1),
                "eta_s": round(seconds / steps * (state.max_steps - state.global_step), 1),
            }
            with path.open("a", encoding="utf-8") as handle:
                handle.write(json.dumps(row) + "\n")

        def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002
            together()  # every process has written its part
            if first():
                mark_whole(Path(args.output_dir) / f"checkpoint-{state.global_step}")

    return Recorder()


class _AllStepsTaken(Exception):  # noqa: N818 - not an error
    """The checkpoint that training goes on from holds the last step."""


def take_steps(spec: TrainSpec, trainer: Any) -> None:
    """Train from the newest complete checkpoint to the last step.

    After a kill between the last checkpoint and the adapter there is no step left; Transformers, which looks for the
    last step only when it has taken one, would take another.
    """
    _keep_checkpoints_small(trainer)
    with contextlib.suppress(_AllStepsTaken):
        trainer.train(resume_from_checkpoint=newest(spec))


def _keep_checkpoints_small(trainer: Any) -> None:
    """Let a checkpoint hold what training goes on from alone: no model cards, and not the base model's tokenizer."""
    trainer.create_model_card = trainer.model.create_or_update_model_card = _nothing
    tokenizer = getattr(trainer, "processing_class", None)
    if tokenizer is not None:
        tokenizer.save_pretrained = _nothing


def _nothing(*_: Any, **__: Any) -> None:
    """Write no file."""


def finish(
    spec: TrainSpec, trainer: Any, stop: KlStop, *, tokens: int, checks: dict[str, float], started: float
) -> TrainResult:
    """Write the adapter's folder atomically (safetensors only, without a frozen copy) and return the result.

    Of several processes the first writes, and reports which share of the model's weights it held.
    """
    if first():
        _write_adapter(spec, trainer.model)
    together()
    curve, arguments = stop.curve(), trainer.args
    passes = {"pass_rows": arguments.per_device_train_batch_size, "recomputed": arguments.gradient_checkpointing}
    within = [step for step, kl in curve if kl <= stop.limit]
    return TrainResult(
        steps=max(within, default=0),
        stopped="kl" if len(within) < len(curve) else "steps",
        kl=curve,
        tokens=tokens,
        checks={
            **checks,
            **{name: float(value) for name, value in passes.items()},
            **({"weights_held": round(held(trainer.model), 4)} if world() > 1 else {}),
        },
        timings_s={"training": round(time.monotonic() - started, 3), "distance": round(stop.seconds, 3)},
        versions={name: version(name) for name in _VERSIONS},
    )


def _write_adapter(spec: TrainSpec, model: Any) -> None:
    with atomic_folder(spec.out_dir) as partial:
        model.save_pretrained(partial, selected_adapters=["default"], safe_serialization=True)
        config = json.loads((partial / "adapter_config.json").read_text(encoding="utf-8"))
        config["base_model_name_or_path"] = spec.base_model
        if isinstance(config["target_modules"], list):  # a set inside PEFT: its order is not repeatable
            config["target_modules"].sort()
        atomic_write(partial / "adapter_config.json", json.dumps(config, indent=1, sort_keys=True) + "\n")
        for extra in [
            p for p in partial.iterdir() if p.name not in {"adapter_config.json", "adapter_model.safetensors"}
        ]:
            shutil.rmtree(extra) if extra.is_dir() else extra.unlink()
