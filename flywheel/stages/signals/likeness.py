"""How alike two texts are: edit distance of an accepted output, and overlap of two requests.

In: two texts. Out: a number in [0, 1]. Linear in practice and free of dependencies.
"""

from __future__ import annotations

import math
from collections import Counter
from functools import lru_cache

COMPARE_AT_MOST = 20_000  # characters: keeps the cost of one hostile edit below a second


def levenshtein(one: str, other: str) -> int:
    """Return the edit distance, by Myers' bit-parallel algorithm in Hyyrö's form: one big integer holds a column."""
    if not one:
        return len(other)
    places: dict[str, int] = {}
    for position, letter in enumerate(one):
        places[letter] = places.get(letter, 0) | 1 << position
    full = (1 << len(one)) - 1
    top = 1 << (len(one) - 1)
    plus, minus, distance = full, 0, len(one)
    for letter in other:
        match = places.get(letter, 0)
        diagonal = ((((match & plus) + plus) ^ plus) | match | minus) & full
        up, down = minus | ~(diagonal | plus) & full, plus & diagonal
        distance += bool(up & top) - bool(down & top)
        up, down = (up << 1 | 1) & full, (down << 1) & full
        plus, minus = down | ~(diagonal | up) & full, up & diagonal
    return distance


def edit_share(before: str, after: str) -> float:
    """Return the edit distance as a share of the longer text: 0 for kept as it was, 1 for rewritten."""
    before, after = " ".join(before[:COMPARE_AT_MOST].split()), " ".join(after[:COMPARE_AT_MOST].split())
    longer = max(len(before), len(after))
    return levenshtein(before, after) / longer if longer else 0.0


def trigram_cosine(one: str, other: str) -> float:
    """Return the cosine of the two texts' counts of character 3-grams."""
    (first, norm), (second, other_norm) = _trigrams(one), _trigrams(other)
    shared = sum(first[gram] * second[gram] for gram in first.keys() & second.keys())
    return shared / math.sqrt(norm * other_norm) if norm and other_norm else 0.0


@lru_cache(maxsize=64)
def _trigrams(text: str) -> tuple[Counter[str], int]:
    """Return counts and their squared norm; cached, since a turn is compared with several others in a row."""
    padded = f" {' '.join(text.split())} "
    counts = Counter(map("".join, zip(padded, padded[1:], padded[2:], strict=False)))
    return counts, sum(count * count for count in counts.values())
