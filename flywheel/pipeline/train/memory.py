"""Whether a round fits into the memory of what trains it, estimated before any of it runs.

In: a round's rows with their tokens, the base model's files, the device. Out: the estimate of its largest pass, which
`plan` prints; a round that does not fit is refused with what would make it fit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from flywheel.config import TrainConfig
from flywheel.errors import ConfigError, TrainError
from flywheel.models.footprint import Footprint, rows_of_pass
from flywheel.pipeline.context import Context
from flywheel.pipeline.train.length import Fitted, by_row
from flywheel.present import size
from flywheel.records import METHODS, MemoryEstimate, Method
from flywheel.records.methods import SCENARIOS
from flywheel.stages.train.process.distributed import read_accelerate, spreads


def estimate_memory(ctx: Context, fitted: Fitted, method: Method) -> MemoryEstimate:
    """Return what the largest pass of a round holds: its longest row, as often as a pass has rows.

    Rows of one state are computed as a tree where that is tested, so what they share is counted once.

    Raises:
        TrainError: it does not fit into the device; the hint names what would.
        ConfigError: train.lora.target_modules names no layer, or train.accelerate cannot be used.
    """
    train, processes, spread = ctx.config.train, 1, False
    if train.accelerate:
        accelerate = read_accelerate(ctx.project / Path(train.accelerate).expanduser(), method)
        processes = int(accelerate.get("num_processes", 1)) if accelerate["distributed_type"] != "NO" else 1
        spread = processes > 1 and spreads(accelerate)
        if spread and ctx.config.model.quantise != "none":
            raise ConfigError(
                "train.accelerate: a quantised base is not spread over processes (FSDP)",
                hint='set model.quantise = "none", or distributed_type MULTI_GPU',
            )
    footprint = Footprint(ctx.config.model, train, processes=processes, spread=spread)
    longest = max(_computed(attempts, train) for attempts in by_row(fitted))
    replayed = METHODS[method].dataset is SCENARIOS
    most = (
        train.replay_attempts
        if replayed
        else math.gcd(train.batch_size, train.batch_size * train.accumulation // processes)
    )
    estimate = footprint.estimate(rows_of_pass(max(1, most), longest, footprint.most_tokens), longest)
    if estimate.needed > estimate.available:
        raise TrainError(_too_large(estimate), hint=_what_fits(ctx, footprint, estimate))
    return estimate


def _computed(attempts: Sequence[Sequence[int]], train: TrainConfig) -> int:
    """Return the tokens of one item: its prompt and its sides; with dropout nothing is shared."""
    if train.lora.dropout:
        return sum(prompt + side for prompt, *sides in attempts for side in sides)
    return max(prompt for prompt, *_ in attempts) + sum(sum(sides) for _, *sides in attempts)


def _too_large(estimate: MemoryEstimate) -> str:
    device = (
        "a GPU here" if estimate.device == "cuda" else "this machine" if estimate.processes == 1 else "a process here"
    )
    return (
        f"a pass over the longest row ({estimate.tokens:,} tokens) needs about {size(estimate.needed)}, {device} has "
        f"{size(estimate.available)}: the base model {size(estimate.weights)}, the adapter and its optimiser "
        f"{size(estimate.adapter)}, activations {size(estimate.activations)}"
    )


def _what_fits(ctx: Context, footprint: Footprint, estimate: MemoryEstimate) -> str:
    """Return what would make a round fit, the mildest first."""
    train = ctx.config.train
    advice = []
    if not estimate.checkpointing:
        advice.append('train.gradient_checkpointing = "auto"')
    if footprint.most_tokens:
        advice.append(f"train.max_length below {footprint.most_tokens:,}")
    else:
        if estimate.adapter > estimate.weights:
            advice.append("a smaller train.lora.r, or fewer train.lora.target_modules")
        if ctx.config.model.quantise == "none":
            advice.append('model.quantise = "nf4"')
        advice.append("a smaller base model")
        if not train.accelerate:
            advice.append("several GPUs with FSDP (train.accelerate, docs/training.md)")
        advice.append("another trainer (train.backend, docs/backends.md)")
    return "set " + ", or ".join(advice) if footprint.most_tokens else "try " + ", ".join(advice)
