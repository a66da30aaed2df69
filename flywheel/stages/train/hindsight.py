"""Hindsight distillation: the parent that is shown a hint teaches the one that is not, token by token.

A row is an action that the parent itself took, and what was learned about it afterwards. The advantage of a token is
w_h (log π(a | prompt, hint) - log π(a | prompt)), clipped, plus w_r times the outcome; both log-probabilities are the
parent's, at the temperature of the draw, so no judge is asked. The loss is PPO's clipped surrogate on the logged
tokens with a penalty on leaving the reference (k3). Before the first step the ratio is 1, since the parent drew them.

The signal: OpenClaw-RL, arXiv 2603.10165; self-distillation from feedback: SDPO, arXiv 2601.20802, and SDFT, arXiv
2601.19897. The surrogate: Schulman et al. 2017, arXiv 1707.06347.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import torch

from flywheel.errors import TrainError
from flywheel.extensions import TrainResult, TrainSpec
from flywheel.io.files import read_rows
from flywheel.models.chat import ChatFormat
from flywheel.models.load import load_tokenizer
from flywheel.stages.train import losses
from flywheel.stages.train.kl import KlStop, Probe
from flywheel.stages.train.offline import PASS_TOKENS, Items, Logged, Order, collate, prepare_items
from flywheel.stages.train.reference import ReferenceCache, score_once
from flywheel.stages.train.rows import answer, answers, tokenise
from flywheel.stages.train.sharing.tree import Row
from flywheel.stages.train.trl_common import finish, prepare, recorder, take_steps, trl_arguments, with_adapter

_SHOWN = "\n\nKnown afterwards about the next action: {hint}"


def with_hint(prompt: Sequence[dict[str, Any]], hint: str) -> list[dict[str, Any]]:
    """Return a prompt with a hint at its end: in the last message, since templates differ in who may speak twice."""
    *before, last = prompt
    if last["role"] not in {"user", "tool"}:
        return [*prompt, {"role": "user", "content": _SHOWN.format(hint=hint).strip()}]
    return [*before, {**last, "content": f"{last.get('content') or ''}{_SHOWN.format(hint=hint)}"}]


class HindsightLoss(Logged):
    """The loss of hinted actions; goes before transformers' Trainer."""

    def of_hints(
        self, parent: Sequence[torch.Tensor], advantages: Sequence[torch.Tensor], clip: float, tau: float
    ) -> None:
        """Give each row's log-probabilities under the parent, and the advantages of its tokens."""
        self._parent, self._advantages, self._clip, self._tau = parent, advantages, clip, tau

    def item_loss(self, chosen: list[int], scores: list[list[torch.Tensor]]) -> torch.Tensor:
        """Return the mean over tokens of the surrogate, and of the penalty, of the batch's rows."""
        terms, penalties = [], []
        for i, (tokens,) in zip(chosen, scores, strict=True):
            parent, advantages = self._parent[i].to(tokens), self._advantages[i].to(tokens)
            terms.append(losses.clipped(tokens, parent, advantages, clip=self._clip))
            penalties.append(losses.k3(self.items.reference[i][0].to(tokens) - tokens))
        surrogate, penalty = torch.cat(terms).mean(), torch.cat(penalties).mean()
        ratios = torch.cat([s[0].detach() - self._parent[i].to(s[0]) for i, s in zip(chosen, scores, strict=True)])
        self.note(penalty=float(penalty.detach()), ratio=float(ratios.exp().mean()))
        return surrogate + self._tau * penalty


def train(spec: TrainSpec) -> TrainResult:
    """Train one round on hinted actions.

    Raises:
        TrainError: every row is too long, with its hint or without, or a limit was passed.
        ConfigError: a key under [train.trl] is unknown.
    """
    from datasets import Dataset
    from transformers import Trainer, TrainingArguments

    class Hinted(HindsightLoss, Trainer):  # type: ignore[misc]
        pass

    started, cfg = time.monotonic(), spec.config.train
    prepare(spec)
    chat = ChatFormat(load_tokenizer(spec.config.model))
    rows, plain, hinted, refused = _rows(read_rows(spec.data), chat, spec)
    at = [float(row["temperature"]) for row in rows]
    items = prepare_items(spec, with_adapter(spec), [[row] for row in plain], temperatures=[[t] for t in at])
    parent, shown = _scored(items, plain, at), _scored(items, hinted, at)
    pairs = zip(rows, parent, shown, strict=True)
    advantages = [
        losses.hindsight_advantages(
            before, after, float(row["reward"]),
            hint_weight=cfg.hindsight_weight, reward_weight=cfg.hindsight_reward, limit=cfg.hindsight_limit,
        )
        for row, before, after in pairs
    ]  # fmt: skip
    stop = KlStop(spec, Probe(items.scorer, plain, spec.seed, at))
    trainer = Hinted(
        model=items.scorer.model,
        args=trl_arguments(TrainingArguments, spec, items.longest, remove_unused_columns=False),
        train_dataset=Dataset.from_dict({"item": list(range(len(rows)))}),
        data_collator=collate,
        callbacks=[recorder(spec, items.tokens / len(rows), stop)],
    )
    trainer.setup(spec, items, {}, Order(items.rows, cfg.batch_size, spec.seed))
    trainer.of_hints(parent, advantages, losses.RATIO_CLIP, cfg.grpo_kl)
    every = torch.cat(advantages)
    checks = {
        "rows_refused": float(refused), **items.numbers(),
        "advantage_mean": round(float(every.mean()), 4), "advantage_std": round(float(every.std(correction=0)), 4),
    }  # fmt: skip
    take_steps(spec, trainer)
    return finish(spec, trainer, stop, tokens=items.tokens, checks=checks, started=started)


def _rows(
    raw: Sequence[dict[str, Any]], chat: ChatFormat, spec: TrainSpec
) -> tuple[list[dict[str, Any]], list[Row], list[Row], int]:
    """Return the rows that fit with their hint too, as tokens without and with it, and how many do not."""
    cfg = spec.config.train
    data = tokenise(list(raw), chat, ("completion",), cfg)
    rows, plain, hinted = [], [], []
    for place, tokens in zip(data.kept, data.rows, strict=True):
        row, thought, action = raw[place], tokens.get("completion_thought", []), tokens["completion_ids"]
        before = chat.ids(chat.prompt(with_hint(row["prompt"], row["hint"]), row["tools"]))
        if len(before) + len(thought) + len(action) <= cfg.max_length:
            rows.append(row)
            plain += answers(tokens)
            hinted.append(answer(before + thought, action))
    if not rows:
        raise TrainError("no action fits together with its hint", hint="raise train.max_length (memory grows with it)")
    return rows, plain, hinted, len(raw) - len(rows)


def _scored(items: Items, rows: Sequence[Row], temperatures: Sequence[float]) -> list[torch.Tensor]:
    """Return the rows' log-probabilities under the policy that training starts from, each at its temperature."""
    scores: dict[int, torch.Tensor] = {}
    items.scorer.model.eval()
    for temperature in sorted(set(temperatures)):
        places = [i for i, own in enumerate(temperatures) if own == temperature]
        with items.scorer.at(temperature):
            found = score_once(items.scorer, [rows[i] for i in places], ReferenceCache(None, ()), PASS_TOKENS).rows
        scores |= zip(places, found, strict=True)
    items.scorer.model.train()
    return [scores[i] for i in range(len(rows))]
