"""Beginnings that several inputs share, computed once: a walk through their tree with one key-value cache.

In: rows of token ids, each a shareable beginning and its own rest. Out: groups of rests that follow the same beginning,
with the cache of it. A cache is forked wherever rows part, so that a beginning is computed once however many inputs go
on from it, and steps of one conversation, which nest, cost what the longest of them costs.

Cost: the tokens of the tree, not of the rows. Memory: the caches along one path down, and copies of one for a batch.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

LEAST_SHARED = 32  # tokens; a shorter common piece is not worth a pass of its own
MOST_CELLS = 16_384  # tokens in a batch's caches
CHECKED, REST = 2 * LEAST_SHARED, 16  # tokens on which a model is checked: of a row's beginning, and of its rest


class Leaves(NamedTuple):
    """Rows that go on from the same beginning.

    Attributes:
        rows: their numbers.
        depth: tokens of the beginning that the cache holds.
        cache: of the beginning, one copy a row; None at depth 0.
    """

    rows: list[int]
    depth: int
    cache: Any


Ids = Sequence[int]


def common_length(one: Ids, other: Ids, known: int = 0) -> int:
    """Return how many tokens two rows have in common from their beginning; the first `known` are known equal."""
    low, high = known, min(len(one), len(other))
    while low < high:  # the first difference is in [low, high]
        middle = (low + high + 1) // 2
        low, high = (middle, high) if one[low:middle] == other[low:middle] else (low, middle - 1)
    return low


def plan_saving(heads: Sequence[Ids], rests: Sequence[int]) -> float:
    """Return tokens of separate rows for each token that a walk computes.

    Args:
        heads: the shareable beginning of each row.
        rests: tokens of each row beyond it.
    """
    plain = sum(len(head) + rest for head, rest in zip(heads, rests, strict=True))
    computed = sum(rests) + sum(end - start for group in _roots(heads) for start, end in _pieces(heads, group, 0))
    return plain / max(1, computed)


def _pieces(heads: Sequence[Ids], group: list[int], depth: int) -> Iterator[tuple[int, int]]:
    """Yield the piece of every pass that a walk makes over beginnings, and those that leaves compute themselves."""
    shared, leaves, groups = _node(heads, group, depth)
    yield depth, shared
    yield from ((shared, len(heads[i])) for i in leaves)
    for below in groups:
        yield from _pieces(heads, below, shared)


def _roots(heads: Sequence[Ids]) -> list[list[int]]:
    order = sorted(range(len(heads)), key=lambda i: (list(heads[i]), i))
    return [order] if order else []


def _node(heads: Sequence[Ids], group: list[int], depth: int) -> tuple[int, list[int], list[list[int]]]:
    """Return how far a sorted group agrees, which of its rows are leaves there, and the groups that go on together."""
    shared = common_length(heads[group[0]], heads[group[-1]]) if len(group) > 1 else depth
    shared = shared if shared - depth >= LEAST_SHARED else depth
    runs: list[list[int]] = []
    for i in group:
        if runs and common_length(heads[runs[-1][-1]], heads[i]) - shared >= LEAST_SHARED:
            runs[-1].append(i)
        else:
            runs.append([i])
    return shared, [run[0] for run in runs if len(run) == 1], [run for run in runs if len(run) > 1]


def shared_heads(heads: Sequence[Ids]) -> list[Ids]:
    """Return each beginning that several rows share, a shorter one before those that go on from it."""
    shared_ones, waiting = list[Ids](), [(group, 0) for group in _roots(heads)]
    while waiting:
        group, depth = waiting.pop()
        shared, _, groups = _node(heads, group, depth)
        if shared > depth:
            shared_ones.append(heads[group[0]][:shared])
        waiting += [(below, shared) for below in reversed(groups)]
    return shared_ones


def walk(model: Any, heads: Sequence[Ids], rests: Sequence[int], batch_size: int) -> Iterator[Leaves]:
    """Yield rows in batches with the cache of what they share; every row once.

    The model is called for shared pieces only; the caller computes the rest of each row and may change its cache.

    Args:
        model: a causal language model of transformers.
        heads: the shareable beginning of each row.
        rests: tokens of each row beyond it.
        batch_size: most rows together.
    """
    from transformers import DynamicCache

    lengths = [len(head) + rest for head, rest in zip(heads, rests, strict=True)]
    waiting = [(group, 0, DynamicCache(config=model.config.get_text_config())) for group in _roots(heads)]
    while waiting:
        group, depth, cache = waiting.pop()
        shared, leaves, groups = _node(heads, group, depth)
        if shared > depth:
            _extend(model, heads[group[0]][depth:shared], depth, cache)
        for rows in _batches(leaves, lengths, batch_size):
            yield Leaves(rows, shared, _fork(cache, len(rows)) if shared else None)
        waiting += [(below, shared, _fork(cache, 1)) for below in reversed(groups)]


def _batches(rows: list[int], lengths: Sequence[int], size: int) -> Iterator[list[int]]:
    """Yield rows in batches of like length, longest first, no more of them than their caches may hold together."""
    waiting = sorted(rows, key=lambda i: (-lengths[i], i))
    while waiting:
        most = max(1, min(size, MOST_CELLS // max(1, lengths[waiting[0]])))
        yield waiting[:most]
        waiting = waiting[most:]


def _extend(model: Any, ids: Ids, depth: int, cache: Any) -> None:
    import torch

    piece = torch.tensor([list(ids)], device=model.device)
    places = torch.arange(depth, depth + len(ids), device=model.device)[None]
    model(input_ids=piece, position_ids=places, use_cache=True, logits_to_keep=1, **cache_argument(model, cache))


def cache_argument(model: Any, cache: Any) -> dict[str, Any]:
    """Return a cache under the name that the model's `forward` has for it: transformers renamed it in 5.24."""
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    return {"cache" if "cache" in inspect.signature(base.forward).parameters else "past_key_values": cache}


def _fork(cache: Any, rows: int) -> Any:
    """Return a cache that goes on by itself; what is there is shared, because layers grow by making new tensors."""
    fork = copy.copy(cache)
    fork.layers = [copy.copy(layer) for layer in cache.layers]
    if rows > 1:
        fork.batch_repeat_interleave(rows)
    return fork
