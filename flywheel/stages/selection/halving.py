"""Successive halving: candidates share a budget rung by rung, and the better half of them goes on.

Jamieson and Talwalkar 2016 (arXiv 1502.07943): the budget is divided equally among the rungs, and a rung's share among
those who are still in it, so that later rungs train longer. Ties are won by the candidate that is named first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple


class Rung(NamedTuple):
    """One rung: who is in it, and how many tokens each of them may train on."""

    number: int  # from 1
    names: tuple[str, ...]
    tokens: int


def sizes(candidates: int) -> list[int]:
    """Return how many candidates each rung has, at most."""
    left = [candidates] if candidates > 1 else []
    while left and left[-1] > 2:  # noqa: PLR2004 - the last rung has two
        left.append(math.ceil(left[-1] / 2))
    return left


def halve(names: Sequence[str], budget: int, scored: Callable[[Rung], Mapping[str, float] | None]) -> list[str] | None:
    """Return the candidates of the last rung, best first; None where a rung has no scores yet.

    Args:
        names: two or more, simpler ones first.
        budget: tokens of all candidates and rungs together.
        scored: gives the score of each candidate of a rung; those that it leaves out have failed.
    """
    rungs, ranked = sizes(len(names)), list(names)
    for number, size in enumerate(rungs, 1):
        scores = scored(Rung(number, tuple(ranked[:size]), budget // len(rungs) // size))
        if scores is None:
            return None
        ranked = sorted(scores, key=lambda name: (-scores[name], names.index(name)))
    return ranked
