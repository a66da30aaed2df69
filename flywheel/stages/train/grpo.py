"""Policy gradients on logged groups: TOPR weights, a lowered baseline, a penalty to stay near, and a refusal.

A group's members may differ in number and length; each is a logged conversation whose actions are trained and nothing
else. What was logged was not sampled by the policy in training, so its members are weighted by how likely they have
become. Every action has its own advantage, the credit of its step: one above the baseline counts fully, one below it by
the member's min(policy / behaviour, 1). Behaviour log-
probabilities are those of the log where they fit the tokens, else scored again under the adapter that served, at the
temperature of the draw, else unknown, and then a member below the baseline is not trained against. All of a group's
members of one temperature are one tree. Policy and reference are the model at the member's temperature too: that is
what drew the tokens, what a ratio can compare, and what will serve.

TOPR: Le Roux et al. 2025, arXiv 2503.14286. Baseline below the behaviour's mean: Arnal et al. 2025, arXiv 2506.20520.
No division by the group's spread nor by lengths: Liu et al. 2025, arXiv 2503.20783.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from flywheel.config import TrainConfig
from flywheel.errors import TrainError
from flywheel.extensions import TrainResult, TrainSpec
from flywheel.io.files import read_rows
from flywheel.models.chat import ChatFormat
from flywheel.models.load import load_tokenizer, require_safetensors
from flywheel.present import percent
from flywheel.stages.train import losses
from flywheel.stages.train.group_rows import Member, read_groups
from flywheel.stages.train.kl import KlStop, Probe, slower
from flywheel.stages.train.offline import PASS_TOKENS, Items, Logged, Order, collate, prepare_items
from flywheel.stages.train.reference import ReferenceCache, score_once
from flywheel.stages.train.trl_common import finish, prepare, recorder, take_steps, trl_arguments, with_adapter


def behaviour_scores(
    spec: TrainSpec, items: Items, groups: Sequence[Sequence[Member]]
) -> list[list[torch.Tensor | None]]:
    """Return each member's behaviour log-probabilities: logged, scored again under what served it, or None."""
    scored: list[list[torch.Tensor | None]] = [
        [None if m.logged is None else torch.tensor(m.logged) for m in group] for group in groups
    ]
    missing = {(m.behaviour, m.temperature) for group in groups for m in group if m.logged is None}
    for name, temperature in sorted(one for one in missing if one[0] in {"base", *spec.behaviours}):
        places = [
            (g, m)
            for g, ms in enumerate(groups)
            for m, x in enumerate(ms)
            if (x.behaviour, x.temperature) == (name, temperature) and x.logged is None
        ]
        rows = [row for g, m in places for row in groups[g][m].rows]
        with _serving(items.scorer.model, spec.behaviours.get(name)), items.scorer.at(temperature):
            scores = iter(score_once(items.scorer, rows, ReferenceCache(None, ()), PASS_TOKENS).rows)
        for g, m in places:
            scored[g][m] = torch.cat([next(scores) for _ in groups[g][m].rows])
    return scored


@contextlib.contextmanager
def _serving(model: Any, adapter: str | None) -> Iterator[None]:
    """Let a model answer as a served policy: the base, or the base under an adapter's folder."""
    if adapter is None:
        with model.disable_adapter():
            yield
        return
    require_safetensors(Path(adapter))
    trained = [p for p in model.parameters() if p.requires_grad]
    model.load_adapter(adapter, adapter_name="served", is_trainable=False)
    model.set_adapter("served")
    try:
        yield
    finally:
        model.set_adapter("default")
        model.delete_adapter("served")
        for p in trained:
            p.requires_grad_(requires_grad=True)


class GroupLoss(Logged):
    """The loss of logged groups; goes before transformers' Trainer."""

    def of_groups(
        self, cfg: TrainConfig, groups: Sequence[Sequence[Member]], behaviour: Sequence[Sequence[torch.Tensor | None]]
    ) -> None:
        """Give the groups and what their members' behaviour log-probabilities are."""
        self._groups, self._behaviour = groups, behaviour
        self._tau, self._mask_kl = cfg.grpo_kl, cfg.grpo_mask_kl
        sizes = [len(group) for group in groups]
        lengths = [sum(len(r.trained) for r in m.rows) for group in groups for m in group]
        self._scale = 1 / (math.fsum(sizes) / len(sizes) * max(lengths))  # constant: neither length nor size bends it

    def item_loss(self, chosen: list[int], scores: list[list[torch.Tensor]]) -> torch.Tensor:
        """Return the mean over groups of the TOPR loss and the penalty on leaving the reference (k3)."""
        return torch.stack([self._group(i, rows) for i, rows in zip(chosen, scores, strict=True)]).mean()

    def _group(self, i: int, rows: list[torch.Tensor]) -> torch.Tensor:
        following = iter(rows)
        tokens = [torch.cat([next(following) for _ in m.rows]) for m in self._groups[i]]
        advantages = [t.new_tensor(m.by_token) for t, m in zip(tokens, self._groups[i], strict=True)]
        tapers = self._tapers(i, tokens, advantages)
        factors = [torch.where(a < 0, taper * a, a) for a, taper in zip(advantages, tapers, strict=True)]
        pushed = torch.stack([(f * t).sum() for f, t in zip(factors, tokens, strict=True)])
        gradient = -pushed.sum() * self._scale
        away = torch.cat([r.to(s) for r, s in zip(self.items.reference[i], rows, strict=True)]) - torch.cat(rows)
        penalty = losses.k3(away).mean()
        share = torch.cat(factors).detach()
        positive = float(share.clamp(min=0).sum() / share.abs().sum().clamp(min=1e-12))
        every, lead = torch.cat(tokens).detach(), torch.cat(advantages)
        rise = float(every[lead > 0].mean()) if bool((lead > 0).any()) else 0.0
        self.note(penalty=float(penalty.detach()), positive_share=positive, positive_log_prob=rise)
        return gradient + self._tau * penalty

    def _tapers(self, i: int, tokens: list[torch.Tensor], advantages: list[torch.Tensor]) -> torch.Tensor:
        """Return what each member's actions below the baseline count, TOPR's weight; notes the diagnostics.

        Nothing where the member has been driven away far enough already, or where it is not known how far that is.
        """
        behaviour = self._behaviour[i]
        known = torch.tensor([b is not None for b in behaviour], device=tokens[0].device)
        gaps = [
            torch.zeros_like(t) if b is None else (t.detach() - b.to(t)) for t, b in zip(tokens, behaviour, strict=True)
        ]
        ratios = torch.stack([gap.sum() for gap in gaps])
        far = torch.stack([-gap.mean() for gap in gaps]) > self._mask_kl
        below = torch.stack([(a < 0).any() for a in advantages])
        weights = losses.topr_weights(-torch.ones_like(ratios), ratios, known)
        weights = torch.where(far, torch.zeros_like(weights), weights)
        capped = ratios[known].clamp(-losses.RATIO_LIMIT, losses.RATIO_LIMIT).exp()
        self.note(
            ratio=float(capped.mean()) if len(capped) else 0.0,
            ess=losses.effective_share(capped.clamp(max=1.0)),
            ess_lost=1 - losses.effective_share(capped.clamp(max=1.0)),
            ess_uncut=losses.effective_share(capped),
            clipped=float((capped > 1).float().mean()) if len(capped) else 0.0,
            masked=float((below & far).float().mean()),
            behaviour_known=float(known.float().mean()),
        )
        return weights


def start_scores(spec: TrainSpec, items: Items) -> list[list[torch.Tensor]]:
    """Return the rows' log-probabilities under the policy that training starts from; mostly it is the reference."""
    if spec.reference == "parent" or spec.start_adapter is None:
        return items.reference
    items.scorer.model.eval()
    rows = [row for item in items.rows for row in item]
    at = [t for item in items.temperatures for t in item] if items.temperatures else [1.0] * len(rows)
    found = dict[int, torch.Tensor]()
    for temperature in sorted(set(at)):
        places = [i for i, own in enumerate(at) if own == temperature]
        with items.scorer.at(temperature):
            scores = score_once(items.scorer, [rows[i] for i in places], ReferenceCache(None, ()), PASS_TOKENS).rows
        found |= zip(places, scores, strict=True)
    items.scorer.model.train()
    flat = (found[i] for i in range(len(rows)))
    return [[next(flat) for _ in item] for item in items.rows]


def refuse(
    start: Sequence[Sequence[torch.Tensor]],
    groups: Sequence[Sequence[Member]],
    behaviour_scores: Sequence[Sequence[torch.Tensor | None]],
    least: float,
) -> dict[str, float]:
    """Refuse logs that say nothing about the policy that training starts from; return the numbers.

    The overlap, the mean of min(ratio, 1), is one minus the total variation between policy and behaviour; the effective
    sample size alone would not see attempts that are all equally far away.

    Raises:
        TrainError: no member can be trained on, or the effective sample size is below `least`.
    """
    logs, usable = [], 0
    for i, group in enumerate(groups):
        following = iter(start[i])
        for member, behaviour in zip(group, behaviour_scores[i], strict=True):
            policy = torch.cat([next(following) for _ in member.rows])
            usable += behaviour is not None or max(member.by_token) > 0
            if behaviour is not None:
                logs.append(float((policy - behaviour).sum()))
    ratios = torch.tensor(logs).clamp(-losses.RATIO_LIMIT, losses.RATIO_LIMIT).exp()
    kept = ratios.clamp(max=1.0)
    share, overlap = losses.effective_share(kept), float(kept.mean()) if logs else 1.0
    if not usable or min(share, overlap) < least:
        raise TrainError(
            f"the logs are too far from the policy: effective sample size {percent(share)}, overlap {percent(overlap)} "
            f"of {len(logs):,} attempts with known behaviour log-probabilities, train.grpo_min_ess is "
            f"{percent(least, 0)}",
            hint="train on logs of a nearer policy, or by train.method = 'dpo', which needs no behaviour policy",
        )
    known = len(logs) / sum(map(len, groups))
    numbers = {"ess_step0": share, "overlap_step0": overlap, "behaviour_known": known}
    return {"members": float(sum(map(len, groups))), **{name: round(x, 4) for name, x in numbers.items()}}


def train(spec: TrainSpec) -> TrainResult:
    """Train one round on logged groups.

    Raises:
        TrainError: every member is too long, the logs are too far from the policy, or a limit was passed.
        ConfigError: a key under [train.trl] is unknown.
    """
    from datasets import Dataset
    from transformers import Trainer, TrainingArguments

    class Groups(GroupLoss, Trainer):  # type: ignore[misc]
        pass

    started, cfg = time.monotonic(), spec.config.train
    prepare(spec)
    tokenizer = load_tokenizer(spec.config.model)
    groups, refused = read_groups(read_rows(spec.data), ChatFormat(tokenizer), cfg)
    rows = [[r for m in group for r in m.rows] for group in groups]
    drawn_at = [[m.temperature for m in group for _ in m.rows] for group in groups]
    items = prepare_items(spec, with_adapter(spec), rows, temperatures=drawn_at)
    behaviour = behaviour_scores(spec, items, groups)
    near = refuse(start_scores(spec, items), groups, behaviour, cfg.grpo_min_ess)
    checks = {"rows_refused": float(refused), **items.numbers(), **near}
    every, at = [r for group in rows for r in group], [t for group in drawn_at for t in group]
    stop = KlStop(spec, Probe(items.scorer, every, spec.seed, at))
    trainer = Groups(
        model=items.scorer.model,
        args=trl_arguments(TrainingArguments, spec, items.longest, remove_unused_columns=False),
        train_dataset=Dataset.from_dict({"item": list(range(len(groups)))}),
        data_collator=collate,
        callbacks=[recorder(spec, items.tokens / len(groups), stop)],
    )
    most = {"ess_lost": (1 - cfg.grpo_min_ess, slower(cfg, "grpo"))}
    trainer.setup(spec, items, most, Order(items.rows, cfg.batch_size, spec.seed))
    trainer.of_groups(cfg, groups, behaviour)
    take_steps(spec, trainer)
    return finish(spec, trainer, stop, tokens=items.tokens, checks=checks, started=started)
