"""DPO on preference pairs, through TRL's DPOTrainer with an NLL term on the chosen action.

The trainer is subclassed in one place: rows arrive tokenised by flywheel, so that prompt and action meet at the token
boundary that generation sees and no special token is doubled. The reference policy is checked before the first step:
where it is the policy that training starts from, the loss must be log 2 and every margin 0.

DPO: Rafailov et al. 2023, arXiv 2305.18290. NLL term: Pang et al. 2024, arXiv 2404.19733.
"""

from __future__ import annotations

import math
import time
from typing import Any

from flywheel.errors import TrainError
from flywheel.extensions import TrainResult, TrainSpec
from flywheel.models.chat import ChatFormat
from flywheel.models.load import load_tokenizer
from flywheel.stages.train._rows import read_rows, tokenise
from flywheel.stages.train._trl import finish, last_checkpoint, prepare, recorder, trl_arguments, with_adapter

__all__ = ["train"]

_TOLERANCE = 1e-3


def train(spec: TrainSpec) -> TrainResult:
    """Train one DPO round.

    Raises:
        TrainError: every row is too long, or the reference policy is not what the round's manifest says.
        ConfigError: a key under [train.trl] is unknown.
    """
    from datasets import Dataset
    from trl import DPOConfig, DPOTrainer

    class Tokenised(DPOTrainer):  # type: ignore[misc]
        def _prepare_dataset(self, dataset: Any, *_: Any, **__: Any) -> Any:
            return dataset

    started, cfg = time.monotonic(), spec.config.train
    prepare(spec)
    tokenizer = load_tokenizer(spec.config.model)
    data = tokenise(read_rows(spec.data), ChatFormat(tokenizer), ("chosen", "rejected"), cfg)
    trainer = Tokenised(
        model=with_adapter(spec),
        args=trl_arguments(
            DPOConfig,
            spec,
            learning_rate=cfg.dpo_learning_rate,
            beta=cfg.dpo_beta,
            loss_type=["sigmoid", "sft"],
            loss_weights=[1.0, cfg.dpo_sft_weight],
        ),
        train_dataset=Dataset.from_list(data.rows),
        processing_class=tokenizer,
        callbacks=[recorder(spec, data.tokens / len(data.rows))],
    )
    if spec.reference == "base" and spec.start_adapter is not None:
        trainer.model.delete_adapter("ref")  # without a frozen copy TRL switches the adapter off for the reference
    checks = {"rows_refused": float(data.refused), **_check_reference(trainer, spec)}
    trainer.train(resume_from_checkpoint=last_checkpoint(spec))
    steps = trainer.state.global_step
    return finish(spec, trainer.model, steps=steps, tokens=data.tokens, checks=checks, started=started)


def _check_reference(trainer: Any, spec: TrainSpec) -> dict[str, float]:
    """Check on the first batch, before any step, that the reference is the start policy where it should be."""
    import torch

    rows = trainer.train_dataset.select(range(min(spec.config.train.batch_size, len(trainer.train_dataset))))
    batch = trainer._prepare_inputs(trainer.data_collator(list(rows)))  # noqa: SLF001 - TRL has no public way
    weights, trainer.loss_weights = trainer.loss_weights, [1.0, 0.0]
    trainer.model.eval()
    with torch.no_grad():
        loss = float(trainer.compute_loss(trainer.model, batch))
    trainer.loss_weights = weights
    trainer._metrics["train"].clear()  # noqa: SLF001 - this batch is no training step
    trainer._metrics["eval"].clear()  # noqa: SLF001 - as above
    same = spec.reference == "parent" or spec.start_adapter is None
    if same and abs(loss - math.log(2)) > _TOLERANCE:
        raise TrainError(
            f"the reference policy is not the {spec.reference}: DPO loss at step 0 is {loss:.4f}, not log 2 = 0.6931",
            hint="was the parent's adapter changed, or trained on another base model?",
        )
    if not same and abs(loss - math.log(2)) <= _TOLERANCE:
        raise TrainError(
            "the reference policy is not the base: DPO loss at step 0 is log 2 although the start policy differs",
            hint="is the parent's adapter empty?",
        )
    return {"dpo_loss_step0": round(loss, 6)}
