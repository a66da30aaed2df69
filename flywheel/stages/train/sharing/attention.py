"""Attention over a tree: every token looks at what stands before it in its own row, and at nothing else.

In: queries, keys and values of one flat sequence and its `Layout`. Out: what transformers' attention functions give.
Three ways compute the same: *blocks* calls SDPA once for a beginning and once for its branches, on any device; *parts*
calls the kernel behind it once for everything that looks at a beginning, on CPUs; *flex* is one FlexAttention kernel
that skips the squares between branches, for GPUs, where many small calls cost more than they save.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from flywheel.stages.train.sharing.parts import Look, attend_parts, looks
from flywheel.stages.train.sharing.tree import Tree

if TYPE_CHECKING:
    import torch
    from torch.nn.attention.flex_attention import BlockMask

__all__ = ["Layout", "Rule", "attend", "kernels", "layout"]

_NO_LIMIT = 1 << 60


@dataclass
class Layout:
    """A tree as tensors on the model's device; masks are made once for each window size and shared by all layers."""

    tree: Tree
    ids: torch.Tensor  # (1, N)
    positions: torch.Tensor  # (1, N)
    owners: torch.Tensor  # (N,)
    kernel: str = "blocks"
    masks: dict[tuple[int, int], torch.Tensor | None] = field(default_factory=dict)
    squares: dict[int, BlockMask] = field(default_factory=dict)
    parts: dict[torch.dtype, list[tuple[Look, torch.Tensor | None]]] = field(default_factory=dict)

    def looks(self, dtype: torch.dtype) -> list[tuple[Look, torch.Tensor | None]]:
        """Return who looks where, with the masks that are added to scores of a type."""
        if dtype not in self.parts:
            self.parts[dtype] = [(look, self._own(look, dtype)) for look in looks(self.tree)]
        return self.parts[dtype]

    def _own(self, look: Look, dtype: torch.dtype) -> torch.Tensor | None:
        import torch

        if look.alone or not look.own:
            return None
        part = slice(*look.queries)
        one, places = self.owners[part], self.positions[0, part]
        seen = (one[:, None] == one[None]) & (places[:, None] >= places[None])
        return torch.zeros(seen.shape, dtype=dtype, device=seen.device).masked_fill_(~seen, -torch.inf)

    @property
    def longest(self) -> int:
        """Tokens of the longest row."""
        return max(segment.depth + segment.end - segment.start for segment in self.tree.segments)

    def keys(self, block: int) -> torch.Tensor | slice:
        """Return the flat places that a block looks at: what stands before it in its rows, and itself."""
        import torch

        ranges = [*self.tree.blocks[block].context, (self.tree.blocks[block].start, self.tree.blocks[block].end)]
        if all(left[1] == right[0] for left, right in itertools.pairwise(ranges)):
            return slice(ranges[0][0], ranges[-1][1])
        return torch.cat([torch.arange(a, b, device=self.ids.device) for a, b in ranges])

    def mask(self, block: int, window: int) -> torch.Tensor | None:
        """Return which keys each token of a block may look at, (n, keys); None for plain causal attention."""
        key = (block, window)
        if key not in self.masks:
            self.masks[key] = self._mask(block, window)
        return self.masks[key]

    def _mask(self, block: int, window: int) -> torch.Tensor | None:
        made = self.tree.blocks[block]
        alone = self.tree.owners[made.start] == self.tree.owners[made.end - 1]
        if alone and not made.context and made.end - made.start <= window:
            return None
        places = self.keys(block)
        query, key = self.positions[0, made.start : made.end, None], self.positions[0, places][None]
        before = sum(b - a for a, b in made.context)
        allowed = (query >= key) & (query - key < window)
        allowed[:, before:] &= self.owners[made.start : made.end, None] == self.owners[made.start : made.end][None]
        return allowed


def layout(tree: Tree, device: torch.device | str = "cpu", kernel: str = "blocks") -> Layout:
    """Return a tree's tensors, to be attended to by one of `kernels`."""
    import torch

    ids, positions = torch.tensor([tree.ids], device=device), torch.tensor([tree.positions], device=device)
    return Layout(tree, ids, positions, torch.tensor(tree.owners, device=device), kernel)


@dataclass(frozen=True)
class Rule:
    """How a layer attends: the scores' scale, how many tokens back it looks, and the soft cap of its scores."""

    scale: float
    window: int
    cap: float | None


def _capped(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None, scale: float, cap: float
) -> torch.Tensor:
    """Attention with soft-capped scores (Gemma 2), which no fused kernel of torch offers."""
    import torch

    groups = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
    if mask is None:
        mask = torch.ones(query.shape[2], key.shape[2], dtype=torch.bool, device=query.device).tril()
    scores = torch.tanh(query @ key.transpose(-1, -2) * (scale / cap)) * cap
    return scores.masked_fill(~mask, -torch.inf).softmax(-1, dtype=torch.float32).to(value.dtype) @ value


def kernels(device: str) -> tuple[str, ...]:
    """Return the ways to try on a type of device, the best first."""
    return {"cuda": ("flex", "blocks"), "cpu": ("parts", "blocks")}.get(device, ("blocks",))


def _blocks(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, made: Layout, rule: Rule) -> torch.Tensor:
    import torch

    parts = []
    for i, block in enumerate(made.tree.blocks):
        places, mask = made.keys(i), made.mask(i, rule.window)
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
    attention_mask: torch.Tensor | None,  # noqa: ARG001 - the layout says it all
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

        found = attend_flex(query, key, value, flywheel_layout, rule)
    elif flywheel_layout.kernel == "parts" and rule.cap is None and rule.window >= flywheel_layout.longest:
        found = attend_parts(query, key, value, flywheel_layout.looks(query.dtype), rule.scale)
    else:
        found = _blocks(query, key, value, flywheel_layout, rule)
    return found.transpose(1, 2).contiguous(), None
