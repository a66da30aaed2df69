"""Log-probabilities and continuations in batches, what inputs share computed once where that is worth it.

In: rows of token ids. Out: one number, or one list of tokens, a row, in order. Before a model's first shared pass two
rows are scored both ways; one whose cache flywheel does not continue rightly is scored side by side.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from flywheel.models.drafts import Noise
from flywheel.models.memory import Memory
from flywheel.models.prefixes import CHECKED, REST, Leaves, cache_argument, plan_saving, walk
from flywheel.records import content_id

if TYPE_CHECKING:
    import torch


_WORTH = 1.15  # plain tokens for each computed one; below, sharing does not pay for its passes
_LIMITS = {"float32": 1e-3, "bfloat16": 0.25}  # largest difference a token, by the weights' type

Row = tuple[list[int], list[int]]  # what is read, what is scored


class Draw(NamedTuple):
    """How continuations are sampled. Each policy draws with the same random numbers after the same prompt."""

    temperature: float
    seed: int
    ahead: int = 0  # how many draws of the same prompts follow, each with the next seed

    def noise(self, prompts: Sequence[list[int]]) -> Noise:
        """Return what adds Gumbel noise to the logits of some of these: the largest sum is a draw from their softmax.

        A token's noise depends on seed, prompt and place alone, not on the batch (Maddison, Tarlow and Minka 2014). It
        is made on the logits' device, and each kind of device has random numbers of its own.
        """
        import torch

        seeds = [int(content_id("draw", self.seed, prompt)[:8], 16) for prompt in prompts]

        def noisy(rows: Sequence[int], places: Sequence[int], logits: torch.Tensor) -> torch.Tensor:
            noise = torch.empty(logits.shape, device=logits.device)
            generator = torch.Generator(logits.device)
            for row, place, own in zip(rows, places, noise, strict=True):
                generator.manual_seed((seeds[row] << 20) + place)
                own.exponential_(generator=generator)
            return logits.float() / self.temperature - noise.log()

        return noisy


Watch = Callable[[int, int], None]  # gets how many rows are done, and of how many


class Batches:
    """Scores and continues rows.

    Args:
        batch_size: most rows together.
        pad: a token to fill up with.
        end: token that ends a continuation.
    """

    def __init__(self, batch_size: int, pad: int, end: int) -> None:
        self.size, self.pad, self.end = batch_size, pad, end
        self.shares: bool | None = None  # None until it was tried
        self.cascades: bool | None = None  # the same
        self.watch: Watch = lambda _done, _of: None

    def log_probs(self, model: Any, rows: Sequence[Row], temperature: float = 1.0) -> list[float]:
        """Return the log-probability of each row's second part, in nats, at a sampling temperature."""
        score = shared_log_probs if self._shares(model, rows) else plain_log_probs
        return score(model, rows, self.size, self.pad, temperature, self.watch)

    def written(
        self,
        model: Any,
        prompts: Sequence[list[int]],
        most: int,
        draw: Draw | None = None,
        memory: Memory | None = None,
    ) -> list[list[int]]:
        """Return the continuation of each prompt, greedy or sampled: at most so many tokens, its end included.

        Args:
            model: a causal language model of transformers.
            prompts: token ids.
            most: tokens.
            draw: how tokens are sampled.
            memory: of what this model has read before.
        """
        continuations: dict[int, list[int]] = {}
        for number, written in self._written(model, prompts, most, draw, memory or Memory()):
            continuations[number] = written
            self.watch(len(continuations), len(prompts))
        return [continuations[i] for i in range(len(prompts))]

    def _written(
        self, model: Any, prompts: Sequence[list[int]], most: int, draw: Draw | None, memory: Memory
    ) -> Iterator[tuple[int, list[int]]]:
        from flywheel.models.writing import Writer, can_write

        if can_write(model) and self._remembers(model, prompts):
            writer = Writer(model, memory, self.pad, self.end, cascade=self._cascades(model, prompts))
            yield from writer.written(prompts, most, self.size, draw.noise if draw is not None else None)
            return
        for leaf in _apart([len(p) for p in prompts], self.size):
            some = [prompts[i] for i in leaf.rows]
            yield from zip(leaf.rows, self._side_by_side(model, some, most, draw), strict=True)

    def _remembers(self, model: Any, prompts: Sequence[list[int]]) -> bool:
        """Return whether the model is known to go on rightly from a cache; tried with a first prompt."""
        longest = max(prompts, key=len, default=[])
        if self.shares is None and len(longest) > CHECKED:
            self.shares = self._holds(model, [(longest[:-1], longest[-1:])] * 2)
        return self.shares is not False

    def _cascades(self, model: Any, prompts: Sequence[list[int]]) -> bool:
        """Return whether a model can keep a beginning once for all rows, on a CPU; tried with a first prompt."""
        from flywheel.models.writing import LEAST_ROWS, cascade_holds

        longest, enough = max(prompts, key=len, default=[]), min(self.size, len(prompts)) >= LEAST_ROWS
        if self.cascades is None and enough and len(longest) > CHECKED:
            limit = _LIMITS["bfloat16" if "bfloat16" in str(model.dtype) else "float32"]
            on_cpu = model.device.type == "cpu"
            self.cascades = on_cpu and cascade_holds(model, longest, self.pad, limit)
        return self.cascades is True

    def _shares(self, model: Any, rows: Sequence[Row]) -> bool:
        """Return whether rows share enough, and the model is known to score them alike that way."""
        if self.shares is False or _saving(rows) < _WORTH:
            return False
        if self.shares is None:
            self.shares = self._holds(model, rows)
        return self.shares

    def _holds(self, model: Any, rows: Sequence[Row]) -> bool:
        """Return whether a shared pass over two rows that share gives what the model gives side by side.

        Pieces of them, so that the check costs little where prompts are long.
        """
        two = [(before[:CHECKED] + before[CHECKED:][-REST:], after[:REST]) for before, after in _two(rows)]
        limit = _LIMITS["bfloat16" if "bfloat16" in str(model.dtype) else "float32"]
        try:
            shared = shared_log_probs(model, two, 1, self.pad)
        except (RuntimeError, TypeError, ValueError, NotImplementedError, AttributeError) as error:
            if "out of memory" in str(error).lower():
                raise
            return False
        plain = plain_log_probs(model, two, 1, self.pad)
        return all(
            abs(a - b) <= limit * max(1, len(after)) for a, b, (_, after) in zip(shared, plain, two, strict=True)
        )

    def _side_by_side(self, model: Any, prompts: Sequence[list[int]], most: int, draw: Draw | None) -> list[list[int]]:
        """Continue prompts with transformers' own loop, each from its beginning."""
        import torch
        from transformers import LogitsProcessorList

        width = max(map(len, prompts))
        ids = torch.tensor([[self.pad] * (width - len(prompt)) + prompt for prompt in prompts])
        mask = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts])
        noise = draw.noise(prompts) if draw is not None else None

        def noisy(so_far: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
            return noise(range(len(logits)), [so_far.shape[1] - width] * len(logits), logits) if noise else logits

        output = model.generate(
            input_ids=ids.to(model.device),
            attention_mask=mask.to(model.device),
            max_new_tokens=most,
            do_sample=False,
            temperature=None,
            top_p=None,
            top_k=None,
            pad_token_id=self.pad,
            eos_token_id=self.end,
            logits_processor=LogitsProcessorList([noisy]) if noise else None,
        )
        return [_ended(written, self.end) for written in output[:, width:].tolist()]


def _ended(written: list[int], end: int) -> list[int]:
    return written[: written.index(end) + 1] if end in written else written


def _saving(rows: Sequence[Row]) -> float:
    return plan_saving([before[:-1] for before, _ in rows], [1 + len(after) for _, after in rows])


def _two(rows: Sequence[Row]) -> list[Row]:
    """Return the two rows, neighbours in order, that share a beginning and have the fewest tokens."""
    order = sorted(range(len(rows)), key=lambda i: rows[i])
    pairs = [(rows[a], rows[b]) for a, b in itertools.pairwise(order)]
    sharing = [pair for pair in pairs if _saving(pair) > 1]
    return list(min(sharing, key=lambda pair: (sum(len(b) + len(a) for b, a in pair), pair))) if sharing else []


def _apart(lengths: Sequence[int], size: int) -> Iterator[Leaves]:
    """Yield rows in batches of like length, longest first, so that the peak comes first."""
    order = sorted(range(len(lengths)), key=lambda i: (-lengths[i], i))
    yield from (Leaves(order[i : i + size], 0, None) for i in range(0, len(order), size))


def plain_log_probs(
    model: Any, rows: Sequence[Row], size: int, pad: int, temperature: float = 1.0, watch: Watch | None = None
) -> list[float]:
    """Return each row's log-probability, rows side by side."""
    scores: dict[int, float] = {}
    for leaf in _apart([len(b) + len(a) for b, a in rows], size):
        of = [rows[i] for i in leaf.rows]
        scores |= dict(zip(leaf.rows, _scores(model, of, leaf, pad, temperature), strict=True))
        if watch is not None:
            watch(len(scores), len(rows))
    return [scores[i] for i in range(len(rows))]


def shared_log_probs(
    model: Any, rows: Sequence[Row], size: int, pad: int, temperature: float = 1.0, watch: Watch | None = None
) -> list[float]:
    """Return each row's log-probability, shared beginnings computed once."""
    scores: dict[int, float] = {}
    for leaf in walk(model, [before[:-1] for before, _ in rows], [1 + len(after) for _, after in rows], size):
        of = [rows[i] for i in leaf.rows]
        scores |= dict(zip(leaf.rows, _scores(model, of, leaf, pad, temperature), strict=True))
        if watch is not None:
            watch(len(scores), len(rows))
    return [scores[i] for i in range(len(rows))]


def _scores(model: Any, rows: Sequence[Row], leaf: Leaves, pad: int, temperature: float) -> list[float]:
    """Return scores of rows that go on from one cache, padded after their end, where nothing looks at the padding.

    Logits are computed from the first scored token of any row on.
    """
    import torch

    rests = [before[leaf.depth :] + after for before, after in rows]
    width = max(map(len, rests))
    ids = torch.full((len(rows), width), pad)
    for i, rest in enumerate(rests):
        ids[i, : len(rest)] = torch.tensor(rest)
    first = min(max(0, len(before) - leaf.depth - 1) for before, _ in rows)
    device = model.device
    cached = cache_argument(model, leaf.cache) if leaf.cache is not None else {}
    output = model(
        input_ids=ids.to(device),
        position_ids=torch.arange(leaf.depth, leaf.depth + width, device=device)[None].expand(len(rows), -1),
        logits_to_keep=torch.arange(first, width, device=device),
        use_cache=bool(cached),
        **cached,
    )
    starts = [len(before) - leaf.depth - first for before, _ in rows]
    return [
        _score(output.logits[i], start - 1, after, temperature)
        for i, (start, (_, after)) in enumerate(zip(starts, rows, strict=True))
    ]


def _score(logits: torch.Tensor, at: int, after: list[int], temperature: float) -> float:
    """Sum the log-probabilities of tokens of which the first is predicted at `at`; a first token of all has none."""
    import torch

    scored = after if at >= 0 else after[1:]
    at = max(at, 0)
    if not scored:
        return 0.0
    logp = torch.log_softmax(logits[at : at + len(scored)].float() / temperature, -1)
    return float(logp.gather(-1, torch.tensor(scored, device=logp.device)[:, None]).sum())
