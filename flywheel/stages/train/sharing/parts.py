"""Attention over a tree in parts: a segment's keys are looked at once by all tokens that continue it.

In: queries, keys and values of one flat sequence, and its tree. Out: the attended values. What a token
finds in its own segment and in each one before it are joined by their normalisers, which is exact, and the way back
runs every part with the joined ones, as ring attention does (Liu et al. 2023, arXiv 2310.01889). So no part but a
segment's own square needs a mask, and gradients are added where they belong without a square or a sequence of zeros.

This uses the kernel behind torch's SDPA on CPUs, because SDPA does not tell its normalisers. Query heads that share
keys are separate pieces of work, so that cores have equal shares.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from flywheel.stages.train.sharing.tree import Tree


@dataclass(frozen=True)
class Look:
    """Tokens `queries` look at tokens `keys`, both flat ranges [start, end).

    Attributes:
        own: both are the same range, of which a token sees what precedes it in its segment; else all is seen.
        alone: an own range is one segment, so that the rule is the causal one.
    """

    queries: tuple[int, int]
    keys: tuple[int, int]
    own: bool
    alone: bool = False


def looks(tree: Tree) -> list[Look]:
    """Return who looks where: first every token at its own range, once; then what continues a segment at that one."""
    parts = []
    for block in tree.blocks:
        span = (block.start, block.end)
        parts.append(Look(span, span, own=True, alone=tree.owners[block.start] == tree.owners[block.end - 1]))
    last = [segment.end for segment in tree.segments]
    first: dict[int, int] = {}
    for i in range(len(tree.segments) - 1, -1, -1):  # descendants of a segment follow it, next to one another
        parent = tree.segments[i].parent
        if parent >= 0:
            last[parent] = max(last[parent], last[i])
            first[parent] = tree.segments[i].start
    for i, start in sorted(first.items()):
        parts.append(Look((start, last[i]), (tree.segments[i].start, tree.segments[i].end), own=False))
    return parts


def attend_parts(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    parts: Sequence[tuple[Look, torch.Tensor | None]],
    scale: float,
) -> torch.Tensor:
    """Attention over a tree, (1, heads, N, d) → (1, heads, N, d).

    Args:
        query: (1, heads, N, d).
        key: (1, key heads, N, d), whose number divides that of the heads.
        value: like the keys.
        parts: each look with what is added to the scores of an own range that is not alone.
        scale: of the scores.
    """
    return _attend(query, key, value, parts, scale)


def _grouped(x: torch.Tensor, groups: int) -> torch.Tensor:
    """View (1, heads, N, d) as (key heads, heads of one, N, d); keys and values are there once for all heads of one."""
    return x[0].view(-1, groups, *x.shape[2:])


def _shared(x: torch.Tensor, groups: int) -> torch.Tensor:
    return x[0][:, None].expand(-1, groups, -1, -1)


def _spread(like: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return an empty tensor of the shape of (1, heads, N, d) in which a token's heads are next to one another."""
    return like.new_empty((like.shape[0], like.shape[2], like.shape[1], like.shape[3]), dtype=dtype).transpose(1, 2)


def _kernel(parts: Any, q: Any, k: Any, v: Any) -> Iterator[tuple[Look, Any, Any, Any, dict[str, Any]]]:
    """Yield each look with its slices and the kernel's options."""
    for look, mask in parts:
        (a, b), (c, d) = look.queries, look.keys
        yield look, q[:, :, a:b], k[:, :, c:d], v[:, :, c:d], {"is_causal": look.own and look.alone, "attn_mask": mask}


class _Parts(torch.autograd.Function):
    """Attention in parts; the normalisers of SDPA's own kernel join them, which SDPA does not return."""

    @staticmethod
    def forward(ctx: Any, query: Any, key: Any, value: Any, parts: Any, scale: float) -> Any:
        ahead = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu  # noqa: SLF001 - SDPA's, with its normalisers
        groups = query.shape[1] // key.shape[1]
        q, k, v = _grouped(query, groups), _shared(key, groups), _shared(value, groups)
        made = _spread(query, torch.float32)
        out, norms = _grouped(made, groups), torch.empty(q.shape[:3], dtype=torch.float32)
        for look, *sides, rule in _kernel(parts, q, k, v):
            part, norm = ahead(*sides, scale=scale, **rule)
            place, of = out[:, :, slice(*look.queries)], norms[:, :, slice(*look.queries)]
            if look.own:
                place.copy_(part)
                of.copy_(norm)
            else:
                place.lerp_(part.float(), torch.sigmoid(norm - of)[..., None])
                of.copy_(torch.logaddexp(of, norm))
        made = made.to(query.dtype)
        ctx.save_for_backward(query, key, value, made, norms)
        ctx.parts, ctx.scale = parts, scale
        return made

    @staticmethod
    def backward(ctx: Any, *given: Any) -> Any:
        way_back = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward  # noqa: SLF001
        query, key, value, made, norms = ctx.saved_tensors
        groups = query.shape[1] // key.shape[1]
        found = tuple(_spread(x, x.dtype) for x in (query, key, value))
        to_q, to_k, to_v = _grouped(found[0], groups), found[1][0], found[2][0]
        slope, out = _grouped(given[0], groups), _grouped(made, groups)
        q, k, v = _grouped(query, groups), _shared(key, groups), _shared(value, groups)
        for look, *sides, rule in _kernel(ctx.parts, q, k, v):
            at, of = slice(*look.queries), slice(*look.keys)
            each = way_back(slope[:, :, at], *sides, out[:, :, at], norms[:, :, at], 0.0, scale=ctx.scale, **rule)
            new = (each[0], each[1].sum(1), each[2].sum(1))
            for place, part in zip((to_q[:, :, at], to_k[:, of], to_v[:, of]), new, strict=True):
                place.copy_(part) if look.own else place.add_(part)
        return *found, None, None


_attend: Callable[..., torch.Tensor] = _Parts.apply
