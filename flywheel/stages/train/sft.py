"""SFT on what succeeded, through TRL's SFTTrainer: the loss is on action tokens only.

Steps that continue one another are one sequence with several trained actions. Each trained token has its row's
weight; a step's loss is their weighted sum over the number of the step's trained tokens. What sequences of a pass
share is computed once, and logits exist for trained tokens alone (`sharing`).

DFT (`loss_type = "dft"` under [train.trl]) weighs a token by its probability: Wu et al. 2025, arXiv 2508.05629.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from flywheel.extensions import TrainResult, TrainSpec
from flywheel.io.files import read_rows
from flywheel.models.chat import ChatFormat
from flywheel.models.load import load_tokenizer
from flywheel.stages.train.kl import KlStop, Probe
from flywheel.stages.train.offline import Logged, Order, collate, prepare_items
from flywheel.stages.train.process.distributed import world
from flywheel.stages.train.rows import Demonstration, answers, demonstrations, tokenise
from flywheel.stages.train.trl_common import finish, prepare, recorder, take_steps, trl_arguments, with_adapter

_NO_LOSS = -100


class ActionNll(Logged):
    """The negative log-likelihood of actions; goes before TRL's SFTTrainer."""

    def of_demonstrations(self, shown: Sequence[Demonstration], kind: str) -> None:
        """Give the weight of each trained token, and the loss: "nll" or "dft"."""
        self._weights, self._kind = [torch.tensor(one.weights) for one in shown], kind
        self._tokens: torch.Tensor | int | None = None

    def compute_loss(self, model: Any, inputs: dict[str, Any], *args: Any, **kwargs: Any) -> torch.Tensor:
        """Score the sequences of a pass; transformers counts the trained tokens of the step, of all its processes."""
        self._tokens = kwargs.get("num_items_in_batch")
        return super().compute_loss(model, inputs, *args, **kwargs)

    def item_loss(self, chosen: list[int], scores: list[list[torch.Tensor]]) -> torch.Tensor:
        """Return the weighted sum over trained tokens by their number in the step; in this pass if that is unknown."""
        own = [-score for (score,) in scores]
        every = torch.cat(own).detach()
        self.note(nll=float(every.mean()))
        if self._kind == "dft":
            own = [nll * torch.exp(-nll.detach()) for nll in own]
        total = torch.stack([(nll * self._weights[i].to(nll)).sum() for i, nll in zip(chosen, own, strict=True)]).sum()
        if self._tokens is None:
            return total / len(every)
        shared_out = world() if self.args.average_tokens_across_devices else 1  # type: ignore[attr-defined]
        return total / self._tokens * shared_out


def _counted(shown: Sequence[Demonstration]) -> Callable[[Sequence[dict[str, int]]], dict[str, Any]]:
    """Return what adds a label for each trained token to the positions of a batch: transformers counts them."""

    def collated(rows: Sequence[dict[str, int]]) -> dict[str, Any]:
        counts = [len(shown[row["item"]].weights) for row in rows]
        labels = torch.full((len(rows), 1 + max(counts)), _NO_LOSS)  # the first counts for none
        for place, count in enumerate(counts):
            labels[place, 1 : 1 + count] = 1
        return {**collate(rows), "labels": labels}

    return collated


def train(spec: TrainSpec) -> TrainResult:
    """Train one SFT round.

    Raises:
        TrainError: every row is too long.
        ConfigError: a key under [train.trl] is unknown.
    """
    from datasets import Dataset
    from trl import SFTConfig, SFTTrainer

    class Shown(ActionNll, SFTTrainer):  # type: ignore[misc]
        def _prepare_dataset(self, dataset: Any, *_: Any, **__: Any) -> Any:
            return dataset

    started, cfg = time.monotonic(), spec.config.train
    prepare(spec)
    tokenizer = load_tokenizer(spec.config.model)
    raw = read_rows(spec.data)
    data = tokenise(raw, ChatFormat(tokenizer), ("completion",), cfg)
    kept = [raw[i] for i in data.kept]
    shown = demonstrations(
        data.rows, [float(row.get("weight", 1.0)) for row in kept], [row.get("times", 1) for row in kept]
    )
    rate = cfg.learning_rate("sft")  # of the rows of a step, however few sequences they are
    spec = _by_sequences(spec, len(data.rows), len(shown))
    shown = [one for one in shown for _ in range(one.times)]
    rows = [one.row for one in shown]
    arguments = trl_arguments(
        SFTConfig, spec, max(len(row.ids) for row in rows), learning_rate=rate, remove_unused_columns=False
    )
    order = Order([[row] for row in rows], 1, spec.seed)
    passes = [[rows[i] for i in some] for some in _runs(list(order), arguments.per_device_train_batch_size)]
    items = prepare_items(spec, with_adapter(spec), [[row] for row in rows], together=passes, reference=False)
    stop = KlStop(spec, Probe(items.scorer, [r for row in data.rows for r in answers(row)], spec.seed))
    trainer = Shown(
        model=items.scorer.model,
        args=arguments,
        train_dataset=Dataset.from_dict({"item": list(range(len(rows)))}),
        data_collator=_counted(shown),
        processing_class=tokenizer,
        callbacks=[recorder(spec, items.tokens / len(rows), stop)],
    )
    trainer.setup(spec, items, {}, order)
    trainer.of_demonstrations(shown, arguments.loss_type)
    checks = {"rows_refused": float(data.refused), "sequences": float(len(rows)), **items.numbers()}
    take_steps(spec, trainer)
    return finish(spec, trainer, stop, tokens=items.tokens, checks=checks, started=started)


def _runs(order: Sequence[int], size: int) -> list[Sequence[int]]:
    return [order[at : at + size] for at in range(0, len(order), size)]


def _by_sequences(spec: TrainSpec, rows: int, sequences: int) -> TrainSpec:
    """Return the round with the sequences of a pass that hold `batch_size` rows on average, as its batch size.

    A sequence trains several steps of a conversation. Were it to count as one row, a round would take fewer and larger
    optimiser steps the more its rows continue one another. What the processes cannot share out stays as it was asked
    for, and is refused where that cannot be shared either.
    """
    train = spec.config.train
    least = max(1, round(train.batch_size * sequences / rows))
    shared = (n for n in range(least, train.batch_size) if n * train.accumulation % world() == 0)
    by_sequences = train.model_copy(update={"batch_size": next(shared, train.batch_size)})
    return dataclasses.replace(spec, config=spec.config.model_copy(update={"train": by_sequences}))
