"""DPO on preference pairs, through TRL's DPOTrainer with what it lacks for logs.

A pair's prompt is computed once (`packed`), the reference's log-probabilities once for all passes and rounds
(`reference`). Every pair has a weight and a probability of being the right way round, and an NLL term on its chosen
action; a demonstration, a row without two sides, has the NLL term alone. Rows arrive tokenised by flywheel, so that
prompt and action meet at the token boundary that generation sees; only the action's tokens are in the loss. A loss of
TRL's that is asked for under [train.trl] is TRL's own, row by row.

DPO: Rafailov et al. 2023, arXiv 2305.18290. NLL term: Pang et al. 2024, arXiv 2404.19733.
"""

from __future__ import annotations

import contextlib
import math
import time
from typing import TYPE_CHECKING, Any

from flywheel.errors import TrainError
from flywheel.extensions import TrainResult, TrainSpec
from flywheel.io.files import read_rows
from flywheel.models.chat import ChatFormat
from flywheel.models.load import load_tokenizer
from flywheel.stages.train import losses
from flywheel.stages.train.offline import Items, Logged, Order, collate, prepare_items
from flywheel.stages.train.process.checkpoints import newest
from flywheel.stages.train.rows import tokenise
from flywheel.stages.train.sharing.tree import Row
from flywheel.stages.train.trl_common import finish, prepare, recorder, trl_arguments, with_adapter

if TYPE_CHECKING:
    import torch

__all__ = ["PairLoss", "check_reference", "pair_rows", "train"]

_TOLERANCE = 1e-3
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


def pair_rows(row: dict[str, list[int]]) -> list[Row]:
    """Return a tokenised pair as its chosen and its rejected row; a demonstration beside pairs as one."""
    prompt = row["prompt_ids"]
    sides = [row["completion_ids"]] if "completion_ids" in row else [row["chosen_ids"], row["rejected_ids"]]
    return [Row((*prompt, *ids), ((len(prompt), len(prompt) + len(ids)),)) for ids in sides]


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
        import torch

        both = zip(chosen, scores, strict=True)
        found = [self._pair(i, *sides) if len(sides) > 1 else self._demonstration(i, *sides) for i, sides in both]
        return torch.stack(found).mean()

    def _demonstration(self, i: int, good: torch.Tensor) -> torch.Tensor:
        ratio = (good - self.items.reference[i][0].to(good)).detach()
        nll = -good.mean()
        self.note(nll=float(nll.detach()), chosen_drop=-float(ratio.mean()), kl=float(ratio.square().mean()) / 2)
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
            kl=float(ratios[0].detach().square().mean()) / 2,
        )
        return self._weights[i] * (loss + self._nll[i] * nll)


def limits(spec: TrainSpec) -> dict[str, tuple[float, str]]:
    """Return what a pair round must not pass."""
    cfg = spec.config.train
    return {
        "chosen_drop": (
            cfg.max_chosen_drop,
            "raise train.dpo_sft_weight and train.dpo_verified_sft_weight, or lower train.dpo_learning_rate",
        ),
        "kl": (cfg.max_kl, "lower the learning rate or raise train.dpo_beta"),
    }


def train(spec: TrainSpec) -> TrainResult:
    """Train one DPO round.

    Raises:
        TrainError: every row is too long, the reference policy is not what the round's manifest says, or a limit was
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
    raw = read_rows(spec.data)
    pairs = [row for row in raw if "chosen" in row]
    plain = bool(set(cfg.trl) & set(_THEIRS)) or cfg.trl.get("loss_type", "sigmoid") not in _OURS
    data = tokenise(pairs if plain else raw, ChatFormat(tokenizer), ("chosen", "rejected"), cfg)
    if not any("chosen_ids" in row for row in data.rows):
        raise TrainError("no pair fits into the round", hint="raise train.max_length (memory grows with it)")
    model = with_adapter(spec)
    if plain:
        from flywheel.stages.train.dpo_plain import train_plain

        return train_plain(spec, model, tokenizer, data, started, left_out=len(raw) - len(pairs))
    items = prepare_items(spec, model, [pair_rows(row) for row in data.rows])
    trainer = Pairs(
        model=model,
        args=trl_arguments(
            DPOConfig, spec, items.longest, learning_rate=cfg.dpo_learning_rate, beta=cfg.dpo_beta,
            remove_unused_columns=False,
        ),
        train_dataset=Dataset.from_dict({"item": list(range(len(data.rows)))}),
        data_collator=collate,
        processing_class=tokenizer,
        callbacks=[recorder(spec, items.tokens / len(data.rows))],
    )  # fmt: skip
    trainer.model.delete_adapter("ref")  # the reference was scored before the first step: no copy is kept
    trainer.setup(items, limits(spec), Order(items.rows, cfg.batch_size, spec.seed))
    trainer.of_pairs(spec, [raw[i] for i in data.kept])
    checks = {"rows_refused": float(data.refused), **items.numbers(), **check_reference(spec, items)}
    trainer.train(resume_from_checkpoint=newest(spec))
    steps = trainer.state.global_step
    return finish(spec, trainer.model, steps=steps, tokens=items.tokens, checks=checks, started=started)


def check_reference(spec: TrainSpec, items: Items) -> dict[str, float]:
    """Check on a pair, before any step, that the reference's numbers are those of the policy that the round names.

    They may have been kept from an earlier round; here they are computed once more, in the same way. Where the two
    sides start equal the loss is log 2. That trees give what the model gives row by row is `sharing`'s to check.
    """
    import torch

    first = next(i for i, rows in enumerate(items.rows) if len(rows) > 1)
    model, parent = items.scorer.model, spec.reference == "parent"
    model.eval()
    with torch.inference_mode():
        start = torch.stack([s.sum() for s in items.again(first)]).float().cpu()
        with contextlib.nullcontext() if parent else model.disable_adapter():
            named = torch.stack([s.sum() for s in items.again(first)]).float().cpu()
    model.train()
    reference = torch.stack([s.sum() for s in items.reference[first]])
    gap = float((reference - named).abs().max())
    margin = float(spec.config.train.dpo_beta * ((start - reference)[0] - (start - reference)[1]))
    loss = float(losses.dpo(torch.tensor(margin), beta=1.0))
    same = parent or spec.start_adapter is None
    if gap > _TOLERANCE or (same and max(abs(loss - math.log(2)), abs(margin)) > _TOLERANCE):
        raise TrainError(
            f"the reference policy is not the {spec.reference}: log-probabilities differ by {gap:.4f}, "
            f"DPO loss at step 0 is {loss:.4f} (log 2 = 0.6931), margin {margin:.4f}",
            hint="was the parent's adapter changed, or trained on another base model? Remove .flywheel/cache/reference",
        )
    return {"dpo_loss_step0": round(loss, 6), "dpo_margin_step0": round(abs(margin), 6), "reference_gap": round(gap, 6)}
