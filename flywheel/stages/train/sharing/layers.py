"""Layers of a model that spend less where rows are one tree: LoRA's additions and RMS norms.

In: a model of transformers under PEFT. `fuse` gives its layers a second way forward, in place, and `use_fused` switches
between it and the model's own. LoRA layers add their part to the base layer's output in place and keep their input and
the low-rank product only; norms keep their input and one number a token. A norm is recognised by what it computes, so
that a family with another rule keeps its own way, and a layer that somebody else has changed is left alone.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from flywheel.models.frozen_layers import added


def fuse(model: Any) -> None:
    """Give plain LoRA layers and RMS norms a second way forward, used while `use_fused` is on."""
    for layer in model.modules():
        way = None if "forward" in vars(layer) else _second_way(layer)
        if way is not None:
            layer.flywheel_plain, layer.flywheel_fused = layer.forward, False
            layer.forward = way


def _second_way(layer: Any) -> Callable[..., Any] | None:
    from peft.tuners.lora.layer import Linear

    if isinstance(layer, Linear):
        return functools.partial(_lora_forward, layer)
    bias = _norm_bias(layer)
    return None if bias is None else functools.partial(_norm_forward, bias, layer)


def _norm_bias(layer: Any) -> float | None:
    """Return what an RMS norm adds to its weight (1 in Gemma's), or None for any other layer: by what it computes."""
    weight = getattr(layer, "weight", None)
    if "RMSNorm" not in type(layer).__name__ or weight is None or weight.dim() != 1 or weight.is_meta:
        return None
    x = torch.linspace(-1, 2, 2 * len(weight), dtype=weight.dtype, device=weight.device).view(2, -1)
    try:
        with torch.no_grad():
            expected = layer(x)
            for bias in (0.0, 1.0):
                if torch.allclose(_norm(x, weight + bias, _epsilon(layer)), expected, rtol=1e-3):
                    return bias
    except (RuntimeError, TypeError, AttributeError):
        return None
    return None


def _epsilon(layer: Any) -> float:
    return float(layer.variance_epsilon if hasattr(layer, "variance_epsilon") else layer.eps)


def _norm_forward(bias: float, layer: Any, x: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    """Norm in the weights' own type: what other types round, and when, is the model's affair."""
    weight = layer.weight
    fits = layer.flywheel_fused and not (args or kwargs or weight.requires_grad)
    if not fits or not x.dtype == weight.dtype == torch.float32 or weight.shape != x.shape[-1:]:
        plain: torch.Tensor = layer.flywheel_plain(x, *args, **kwargs)
        return plain
    return _norm(x, weight + bias if bias else weight, _epsilon(layer))


def use_fused(model: Any, *, on: bool) -> None:
    """Switch the second way of all layers that have one on or off."""
    for layer in model.modules():
        if hasattr(layer, "flywheel_fused"):
            layer.flywheel_fused = on


def _lora_forward(layer: Any, x: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    part = added(layer, args, kwargs) if layer.flywheel_fused else None
    if part is None:
        plain: torch.Tensor = layer.flywheel_plain(x, *args, **kwargs)
        return plain
    down, up, base = part.down, part.up, layer.base_layer
    same = x.dtype == down.dtype == up.dtype == base.weight.dtype and not torch.is_autocast_enabled(x.device.type)
    plain_weight = type(base) is torch.nn.Linear and type(base.weight) is torch.nn.Parameter  # not a quantised one
    if not same or base.weight.requires_grad or not plain_weight:
        unfused: torch.Tensor = layer.flywheel_plain(x)
        return unfused
    return _lora(x.flatten(0, -2), base, down, up, part.scale).view(*x.shape[:-1], -1)


class _Lora(torch.autograd.Function):
    """A linear layer with LoRA; keeps its input and the low-rank product only."""

    @staticmethod
    def forward(ctx: Any, x: Any, base: Any, down: Any, up: Any, scale: float) -> Any:
        weight, bias = base.weight, base.bias
        low = x @ down.T
        made = torch.nn.functional.linear(x, weight, bias).addmm_(low, up.T, alpha=scale)
        ctx.save_for_backward(x, weight, down, up, low)
        ctx.scale = scale
        return made

    @staticmethod
    def backward(ctx: Any, *given: Any) -> Any:
        x, weight, down, up, low = ctx.saved_tensors
        slope = given[0]
        lower = (slope @ up).mul_(ctx.scale)
        back = (slope @ weight).addmm_(lower, down) if ctx.needs_input_grad[0] else None
        return back, None, lower.T @ x, (low.T @ slope).mul_(ctx.scale).T, None


class _Norm(torch.autograd.Function):
    """An RMS norm; keeps its input and one number a token."""

    @staticmethod
    def forward(ctx: Any, x: Any, weight: Any, epsilon: float) -> Any:
        size = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        inverse = size.square_().div_(x.shape[-1]).add_(epsilon).rsqrt_()
        ctx.save_for_backward(x, weight, inverse)
        return (x * inverse).mul_(weight)

    @staticmethod
    def backward(ctx: Any, *given: Any) -> Any:
        x, weight, inverse = ctx.saved_tensors
        slope = given[0] * weight
        along = (slope * x).sum(-1, keepdim=True).mul_(inverse.pow(3)).div_(-x.shape[-1])
        return slope.mul_(inverse).addcmul_(x, along), None, None


_lora: Callable[..., torch.Tensor] = _Lora.apply
_norm: Callable[..., torch.Tensor] = _Norm.apply
