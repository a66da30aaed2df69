"""ms-swift: `python -m swift.cli.rlhf`, with every setting that would otherwise be its own default.

Its defaults are not ours: weight decay 0.1, a cosine, another beta2, dropped rows, the base as the reference of a round
that goes on from an adapter. The first batch is the first rows of the file, so that its loss can be predicted.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flywheel.errors import ConfigError
from flywheel.io.files import atomic_write, read_json
from flywheel.models.footprint import Footprint
from flywheel.models.load import weights_type
from flywheel.stages.train.backends.job import Job

_OUT, _LOG = "out", "logging.jsonl"
_KINDS = {"preference": "dpo", "unpaired": "kto"}  # of `swift.cli.rlhf`; other rows are of `swift.cli.sft`
_FILES = {"preference": "dpo.jsonl", "unpaired": "kto.jsonl", "sft": "sft.jsonl"}
_FAMILIES = {  # of an architecture that several of its model types have; the rows are rendered, so any will do
    "LlamaForCausalLM": "llama",
    "MistralForCausalLM": "mistral",
    "Phi3ForCausalLM": "phi3",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen3ForCausalLM": "qwen3",
}
_FREE = ("model_type", "template", "attn_impl", "gradient_checkpointing", "torch_dtype", "device_map", "use_cpu")


class Swift:
    """How ms-swift is started, and where it leaves what."""

    def begin(self, job: Job) -> tuple[list[str], dict[str, Any]]:
        """Return its command; it goes on from the newest complete checkpoint.

        Raises:
            ConfigError: `arguments` names what the round's plan decides.
        """
        settings = _settings(job)
        for name, value in job.own.arguments.items():
            if name in settings and name not in _FREE:
                raise ConfigError(
                    f"`train.backends.swift.arguments.{name}` cannot be set: the round's plan decides it",
                    hint="set what it follows under [train]; `flywheel plan` shows it",
                )
            settings[name] = value
        checkpoint = _newest(job)
        _forget_after(job, checkpoint)
        module = "swift.cli.rlhf" if job.form in _KINDS else "swift.cli.sft"
        goes_on = {"resume_from_checkpoint": str(checkpoint)} if checkpoint is not None else {}
        files = {name: _placed(job, value) for name, value in job.own.arguments.items()}
        return [job.placed(job.own.python), "-m", module, *_words(settings | files | goes_on)], settings

    def metrics(self, job: Job) -> Path:
        """Return the file that it logs to."""
        return job.folder / _OUT / _LOG

    def row(self, line: Mapping[str, Any]) -> dict[str, Any]:
        """Return the numbers of a step; its `global_step/max_steps` is "3/40"."""
        step, _, last = str(line.get("global_step/max_steps", "")).partition("/")
        if not last or "loss" not in line:
            return {}
        numbers = {k: v for k, v in line.items() if isinstance(v, (int, float)) and math.isfinite(v)}
        return {"step": int(step), "of": int(last), **numbers}

    def finished(self, job: Job) -> Path | None:
        """Return its last checkpoint, once that holds the last step."""
        checkpoint = _newest(job)
        if checkpoint is None:
            return None
        state = read_json(checkpoint / "trainer_state.json")
        return checkpoint if state["global_step"] >= state["max_steps"] else None


def _placed(job: Job, value: Any) -> Any:
    """Return an argument of the user's with files of the project as paths that hold where the process runs."""
    if isinstance(value, list):
        return [_placed(job, one) for one in value]
    return job.placed(value) if isinstance(value, str) else value


def _words(settings: Mapping[str, Any]) -> list[str]:
    """Return settings as options; `swift` itself would start a second process for a file of them."""
    words = []
    for name, value in settings.items():
        values = value if isinstance(value, list) else [json.dumps(value) if isinstance(value, dict) else value]
        words += [f"--{name}", *map(str, values)]
    return words


def _settings(job: Job) -> dict[str, Any]:
    """Return a round's settings under ms-swift's names."""
    spec, train = job.spec, job.spec.config.train
    targets = train.lora.target_modules
    settings: dict[str, Any] = {
        **family(job.model),
        "model": str(job.model),
        "torch_dtype": weights_type(spec.config.model),
        "use_chat_template": False,
        "dataset": [str(job.folder / _FILES[job.form])],
        "dataset_shuffle": False,
        "train_dataloader_shuffle": False,
        "split_dataset_ratio": 0,
        "strict": True,
        "loss_scale": "default",
        "max_length": job.longest,
        "truncation_strategy": "delete",
        "load_from_cache_file": False,
        "dataloader_num_workers": 0,
        "tuner_type": "lora",
        "lora_rank": train.lora.r,
        "lora_alpha": train.lora.alpha,
        "lora_dropout": train.lora.dropout,
        **({"use_rslora": True} if train.lora.rslora else {}),
        **({"use_dora": True} if train.lora.dora else {}),
        "target_modules": [targets] if isinstance(targets, str) else targets,
        "learning_rate": train.learning_rate(spec.method),
        "lr_scheduler_type": "linear",
        "weight_decay": 0,
        "adam_beta2": 0.999,
        "max_grad_norm": 1.0,
        "per_device_train_batch_size": train.batch_size,
        "gradient_accumulation_steps": train.accumulation,
        "num_train_epochs": train.epochs(spec.method),
        "max_steps": train.max_steps,
        "seed": spec.seed,
        "data_seed": spec.seed,
        "gradient_checkpointing": _recomputes(job),
        "logging_steps": 1,
        "save_strategy": "steps",
        "save_steps": train.checkpoint_every,
        "save_total_limit": 2,
        "eval_strategy": "no",
        "report_to": ["none"],
        "check_model": False,
        "add_version": False,
        "output_dir": str(job.folder / _OUT),
    }
    return settings | _of_method(job)


def _recomputes(job: Job) -> bool:
    """Return whether activations are computed again on the way back, as with TRL."""
    train = job.spec.config.train
    return Footprint(job.spec.config.model, train).recomputes(train.batch_size * job.longest)


def _of_method(job: Job) -> dict[str, Any]:
    """Return the loss, the start adapter and the reference: without `ref_adapters` that is the base."""
    start = {"adapters": [str(job.spec.start_adapter)]} if job.spec.start_adapter is not None else {}
    if job.form not in _KINDS:
        return start
    loss: dict[str, Any] = {"rlhf_type": _KINDS[job.form], "beta": job.spec.config.train.dpo_beta}
    if job.form == "unpaired":
        loss |= {"desirable_weight": job.desirable, "undesirable_weight": job.undesirable}
    else:
        loss |= {"loss_type": ["sigmoid"]}
    return {**loss, **start, **({"ref_adapters": [str(job.reference)]} if job.reference is not None else {})}


def family(model: Path) -> dict[str, str]:
    """Return what to tell ms-swift of a folder's model where several of its types have that architecture."""
    config = model / "config.json"
    architectures = (read_json(config).get("architectures") if config.is_file() else None) or [""]
    known = _FAMILIES.get(architectures[0])
    return {"model_type": known, "template": "dummy"} if known else {}


def _newest(job: Job) -> Path | None:
    """Return its newest complete checkpoint; its state is what Transformers writes last. Torn ones are removed."""
    complete: dict[int, Path] = {}
    for path in (job.folder / _OUT).glob("checkpoint-*"):
        try:
            state = json.loads((path / "trainer_state.json").read_text(encoding="utf-8"))
            complete[int(state["global_step"])] = path
        except (OSError, ValueError, KeyError):
            shutil.rmtree(path)
    return complete[max(complete)] if complete else None


def _forget_after(job: Job, checkpoint: Path | None) -> None:
    """Remove logged steps that a checkpoint does not hold: they are taken again."""
    path, last = job.folder / _OUT / _LOG, int(checkpoint.name.rpartition("-")[2]) if checkpoint is not None else 0
    kept = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines() if path.exists() else []:
        try:
            row = Swift().row(json.loads(line))
        except ValueError:
            continue
        if row and row["step"] <= last:
            kept.append(line + "\n")
    if path.exists():
        atomic_write(path, "".join(kept))
