"""The arms of `learn.py`: flywheel's rounds, and what a user would otherwise do with stock TRL on the same logs.

In: logs in as many parts as there are rounds, revealed one more each round. Out: an adapter folder for each round and
what it cost. Stock rows are given flywheel's rendering of tool calls, since the embedded model's own template leaves
them out; everything else about them is TRL's: one row a logged step of a success (SFT), two whole conversations of
one task (DPO), as TRL's documentation shows.
"""

from __future__ import annotations

import gc
import gzip
import hashlib
import json
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import polars as pl
    from flywheel.config import Config
    from flywheel.project import Project

__all__ = ["ARMS", "Settings", "flywheel_round", "make_parts", "open_project", "stock_round"]

ARMS = ("flywheel", "sft", "dpo")
ROUNDS = 3
REASON = "a benchmark of learning: every round follows the one before"


@dataclass(frozen=True)
class Settings:
    """What the figures depend on, besides the logs."""

    logs: str
    base: str
    dtype: str
    holdout_share: float
    max_length: int
    max_rows: int
    max_cases: int
    max_new_tokens: int
    eval_batch: int
    train: dict[str, Any]

    def config(self, seed: int, **pairs: int) -> dict[str, Any]:
        """Return flywheel's configuration of one seed; everything not named is a default."""
        train = {"seed": seed, "max_length": self.max_length, "max_rows": self.max_rows, **self.train}
        return {
            "model": {"base": self.base, "dtype": self.dtype},
            "episodes": {"holdout_share": self.holdout_share},
            "pairs": pairs,
            "train": train,
            "eval": {
                "max_cases": self.max_cases,
                "max_new_tokens": self.max_new_tokens,
                "batch_size": self.eval_batch,
            },
        }


# --- logs, part by part --------------------------------------------------------------------------------------------


def _records(path: Path) -> Iterator[tuple[str, bytes]]:
    """Yield (identity, one record as the source writes it): lines, or documents with one simulation each."""
    raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    if ".jsonl" in path.name:
        yield from ((hashlib.sha256(line).hexdigest(), line) for line in raw.splitlines() if line.strip())
        return
    document = json.loads(raw)
    for simulation in document.get("simulations", []):
        text = json.dumps({**document, "simulations": [simulation]}).encode()
        yield hashlib.sha256(json.dumps(simulation, sort_keys=True).encode()).hexdigest(), text


def make_parts(data: Path, folder: Path, parts: int = ROUNDS) -> str:
    """Write the logs of a folder as `part1`, `part2`, ...: each conversation's by its hash; return their hash."""
    whole = hashlib.sha256()
    sources = [p for p in sorted(data.rglob("*")) if p.is_file() and ".json" in p.name and "metadata" not in p.name]
    for path in sources:
        name = "--".join(path.relative_to(data).parts).removesuffix(".gz")
        for key, record in _records(path) if "tools." not in path.name else [("tools", path.read_bytes())]:
            whole.update(key.encode())
            targets = range(1, parts + 1) if key == "tools" else [int(key[:8], 16) % parts + 1]
            for part in targets:
                target = folder / f"part{part}" / (name if ".jsonl" in name or key == "tools" else f"{key[:16]}.json")
                target.parent.mkdir(parents=True, exist_ok=True)
                with target.open("ab") as handle:
                    handle.write(record + b"\n")
    if not sources:
        raise SystemExit(f"no logs in {data}; name their folder with --data")
    return whole.hexdigest()


def open_project(folder: Path, parts: Sequence[Path], settings: Settings, seed: int, **pairs: int) -> Project:
    """Return a project with these parts ingested and everything built."""
    from flywheel.config import Config
    from flywheel.project import Project

    folder.mkdir(parents=True, exist_ok=True)
    project = Project(folder, config=Config.model_validate(settings.config(seed, **pairs)))
    project.ingest(list(parts))
    project.build()
    return project


# --- flywheel ------------------------------------------------------------------------------------------------------


def trained_tokens(project: Project, number: int, sides: tuple[str, ...]) -> int:
    """Return the tokens in the loss of one pass over a round's rows, as far as they fit."""
    from flywheel.io.files import read_rows
    from flywheel.models.chat import ChatFormat
    from flywheel.models.load import load_tokenizer
    from flywheel.registry.registry import DATASET
    from flywheel.stages.train.rows import tokenise

    rows = read_rows(project.registry.folder(number) / DATASET)
    made = tokenise(rows, ChatFormat(load_tokenizer(project.config.model)), sides, project.config.train).rows
    return sum(len(ids) for row in made for name, ids in row.items() if name != "prompt_ids")


def flywheel_round(project: Project, number: int) -> dict[str, Any]:
    """Train and promote a round as `flywheel train` and `promote --force` do; return its adapter and what it cost."""
    from flywheel.io.files import read_json, write_json
    from flywheel.records import METHODS, Plan
    from flywheel.registry.round_files import training_metrics

    started, saved = time.monotonic(), project.folder / f"plan{number}.json"
    if not saved.exists():
        write_json(saved, project.plan(number).model_dump(mode="json"))
    plan = Plan.model_validate(read_json(saved))
    manifest = project.train(number, plan=plan, force=True, reason=REASON)
    if project.registry.champion != number:
        project.promote(number, force=True, reason=REASON)
    epochs = project.config.train.epochs(manifest.method)
    return {
        "adapter": str(project.registry.adapter(number)),
        "method": manifest.method,
        "reason": manifest.method_reason,
        "rows": plan.card.fitting,
        "trained_tokens": round(trained_tokens(project, number, METHODS[manifest.method].dataset.sides) * epochs),
        "steps": len([m for m in training_metrics(project.registry.folder(number)) if "loss" in m]),
        "seconds": round(time.monotonic() - started, 1),
    }


# --- stock TRL -----------------------------------------------------------------------------------------------------


def _conversations(project: Project) -> pl.DataFrame:
    """Return the training tasks' conversations with their logged outcome: episode_id, task_id, good."""
    import polars as pl
    from flywheel.pipeline.build.tables import read_table

    told = (
        read_table(project.store, "rewards")
        .collect()
        .filter((pl.col("signal") == "outcome") & pl.col("step").is_null())
    )
    outcome = told.group_by("episode_id").agg(good=pl.col("score").max() >= 0.5)  # noqa: PLR2004 - outcomes are -1 or 1
    episodes = (
        read_table(project.store, "episodes")
        .collect()
        .filter(pl.col("split") == "train")
        .select("episode_id", "task_id", "tools")
    )
    return episodes.join(outcome, on="episode_id").sort("episode_id")


def _texts(project: Project, chat: Any, episodes: pl.DataFrame, *, last: bool) -> dict[str, list[tuple[str, str]]]:
    """Return each conversation's steps as (prompt, completion) texts; with `last`, only its last step."""
    from flywheel.pipeline.build.tables import read_table
    from flywheel.stages.datasets.context import contexts

    steps = read_table(project.store, "steps").collect()
    steps = steps.join(episodes.select("episode_id"), on="episode_id", how="semi").sort("episode_id", "index")
    wanted = steps.group_by("episode_id", maintain_order=True).last() if last else steps
    prompts = contexts(steps, set(wanted.select("episode_id", "index").iter_rows()))
    tools = dict(episodes.select("episode_id", "tools").iter_rows())
    found: dict[str, list[tuple[str, str]]] = {}
    for episode, index in wanted.select("episode_id", "index").iter_rows():
        given = json.loads(tools[episode]) if tools[episode] is not None else None
        step = prompts[episode, index]
        prompt, made = json.loads(step.prompt), json.loads(step.completion)[0]
        found.setdefault(episode, []).append((chat.prompt(prompt, given), chat.completion(prompt, given, made)))
    return found


def _success_rows(project: Project, chat: Any, chance: random.Random) -> Iterator[dict[str, str]]:
    """Yield every step of every success in random order, pass after pass."""
    import polars as pl

    texts = _texts(project, chat, _conversations(project).filter(pl.col("good")), last=False)
    rows = [{"prompt": p, "completion": c} for episode in sorted(texts) for p, c in texts[episode]]
    while rows:
        yield from chance.sample(rows, len(rows))


def _random_pairs(project: Project, chat: Any, chance: random.Random) -> Iterator[dict[str, str]]:
    """Yield random pairs of a success and a failure of one task, as whole conversations after what they share."""
    import polars as pl

    episodes = _conversations(project)
    texts = {e: "".join(found[0]) for e, found in _texts(project, chat, episodes, last=True).items()}
    sides: dict[str, tuple[list[str], list[str]]] = {}
    for episode, task, good in episodes.select("episode_id", "task_id", pl.col("good")).iter_rows():
        if episode in texts:
            sides.setdefault(task, ([], []))[not good].append(texts[episode])
    mixed = [both for _, both in sorted(sides.items()) if all(both)]
    while mixed:
        good, bad = (chance.choice(side) for side in chance.choice(mixed))
        same = next((i for i, (a, b) in enumerate(zip(good, bad, strict=False)) if a != b), min(len(good), len(bad)))
        cut = good[:same].rfind("<|im_start|>")
        if cut > 0:
            yield {"prompt": good[:cut], "chosen": good[cut:], "rejected": bad[cut:]}


def _within(rows: Iterator[dict[str, str]], tokenizer: Any, tokens: int, longest: int) -> tuple[list[Any], int]:
    """Return as many rows as their trained tokens fit the budget, at least one; a row that is too long is left out."""
    taken: list[dict[str, str]] = []
    used = 0
    for tried, row in enumerate(rows):
        lengths = {k: len(tokenizer(v, add_special_tokens=False)["input_ids"]) for k, v in row.items()}
        trained = sum(n for k, n in lengths.items() if k != "prompt")
        fits = lengths["prompt"] + max(n for k, n in lengths.items() if k != "prompt") <= longest
        if tried > 100 * len(taken) + 1000 or (taken and fits and used + trained > tokens):
            break
        if fits:
            taken.append(row)
            used += trained
    return taken, used


def _stock_arguments(kind: type[Any], config: Config, folder: Path, passes: int, **values: Any) -> Any:
    """Return TRL's settings: flywheel's batch, learning rate and adapter, so that what differs is rows and loss."""
    import torch

    gpu = torch.cuda.is_available()
    return kind(
        output_dir=str(folder), num_train_epochs=1, per_device_train_batch_size=config.train.batch_size // passes,
        gradient_accumulation_steps=passes, max_length=config.train.max_length, seed=config.train.seed,
        data_seed=config.train.seed, use_cpu=not gpu, bf16=gpu and config.model.dtype == "bfloat16", report_to=[],
        logging_steps=10, save_strategy="steps", save_steps=50, save_total_limit=1, disable_tqdm=True,
        dataloader_pin_memory=gpu, **values,
    )  # fmt: skip


def _start(config: Config, start: Path | None) -> Any:
    """Return the base model under a fresh adapter of flywheel's shape, or under an earlier phase's."""
    from flywheel.models.load import load_base
    from peft import LoraConfig, PeftModel, get_peft_model
    from transformers import set_seed

    base = load_base(config.model)
    set_seed(config.train.seed)
    if start is not None:
        return PeftModel.from_pretrained(base, str(start), is_trainable=True)
    lora = config.train.lora
    shape = LoraConfig(r=lora.r, lora_alpha=lora.alpha, target_modules=lora.target_modules, task_type="CAUSAL_LM")
    return get_peft_model(base, shape)


def stock_round(
    arm: str, project: Project, folder: Path, *, number: int, tokens: int, start: Path | None
) -> dict[str, Any]:
    """Train stock TRL on so many tokens, going on from its last phase; return its adapter and what it cost."""
    import torch
    from datasets import Dataset
    from flywheel.models.chat import ChatFormat
    from flywheel.models.load import load_tokenizer
    from transformers.trainer_utils import get_last_checkpoint
    from trl import DPOConfig, DPOTrainer, SFTConfig, SFTTrainer

    began, config = time.monotonic(), project.config
    work, out = folder / f"work{number}", folder / f"adapter{number}"
    tokenizer = load_tokenizer(config.model)
    made = {"sft": _success_rows, "dpo": _random_pairs}[arm]
    endless = made(project, ChatFormat(tokenizer), random.Random(f"{config.train.seed} {number}"))  # noqa: S311 - an order
    rows, used = _within(endless, tokenizer, tokens, config.train.max_length)
    if not rows:
        raise SystemExit(f"{arm}: no row fits")
    together = torch.cuda.is_available() and arm == "sft"  # two whole conversations a row are long
    passes = 1 if together else config.train.batch_size
    kinds: dict[str, tuple[Any, Any, dict[str, Any]]] = {
        "sft": (
            SFTTrainer,
            SFTConfig,
            # computing again what was not kept changes no number, and one row a pass needs no such saving
            {"learning_rate": config.train.learning_rate("sft"), "gradient_checkpointing": passes == 1},
        ),
        "dpo": (
            DPOTrainer,
            DPOConfig,
            {"learning_rate": config.train.learning_rate("dpo"), "beta": config.train.dpo_beta},
        ),
    }
    trainer_kind, config_kind, values = kinds[arm]
    trainer = trainer_kind(
        model=_start(config, start), args=_stock_arguments(config_kind, config, work, passes, **values),
        train_dataset=Dataset.from_list(rows), processing_class=tokenizer,
    )  # fmt: skip
    trainer.train(resume_from_checkpoint=get_last_checkpoint(str(work)) if work.is_dir() else None)
    trainer.model.save_pretrained(out, selected_adapters=["default"])
    steps = trainer.state.global_step
    del trainer
    gc.collect()
    torch.cuda.empty_cache()
    seconds = round(time.monotonic() - began, 1)
    return {
        "adapter": str(out), "method": arm, "rows": len(rows), "trained_tokens": used, "steps": steps,
        "seconds": seconds,
    }  # fmt: skip
