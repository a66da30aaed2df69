"""Guesses at what a policy writes next, by what it wrote before: several tokens of a row are then read in one pass.

In: what rows wrote, each with the tokens before it. Out: likely continuations of a row, and how many of them are worth
a place in the next pass. A guess is kept as far as the policy itself would have written it, so that no token depends on
guesses but by rounding: speculative decoding (Leviathan, Kalman and Matias 2023, arXiv 2211.17192) with n-grams as its
draft (Saxena 2023, prompt lookup decoding; He et al. 2023, REST, arXiv 2311.08252). A draw is guessed too: its noise
belongs to its row and place, so that it is known what the policy would have sampled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from operator import add
from typing import TYPE_CHECKING, NamedTuple

from flywheel.models.prefixes import Ids

if TYPE_CHECKING:
    import torch

# Adds noise to the logits of some rows of a batch, each with the place of the token that it is to get.
Noise = Callable[[Sequence[int], Sequence[int], "torch.Tensor"], "torch.Tensor"]

SHORTEST, LONGEST = 2, 6  # tokens by which a continuation is looked up
MOST_GUESSED = 8  # tokens of a row that are guessed at once
MOST_READ = 512  # tokens that a pass reads: each has logits of its own
PASS_TOKENS = {"cpu": 24}  # tokens that a pass reads in the time that it takes apart from them, as measured
_ELSEWHERE = 256  # the same on a GPU; not measured
_MOST_KEPT = 1 << 17  # n-grams


class Guess(NamedTuple):
    """A token, and the chance that it and all guesses before it are right."""

    token: int
    chance: float


class Drafts:
    """What followed each n-gram in what a policy wrote, and how often."""

    def __init__(self) -> None:
        self._after: dict[tuple[int, ...], dict[int, int]] = {}

    def learn(self, before: Ids, written: Ids) -> None:
        """Count what was written, and after what."""
        ids = (*before[-LONGEST:], *written)
        for at in range(len(ids) - len(written), len(ids)):
            for size in range(SHORTEST, min(LONGEST, at) + 1):
                counts = self._after.get(ids[at - size : at])
                if counts is None:
                    if len(self._after) >= _MOST_KEPT:
                        continue
                    counts = self._after[ids[at - size : at]] = {}
                counts[ids[at]] = counts.get(ids[at], 0) + 1

    def guess(self, before: Ids, most: int, end: int) -> list[Guess]:
        """Return what likely follows a row's last tokens: at most so many tokens, none after which a row ends."""
        last, guesses, chance = list(before[-LONGEST:]), list[Guess](), 1.0
        while len(guesses) < min(most, MOST_GUESSED) and (counts := self._counts(last)):
            token = max(counts, key=counts.__getitem__)
            if token == end:
                break
            chance *= (counts[token] + 0.5) / (sum(counts.values()) + 1)
            guesses.append(Guess(token, chance))
            last = [*last, token][-LONGEST:]
        return guesses

    def _counts(self, last: Sequence[int]) -> dict[int, int]:
        """Return what followed the longest known n-gram that a row ends with."""
        known = (self._after.get(tuple(last[-size:])) for size in range(len(last), SHORTEST - 1, -1))
        return next(filter(None, known), {})


def guessed(rows: Sequence[Sequence[Guess]], device: str) -> int:
    """Return how many guesses of each row a pass should read: the most tokens that are right for the time it takes."""
    apart = PASS_TOKENS.get(device, _ELSEWHERE)
    longest = min(max(map(len, rows), default=0), MOST_READ // max(1, len(rows)) - 1)
    at_place = [sum(row[place].chance for row in rows if place < len(row)) for place in range(max(0, longest))]
    right = list(accumulate(at_place, add, initial=float(len(rows))))
    return max(range(len(right)), key=lambda width: (right[width] / (apart + len(rows) * (1 + width)), -width))
