"""What a policy has read and written, so that what goes on from it is not computed again.

A tree of tokens: a piece of it holds the keys and values of every layer for a run of tokens, and rows that begin alike
share their pieces. A conversation's next prompt begins with the last one and what was written after it; attempts and
cases begin with the same system message and tools.

The memory is bounded: where it is full, what was not asked for again goes, longest ago first, and then nothing more is
kept. What is not remembered is computed. A memory belongs to one policy: weights that change make it wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from flywheel.models.drafts import Drafts
from flywheel.models.prefixes import MOST_CELLS, Ids, common_length

if TYPE_CHECKING:
    import torch

KeysValues = list[tuple["torch.Tensor", "torch.Tensor"]]  # of each layer: heads, tokens, width


class Piece:
    """A run of tokens, their keys and values, and the runs that were seen to follow."""

    def __init__(self, ids: list[int], layers: KeysValues, asked: int) -> None:
        self.ids, self.layers, self.asked = ids, layers, asked
        self.after: dict[int, Piece] = {}

    def cut(self, at: int) -> None:
        """End here; the rest of it follows as a piece of its own."""
        rest = Piece(self.ids[at:], between(self.layers, at, len(self.ids)), self.asked)
        rest.after, self.after = self.after, {rest.ids[0]: rest}
        self.ids, self.layers = self.ids[:at], between(self.layers, 0, at)


class Part(NamedTuple):
    """So many tokens of a piece, from its beginning."""

    piece: Piece
    tokens: int


def between(layers: KeysValues, start: int, end: int) -> KeysValues:
    """Return the keys and values of some tokens, as tensors of their own."""
    return [(keys[:, start:end].clone(), values[:, start:end].clone()) for keys, values in layers]


class Memory:
    """The tree.

    Args:
        most: tokens that are kept.
    """

    def __init__(self, most: int = MOST_CELLS) -> None:
        self.tokens = 0
        self._most, self._call = most, 0
        self._root = Piece([], [], 0)
        self.drafts = Drafts()  # of what was written

    def begin(self, prompts: Sequence[Ids]) -> None:
        """Begin a call: what no prompt of it goes on from may be forgotten."""
        self._call += 1
        for prompt in prompts:
            self.path(prompt)

    def path(self, ids: Ids) -> list[Part]:
        """Return what is remembered of a row, from its beginning on."""
        parts, piece, at = list[Part](), self._root, 0
        while at < len(ids) and (following := piece.after.get(ids[at])) is not None:
            tokens = common_length(following.ids, ids[at : at + len(following.ids)])
            parts.append(Part(following, tokens))
            following.asked = self._call
            piece, at = following, at + tokens
            if tokens < len(following.ids):
                break
        return parts

    def keep(self, ids: Ids, depth: int, layers: KeysValues) -> None:
        """Remember a row.

        Args:
            ids: its tokens from its beginning on.
            depth: tokens of it before the first of `layers`.
            layers: keys and values of the others.
        """
        parts = self.path(ids)
        known = sum(part.tokens for part in parts)
        rest = self._make_room(len(ids) - known) if known >= depth else 0
        if rest <= 0:
            return
        piece, tokens = parts[-1] if parts else (self._root, 0)
        if tokens < len(piece.ids):
            piece.cut(tokens)
        end = known + rest
        piece.after[ids[known]] = Piece(list(ids[known:end]), between(layers, known - depth, end - depth), self._call)
        self.tokens += rest

    def _make_room(self, tokens: int) -> int:
        """Return how many of so many tokens there is room for, after forgetting what this call has not asked for."""
        while self.tokens + tokens > self._most:
            ends = [(piece.asked, n, before, piece) for n, (before, piece) in enumerate(self._ends(self._root))]
            asked, _, before, piece = min(
                ends, key=lambda end: end[:2], default=(self._call, 0, self._root, self._root)
            )
            if asked == self._call:
                break
            del before.after[piece.ids[0]]
            self.tokens -= len(piece.ids)
        return min(tokens, self._most - self.tokens)

    def _ends(self, piece: Piece) -> Iterator[tuple[Piece, Piece]]:
        """Yield every piece that none follows, after the one before it."""
        for following in piece.after.values():
            if following.after:
                yield from self._ends(following)
            else:
                yield piece, following


def depth_of(parts: Sequence[Part]) -> int:
    """Return the tokens of a path."""
    return sum(part.tokens for part in parts)
