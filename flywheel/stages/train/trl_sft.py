"""SFT on what succeeded, through TRL's SFTTrainer: the loss is on action tokens only."""

from __future__ import annotations

import time

from flywheel.extensions import TrainResult, TrainSpec
from flywheel.models.chat import ChatFormat
from flywheel.models.load import load_tokenizer
from flywheel.stages.train._rows import read_rows, tokenise
from flywheel.stages.train._trl import finish, prepare, recorder, trl_arguments, with_adapter
from flywheel.stages.train.checkpoints import newest

__all__ = ["train"]

_NO_LOSS = -100


def train(spec: TrainSpec) -> TrainResult:
    """Train one SFT round.

    Raises:
        TrainError: every row is too long.
        ConfigError: a key under [train.trl] is unknown.
    """
    from datasets import Dataset
    from trl import SFTConfig, SFTTrainer

    started = time.monotonic()
    prepare(spec)
    tokenizer = load_tokenizer(spec.config.model)
    data = tokenise(read_rows(spec.data), ChatFormat(tokenizer), ("completion",), spec.config.train)
    rows = [
        {
            "input_ids": row["prompt_ids"] + row["completion_ids"],
            "labels": [_NO_LOSS] * len(row["prompt_ids"]) + row["completion_ids"],
        }
        for row in data.rows
    ]
    trainer = SFTTrainer(
        model=with_adapter(spec),
        args=trl_arguments(SFTConfig, spec, data.longest, learning_rate=spec.config.train.sft_learning_rate),
        train_dataset=Dataset.from_list(rows),
        processing_class=tokenizer,
        callbacks=[recorder(spec, data.tokens / len(rows))],
    )
    trainer.train(resume_from_checkpoint=newest(spec))
    checks = {"rows_refused": float(data.refused)}
    steps = trainer.state.global_step
    return finish(spec, trainer.model, steps=steps, tokens=data.tokens, checks=checks, started=started)
