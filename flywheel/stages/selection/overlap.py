"""What must be known of all rows together: overlap with evaluation answers, and which side of pairs is longer.

In: the texts of rows. Out: which of them to leave out. Pure and in order of content.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Sequence

from flywheel.records import texts_in

__all__ = ["answers_shared", "longer_wins", "too_long_winded"]

GRAM = 13  # words: what common practice takes for copied, not coincidence
BALANCE = 0.1  # of the mean length


def answers_shared(texts: Sequence[str], answers: Iterable[str]) -> list[bool]:
    """Return which texts (JSON lists of messages) share 13 words in a row with one of the answers."""
    known = {gram for answer in answers for gram in _grams(answer)}
    return [bool(known) and any(gram in known for gram in _grams(text)) for text in texts]


def _grams(messages: str) -> Iterator[int]:
    for text in texts_in(json.loads(messages)):
        words = re.findall(r"\w+", text.lower())
        yield from (hash(tuple(words[n : n + GRAM])) for n in range(len(words) - GRAM + 1))


def too_long_winded(lengths: Sequence[tuple[int, int]], ids: Sequence[str]) -> list[bool]:
    """Return which pairs to leave out so that length explains little: |mean(chosen - rejected)| <= 0.1 mean length.

    Those that length explains best go first, from the heavier side, ties by id; what pulls the other way stays, and
    none goes that would only turn the balance round.
    """
    total = sum(a - b for a, b in lengths)
    size = sum(a + b for a, b in lengths) / 2
    sign = 1 if total > 0 else -1
    heavy = sorted(range(len(ids)), key=lambda n: (-sign * (lengths[n][0] - lengths[n][1]), ids[n]))
    out = [False] * len(ids)
    for n in heavy:
        longer = lengths[n][0] - lengths[n][1]
        if abs(total) <= BALANCE * size or sign * longer <= 0:
            break
        if abs(total - longer) < abs(total):
            out[n] = True
            total -= longer
            size -= sum(lengths[n]) / 2
    return out


def longer_wins(lengths: Sequence[tuple[int, int]]) -> float:
    """Return P(the longer side is the chosen one), equal lengths counting half; 0.5 without pairs."""
    wins = math.fsum(1.0 if a > b else 0.5 if a == b else 0.0 for a, b in lengths)
    return wins / len(lengths) if lengths else 0.5
