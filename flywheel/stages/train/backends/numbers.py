"""What a system's first step must show, and what its adapter is, both by our own scoring of the rows' tokens.

Equal numbers mean that the system reads the same tokens, trains the same ones, started from the round's start policy
and compares it with the round's reference. They are compared while it trains, so that a wrong one ends it early.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from flywheel.errors import TrainError
from flywheel.models.load import require_safetensors, weights_type
from flywheel.records import TokenRow
from flywheel.stages.train.backends.job import Item, Job
from flywheel.stages.train.kl import Probe, slower
from flywheel.stages.train.sharing.packed import Scorer
from flywheel.stages.train.sharing.tree import Row
from flywheel.stages.train.trl_common import with_adapter

_APART = {"float32": 2e-3}  # of a number, per unit of its size, at least of 1; other types round more
_ROUNDED = 3e-2


@dataclass(frozen=True)
class _Scored:
    """One row's sides: sums of log-probabilities under the start policy and the reference, and trained tokens."""

    start: list[float]
    reference: list[float]
    tokens: int
    label: bool | None


def first_step(job: Job) -> dict[str, float]:
    """Return the numbers of the batch that is trained first, before it is trained, by the names of TRL's logs."""
    train = job.spec.config.train
    items = job.items[: train.batch_size * train.accumulation]
    scored = _scored(job, items)
    beta = train.dpo_beta
    if job.form == "sft":
        loss = -math.fsum(s.start[0] for s in scored) / sum(s.tokens for s in scored)
        return {"loss": loss, "logps/chosen": _mean([s.start[0] for s in scored])}
    if job.form == "unpaired":
        good, bad = ([s for s in scored if s.label is label] for label in (True, False))
        weights = [job.desirable if s.label else job.undesirable for s in scored]
        numbers = {"chosen": [(s, 0) for s in good], "rejected": [(s, 0) for s in bad]}
        equal = all(s.start == s.reference for s in scored)
        loss_of = {"loss": _of_step(job, weights) / 2} if equal else {}
    else:
        numbers = {"chosen": [(s, 0) for s in scored], "rejected": [(s, 1) for s in scored]}
        loss_of = {"loss": _of_step(job, [_preference(s, beta) for s in scored])}
    whole = len(scored) <= train.batch_size or len(scored) % train.batch_size == 0
    means = {}
    for side, rows in numbers.items():
        if rows and (job.form == "unpaired" or whole or not job.backend.by_batch):
            means[f"logps/{side}"] = _mean([s.start[k] for s, k in rows])
            means[f"rewards/{side}"] = beta * _mean([s.start[k] - s.reference[k] for s, k in rows])
    return {**loss_of, **means}


def _of_step(job: Job, by_row: Sequence[float]) -> float:
    """Return the mean over a step's rows; in Transformers' trainers it is the mean of its batches' means."""
    size = job.spec.config.train.batch_size if job.backend.by_batch else len(by_row)
    return _mean([_mean(by_row[at : at + size]) for at in range(0, len(by_row), size)])


def _mean(numbers: Sequence[float]) -> float:
    return math.fsum(numbers) / len(numbers)


def _preference(scored: _Scored, beta: float) -> float:
    (good, bad), (good_before, bad_before) = scored.start, scored.reference
    return math.log1p(math.exp(-beta * ((good - good_before) - (bad - bad_before))))


def refuse_other(job: Job, expected: Mapping[str, float], row: Mapping[str, Any]) -> dict[str, float]:
    """Return the numbers of a system's first step that we know, or refuse it.

    Raises:
        TrainError: one differs from ours, or it logs none of them.
    """
    shared = {name: float(row[name]) for name in expected if isinstance(row.get(name), (int, float))}
    if not shared:
        raise TrainError(
            f"{job.backend.title} logs none of {', '.join(expected)} for its first step: it cannot be checked",
            hint="see docs/backends.md",
        )
    apart = _APART.get(weights_type(job.spec.config.model), _ROUNDED)
    for name, value in shared.items():
        if abs(value - expected[name]) > apart * max(1.0, abs(expected[name])):
            raise TrainError(
                f"step 0: {job.backend.title} has {name} = {value:.4g}, the round's own scoring {expected[name]:.4g}",
                hint="it reads other tokens, trains others, or has another start or reference policy than the plan: "
                "see docs/backends.md",
            )
    return shared


def measure(job: Job, adapter: Path) -> tuple[float, dict[str, float]]:
    """Return how far an adapter is from the round's start, in nats a token, and what it makes of the first batch.

    Raises:
        TrainError: it does not fit the base, holds infinities, changes nothing, or went too far.
    """
    from peft import load_peft_weights, set_peft_model_state_dict

    require_safetensors(adapter)
    train = job.spec.config.train
    model = with_adapter(job.spec).eval()
    rows = [_row(side) for item in job.items for side in item.sides]
    items = job.items[: train.batch_size * train.accumulation]
    probe, scorer = Probe(Scorer(model), rows, job.spec.seed), Scorer(model)
    weights = load_peft_weights(str(adapter), device="cpu")
    if not all(bool(tensor.isfinite().all()) for tensor in weights.values()):
        raise TrainError(f"{job.backend.title} left an adapter with weights that are not numbers", hint=_slower(job))
    fitted = set_peft_model_state_dict(model, weights)
    if fitted.unexpected_keys or any("lora_" in key for key in fitted.missing_keys):
        raise TrainError(
            f"the adapter of {job.backend.title} is not of the layers that the round's adapter has",
            hint="let it train train.lora.target_modules with train.lora.r",
        )
    kl = probe.kl()
    if kl <= 0:
        raise TrainError(
            f"the adapter of {job.backend.title} acts as the policy that it started from", hint="see train.log"
        )
    if kl > job.limit:
        job.refused(kl)
        raise TrainError(
            f"{job.backend.title} went {kl:.3g} nats a token from the parent, the limit is {job.limit:g}: it does not "
            "stop there itself",
            hint=f"{_slower(job)} or train.max_steps, or raise train.max_kl: then it is not trained again",
        )
    with torch.inference_mode():
        after = [[float(s.sum()) for s in scorer.plain([_row(side) for side in item.sides])] for item in items]
    good = [sums[0] for item, sums in zip(items, after, strict=True) if item.label is not False]
    return float(f"{kl:.6g}"), {"logps_chosen_after": _mean(good)} if good else {}


def _slower(job: Job) -> str:
    return slower(job.spec.config.train, job.spec.method)


def _scored(job: Job, items: Sequence[Item]) -> list[_Scored]:
    """Score rows under the start policy and the reference; the model is let go of, for the system needs the memory."""
    model = with_adapter(job.spec).eval()
    scorer, scored = Scorer(model), []
    same = job.spec.start_adapter is None or job.spec.reference != "base"
    with torch.inference_mode():
        for item in items:
            rows = [_row(side) for side in item.sides]
            start = [float(s.sum()) for s in scorer.plain(rows)]
            reference = start
            if not same:
                with model.disable_adapter():
                    reference = [float(s.sum()) for s in scorer.plain(rows)]
            scored.append(_Scored(start, reference, len(rows[0].trained), item.label))
    del model, scorer
    with contextlib.suppress(RuntimeError):
        torch.cuda.empty_cache()
    return scored


def _row(side: TokenRow) -> Row:
    first = len(side.prompt_ids)
    return Row(tuple(side.ids), tuple((first + start, first + end) for start, end in side.windows))
