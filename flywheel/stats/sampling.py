"""Sampling that represents the whole: strata, how many of each, and with which probability.

Source: Cochran, Sampling Techniques (1977), chapters 5 and 9A; weights are 1 / inclusion probability.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence


def allocate(sizes: Mapping[str, int], n: int) -> dict[str, int]:
    """Return how many to sample of each stratum: in proportion to the root of its size, at least one while n lasts.

    Small strata get more than their share, since rare cases are where labels go wrong; no stratum is
    asked for more than it has. With fewer draws than strata no design could represent all of them: merge them first.

    Raises:
        ValueError: n is below the number of strata.
    """
    left = {name: size for name, size in sorted(sizes.items()) if size > 0}
    if n < len(left):
        raise ValueError("fewer draws than strata")
    counts = dict.fromkeys(left, 1)
    for _ in range(min(n, sum(left.values())) - len(left)):
        open_ = [name for name in left if counts[name] < left[name]]
        # Sainte-Laguë: the stratum that is owed most gets the next one.
        best = max(open_, key=lambda name: (math.sqrt(left[name]) / (2 * counts[name] + 1), name))
        counts[best] += 1
    return counts


def draw(members: Mapping[str, Sequence[str]], n: int, *, seed: str) -> dict[str, float]:
    """Return the sampled names with their inclusion probabilities.

    Args:
        members: names by stratum.
        n: how many to draw in all.
        seed: names the draw; a hash of it and a name decides, so neither order nor partitions matter.
    """
    counts = allocate({stratum: len(names) for stratum, names in members.items()}, n)
    sampled: dict[str, float] = {}
    for stratum, count in counts.items():
        names = sorted(members[stratum], key=lambda name: hashlib.sha256(f"{seed}\0{name}".encode()).hexdigest())
        sampled |= dict.fromkeys(names[:count], count / len(names))
    return sampled
