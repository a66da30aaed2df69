"""KTO on single logged actions that were good or bad: no pair is needed.

The loss needs the batch's KL to the reference, estimated on actions that do not belong to their prompts; here each
prompt's is the next row's action, fixed for the round, so that it is one more branch of the prompt and its reference is
computed once. The rarer label is weighted up until (desirable weight) / (undesirable weight) is within [1, 4/3].

KTO: Ethayarajh et al. 2024, arXiv 2402.01306.
"""

from __future__ import annotations

import math
import time
from typing import Any

import torch

from flywheel.errors import TrainError
from flywheel.extensions import TrainResult, TrainSpec
from flywheel.io.files import read_rows
from flywheel.models.chat import ChatFormat
from flywheel.models.load import load_tokenizer
from flywheel.stages.train import losses
from flywheel.stages.train.kl import KlStop, Probe, slower
from flywheel.stages.train.offline import Logged, Order, collate, prepare_items
from flywheel.stages.train.rows import answer, context, tokenise
from flywheel.stages.train.sharing.tree import Row
from flywheel.stages.train.trl_common import finish, prepare, recorder, take_steps, trl_arguments, with_adapter

_HIGHEST = 4 / 3


def balance(labels: list[bool], weights: list[float]) -> list[float]:
    """Return weights scaled by label so that desirable over undesirable weight is within [1, 4/3], with a mean of 1.

    Raises:
        TrainError: all rows have one label, or no weight.
    """
    good = math.fsum(w for w, label in zip(weights, labels, strict=True) if label)
    bad = math.fsum(w for w, label in zip(weights, labels, strict=True) if not label)
    if good <= 0 or bad <= 0:
        raise TrainError("KTO needs good and bad actions, these rows are all of one kind", hint="train.method = 'sft'")
    up, down = max(1.0, bad / good), max(1.0, good / bad / _HIGHEST)
    scaled = [w * (up if label else down) for w, label in zip(weights, labels, strict=True)]
    total = math.fsum(scaled)
    return [w * len(scaled) / total for w in scaled]


def action_rows(rows: list[dict[str, list[int]]]) -> list[list[Row]]:
    """Return each action's row, and the row of its prompt with the next row's action."""
    items = []
    for row, other in zip(rows, [*rows[1:], *rows[:1]], strict=True):
        own = answer(context(row, "completion"), row["completion_ids"])
        others = answer(row["prompt_ids"] + other.get("completion_thought", []), other["completion_ids"])
        items.append([own, others])
    return items


class ActionLoss(Logged):
    """The loss of single actions; goes before transformers' Trainer."""

    def of_actions(self, beta: float, labels: list[bool], weights: list[float]) -> None:
        """Give each row's label and weight."""
        self._beta, self._labels, self._weights = beta, labels, weights

    def item_loss(self, chosen: list[int], scores: list[list[torch.Tensor]]) -> torch.Tensor:
        """Return the mean weighted loss of a batch; its KL is estimated on the batch's foreign actions."""
        pairs = list(zip(chosen, scores, strict=True))
        ratios, foreign = (
            torch.stack([(s[k] - self.items.reference[i][k].to(s[k])).sum() for i, s in pairs]) for k in (0, 1)
        )
        drift = foreign.detach().mean().clamp(min=0)
        desirable = torch.tensor([self._labels[i] for i in chosen], device=ratios.device)
        terms = losses.kto(ratios, desirable, drift, beta=self._beta)
        good = [
            float((s[0] - self.items.reference[i][0].to(s[0])).detach().mean()) for i, s in pairs if self._labels[i]
        ]
        self.note(drift=float(drift), **({"chosen_drop": -math.fsum(good) / len(good)} if good else {}))
        for name, side in (("rewards/desirable", desirable), ("rewards/undesirable", ~desirable)):
            if bool(side.any()):
                self.note(**{name: self._beta * float(ratios.detach()[side].mean())})
        return (terms * ratios.new_tensor([self._weights[i] for i in chosen])).mean()


def train(spec: TrainSpec) -> TrainResult:
    """Train one KTO round.

    Raises:
        TrainError: every row is too long or of one label, or a limit was passed.
        ConfigError: a key under [train.trl] is unknown.
    """
    from datasets import Dataset
    from transformers import Trainer, TrainingArguments

    class Actions(ActionLoss, Trainer):  # type: ignore[misc]
        pass

    started, cfg = time.monotonic(), spec.config.train
    prepare(spec)
    tokenizer = load_tokenizer(spec.config.model)
    raw = read_rows(spec.data)
    data = tokenise(raw, ChatFormat(tokenizer), ("completion",), cfg)
    kept: list[dict[str, Any]] = [raw[i] for i in data.kept]
    labels = [bool(row["label"]) for row in kept]
    weights = balance(labels, [float(row.get("weight", 1.0)) for row in kept])
    items = prepare_items(spec, with_adapter(spec), action_rows(data.rows))
    stop = KlStop(spec, Probe(items.scorer, [item[0] for item in items.rows], spec.seed))
    trainer = Actions(
        model=items.scorer.model,
        args=trl_arguments(TrainingArguments, spec, items.longest, remove_unused_columns=False),
        train_dataset=Dataset.from_dict({"item": list(range(len(kept)))}),
        data_collator=collate,
        callbacks=[recorder(spec, items.tokens / len(kept), stop)],
    )
    most = {"chosen_drop": (cfg.max_chosen_drop, f"{slower(cfg, 'kto')} or raise train.dpo_beta")}
    trainer.setup(spec, items, most, Order(items.rows, cfg.batch_size, spec.seed))
    trainer.of_actions(cfg.dpo_beta, labels, weights)
    checks = {"rows_refused": float(data.refused), **items.numbers()}
    take_steps(spec, trainer)
    return finish(spec, trainer, stop, tokens=items.tokens, checks=checks, started=started)
