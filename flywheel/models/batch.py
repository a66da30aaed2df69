"""Rows that are read and written together.

In: rows of token ids, with what is remembered of each. Out: the logits that follow what they read, and keys and values.
A batch holds what is remembered of each row, what it reads, and what it writes, rows of different lengths padded before
either part; places of wrong guesses are masked. Keys and values are written in place: a cache that grows by copying
itself for every token costs as much as the model. What all rows of a large batch begin with is kept once (`cascade`).
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from transformers import DynamicCache
from transformers.cache_utils import Cache, DynamicLayer

from flywheel.models.cascade import Beginning, after
from flywheel.models.drafts import MOST_GUESSED
from flywheel.models.memory import KeysValues, Part, depth_of
from flywheel.models.prefixes import LEAST_SHARED, Ids, cache_argument

PASS = 128  # tokens that are read in the time that a pass takes apart from them
_WRONG = 128  # places of wrong guesses before they are given free, which copies the caches


class _Room(DynamicLayer):  # type: ignore[misc]
    """A layer's keys and values, with room for all that will be written."""

    def __init__(self, tokens: int) -> None:
        super().__init__()
        self._filled, self._most = 0, tokens

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Make the room, in the shape of what comes first."""
        self.dtype, self.device = key_states.dtype, key_states.device
        self.keys, self.values = (
            s.new_zeros((*s.shape[:2], self._most, s.shape[3])) for s in (key_states, value_states)
        )
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write behind what is there; return all."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        start, self._filled = self._filled, self._filled + key_states.shape[2]
        self.keys[:, :, start : self._filled] = key_states
        self.values[:, :, start : self._filled] = value_states
        return self.keys[:, :, : self._filled], self.values[:, :, : self._filled]

    def get_seq_length(self) -> int:
        """Return the tokens that are there."""
        return self._filled

    def fill(self, row: int, row_count: int, end: int, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Put remembered keys and values of a row before a place."""
        if not self.is_initialized:
            self.lazy_initialization(*(s[None].expand(row_count, -1, -1, -1) for s in (keys, values)))
        start = end - keys.shape[1]
        self.keys[row, :, start:end], self.values[row, :, start:end] = keys, values

    def skip(self, tokens: int) -> None:
        """Count the first places as filled."""
        self._filled = tokens

    def leave(self, rows: torch.Tensor) -> None:
        """Keep some rows only."""
        self.keys, self.values = self.keys[rows], self.values[rows]

    def move(self, places: torch.Tensor) -> None:
        """Put what is in some places of each row, (rows, tokens), into the first ones."""
        self._filled = places.shape[1]
        for states in (self.keys, self.values):
            of = places[:, None, :, None].expand(-1, states.shape[1], -1, states.shape[3])
            states[:, :, : self._filled] = states.gather(2, of)

    def of(self, rows: slice, tokens: int) -> _Room:
        """Return some rows, so many of their places filled; what is written there is written here."""
        room = copy.copy(self)
        room.keys, room.values = self.keys[rows], self.values[rows]
        room.skip(tokens)
        return room


class Batch:
    """Rows that are read and written together.

    Args:
        model: a causal language model of transformers.
        prompts: the rows.
        paths: what is remembered of each.
        most: tokens that each may write.
        pad: a token to fill up with.
        apart: whether what all paths begin with is kept once.
    """

    def __init__(
        self, model: Any, prompts: Sequence[Ids], paths: Sequence[Sequence[Part]], most: int, pad: int, *, apart: bool
    ) -> None:
        self.rows = list(range(len(prompts)))
        self.depths = [depth_of(path) for path in paths]
        self._model, self._pad = model, pad
        shared = common(paths) if apart else []
        self._beginning, self._apart = _joined(shared), depth_of(shared)
        self._known = max(self.depths) - self._apart
        rests = [list(prompt[depth:]) for prompt, depth in zip(prompts, self.depths, strict=True)]
        width = max(map(len, rests))
        self._start = self._known + width  # where writing begins
        self._written = self._start  # where the last pass that wrote began
        room = self._start + room_to_write(most)
        self._rests = [len(rest) for rest in rests]
        self._ids = torch.tensor([[pad] * (width - len(rest)) + rest for rest in rests])
        self._mask = torch.zeros((len(prompts), room), dtype=torch.long)
        for row, (depth, rest) in enumerate(zip(self.depths, rests, strict=True)):
            self._mask[row, self._known - (depth - self._apart) : self._known] = 1
            self._mask[row, self._start - len(rest) : self._start] = 1
        self._layers = [_Room(room) for _ in DynamicCache(config=model.config.get_text_config()).layers]
        for row, path in enumerate(paths):
            self._fill(row, path)
        for layer in self._layers:
            layer.skip(self._known)
        self._mask, self._ids = self._mask.to(model.device), self._ids.to(model.device)

    def _fill(self, row: int, path: Sequence[Part]) -> None:
        end, rest = self._known, self.depths[row] - self._apart
        for piece, tokens in reversed(path):
            start = max(0, tokens - rest)  # what is before that is in the beginning
            for layer, (keys, values) in zip(self._layers, piece.layers, strict=True):
                layer.fill(row, len(self.rows), end, keys[:, start:tokens], values[:, start:tokens])
            end, rest = end - (tokens - start), rest - (tokens - start)

    def read(self) -> torch.Tensor:
        """Read the rows' rests, those of like length together; return the logits of the next token."""
        parted = list(runs(self._rests)) if self._layers[0].is_initialized else [slice(None)]
        logits = []
        for rows in parted:
            ids = self._ids[rows, -max(self._rests[rows]) :]
            layers = [layer.of(rows, self._start - ids.shape[1]) for layer in self._layers] if len(parted) > 1 else None
            logits.append(self._pass(ids, self._mask[rows, : self._start], layers or self._layers, 1))
        for layer in self._layers:
            layer.skip(self._start)
        return torch.cat(logits)

    def write(self, tokens: Sequence[Sequence[int]]) -> torch.Tensor:
        """Read some tokens of each row; return the logits of what follows each: (rows, most of them, vocabulary)."""
        width = max(map(len, tokens))
        if self._layers[0].get_seq_length() + width > self._mask.shape[1]:
            self._close_up()
        self._written = self._layers[0].get_seq_length()
        ids = torch.tensor([[*row, *[self._pad] * (width - len(row))] for row in tokens], device=self._mask.device)
        self._look_at([len(row) for row in tokens], width)
        return self._pass(ids, self._mask[:, : self._written + width], self._layers, width)

    def keep(self, counts: Sequence[int]) -> None:
        """Look at the first tokens that the last pass wrote of each row, so many, and no more at those after them."""
        self._look_at(counts, self._layers[0].get_seq_length() - self._written)

    def _look_at(self, counts: Sequence[int], width: int) -> None:
        seen = torch.arange(width) < torch.tensor(counts)[:, None]
        self._mask[:, self._written : self._written + width] = seen.to(self._mask)

    def _close_up(self) -> None:
        """Give the places of wrong guesses free."""
        counts = self._mask.sum(-1).tolist()
        places = torch.zeros((len(counts), max(counts)), dtype=torch.long, device=self._mask.device)
        for row, count in enumerate(counts):
            places[row, places.shape[1] - count :] = self._mask[row].nonzero()[:, 0]
        for layer in self._layers:
            layer.move(places)
        self._mask.zero_()
        for row, count in enumerate(counts):
            self._mask[row, places.shape[1] - count : places.shape[1]] = 1

    def _pass(self, ids: torch.Tensor, seen: torch.Tensor, layers: Sequence[_Room], scored: int) -> torch.Tensor:
        """Read tokens of rows, of which the places up to the last of these are seen or not.

        Returns:
            Logits of what follows the last tokens, so many.
        """
        tokens = ids.shape[1]
        places = (seen.cumsum(-1) - 1).clamp(min=0)[:, -tokens:] + self._apart
        # Without a mask, SDPA takes a slow way for one token of grouped heads.
        own_mask = tokens == 1 and layers[0].is_initialized and _attention(self._model) == "sdpa"
        with contextlib.ExitStack() as during:
            given = during.enter_context(after(self._model, self._beginning)) if self._apart else {}
            logits: torch.Tensor = self._model(
                input_ids=ids, position_ids=places, use_cache=True, logits_to_keep=scored,
                attention_mask=_square(seen, tokens, layers[0].dtype) if given or own_mask else seen,
                **cache_argument(self._model, Cache(layers=list(layers))), **given,
            ).logits  # fmt: skip
        return logits[:, -scored:].float()

    def computed(self, place: int, tokens: int) -> KeysValues:
        """Return the keys and values of the last so many tokens that a row has read."""
        part = self._mask[place].nonzero()[:, 0]
        part = part[len(part) - tokens :]
        return [(layer.keys[place, :, part], layer.values[place, :, part]) for layer in self._layers]

    def leave(self, going_on: list[bool]) -> None:
        """Keep the rows that go on."""
        self.rows = [row for row, goes_on in zip(self.rows, going_on, strict=True) if goes_on]
        kept = torch.tensor(going_on, device=self._mask.device)
        self._mask = self._mask[kept]
        for layer in self._layers:
            layer.leave(kept)


def room_to_write(most: int) -> int:
    """Return the places in a row's cache for so many tokens that it writes, and for wrong guesses."""
    return most + min(most, _WRONG) + MOST_GUESSED + 1


def runs(rests: Sequence[int]) -> Iterator[slice]:
    """Yield rows to be read together, the longest first: a pass of its own where that saves more than it costs."""
    start = 0
    for at in range(1, len(rests)):
        if (max(rests[start:at]) - rests[at]) * (len(rests) - at) > PASS:
            yield slice(start, at)
            start = at
    yield slice(start, len(rests))


def common(paths: Sequence[Sequence[Part]]) -> list[Part]:
    """Return what all paths begin with; none where that is too short to be worth a look of its own."""
    shared = list[Part]()
    for parts in zip(*paths, strict=False):
        piece, tokens = parts[0].piece, min(part.tokens for part in parts)
        if any(part.piece is not piece for part in parts):
            break
        shared.append(Part(piece, tokens))
        if tokens < len(piece.ids):
            break
    return shared if depth_of(shared) >= LEAST_SHARED else []


def _joined(path: Sequence[Part]) -> Beginning:
    """Return the keys and values of a path, layer by layer."""
    layers = zip(*([(k[:, :tokens], v[:, :tokens]) for k, v in piece.layers] for piece, tokens in path), strict=True)
    return [tuple(torch.cat(sides, 1) for sides in zip(*parts, strict=True)) for parts in layers]  # type: ignore[misc]


def _square(seen: torch.Tensor, tokens: int, dtype: torch.dtype) -> torch.Tensor:
    """Return what is added to the scores of the last tokens of each row: -inf where a token is not seen.

    A token sees itself, and what precedes it in its row.
    """
    before = torch.ones(tokens, seen.shape[1], dtype=torch.bool, device=seen.device)
    before = before.tril(seen.shape[1] - tokens)
    itself = before & ~before.tril(seen.shape[1] - tokens - 1)
    allowed = (seen.bool()[:, None] & before) | itself
    return torch.zeros_like(allowed, dtype=dtype).masked_fill_(~allowed, -torch.inf)[:, None]


def _attention(model: Any) -> str:
    name: str = model.config._attn_implementation  # noqa: SLF001 - no public reading of it
    return name
