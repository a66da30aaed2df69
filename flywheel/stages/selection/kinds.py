"""Kinds of requests, by their words, and how a policy fared at each in the log.

In: requests, and episodes of a policy. Out: the kind of each request, a number, and the P(success) of the episodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import eq
from typing import NamedTuple

from flywheel.stages.tasks.minhash import masked_words

ALIKE = 0.7  # cosine of the words of two requests of one kind, numbers and ids aside
IN_PLACE = 0.6  # or the share of their words that are the same in the same place, as templates of log lines are found
MOST_KINDS = 256  # of requests; what is like none of them is one more kind
EPISODES = 5  # of a kind, from which it is known how a policy fares there
MOST_EPISODES = 5000  # of a policy that are looked at

Tried = Sequence[tuple[str | None, float]]  # request and P(success) of an episode


class _Words(NamedTuple):
    """The words of a request, in order and as a set."""

    listed: tuple[str, ...]
    seen: frozenset[str]


def fared(tried: Tried, requests: Sequence[str | None]) -> tuple[list[int], dict[int, list[float]]]:
    """Return the kind of each request, and the P(success) of a policy's episodes by kind, where they are enough.

    Args:
        tried: the policy's own episodes.
        requests: whose kinds are asked about.
    """
    tried = tried[:MOST_EPISODES]
    if len(tried) < EPISODES:
        return [0] * len(requests), {}
    kinds = kinds_of([*(request for request, _ in tried), *requests])
    chances: dict[int, list[float]] = {}
    for kind, (_, chance) in zip(kinds, tried, strict=False):
        chances.setdefault(kind, []).append(chance)
    return kinds[len(tried) :], {kind: own for kind, own in chances.items() if len(own) >= EPISODES}


def kinds_of(requests: Iterable[str | None]) -> list[int]:
    """Return the kind of each request, by the first request that is like it.

    Most of their words are the same, or the same in the same place: a short request that names three things shares few
    words with the next. Lines of a log are of one template if they are as long as each other and alike place by place
    (Drain, He et al. 2017).
    """
    leaders, kinds = list[_Words](), dict[tuple[str, ...], int]()
    found = []
    for request in requests:
        words = tuple(masked_words(request or ""))
        if words not in kinds:
            own = _Words(words, frozenset(words))
            place = next((n for n, leader in enumerate(leaders) if _alike(own, leader)), len(leaders))
            kinds[words] = place
            if place == len(leaders) < MOST_KINDS:
                leaders.append(own)
        found.append(kinds[words])
    return found


def _alike(one: _Words, other: _Words) -> bool:
    if (
        len(one.listed) == len(other.listed)
        and sum(map(eq, one.listed, other.listed)) >= IN_PLACE * len(one.listed) > 0
    ):
        return True
    return len(one.seen & other.seen) ** 2 >= ALIKE**2 * len(one.seen) * len(other.seen) > 0
