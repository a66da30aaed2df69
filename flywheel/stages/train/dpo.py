"""DPO on preference pairs, through TRL's DPOTrainer with what it lacks for logs.

`losses.dpo` is the formula; `PairLoss` applies it to rows with weights; `train` puts both into a trainer. A pair's
prompt is computed once (`sharing`), the reference's log-probabilities once for all passes and rounds (`reference`).
Every pair has a weight and a probability of being the right way round, and an NLL term on its chosen action; a
demonstration, a row without two sides, has the NLL term alone. Rows arrive tokenised by flywheel, so that prompt and
action meet at the token boundary that generation sees; only the action's tokens are in the loss.

Another loss of TRL's, asked for under [train.trl], is computed by TRL itself, row by row (`_train_by_trl`): without
weights, soft labels and demonstrations, which TRL does not have.

DPO: Rafailov et al. 2023, arXiv 2305.18290. NLL term: Pang et al. 2024, arXiv 2404.19733.
"""

from __future__ import annotations

import contextlib
import math
import time
from typing import Any

import torch

from flywheel.config import TrainConfig
from flywheel.errors import TrainError
from flywheel.extensions import TrainResult, TrainSpec
from flywheel.io.files import read_rows
from flywheel.models.chat import ChatFormat
from flywheel.models.load import load_tokenizer
from flywheel.stages.train import losses
from flywheel.stages.train.kl import KlStop, Probe, slower
from flywheel.stages.train.offline import Items, Logged, Order, collate, prepare_items
from flywheel.stages.train.rows import Tokenised, answers, tokenise
from flywheel.stages.train.sharing.packed import Scorer
from flywheel.stages.train.trl_common import finish, prepare, recorder, take_steps, trl_arguments, with_adapter

_TOLERANCE = 1e-3
_NO_LOSS = -100
_OURS = ("sigmoid", "robust", "ipo")
# What TRL computes from more than sums of log-probabilities: with any of these its own loss is used.
_THEIRS = (
    "loss_weights",
    "use_weighting",
    "ld_alpha",
    "f_divergence_type",
    "label_smoothing",
    "precompute_ref_log_probs",
)


class PairLoss(Logged):
    """The loss of pairs; goes before TRL's DPOTrainer."""

    def of_pairs(self, spec: TrainSpec, rows: list[dict[str, Any]]) -> None:
        """Give the pairs' weights (scaled to a mean of 1), probabilities and weights of the NLL term."""
        cfg = spec.config.train
        total = math.fsum(float(row.get("weight", 1.0)) for row in rows)
        self._weights = [float(row.get("weight", 1.0)) * len(rows) / total for row in rows]
        self._better = [float(row.get("p_better", 1.0)) for row in rows]
        self._nll = [float(row.get("nll_weight", cfg.dpo_sft_weight)) for row in rows]
        self._beta = cfg.dpo_beta
        self._kind = str(cfg.trl.get("loss_type", "sigmoid"))

    def item_loss(self, chosen: list[int], scores: list[list[torch.Tensor]]) -> torch.Tensor:
        """Return the mean over pairs of weight * (DPO + NLL term); of a demonstration it is the NLL term alone."""
        rows = zip(chosen, scores, strict=True)
        terms = [self._pair(i, *sides) if len(sides) > 1 else self._demonstration(i, *sides) for i, sides in rows]
        return torch.stack(terms).mean()

    def _demonstration(self, i: int, good: torch.Tensor) -> torch.Tensor:
        ratio = (good - self.items.reference[i][0].to(good)).detach()
        nll = -good.mean()
        self.note(nll=float(nll.detach()), chosen_drop=-float(ratio.mean()))
        return self._weights[i] * self._nll[i] * nll

    def _pair(self, i: int, good: torch.Tensor, bad: torch.Tensor) -> torch.Tensor:
        ratios = [s - r.to(s) for s, r in zip((good, bad), self.items.reference[i], strict=True)]
        sums = [r.mean() if self._kind == "ipo" else r.sum() for r in ratios]
        kind: Any = self._kind
        loss = losses.dpo(sums[0] - sums[1], beta=self._beta, p_better=self._better[i], kind=kind)
        nll = -good.mean()
        rewards = [self._beta * float(r.detach().sum()) for r in ratios]
        self.note(
            rewards__chosen=rewards[0],
            rewards__rejected=rewards[1],
            rewards__margins=rewards[0] - rewards[1],
            rewards__accuracies=float(rewards[0] > rewards[1]),
            logps__chosen=float(good.detach().sum()),
            logps__rejected=float(bad.detach().sum()),
            nll=float(nll.detach()),
            chosen_drop=-float(ratios[0].detach().mean()),
        )
        return self._weights[i] * (loss + self._nll[i] * nll)


def train(spec: TrainSpec) -> TrainResult:
    """Train one DPO round.

    Raises:
        TrainError: every row is too long, the reference policy is not the one in the round's manifest, or a limit was
            passed.
        ConfigError: a key under [train.trl] is unknown.
    """
    from datasets import Dataset
    from trl import DPOConfig, DPOTrainer

    class Pairs(PairLoss, DPOTrainer):  # type: ignore[misc]
        def _prepare_dataset(self, dataset: Any, *_: Any, **__: Any) -> Any:
            return dataset

    started, cfg = time.monotonic(), spec.config.train
    prepare(spec)
    tokenizer = load_tokenizer(spec.config.model)
    if set(cfg.trl) & set(_THEIRS) or cfg.trl.get("loss_type", "sigmoid") not in _OURS:
        return _train_by_trl(spec, tokenizer, started)
    raw = read_rows(spec.data)
    data = _tokenised(raw, tokenizer, cfg)
    items = prepare_items(spec, with_adapter(spec), [answers(row) for row in data.rows])
    stop = KlStop(spec, Probe(items.scorer, [item[0] for item in items.rows], spec.seed))
    trainer = Pairs(
        model=items.scorer.model,
        args=trl_arguments(
            DPOConfig, spec, items.longest, beta=cfg.dpo_beta, remove_unused_columns=False,
        ),
        train_dataset=Dataset.from_dict({"item": list(range(len(data.rows)))}),
        data_collator=collate,
        processing_class=tokenizer,
        callbacks=[recorder(spec, items.tokens / len(data.rows), stop)],
    )  # fmt: skip
    trainer.model.delete_adapter("ref")  # the reference was scored before the first step: no copy is kept
    nearer = f"raise train.dpo_sft_weight and train.dpo_verified_sft_weight, or {slower(cfg, 'dpo')}"
    trainer.setup(
        spec, items, {"chosen_drop": (cfg.max_chosen_drop, nearer)}, Order(items.rows, cfg.batch_size, spec.seed)
    )
    trainer.of_pairs(spec, [raw[i] for i in data.kept])
    checks = {"rows_refused": float(data.refused), **items.numbers(), **_check_items(spec, items)}
    take_steps(spec, trainer)
    return finish(spec, trainer, stop, tokens=items.tokens, checks=checks, started=started)


def _tokenised(rows: list[dict[str, Any]], tokenizer: Any, cfg: TrainConfig) -> Tokenised:
    data = tokenise(rows, ChatFormat(tokenizer), ("chosen", "rejected"), cfg)
    if not any("chosen_ids" in row for row in data.rows):
        raise TrainError("no pair fits into the round", hint="raise train.max_length (memory grows with it)")
    return data


# --- a loss of TRL's own ----------------------------------------------------------------------------------------------


def _train_by_trl(spec: TrainSpec, tokenizer: Any, started: float) -> TrainResult:
    """Train one DPO round by TRL's own loss; raises what `train` does."""
    from datasets import Dataset
    from trl import DPOConfig, DPOTrainer

    class Plain(DPOTrainer):  # type: ignore[misc]
        def _prepare_dataset(self, dataset: Any, *_: Any, **__: Any) -> Any:
            return dataset

    cfg = spec.config.train
    raw = read_rows(spec.data)
    pairs = [row for row in raw if "chosen" in row]
    data = _tokenised(pairs, tokenizer, cfg)
    if any("chosen_thought" in row or "rejected_thought" in row for row in data.rows):
        raise TrainError(
            "a loss of TRL's own would train thoughts that are not to be learned",
            hint="remove loss_type and other losses from [train.trl], or choose train.method = 'sft'",
        )
    loss = (
        {} if "loss_type" in cfg.trl else {"loss_type": ["sigmoid", "sft"], "loss_weights": [1.0, cfg.dpo_sft_weight]}
    )
    model = with_adapter(spec)
    stop = KlStop(spec, Probe(Scorer(model), [answers(row)[0] for row in data.rows], spec.seed))
    trainer = Plain(
        model=model,
        args=trl_arguments(DPOConfig, spec, data.longest, beta=cfg.dpo_beta, **loss),
        train_dataset=Dataset.from_list(data.rows),
        processing_class=tokenizer,
        callbacks=[recorder(spec, data.tokens / len(data.rows), stop)],
    )
    if spec.reference == "base" or spec.start_adapter is None:
        trainer.model.delete_adapter("ref")  # without a frozen copy TRL switches the adapter off for the reference
    left_out = float(len(raw) - len(pairs))
    checks = {"rows_refused": float(data.refused), "demonstrations_left_out": left_out, **_check_trl(spec, trainer)}
    take_steps(spec, trainer)
    return finish(spec, trainer, stop, tokens=data.tokens, checks=checks, started=started)


# --- the reference, before any step -----------------------------------------------------------------------------------


def _check_items(spec: TrainSpec, items: Items) -> dict[str, float]:
    """Check on one pair that the reference's numbers are those of the policy that the round names.

    They may have been kept from an earlier round; here they are computed once more, in the same way. That trees give
    what the model gives row by row is `sharing.decide`'s to check.
    """
    first = next(i for i, rows in enumerate(items.rows) if len(rows) > 1)
    model = items.scorer.model
    model.eval()
    with torch.inference_mode():
        start = torch.stack([s.sum() for s in items.again(first)]).float().cpu()
        with contextlib.nullcontext() if spec.reference == "parent" else model.disable_adapter():
            named = torch.stack([s.sum() for s in items.again(first)]).float().cpu()
    model.train()
    return _check_reference(spec, torch.stack([s.sum() for s in items.reference[first]]), named, start)


def _check_trl(spec: TrainSpec, trainer: Any) -> dict[str, float]:
    """Check on the first rows that the reference TRL uses is the policy that the round names."""
    first = trainer.train_dataset.select(
        range(min(trainer.args.per_device_train_batch_size, len(trainer.train_dataset)))
    )
    batch = trainer._prepare_inputs(trainer.data_collator(list(first)))  # noqa: SLF001 - TRL has no public way
    trainer.model.eval()
    discount, trainer.ld_alpha = trainer.ld_alpha, None  # a discount of long answers does not concern the policy
    reference = torch.cat(trainer.compute_ref_log_probs(trainer.model, batch)).float()
    trainer.ld_alpha = discount

    def log_probs() -> torch.Tensor:  # by TRL's own forward pass, so that equal policies give equal numbers
        inputs = {k: v for k, v in batch.items() if k != "completion_mask"}
        labels = batch["input_ids"].masked_fill(batch["completion_mask"] == 0, _NO_LOSS)
        with torch.no_grad(), trainer.accelerator.autocast():
            per_token = trainer.model(**inputs, use_cache=False, labels=labels, fused_lm_head=True).log_probs
        summed: torch.Tensor = per_token.sum(1).float()
        return summed

    start = log_probs()
    with contextlib.nullcontext() if spec.reference == "parent" else trainer.model.disable_adapter():
        named = log_probs()
    return _check_reference(spec, reference, named, start)


def _check_reference(
    spec: TrainSpec, reference: torch.Tensor, named: torch.Tensor, start: torch.Tensor
) -> dict[str, float]:
    """Refuse a reference that is not the named policy; where a round starts from it, the loss must be log 2.

    Args:
        spec: the round.
        reference: log-probabilities of actions under the reference that training uses, chosen ones first, (2n,).
        named: the same under the policy that the round names as its reference.
        start: the same under the policy that training starts from.
    """
    gap = float((reference - named).abs().max())
    chosen, rejected = (start - reference).chunk(2)
    margins = spec.config.train.dpo_beta * (chosen - rejected)
    loss, margin = float(-torch.nn.functional.logsigmoid(margins).mean()), float(margins.abs().max())
    same = spec.reference == "parent" or spec.start_adapter is None
    if gap > _TOLERANCE or (same and max(abs(loss - math.log(2)), margin) > _TOLERANCE):
        raise TrainError(
            f"the reference policy is not the {spec.reference}: log-probabilities differ by {gap:.4f}, "
            f"DPO loss at step 0 is {loss:.4f} (log 2 = 0.6931), largest margin {margin:.4f}",
            hint="was the parent's adapter changed, or trained on another base model? Remove .flywheel/cache/reference",
        )
    return {"dpo_loss_step0": round(loss, 6), "dpo_margin_step0": round(margin, 6), "reference_gap": round(gap, 6)}
