"""Attention over a tree as one FlexAttention kernel: squares of the mask that no token looks into are never computed.

In: queries, keys and values of a flat sequence and its layout. Out: the attended values. A token's mask is two small
tables (which segments a segment continues; every token's position), so that no mask of the whole square is kept: which
squares of 128 by 128 are empty, whole or mixed is found a strip at a time.

The kernel is compiled on a GPU's first pass. Elsewhere the same mask runs through FlexAttention's uncompiled form,
which is slow, makes the whole square and has no way back on CPUs: tests compare its values.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch

from flywheel.stages.train.sharing.layout import Layout, Rule

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import BlockMask


_SQUARE = 128


@functools.cache
def _kernel(device: str) -> Any:
    """Return FlexAttention, compiled once for sequences of every length where the device has a kernel of it."""
    from torch.nn.attention.flex_attention import flex_attention

    return torch.compile(flex_attention, dynamic=True) if device == "cuda" else flex_attention


@functools.cache
def _cap(cap: float) -> Any:
    """Return the function that caps a score softly (Gemma 2); one object a cap, so that the kernel is compiled once."""

    def capped(score: Any, *_: Any) -> Any:
        return torch.tanh(score / cap) * cap

    return capped


def attend_flex(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, flat: Layout, rule: Rule) -> torch.Tensor:
    """Attention over a tree, (1, heads, N, d) → (1, heads, N, d)."""
    if rule.window not in flat.squares:
        flat.squares[rule.window] = _squares(flat, rule.window)
    attended: torch.Tensor = _kernel(query.device.type)(
        query,
        key,
        value,
        score_mod=None if rule.cap is None else _cap(rule.cap),
        block_mask=flat.squares[rule.window],
        scale=rule.scale,
        enable_gqa=query.shape[1] != key.shape[1],
    )
    return attended


def _continues(flat: Layout) -> torch.Tensor:
    """Return which segments a segment continues, itself among them, (S, S)."""
    segments = flat.tree.segments
    continues = torch.zeros((len(segments), len(segments)), dtype=torch.bool)
    for i, segment in enumerate(segments):  # a parent precedes its branches
        if segment.parent >= 0:
            continues[i] = continues[segment.parent]
        continues[i, i] = True
    return continues.to(flat.ids.device)


def _squares(flat: Layout, window: int) -> BlockMask:
    """Return the mask by squares: where nothing is looked at, where everything is, and the rule for the rest."""
    from torch.nn.attention.flex_attention import BlockMask

    continues, owners, positions = _continues(flat), flat.owners, flat.positions[0]
    tokens = len(owners)
    # A tensor, like all that the rule knows: the compiled kernel takes a number of the closure as 32 bits.
    first = (positions - window).clamp(min=-1)

    def looks(batch: Any, head: Any, q: Any, k: Any) -> Any:  # noqa: ARG001 - FlexAttention's signature
        return continues[owners[q], owners[k]] & (positions[k] <= positions[q]) & (positions[k] > first[q])

    every = torch.arange(tokens, device=owners.device)
    strips = [looks(0, 0, part[:, None], every[None]) for part in torch.split(every, _SQUARE)]
    some, whole = zip(*(_of_strip(strip) for strip in strips), strict=True)
    full, mixed = torch.stack(whole), torch.stack(some) & ~torch.stack(whole)
    return BlockMask.from_kv_blocks(
        *_listed(mixed), *_listed(full), BLOCK_SIZE=_SQUARE, mask_mod=looks, seq_lengths=(tokens, tokens)
    )


def _of_strip(strip: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return for each square of a strip whether any token is looked at, and whether all are."""
    pad = -strip.shape[1] % _SQUARE
    squares = torch.nn.functional.pad(strip, (0, pad)).view(strip.shape[0], -1, _SQUARE)
    # A square past the sequence's end is mixed at most: the kernel checks its edges by the rule.
    return squares.any(-1).any(0), squares.all(-1).all(0) & (strip.shape[0] == _SQUARE)


def _listed(squares: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return how many squares of each strip are set and their indices, the set ones first, with batch and head axes."""
    counts = squares.sum(-1, dtype=torch.int32)
    order = torch.argsort(squares.int(), dim=-1, descending=True, stable=True).to(torch.int32)
    return counts[None, None], order[None, None]
