"""Continuations of prompts, each going on from what a memory knows of it.

In: rows of token ids. Out: tokens written after each. Prompts that begin alike are computed once as far as they agree;
a batch then holds what is remembered of each row, what it reads, and what it writes, rows of different lengths padded
before either part. A row that has ended leaves its batch. Keys and values are written in place: a cache that grows by
copying itself for every token costs as much as the model. What all rows of a large batch begin with is kept once
(`cascade`).
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from transformers import DynamicCache
from transformers.cache_utils import Cache, DynamicLayer

from flywheel.models.cascade import Beginning, after
from flywheel.models.memory import KeysValues, Memory, Part, depth_of
from flywheel.models.prefixes import CHECKED, LEAST_SHARED, MOST_CELLS, REST, Ids, cache_argument, shared_heads

Noise = Callable[[Sequence[int], torch.Tensor], torch.Tensor]  # of some rows of a batch, by their logits

LEAST_ROWS = 8  # rows; fewer read a shared beginning as fast each for itself
PASS = 128  # tokens that are computed in the time that a pass takes apart from them
_LEAVE = 4  # rows leave a batch when one of so many has ended: each time the others' caches are copied
_PLAIN = {  # settings of a model's generation_config that a greedy continuation does not depend on
    "_from_model_config", "bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id", "do_sample",
    "temperature", "top_p", "top_k", "min_p", "typical_p", "max_length", "max_new_tokens", "use_cache",
    "transformers_version", "cache_implementation", "output_attentions", "output_hidden_states",
    "return_dict_in_generate", "trust_remote_code",
}  # fmt: skip


def can_write(model: Any) -> bool:
    """Return whether a model's cache is keys and values of every token, and its greedy action its likeliest token."""
    layers = DynamicCache(config=model.config.get_text_config()).layers
    return (
        bool(layers) and all(type(layer) is DynamicLayer for layer in layers) and not _settings(model).keys() - _PLAIN
    )


def _attention(model: Any) -> str:
    name: str = model.config._attn_implementation  # noqa: SLF001 - no public reading of it
    return name


def _settings(model: Any) -> dict[str, Any]:
    settings = getattr(model, "generation_config", None)
    return dict(settings.to_diff_dict()) if settings is not None else {}


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

    def of(self, rows: slice, tokens: int) -> _Room:
        """Return some rows, so many of their places filled; what is written there is written here."""
        room = copy.copy(self)
        room.keys, room.values = self.keys[rows], self.values[rows]
        room.skip(tokens)
        return room


class _Batch:
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
        self.start = self._known + width  # where writing begins
        self._rests = [len(rest) for rest in rests]
        self._ids = torch.tensor([[pad] * (width - len(rest)) + rest for rest in rests])
        self._mask = torch.zeros((len(prompts), self.start + most), dtype=torch.long)
        for row, (depth, rest) in enumerate(zip(self.depths, rests, strict=True)):
            self._mask[row, self._known - (depth - self._apart) : self._known] = 1
            self._mask[row, self.start - len(rest) :] = 1
        self._layers = [_Room(self.start + most) for _ in DynamicCache(config=model.config.get_text_config()).layers]
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
        runs = list(_runs(self._rests)) if self._layers[0].is_initialized else [slice(None)]
        logits = []
        for rows in runs:
            ids = self._ids[rows, -max(self._rests[rows]) :]
            layers = [layer.of(rows, self.start - ids.shape[1]) for layer in self._layers] if len(runs) > 1 else None
            logits.append(self._pass(ids, self._mask[rows, : self.start], layers or self._layers))
        for layer in self._layers:
            layer.skip(self.start)
        return torch.cat(logits)

    def write(self, tokens: torch.Tensor) -> torch.Tensor:
        """Read a token of each row; return the logits of the next one."""
        return self._pass(tokens[:, None], self._mask[:, : self._layers[0].get_seq_length() + 1], self._layers)

    def _pass(self, ids: torch.Tensor, seen: torch.Tensor, layers: Sequence[_Room]) -> torch.Tensor:
        """Read tokens of rows, of which the places up to the last of these are seen or not."""
        tokens = ids.shape[1]
        places = (seen.cumsum(-1) - 1).clamp(min=0)[:, -tokens:] + self._apart
        # Without a mask, SDPA takes a slow way for one token of grouped heads.
        own_mask = tokens == 1 and layers[0].is_initialized and _attention(self._model) == "sdpa"
        with contextlib.ExitStack() as during:
            given = during.enter_context(after(self._model, self._beginning)) if self._apart else {}
            logits: torch.Tensor = self._model(
                input_ids=ids, position_ids=places, use_cache=True, logits_to_keep=1,
                attention_mask=_square(seen, tokens, layers[0].dtype) if given or own_mask else seen,
                **cache_argument(self._model, Cache(layers=list(layers))), **given,
            ).logits  # fmt: skip
        return logits[:, -1].float()

    def computed(self, place: int, tokens: int, written: int) -> KeysValues:
        """Return the keys and values of a row's last so many tokens of the prompt, and those that it wrote."""
        part = slice(self.start - tokens, self.start + written)
        return [(layer.keys[place, :, part], layer.values[place, :, part]) for layer in self._layers]

    def leave(self, going_on: list[bool]) -> None:
        """Keep the rows that go on."""
        self.rows = [row for row, goes_on in zip(self.rows, going_on, strict=True) if goes_on]
        kept = torch.tensor(going_on, device=self._mask.device)
        self._mask = self._mask[kept]
        for layer in self._layers:
            layer.leave(kept)


def _runs(rests: Sequence[int]) -> Iterator[slice]:
    """Yield rows to be read together, the longest first: a pass of its own where that saves more than it costs."""
    start = 0
    for at in range(1, len(rests)):
        if (max(rests[start:at]) - rests[at]) * (len(rests) - at) > PASS:
            yield slice(start, at)
            start = at
    yield slice(start, len(rests))


def cascade_holds(model: Any, prompt: list[int], pad: int, limit: float) -> bool:
    """Return whether a model gives with a shared beginning kept once what it gives without.

    Two rows are read that go on after a beginning, of unlike length, and a token after each.

    Args:
        model: a causal language model of transformers that `can_write`.
        prompt: of more than `CHECKED` tokens, of which the rows are made.
        pad: a token to fill up with.
        limit: of the log-probabilities' difference, as a root mean square over the vocabulary.
    """
    memory, head, rest = Memory(), prompt[:CHECKED], prompt[CHECKED:][-REST:]
    Writer(model, memory, pad, -1).learn(head)
    rows = [head + rest, head + rest[: len(rest) // 2 + 1]]
    paths = [memory.path(head)] * len(rows)
    plain, cascade = (_Batch(model, rows, paths, 1, pad, apart=apart) for apart in (False, True))
    try:
        for tokens in (None, torch.tensor([row[-1] for row in rows], device=model.device)):
            logits = (batch.read() if tokens is None else batch.write(tokens) for batch in (plain, cascade))
            expected, found = (torch.log_softmax(of, -1) for of in logits)
            if not (expected - found).square().mean().sqrt() <= limit:
                return False
    except (RuntimeError, TypeError, ValueError, NotImplementedError, AttributeError) as error:
        if "out of memory" in str(error).lower():
            raise
        return False
    return True


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


class Writer:
    """Continues prompts.

    Args:
        model: a causal language model of transformers that `can_write`.
        memory: of this model.
        pad: a token to fill up with.
        end: token that ends a continuation.
        cascade: whether large batches keep what all their rows begin with once.
    """

    def __init__(self, model: Any, memory: Memory, pad: int, end: int, *, cascade: bool = False) -> None:
        self._model, self._memory, self._pad, self._end, self._cascade = model, memory, pad, end, cascade

    def written(
        self, prompts: Sequence[list[int]], most: int, size: int, noise: Callable[[Sequence[list[int]]], Noise] | None
    ) -> Iterator[tuple[int, list[int]]]:
        """Yield each prompt's number and what is written after it, at most so many tokens, its end included.

        Args:
            prompts: the rows.
            most: tokens.
            size: most rows together.
            noise: from some of the prompts to what adds noise to their logits; None is greedy.
        """
        self._memory.begin(prompts)
        for head in shared_heads([prompt[:-1] for prompt in prompts]):
            self.learn(head)
        for numbers in self._batches(prompts, most, size):
            some = [prompts[n] for n in numbers]
            yield from zip(numbers, self._continued(some, most, noise(some) if noise else None), strict=True)

    def _path(self, prompt: Ids) -> list[Part]:
        """Return what is remembered of a prompt, less its last token: that one is read for what follows it."""
        return self._memory.path(prompt[:-1])

    def learn(self, head: Ids) -> None:
        """Read a beginning that several prompts share."""
        path = self._memory.path(head)
        known = depth_of(path)
        if known < len(head):
            batch = _Batch(self._model, [head], [path], 0, self._pad, apart=False)
            batch.read()
            self._memory.keep(head, known, batch.computed(0, len(head) - known, 0))

    def _batches(self, prompts: Sequence[list[int]], most: int, size: int) -> Iterator[list[int]]:
        """Yield prompts in batches with like much to read, the longest first; caches bound how many go together."""
        paths = [self._path(prompt) for prompt in prompts]
        rests = [len(prompt) - depth_of(path) for prompt, path in zip(prompts, paths, strict=True)]
        waiting = sorted(range(len(prompts)), key=lambda n: (-rests[n], -len(prompts[n]), n))
        once = depth_of(common(paths)) if self._cascade else 0
        cells = max((len(prompt) for prompt in prompts), default=0) - once + most
        together = max(1, min(size, MOST_CELLS // max(1, cells)))
        yield from (waiting[i : i + together] for i in range(0, len(waiting), together))

    def _continued(self, prompts: Sequence[list[int]], most: int, noise: Noise | None) -> list[list[int]]:
        paths, apart = [self._path(prompt) for prompt in prompts], self._cascade and len(prompts) >= LEAST_ROWS
        batch = _Batch(self._model, prompts, paths, most, self._pad, apart=apart)
        written: list[list[int]] = [[] for _ in prompts]
        logits = batch.read()
        for place in range(most):
            tokens = (noise(batch.rows, logits) if noise else logits).argmax(-1)
            for row, token in zip(batch.rows, tokens.tolist(), strict=True):
                if not written[row] or written[row][-1] != self._end:
                    written[row].append(token)
            going_on = [written[row][-1] != self._end for row in batch.rows]
            if place == most - 1 or not any(going_on):
                break
            if going_on.count(False) * _LEAVE >= len(going_on):
                self._remember(batch, prompts, written, [not goes_on for goes_on in going_on])
                batch.leave(going_on)
                tokens = tokens[torch.tensor(going_on, device=tokens.device)]
            logits = batch.write(tokens)
        self._remember(batch, prompts, written, [True] * len(batch.rows))
        return written

    def _remember(
        self, batch: _Batch, prompts: Sequence[list[int]], written: Sequence[list[int]], which: Sequence[bool]
    ) -> None:
        """Keep rows in the memory, without the last token of each: it was written, and not read."""
        for place, row in enumerate(batch.rows):
            if which[place]:
                read, depth = prompts[row] + written[row][:-1], batch.depths[row]
                layers = batch.computed(place, len(prompts[row]) - depth, len(written[row]) - 1)
                self._memory.keep(read, depth, layers)
