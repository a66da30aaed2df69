"""The places where a training step on logs spends what it need not: the vocabulary, LoRA's additions, and norms.

`head_log_probs` projects trained positions to the vocabulary a few at a time. With a frozen head the gradient of a log-
probability with respect to its hidden state is known once the logits are, so it is kept instead of them. `fuse` lets
LoRA layers add their part to the base layer's output in place and keep their input and the low-rank product only, and
RMS norms keep their input and one number a token: half the passes over memory, which is what a norm costs.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

__all__ = ["fuse", "head_log_probs", "use_fused"]

_POSITIONS = 128  # projected to the vocabulary at once


def head_log_probs(
    hidden: torch.Tensor, head: Any, targets: torch.Tensor, cap: float | None = None, temperature: float = 1.0
) -> torch.Tensor:
    """Return the log-probability of each target token, (T,) in float32.

    Args:
        hidden: states that predict the tokens, (T, d).
        head: the linear layer to the vocabulary.
        targets: token ids, (T,).
        cap: soft cap of the logits (Gemma), or None.
        temperature: by which the logits are divided, capped first, as generation does.
    """
    import torch

    weights = [p for p in head.parameters() if p.requires_grad]
    bias = getattr(head, "bias", None)
    if weights or not isinstance(head, torch.nn.Linear):
        logits = head(hidden).float()
        logits = torch.tanh(logits / cap) * cap if cap else logits
        return torch.log_softmax(logits / temperature, -1).gather(-1, targets[:, None])[:, 0]
    found: torch.Tensor = _functions()[0].apply(hidden, head.weight, bias, targets, cap, temperature)
    return found


@functools.cache
def _functions() -> tuple[Any, Any, Any]:
    """Return the autograd functions; made on first use, because torch is heavy."""
    import torch

    class Head(torch.autograd.Function):
        @staticmethod
        def forward(  # noqa: PLR0913, PLR0917 - torch passes them by place
            ctx: Any, hidden: Any, weight: Any, bias: Any, targets: Any, cap: float | None, temperature: float
        ) -> Any:
            found = torch.empty(len(targets), dtype=torch.float32, device=hidden.device)
            slopes = torch.empty_like(hidden) if ctx.needs_input_grad[0] else None
            for at in range(0, len(targets), _POSITIONS):
                part = slice(at, at + _POSITIONS)
                found[part], slope = _some(
                    hidden[part], weight, bias, targets[part], cap, temperature, slope=slopes is not None
                )
                if slopes is not None and slope is not None:
                    slopes[part] = slope
            ctx.save_for_backward(slopes)
            return found

        @staticmethod
        def backward(ctx: Any, *given: Any) -> Any:
            (slopes,) = ctx.saved_tensors
            return (slopes * given[0][:, None].to(slopes.dtype)), None, None, None, None, None

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

    return Head, Lora, Norm


def _some(  # noqa: PLR0913 - what a token's probability depends on
    hidden: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    targets: torch.Tensor,
    cap: float | None,
    temperature: float,
    *,
    slope: bool,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return log-probabilities and, when asked for, their gradient with respect to the hidden states."""
    import torch

    logits = torch.nn.functional.linear(hidden, weight, bias).float()
    if cap:
        logits = torch.tanh(logits / cap) * cap
    bend = 1 - (logits / cap).square() if cap and slope else None
    if temperature != 1:
        logits = logits / temperature
    rows = torch.arange(len(targets), device=targets.device)
    total = torch.logsumexp(logits, -1)
    found = logits[rows, targets] - total
    if not slope:
        return found, None
    chances = logits.sub_(total[:, None]).exp_()
    chances[rows, targets] -= 1
    if bend is not None:
        chances *= bend
    if temperature != 1:
        chances /= temperature
    return found, -(chances.to(weight.dtype) @ weight)


def fuse(model: Any) -> None:
    """Give every plain LoRA layer and RMS norm of a model a second way forward, used while `use_fused` is on."""
    from peft.tuners.lora.layer import Linear

    for layer in model.modules():
        if hasattr(layer, "flywheel_plain"):
            continue
        bias = None if isinstance(layer, Linear) else _norm_bias(layer)
        if isinstance(layer, Linear) or bias is not None:
            way = _lora_forward if bias is None else functools.partial(_norm_forward, bias)
            layer.flywheel_plain, layer.flywheel_fused = layer.forward, False
            layer.forward = functools.partial(way, layer)


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
                if torch.allclose(_functions()[2].apply(x, weight + bias, _epsilon(layer)), expected, rtol=1e-3):
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
    made: torch.Tensor = _functions()[2].apply(x, weight + bias if bias else weight, _epsilon(layer))
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
    made: torch.Tensor = _functions()[1].apply(x.flatten(0, -2), base, down, up, layer.scaling[names[0]])
    return made.view(*x.shape[:-1], -1)
