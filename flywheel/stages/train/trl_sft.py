"""SFT on what succeeded, through TRL's SFTTrainer: the loss is on action tokens only.

Steps that continue one another are one sequence with several trained actions.
"""

from __future__ import annotations

import time

from flywheel.extensions import TrainResult, TrainSpec
from flywheel.models.chat import ChatFormat
from flywheel.models.load import load_tokenizer
from flywheel.stages.train._rows import demonstrations, read_rows, tokenise
from flywheel.stages.train._trl import finish, prepare, recorder, trl_arguments, with_adapter
from flywheel.stages.train.checkpoints import newest

__all__ = ["train"]


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
    rows = demonstrations(data.rows)
    lengths = [len(row["input_ids"]) for row in rows]
    trainer = SFTTrainer(
        model=with_adapter(spec),
        args=trl_arguments(SFTConfig, spec, max(lengths), learning_rate=spec.config.train.sft_learning_rate),
        train_dataset=Dataset.from_list(rows),
        processing_class=tokenizer,
        callbacks=[recorder(spec, sum(lengths) / len(rows))],
    )
    trainer.train(resume_from_checkpoint=newest(spec))
    checks = {"rows_refused": float(data.refused), "sequences": float(len(rows))}
    steps = trainer.state.global_step
    return finish(spec, trainer.model, steps=steps, tokens=sum(lengths), checks=checks, started=started)
