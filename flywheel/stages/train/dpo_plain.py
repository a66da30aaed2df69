"""DPO with a loss of TRL's own (`train.trl.loss_type` and the like): TRL's forward passes, row by row.

Without weights, soft labels and demonstrations, which TRL does not have; the prompt is computed for each side. The
reference policy is checked before the first step: where it is the policy that training starts from, the loss must be
log 2 and every margin 0.
"""

from __future__ import annotations

import contextlib
import math
from typing import TYPE_CHECKING, Any

from flywheel.errors import TrainError
from flywheel.extensions import TrainResult, TrainSpec
from flywheel.stages.train.process.checkpoints import newest
from flywheel.stages.train.trl_common import finish, recorder, trl_arguments

if TYPE_CHECKING:
    from flywheel.stages.train.rows import Tokenised

__all__ = ["train_plain"]

_TOLERANCE = 1e-3
_NO_LOSS = -100


def train_plain(
    spec: TrainSpec, model: Any, tokenizer: Any, data: Tokenised, started: float, *, left_out: int
) -> TrainResult:
    """Train one DPO round by TRL's own loss; raises what `dpo.train` does."""
    from datasets import Dataset
    from trl import DPOConfig, DPOTrainer

    class Plain(DPOTrainer):  # type: ignore[misc]
        def _prepare_dataset(self, dataset: Any, *_: Any, **__: Any) -> Any:
            return dataset

    cfg = spec.config.train
    loss = (
        {} if "loss_type" in cfg.trl else {"loss_type": ["sigmoid", "sft"], "loss_weights": [1.0, cfg.dpo_sft_weight]}
    )
    trainer = Plain(
        model=model,
        args=trl_arguments(
            DPOConfig, spec, data.longest, learning_rate=cfg.dpo_learning_rate, beta=cfg.dpo_beta, **loss
        ),
        train_dataset=Dataset.from_list(data.rows),
        processing_class=tokenizer,
        callbacks=[recorder(spec, data.tokens / len(data.rows))],
    )
    if spec.reference == "base" or spec.start_adapter is None:
        trainer.model.delete_adapter("ref")  # without a frozen copy TRL switches the adapter off for the reference
    checks = {
        "rows_refused": float(data.refused),
        "demonstrations_left_out": float(left_out),
        **_check_reference(trainer, spec),
    }
    trainer.train(resume_from_checkpoint=newest(spec))
    steps = trainer.state.global_step
    return finish(spec, trainer.model, steps=steps, tokens=data.tokens, checks=checks, started=started)


def _check_reference(trainer: Any, spec: TrainSpec) -> dict[str, float]:
    """Check on the first rows, before any step, that the reference TRL uses is the policy that the round names.

    The reference's log-probabilities come from the trainer; those of the policy it should be (the start policy, or the
    base with every adapter off) are computed beside them. Where the two sides start equal the loss is log 2.
    """
    import torch

    first = trainer.train_dataset.select(
        range(min(trainer.args.per_device_train_batch_size, len(trainer.train_dataset)))
    )
    batch = trainer._prepare_inputs(trainer.data_collator(list(first)))  # noqa: SLF001 - TRL has no public way
    trainer.model.eval()
    discount, trainer.ld_alpha = trainer.ld_alpha, None  # a discount of long answers is no matter of the policy's
    reference = torch.cat(trainer.compute_ref_log_probs(trainer.model, batch)).float()
    trainer.ld_alpha = discount
    start = _log_probs(trainer, batch)
    parent = spec.reference == "parent"
    with contextlib.nullcontext() if parent else trainer.model.disable_adapter():
        named = _log_probs(trainer, batch)
    gap = float((reference - named).abs().max())
    chosen, rejected = (start - reference).chunk(2)
    margins = spec.config.train.dpo_beta * (chosen - rejected)
    loss, margin = float(-torch.nn.functional.logsigmoid(margins).mean()), float(margins.abs().max())
    same = parent or spec.start_adapter is None
    if gap > _TOLERANCE or (same and max(abs(loss - math.log(2)), margin) > _TOLERANCE):
        raise TrainError(
            f"the reference policy is not the {spec.reference}: log-probabilities differ by {gap:.4f}, "
            f"DPO loss at step 0 is {loss:.4f} (log 2 = 0.6931), largest margin {margin:.4f}",
            hint="was the parent's adapter changed, or trained on another base model?",
        )
    return {"dpo_loss_step0": round(loss, 6), "dpo_margin_step0": round(margin, 6), "reference_gap": round(gap, 6)}


def _log_probs(trainer: Any, batch: dict[str, Any]) -> Any:
    """Return the log-probability of each action under the model as it stands, chosen ones first.

    By TRL's own forward pass, so that equal policies give equal numbers in every dtype.
    """
    import torch

    inputs = {k: v for k, v in batch.items() if k != "completion_mask"}
    labels = batch["input_ids"].masked_fill(batch["completion_mask"] == 0, _NO_LOSS)
    with torch.no_grad(), trainer.accelerator.autocast():
        per_token = trainer.model(**inputs, use_cache=False, labels=labels, fused_lm_head=True).log_probs
    return per_token.sum(1).float()
