"""Layers of a model that only answers, on CPUs: weights laid out for the kernel once, LoRA's part added in place.

torch keeps weights as they are in their file, and lays them out again whenever a few rows are multiplied with them:
half the time of a pass that writes one token a row. `freeze` keeps a copy that is laid out already for oneDNN, which
multiplies it, and gives LoRA's layers a shorter way to what they compute. Both give what the layers gave, float32 to
rounding; a layer that does not, and a layer that somebody else has changed, is left alone. Weights must not change
after that.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

_MOST = 2**30  # bytes of weights of which there is a second copy
_ROWS = 16  # that a layout is chosen for; it serves any number
_ALIKE = {torch.bfloat16: 2.0**-6, torch.float32: 1e-4}  # largest difference from the layer, relative to its output


class Added(NamedTuple):
    """What a LoRA layer adds to its base layer's output: x @ down.T @ up.T * scale."""

    down: torch.Tensor
    up: torch.Tensor
    scale: float


def added(layer: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Added | None:
    """Return what a LoRA layer of PEFT adds in a call; None where that is nothing, or something else."""
    names = [name for name in layer.active_adapters if name in layer.lora_A]
    if args or kwargs or layer.disable_adapters or layer.merged or len(names) != 1:
        return None
    name = names[0]
    identity = isinstance(layer.lora_dropout[name], torch.nn.Identity) or not layer.training
    if name in layer.lora_variant or not identity or layer.lora_B[name].bias is not None:
        return None
    return Added(layer.lora_A[name].weight, layer.lora_B[name].weight, layer.scaling[name])


def freeze(model: Any) -> None:
    """Give a model's layers their shorter ways; those that have them already, or run elsewhere, stay as they are."""
    from peft.tuners.lora.layer import Linear

    layers = {name: layer for name, layer in model.named_modules() if "forward" not in vars(layer)}
    for layer in layers.values():
        if type(layer) is Linear:
            layer.forward = functools.partial(_adapted, layer, layer.forward)
    of_base = [layer for name, layer in layers.items() if ".lora_" not in name]
    plain = [layer for layer in of_base if type(layer) is torch.nn.Linear and _can_lay_out(layer.weight)]
    if sum(layer.weight.nbytes for layer in plain) <= _MOST:
        for layer in plain:
            _lay_out(layer)


def _can_lay_out(weight: torch.Tensor) -> bool:
    plain = type(weight) is torch.nn.Parameter and weight.dtype in _ALIKE  # not a quantised one
    return plain and weight.device.type == "cpu" and torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]


@torch.inference_mode()
def _lay_out(layer: torch.nn.Linear) -> None:
    weight, plain = layer.weight.detach(), layer.forward
    try:
        ready = torch.ops.mkldnn._reorder_linear_weight(weight, _ROWS)  # noqa: SLF001 - what torch.compile calls
        way = functools.partial(_multiplied, ready, layer.bias, plain)
        rows = torch.linspace(-1, 1, 2 * weight.shape[1]).view(2, -1).to(weight.dtype)
        expected, found = plain(rows).float(), way(rows).float()
    except (RuntimeError, AttributeError, NotImplementedError):
        return
    if (expected - found).abs().max() <= _ALIKE[weight.dtype] * expected.abs().max():
        layer.forward = way  # type: ignore[method-assign]


def _multiplied(ready: torch.Tensor, bias: torch.Tensor | None, plain: Any, x: torch.Tensor) -> torch.Tensor:
    if x.dtype != ready.dtype or torch.is_grad_enabled():
        kept: torch.Tensor = plain(x)
        return kept
    made: torch.Tensor = torch.ops.mkldnn._linear_pointwise(x, ready, bias, "none", [], "")  # noqa: SLF001
    return made


def _adapted(layer: Any, plain: Any, x: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    part = None if torch.is_grad_enabled() or torch.is_autocast_enabled(x.device.type) else added(layer, args, kwargs)
    if part is None:
        made: torch.Tensor = plain(x, *args, **kwargs)
        return made
    base: torch.Tensor = layer.base_layer(x)
    low = x.to(part.down.dtype) @ part.down.T
    return base.add_((low @ part.up.T).mul_(part.scale))
