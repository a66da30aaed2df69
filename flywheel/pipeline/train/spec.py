"""What the trainer of a round, or of a candidate in a race, gets: paths and values only."""

from __future__ import annotations

from pathlib import Path

from flywheel.config import Config
from flywheel.extensions import TrainSpec
from flywheel.pipeline.context import Context, served_rounds
from flywheel.records import METHODS, Method
from flywheel.registry.registry import DATASET


def train_spec(ctx: Context, number: int, method: Method, parent: int | None, folder: Path) -> TrainSpec:
    """Return the spec of a round.

    Args:
        ctx: the project, with the configuration that the round was begun under.
        number: of the round.
        method: what is trained.
        parent: the round that it starts from; None for the base.
        folder: where its rows are, and where the adapter and the trainer's files go.
    """
    train = ctx.config.train
    return TrainSpec(
        round=number,
        method=method,
        data=folder / DATASET,
        out_dir=folder / "adapter",
        work_dir=folder / "work",
        base_model=ctx.config.model.base,
        start_adapter=ctx.registry.adapter(parent),
        reference=train.reference if METHODS[method].reference else "none",
        config=_placed(ctx),
        seed=train.seed,
        cache_dir=ctx.store.root / "cache",
        behaviours=_served(ctx) if METHODS[method].behaviours else {},
        project_dir=ctx.project,
    )


def _placed(ctx: Context) -> Config:
    """Return the configuration with train.accelerate as a path that holds from any folder."""
    train = ctx.config.train
    if not train.accelerate:
        return ctx.config
    place = str(ctx.project / Path(train.accelerate).expanduser())
    return ctx.config.model_copy(update={"train": train.model_copy(update={"accelerate": place})})


def _served(ctx: Context) -> dict[str, str]:
    """Return the adapters under whose round's name logs may say that they were served."""
    adapters = {name: ctx.registry.adapter(n) for name, n in served_rounds(ctx).items()}
    return {name: str(folder) for name, folder in adapters.items() if folder is not None}
