"""The arm `dpo` of `nights.py`, a trainer for `train.trainer`: TRL's DPO on random pairs of success and failure.

A round from the base is SFT, for DPO cannot teach calls that a policy never makes. Later ones take two random attempts
at a task, one that probably succeeded and one that probably failed, and the first actions that differ: until the
tokens of the actions are as many as those of the rows that flywheel chose. Start, reference, rates, KL limit and
adapter are flywheel's, so that what differs is which rows are learned from, and the loss.
"""

from __future__ import annotations

import dataclasses
import json
import random
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import polars as pl
from flywheel import Project
from flywheel.io.files import atomic_write, read_rows
from flywheel.models.chat import ChatFormat
from flywheel.models.load import load_tokenizer
from flywheel.pipeline.build.tables import read_table
from flywheel.records import METHODS, canonical_json, content_id
from flywheel.stages.datasets.context import contexts
from flywheel.stages.train import dpo, sft
from flywheel.stages.train.rows import tokenise

if TYPE_CHECKING:
    from flywheel.extensions import TrainResult, TrainSpec

STOCK = {"loss_type": ["sigmoid"], "loss_weights": [1.0]}
GOOD = 0.5  # P(success) from which an attempt counts as a success


def train(spec: TrainSpec) -> TrainResult:
    """Train one round.

    Raises:
        TrainError: no two attempts at a task ended differently, or as TRL's trainer does.
    """
    if spec.start_adapter is None:
        return sft.train(spec)
    chat, settings = ChatFormat(load_tokenizer(spec.config.model)), spec.config.train
    sides = METHODS[spec.method].dataset.sides
    budget = sum(map(_trained, tokenise(read_rows(spec.data), chat, sides, settings).rows))
    pairs: list[dict[str, Any]] = []
    for pair in _random_pairs(spec):
        budget -= _trained(tokenise([pair], chat, ("chosen", "rejected"), settings).rows[0])
        if pairs and budget < 0:
            break
        pairs.append(pair)
    data = spec.work_dir / "random_pairs.jsonl"
    atomic_write(data, "".join(canonical_json(pair) + "\n" for pair in pairs))
    stock = settings.model_copy(update={"trl": STOCK, "dpo_epochs": settings.epochs(spec.method)})
    config = spec.config.model_copy(update={"train": stock})
    return dpo.train(dataclasses.replace(spec, method="dpo", data=data, config=config))


def _trained(row: dict[str, list[int]]) -> int:
    return sum(len(ids) for name, ids in row.items() if name != "prompt_ids")


def _random_pairs(spec: TrainSpec) -> Iterator[dict[str, Any]]:
    """Yield pairs of training tasks, at most as many as there are attempts, the same for the same seed and logs."""
    store = Project(spec.project_dir or ".").store
    trained = read_table(store, "episodes").filter(pl.col("split") == "train").select("episode_id", "task_id", "tools")
    returns = read_table(store, "returns").filter(pl.col("step").is_null() & pl.col("known"))
    episodes = trained.join(returns.select("episode_id", "p_success"), on="episode_id").collect().sort("episode_id")
    steps = read_table(store, "steps").join(episodes.lazy().select("episode_id"), on="episode_id", how="semi").collect()
    shown = contexts(steps, set(steps.select("episode_id", "index").iter_rows()))
    sides: dict[str, tuple[list[str], list[str]]] = {}
    for episode, task, p in episodes.select("episode_id", "task_id", "p_success").iter_rows():
        sides.setdefault(task, ([], []))[p < GOOD].append(episode)
    mixed = [both for _, both in sorted(sides.items()) if all(both)]
    tools = dict(episodes.select("episode_id", "tools").iter_rows())
    chance = random.Random(f"{spec.seed} {spec.round}")  # noqa: S311 - reproducible
    for _ in range(episodes.height if mixed else 0):
        good, bad = (chance.choice(side) for side in chance.choice(mixed))
        for index in range(len(shown)):
            here, there = shown.get((good, index)), shown.get((bad, index))
            if here is None or there is None:
                break
            chosen, rejected = json.loads(here.completion), json.loads(there.completion)
            if _done(chosen) != _done(rejected):
                pair = {"prompt": json.loads(here.prompt), "chosen": chosen, "rejected": rejected}
                pair["tools"] = json.loads(tools[good]) if tools[good] is not None else None
                yield {**pair, "id": content_id(pair)}
                break


def _done(messages: list[dict[str, Any]]) -> list[Any]:
    """Return what an action does: its calls without their ids, or its words."""
    calls: list[Any] = [(call["name"], call["arguments"]) for m in messages for call in m.get("tool_calls") or []]
    return calls or [m.get("content") for m in messages]
