"""Continuations of prompts, each going on from what a memory knows of it.

In: rows of token ids. Out: tokens written after each. Prompts that begin alike are computed once as far as they agree;
a batch then holds what is remembered of each row, what it reads, and what it writes, rows of different lengths padded
before either part. A row that has ended leaves its batch. Keys and values are written in place: a cache that grows by
copying itself for every token costs as much as the model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from transformers import DynamicCache
from transformers.cache_utils import Cache, DynamicLayer

from flywheel.models.memory import KeysValues, Memory, Part, depth_of
from flywheel.models.prefixes import MOST_CELLS, Ids, cache_argument, shared_heads

Noise = Callable[[Sequence[int], torch.Tensor], torch.Tensor]  # of some rows of a batch, by their logits

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


class _Batch:
    """Rows that are read and written together.

    Args:
        model: a causal language model of transformers.
        prompts: the rows.
        paths: what is remembered of each.
        most: tokens that each may write.
        pad: a token to fill up with.
    """

    def __init__(
        self, model: Any, prompts: Sequence[Ids], paths: Sequence[Sequence[Part]], most: int, pad: int
    ) -> None:
        self.rows = list(range(len(prompts)))
        self.depths = [depth_of(path) for path in paths]
        self._model, self._pad = model, pad
        self._known = max(self.depths)
        rests = [list(prompt[depth:]) for prompt, depth in zip(prompts, self.depths, strict=True)]
        width = max(map(len, rests))
        self.start = self._known + width  # where writing begins
        self._ids = torch.tensor([[pad] * (width - len(rest)) + rest for rest in rests])
        self._mask = torch.zeros((len(prompts), self.start + most), dtype=torch.long)
        for row, (depth, rest) in enumerate(zip(self.depths, rests, strict=True)):
            self._mask[row, self._known - depth : self._known] = 1
            self._mask[row, self.start - len(rest) :] = 1
        self._layers = [_Room(self.start + most) for _ in DynamicCache(config=model.config.get_text_config()).layers]
        for row, path in enumerate(paths):
            self._fill(row, path)
        for layer in self._layers:
            layer.skip(self._known)
        self._mask, self._ids = self._mask.to(model.device), self._ids.to(model.device)
        self._cache = Cache(layers=list(self._layers))

    def _fill(self, row: int, path: Sequence[Part]) -> None:
        end = self._known
        for piece, tokens in reversed(path):
            for layer, (keys, values) in zip(self._layers, piece.layers, strict=True):
                layer.fill(row, len(self.rows), end, keys[:, :tokens], values[:, :tokens])
            end -= tokens

    def read(self, tokens: torch.Tensor | None = None) -> torch.Tensor:
        """Read the rows' rests, or a token of each; return the logits of the next one."""
        ids = self._ids if tokens is None else tokens[:, None]
        end = self._layers[0].get_seq_length() + ids.shape[1]
        places = (self._mask[:, :end].cumsum(-1) - 1).clamp(min=0)[:, -ids.shape[1] :]
        logits: torch.Tensor = self._model(
            input_ids=ids, attention_mask=self._mask[:, :end], position_ids=places,
            use_cache=True, logits_to_keep=1, **cache_argument(self._model, self._cache),
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


class Writer:
    """Continues prompts.

    Args:
        model: a causal language model of transformers that `can_write`.
        memory: of this model.
        pad: a token to fill up with.
        end: token that ends a continuation.
    """

    def __init__(self, model: Any, memory: Memory, pad: int, end: int) -> None:
        self._model, self._memory, self._pad, self._end = model, memory, pad, end

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
            self._learn(head)
        for numbers in self._batches(prompts, most, size):
            some = [prompts[n] for n in numbers]
            yield from zip(numbers, self._continued(some, most, noise(some) if noise else None), strict=True)

    def _path(self, prompt: Ids) -> list[Part]:
        """Return what is remembered of a prompt, less its last token: that one is read for what follows it."""
        return self._memory.path(prompt[:-1])

    def _learn(self, head: Ids) -> None:
        """Read a beginning that several prompts share."""
        path = self._memory.path(head)
        known = depth_of(path)
        if known < len(head):
            batch = _Batch(self._model, [head], [path], 0, self._pad)
            batch.read()
            self._memory.keep(head, known, batch.computed(0, len(head) - known, 0))

    def _batches(self, prompts: Sequence[list[int]], most: int, size: int) -> Iterator[list[int]]:
        """Yield prompts in batches with like much to read, the longest first; caches bound how many go together."""
        rests = [len(prompt) - depth_of(self._path(prompt)) for prompt in prompts]
        waiting = sorted(range(len(prompts)), key=lambda n: (-rests[n], -len(prompts[n]), n))
        cells = max((len(prompt) for prompt in prompts), default=0) + most
        together = max(1, min(size, MOST_CELLS // max(1, cells)))
        yield from (waiting[i : i + together] for i in range(0, len(waiting), together))

    def _continued(self, prompts: Sequence[list[int]], most: int, noise: Noise | None) -> list[list[int]]:
        batch = _Batch(self._model, prompts, [self._path(prompt) for prompt in prompts], most, self._pad)
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
            logits = batch.read(tokens)
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
