"""Attention over a tree: every token looks at what precedes it in its own row, and at nothing else.

In: queries, keys and values of one flat sequence and its `Layout`. Out: what transformers' attention functions give.
Three ways compute the same: *blocks* calls SDPA once for a beginning and once for its branches, on any device; *parts*
calls the kernel behind it once for everything that looks at a beginning, on CPUs; *flex* is one FlexAttention kernel
that skips the squares between branches, for GPUs, where many small calls cost more than they save.
"""

from __future__ import annotations

import torch

from flywheel.stages.train.sharing.layout import Layout, Rule
from flywheel.stages.train.sharing.parts import attend_parts

_NO_LIMIT = 1 << 60


def _capped(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None, scale: float, cap: float
) -> torch.Tensor:
    """Attention with soft-capped scores (Gemma 2), which no fused kernel of torch offers."""
    groups = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
    if mask is None:
        mask = torch.ones(query.shape[2], key.shape[2], dtype=torch.bool, device=query.device).tril()
    scores = torch.tanh(query @ key.transpose(-1, -2) * (scale / cap)) * cap
    return scores.masked_fill(~mask, -torch.inf).softmax(-1, dtype=torch.float32).to(value.dtype) @ value


def kernels(device: str) -> tuple[str, ...]:
    """Return the ways to try on a type of device, the best first."""
    return {"cuda": ("flex", "blocks"), "cpu": ("parts", "blocks")}.get(device, ("blocks",))


def _blocks(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, flat: Layout, rule: Rule) -> torch.Tensor:
    parts = []
    for i, block in enumerate(flat.tree.blocks):
        places, mask = flat.keys(i), flat.mask(i, rule.window)
        q, k, v = query[:, :, block.start : block.end], key[:, :, places], value[:, :, places]
        if rule.cap is not None:
            parts.append(_capped(q, k, v, mask, rule.scale, rule.cap))
        else:
            parts.append(
                torch.nn.functional.scaled_dot_product_attention(
                    q,
                    k,
                    v,
                    attn_mask=mask,
                    is_causal=mask is None,
                    scale=rule.scale,
                    enable_gqa=q.shape[1] != k.shape[1],
                )
            )
    return torch.cat(parts, 2)


def attend(  # noqa: PLR0913 - the interface is transformers'
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,  # noqa: ARG001 - the layout replaces it
    *,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    flywheel_layout: Layout | None = None,
    **_: object,
) -> tuple[torch.Tensor, None]:
    """Attention over a tree, (1, heads, N, d) → (1, N, heads, d)."""
    if flywheel_layout is None:
        raise ValueError("attention over a tree was called without its layout")
    scale = scaling if scaling is not None else float(query.shape[-1]) ** -0.5
    rule = Rule(scale, sliding_window or getattr(module, "sliding_window", None) or _NO_LIMIT, softcap)
    if flywheel_layout.kernel == "flex":
        from flywheel.stages.train.sharing.flex import attend_flex

        attended = attend_flex(query, key, value, flywheel_layout, rule)
    elif flywheel_layout.kernel == "parts" and rule.cap is None and rule.window >= flywheel_layout.longest:
        attended = attend_parts(query, key, value, flywheel_layout.looks(query.dtype), rule.scale)
    else:
        attended = _blocks(query, key, value, flywheel_layout, rule)
    return attended.transpose(1, 2).contiguous(), None
