"""Requests that users repeat in other words, as an absorbing Markov chain: where each of them ends.

Source: Ponnusamy et al., Feedback-based self-learning in large-scale conversational AI agents, AAAI 2020
(arXiv:1911.02557); Kemeny and Snell, Finite Markov Chains (1960), for the fundamental matrix.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    Floats = npt.NDArray[np.float64]


class Absorption(NamedTuple):
    """`ends` (n, m): P(a request ends in each absorbing state); `visits` (n, n): expected visits; `friction` (n)."""

    ends: Floats
    visits: Floats
    friction: Floats


def absorb(moves: Floats, ends: Floats) -> Absorption:
    """Return where a chain with these transient moves (n, n) and final moves (n, m) ends.

    Rows of both together sum to 1. Friction is how many requests it takes until the end.
    """
    visits = np.linalg.solve(np.eye(len(moves)) - moves, np.eye(len(moves)))
    friction = np.asarray(visits.sum(axis=1), dtype=np.float64)
    return Absorption(np.asarray(visits @ ends, dtype=np.float64), np.asarray(visits, dtype=np.float64), friction)
