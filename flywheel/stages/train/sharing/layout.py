"""A tree of rows as tensors, and how a layer attends: what every attention kernel over a tree is given."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from flywheel.stages.train.sharing.parts import Look, looks
from flywheel.stages.train.sharing.tree import Tree

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import BlockMask


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
        if look.alone or not look.own:
            return None
        part = slice(*look.queries)
        owner, places = self.owners[part], self.positions[0, part]
        seen = (owner[:, None] == owner[None]) & (places[:, None] >= places[None])
        return torch.zeros(seen.shape, dtype=dtype, device=seen.device).masked_fill_(~seen, -torch.inf)

    @property
    def longest(self) -> int:
        """Tokens of the longest row."""
        return max(segment.depth + segment.end - segment.start for segment in self.tree.segments)

    def keys(self, block: int) -> torch.Tensor | slice:
        """Return the flat places that a block looks at: what precedes it in its rows, and itself."""
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
        span = self.tree.blocks[block]
        alone = self.tree.owners[span.start] == self.tree.owners[span.end - 1]
        if alone and not span.context and span.end - span.start <= window:
            return None
        places = self.keys(block)
        query, key = self.positions[0, span.start : span.end, None], self.positions[0, places][None]
        before = sum(b - a for a, b in span.context)
        allowed = (query >= key) & (query - key < window)
        allowed[:, before:] &= self.owners[span.start : span.end, None] == self.owners[span.start : span.end][None]
        return allowed


def layout(tree: Tree, device: torch.device | str = "cpu", kernel: str = "blocks") -> Layout:
    """Return a tree's tensors, to be attended to by one of `kernels`."""
    ids, positions = torch.tensor([tree.ids], device=device), torch.tensor([tree.positions], device=device)
    return Layout(tree, ids, positions, torch.tensor(tree.owners, device=device), kernel)


@dataclass(frozen=True)
class Rule:
    """How a layer attends: the scores' scale, how many tokens back it looks, and the soft cap of its scores."""

    scale: float
    window: int
    cap: float | None
