"""Continuations of prompts, each going on from what a memory knows of it.

In: rows of token ids. Out: tokens written after each. Prompts that begin alike are computed once as far as they agree;
a row that has ended leaves its batch (`batch`). What is likely written next is guessed and read with the token before
it, and kept as far as the model would have written it (`drafts`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice, takewhile
from typing import Any

import torch
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from flywheel.models.batch import Batch, common, room_to_write
from flywheel.models.drafts import LONGEST, Noise, guessed
from flywheel.models.memory import Memory, Part, depth_of
from flywheel.models.prefixes import CHECKED, MOST_CELLS, REST, Ids, shared_heads

LEAST_ROWS = 8  # rows; fewer read a shared beginning as fast each for itself
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
    plain, cascade = (Batch(model, rows, paths, 1, pad, apart=apart) for apart in (False, True))
    try:
        for tokens in ([], [row[-1:] for row in rows]):
            logits = (batch.write(tokens) if tokens else batch.read() for batch in (plain, cascade))
            expected, found = (torch.log_softmax(of, -1) for of in logits)
            if not (expected - found).square().mean().sqrt() <= limit:
                return False
    except (RuntimeError, TypeError, ValueError, NotImplementedError, AttributeError) as error:
        if "out of memory" in str(error).lower():
            raise
        return False
    return True


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
            batch = Batch(self._model, [head], [path], 0, self._pad, apart=False)
            batch.read()
            self._memory.keep(head, known, batch.computed(0, len(head) - known))

    def _batches(self, prompts: Sequence[list[int]], most: int, size: int) -> Iterator[list[int]]:
        """Yield prompts in batches with like much to read, the longest first; caches bound how many go together."""
        paths = [self._path(prompt) for prompt in prompts]
        rests = [len(prompt) - depth_of(path) for prompt, path in zip(prompts, paths, strict=True)]
        waiting = sorted(range(len(prompts)), key=lambda n: (-rests[n], -len(prompts[n]), n))
        once = depth_of(common(paths)) if self._cascade else 0
        cells = max((len(prompt) for prompt in prompts), default=0) - once + room_to_write(most)
        together = max(1, min(size, MOST_CELLS // max(1, cells)))
        yield from (waiting[i : i + together] for i in range(0, len(waiting), together))

    def _continued(self, prompts: Sequence[list[int]], most: int, noise: Noise | None) -> list[list[int]]:
        paths, apart = [self._path(prompt) for prompt in prompts], self._cascade and len(prompts) >= LEAST_ROWS
        batch = Batch(self._model, prompts, paths, most, self._pad, apart=apart)
        written: list[list[int]] = [[] for _ in prompts]
        guesses: dict[int, list[int]] = {row: [] for row in batch.rows}  # of the rows that go on
        logits = batch.read()
        while guesses:
            new = self._chosen(batch.rows, written, guesses, logits, noise)
            for row, tokens in new.items():
                written[row] += tokens
            batch.keep([len(new.get(row, ())) for row in batch.rows])
            going_on = [len(written[row]) < most and written[row][-1] != self._end for row in batch.rows]
            still = [row for row, goes_on in zip(batch.rows, going_on, strict=True) if goes_on]
            if still and going_on.count(False) * _LEAVE >= len(going_on):
                self._remember(batch, prompts, written, [not goes_on for goes_on in going_on])
                batch.leave(going_on)
            guesses = self._guesses({row: prompts[row] for row in still}, written, most)
            if guesses:
                logits = batch.write([[written[n][-1], *guesses[n]] if n in guesses else [] for n in batch.rows])
        self._remember(batch, prompts, written, [True] * len(batch.rows))
        for prompt, tokens in zip(prompts, written, strict=True):
            self._memory.drafts.learn(prompt, tokens)
        return written

    def _chosen(
        self,
        rows: Sequence[int],
        written: Sequence[Sequence[int]],
        guesses: Mapping[int, Sequence[int]],
        logits: torch.Tensor,
        noise: Noise | None,
    ) -> dict[int, list[int]]:
        """Return what rows write next: tokens as far as they were guessed, and the one after them.

        Args:
            rows: of the batch.
            written: what each row has written before.
            guesses: what the last pass has read of each row that goes on, behind its last token.
            logits: of what follows each token that it has read.
            noise: what is added to logits.
        """
        asked = [(n, row, at) for n, row in enumerate(rows) if row in guesses for at in range(len(guesses[row]) + 1)]
        numbers, of, places = zip(*asked, strict=True)
        some = logits[list(numbers), list(places)]
        if noise is not None:
            some = noise(of, [len(written[row]) + at for row, at in zip(of, places, strict=True)], some)
        chosen, new = iter(some.argmax(-1).tolist()), dict[int, list[int]]()
        for row, guess in guesses.items():
            tokens = list(islice(chosen, len(guess) + 1))
            right = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(tokens, guess, strict=False)))
            new[row] = tokens[: right + 1]
        return new

    def _guesses(self, rows: Mapping[int, list[int]], written: Sequence[list[int]], most: int) -> dict[int, list[int]]:
        """Return what some rows likely write behind the token that is read next, as much as is worth its time.

        Args:
            rows: the prompts of those that go on.
            written: of each row, so far.
            most: tokens that a row may write.
        """
        found = {
            row: self._memory.drafts.guess((*prompt[-LONGEST:], *written[row]), most - len(written[row]) - 1, self._end)
            for row, prompt in rows.items()
        }
        width = guessed(list(found.values()), self._model.device.type)
        return {row: [guess.token for guess in some[:width]] for row, some in found.items()}

    def _remember(
        self, batch: Batch, prompts: Sequence[list[int]], written: Sequence[list[int]], which: Sequence[bool]
    ) -> None:
        """Keep rows in the memory, without the last token of each: it was written, and not read."""
        for place, row in enumerate(batch.rows):
            if which[place]:
                read, depth = prompts[row] + written[row][:-1], batch.depths[row]
                self._memory.keep(read, depth, batch.computed(place, len(read) - depth))
