"""The base model's layers spread over the processes that train together (FSDP), the adapter whole in each of them.

In: a model under PEFT in every process. Out: the same model, of whose decoder layers each process keeps its part; the
weights of a layer are gathered when it is its turn, on the way forward and back (torch's `fully_shard`, FSDP 2). What
is trained is a few megabytes: it is left out, and averaged as under DDP. What is frozen has no gradient, so nothing is
reduced. Trees of shared beginnings, losses, checkpoints and the adapter's file are what they are in one process.

Embeddings, the last norm and the head stay whole: the head is read outside of the model's own pass.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from flywheel.errors import TrainError
from flywheel.stages.train.process.distributed import together, world
from flywheel.stages.train.sharing.layers import fuse


@contextmanager
def in_turn() -> Iterator[None]:
    """Let the processes of this machine do something one after the other: only one of them holds a whole model."""
    from accelerate import PartialState  # type: ignore[import-untyped]

    PartialState(cpu=not torch.cuda.is_available())  # the processes know one another from here on
    mine = int(os.environ.get("LOCAL_RANK", "0"))
    for turn in range(int(os.environ.get("LOCAL_WORLD_SIZE", str(world())))):
        if turn == mine:
            yield
        together()


def spread(model: Any, *, keep: bool = False) -> Any:
    """Return the model with its decoder layers spread over all processes, on the device of each.

    Args:
        model: of transformers under PEFT, in the memory of the host.
        keep: a layer's weights stay whole between the way forward and the way back; faster, with more memory.

    Raises:
        TrainError: there are no decoder layers where transformers has them.
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    kind = "cuda" if torch.cuda.is_available() else "cpu"
    mesh = init_device_mesh(kind, (world(),))
    fuse(model)  # norms are recognised by what they compute, for which their weights must be whole
    backbone = model.get_base_model().base_model
    layers = _layers(backbone)
    for layer in layers:
        trained = {p for p in layer.parameters() if p.requires_grad}
        fully_shard(layer, mesh=mesh, reshard_after_forward=not keep, ignored_params=trained)
    inside = {p for layer in layers for p in layer.parameters()}
    whole = {p for p in backbone.parameters() if p not in inside or p.requires_grad}
    fully_shard(backbone, mesh=mesh, ignored_params=whole)  # so that one layer is gathered while another computes
    return model.to(kind)


def _layers(backbone: Any) -> list[Any]:
    count = backbone.config.get_text_config().num_hidden_layers
    lists = [m for m in backbone.modules() if isinstance(m, torch.nn.ModuleList) and len(m) == count]
    if not lists:
        raise TrainError(
            "this model's decoder layers were not found, so FSDP cannot spread them",
            hint="use distributed_type MULTI_GPU (DDP) in train.accelerate",
        )
    return list(lists[0])


def held(model: Any) -> float:
    """Return the share of the model's numbers that this process keeps; 1 where nothing is spread."""
    from torch.distributed.tensor import DTensor

    counts = [(p.to_local().numel() if isinstance(p, DTensor) else p.numel(), p.numel()) for p in model.parameters()]
    own, every = (sum(numbers) for numbers in zip(*counts, strict=True))
    return float(own / every)
