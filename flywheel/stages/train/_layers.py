"""Layers of a model that spend less where rows are one tree: LoRA's additions, RMS norms, and rotation by positions.

In: a model of transformers under PEFT. `fuse` gives its layers a second way forward, in place, and `use_fused` switches
between it and the model's own. LoRA layers add their part to the base layer's output in place and keep their input and
the low-rank product only; norms keep their input and one number a token; rotation keeps nothing and makes no halves. Of
a step on a processor, passes over memory like these are a fifth. A layer is recognised by what it computes, so that a
family with another rule keeps its own way.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

__all__ = ["fuse", "use_fused"]

_ROTATION = "apply_rotary_pos_emb"  # transformers' name of it, in every family


def fuse(model: Any) -> None:
    """Give plain LoRA layers, RMS norms and rotating attention a second way forward, used while `use_fused` is on."""
    for layer in model.modules():
        way = None if hasattr(layer, "flywheel_plain") else _second_way(layer)
        if way is not None:
            layer.flywheel_plain, layer.flywheel_fused = layer.forward, False
            layer.forward = way


def _second_way(layer: Any) -> Callable[..., Any] | None:
    from peft.tuners.lora.layer import Linear

    if isinstance(layer, Linear):
        return functools.partial(_lora_forward, layer)
    turning = _turning(layer)
    if turning is not None:
        return functools.partial(_attention_forward, turning, layer)
    bias = _norm_bias(layer)
    return None if bias is None else functools.partial(_norm_forward, bias, layer)


def _turning(layer: Any) -> Callable[..., Any] | None:
    """Return an attention layer's forward with a rotation of our own, if it has one and its own computes the same.

    transformers' is looked up by name where it is called, so the same code runs beside another table of names, and
    nothing that other models share is changed.
    """
    import torch

    forward = None if "forward" in vars(layer) else getattr(type(layer), "forward", None)
    own = getattr(forward, "__globals__", {}).get(_ROTATION)
    if own is None or _ROTATION not in forward.__code__.co_names or forward.__closure__:  # type: ignore[union-attr]
        return None
    sides = (torch.linspace(-1, 2, 48).view(1, 3, 2, 8), torch.linspace(3, -2, 16).view(1, 1, 2, 8))
    angles = torch.linspace(0, 3, 8).view(1, 2, 4).repeat(1, 1, 2)
    try:
        expected, found = (turn(*sides, angles.cos(), angles.sin()) for turn in (own, _rotated))
    except (RuntimeError, TypeError, ValueError, AttributeError, IndexError):
        return None
    if not all(torch.allclose(a, b, atol=1e-5) for a, b in zip(expected, found, strict=True)):
        return None
    names = {**forward.__globals__, _ROTATION: functools.partial(_rotated, own=own)}  # type: ignore[union-attr]
    made = types.FunctionType(forward.__code__, names, argdefs=forward.__defaults__)  # type: ignore[union-attr]
    made.__kwdefaults__ = forward.__kwdefaults__  # type: ignore[union-attr]
    return functools.partial(made, layer)


def _attention_forward(turning: Any, layer: Any, *args: Any, **kwargs: Any) -> Any:
    return turning(*args, **kwargs) if layer.flywheel_fused else layer.flywheel_plain(*args, **kwargs)


def _rotated(
    q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, unsqueeze_dim: int = 1, own: Any = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Turn queries and keys by their positions; other types than float32 are rounded as the model's own does."""
    import torch

    same = all(x.dtype == torch.float32 for x in (q, k, cos, sin)) and q.shape[-1] == k.shape[-1] == cos.shape[-1]
    if own is not None and not same:
        theirs: tuple[torch.Tensor, torch.Tensor] = own(q, k, cos, sin, unsqueeze_dim=unsqueeze_dim)
        return theirs
    turn, table = _functions()[2].apply, (cos.unsqueeze(unsqueeze_dim), sin.unsqueeze(unsqueeze_dim))
    return turn(q, *table), turn(k, *table)


def _norm_bias(layer: Any) -> float | None:
    """Return what an RMS norm adds to its weight (1 in Gemma's), or None for any other layer: by what it computes."""
    import torch

    weight = getattr(layer, "weight", None)
    if "RMSNorm" not in type(layer).__name__ or weight is None or weight.dim() != 1 or weight.is_meta:
        return None
    x = torch.linspace(-1, 2, 2 * len(weight), dtype=weight.dtype, device=weight.device).view(2, -1)
    try:
        with torch.no_grad():
            expected = layer(x)
            for bias in (0.0, 1.0):
                if torch.allclose(_functions()[1].apply(x, weight + bias, _epsilon(layer)), expected, rtol=1e-3):
                    return bias
    except (RuntimeError, TypeError, AttributeError):
        return None
    return None


def _epsilon(layer: Any) -> float:
    return float(layer.variance_epsilon if hasattr(layer, "variance_epsilon") else layer.eps)


def _norm_forward(bias: float, layer: Any, x: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    """Norm in the weights' own type: what other types round, and when, is the model's affair."""
    import torch

    weight = layer.weight
    fits = layer.flywheel_fused and not (args or kwargs or weight.requires_grad)
    if not fits or not x.dtype == weight.dtype == torch.float32 or weight.shape != x.shape[-1:]:
        plain: torch.Tensor = layer.flywheel_plain(x, *args, **kwargs)
        return plain
    made: torch.Tensor = _functions()[1].apply(x, weight + bias if bias else weight, _epsilon(layer))
    return made


def use_fused(model: Any, *, on: bool) -> None:
    """Switch the second way of all layers that have one on or off."""
    for layer in model.modules():
        if hasattr(layer, "flywheel_fused"):
            layer.flywheel_fused = on


def _lora_forward(layer: Any, x: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    import torch

    names = [name for name in layer.active_adapters if name in layer.lora_A]
    fits = layer.flywheel_fused and not (args or kwargs or layer.disable_adapters or layer.merged) and len(names) == 1
    if not fits or names[0] in layer.lora_variant or not isinstance(layer.lora_dropout[names[0]], torch.nn.Identity):
        plain: torch.Tensor = layer.flywheel_plain(x, *args, **kwargs)
        return plain
    down, up, base = layer.lora_A[names[0]].weight, layer.lora_B[names[0]].weight, layer.base_layer
    same = x.dtype == down.dtype == up.dtype == base.weight.dtype and not torch.is_autocast_enabled(x.device.type)
    if not same or base.weight.requires_grad or type(base) is not torch.nn.Linear:
        unfused: torch.Tensor = layer.flywheel_plain(x)
        return unfused
    made: torch.Tensor = _functions()[0].apply(x.flatten(0, -2), base, down, up, layer.scaling[names[0]])
    return made.view(*x.shape[:-1], -1)


@functools.cache
def _functions() -> tuple[Any, Any, Any]:
    """Return the autograd functions of LoRA, norm and rotation; made on first use, because torch is heavy."""
    import torch

    class Lora(torch.autograd.Function):
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

    class Norm(torch.autograd.Function):
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

    def turned(x: Any, cos: Any, sin: Any, way: int) -> Any:
        made = x * cos
        (one, two), (to, other), (left, right) = (y.chunk(2, -1) for y in (x, made, sin))
        to.addcmul_(two, right if way < 0 else left, value=-way)
        other.addcmul_(one, left if way < 0 else right, value=way)
        return made

    class Rotation(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, cos: Any, sin: Any) -> Any:
            ctx.save_for_backward(cos, sin)
            return turned(x, cos, sin, 1)

        @staticmethod
        def backward(ctx: Any, *given: Any) -> Any:
            cos, sin = ctx.saved_tensors
            return turned(given[0], cos, sin, -1), None, None

    return Lora, Norm, Rotation
