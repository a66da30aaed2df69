"""Success or failure from several imperfect votes, by Dawid and Skene's EM.

In: distinct patterns of votes with their counts. Out: the posterior of each, and the reliability of each voter.
Everything is a matrix product over distinct patterns, so a million episodes cost what their few
hundred patterns cost.

Sources: Dawid and Skene, Maximum likelihood estimation of observer error-rates using the EM algorithm, Applied
Statistics 28 (1979), 20-28; dependent voters form a family that shares one vote.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    Floats = npt.NDArray[np.float64]
    Ints = npt.NDArray[np.int64]

_EDGE = 1e-6  # rates stay this far from 0 and 1
_TOLERANCE = 1e-9  # largest move of a posterior at which the iterations stop
_MOST_ITERATIONS = 500


class BinaryFit(NamedTuple):
    """What `fit_binary` found.

    `tpr` (J) is P(vote is + | success, it votes), `tnr` (J) P(vote is - | failure, it votes), `prior` P(success), `q`
    (n) the posterior of each pattern.
    """

    tpr: Floats
    tnr: Floats
    prior: float
    q: Floats


def log_odds_of_votes(votes: Ints, shares: Floats, tpr: Floats, tnr: Floats) -> Floats:
    """Return what the votes (n, J) add to the log-odds of success (n)."""
    good, bad = np.log(tpr / (1 - tnr)), np.log((1 - tpr) / tnr)
    return np.asarray((shares * (votes > 0)) @ good + (shares * (votes < 0)) @ bad)


def fit_binary(  # noqa: PLR0913 - the data, their weights, and what is known of them before
    votes: Ints,
    counts: Floats,
    shares: Floats,
    *,
    gold: Floats | None = None,
    anchors: tuple[Floats, Floats] | None = None,
    strength: float | Floats = 4.0,
    prior: float | None = None,
) -> BinaryFit:
    """Fit success and failure by MAP EM over distinct patterns of votes.

    Args:
        votes: (n, J) of +1, -1 and 0 (silent, which is not evidence).
        counts: (n) how many items have the pattern.
        shares: (n, J) weight of each vote in the log-odds; voters of a family share one vote.
        gold: (n) the known truth in [0, 1], NaN where it is not known; known rows are never changed.
        anchors: (J) and (J) prior means of tpr and tnr; the default is 3/4 each, Beta(4, 2) in its mode.
        strength: how many votes an anchor is worth, one number or (J).
        prior: P(success) if it is known otherwise, such as from an audit.

    A voter that would come out as worse than a coin is taken to be no evidence (tpr = 1 - tnr): with anchors on the
    right side, success and failure can never change places.
    """
    plus, minus = (votes > 0).astype(float), (votes < 0).astype(float)
    voted = plus + minus
    a0, b0 = anchors if anchors is not None else (np.full(votes.shape[1], 0.75), np.full(votes.shape[1], 0.75))
    known = np.isfinite(gold) if gold is not None else np.zeros(len(votes), dtype=bool)
    pros = (plus.sum(axis=1) + 0.5) / (voted.sum(axis=1) + 1)
    q = np.where(known, gold if gold is not None else 0.0, np.clip(pros, 0.05, 0.95))
    tpr, tnr, pi = a0, b0, 0.5
    for _ in range(_MOST_ITERATIONS):
        good, bad = counts * q, counts * (1 - q)
        tpr = (good @ plus + strength * a0) / (good @ voted + strength)
        tnr = (bad @ minus + strength * b0) / (bad @ voted + strength)
        tpr, tnr = _no_worse_than_a_coin(tpr, tnr)
        pi = float(good.sum() / counts.sum()) if prior is None else prior
        pi = min(max(pi, _EDGE), 1 - _EDGE)
        logit = np.log(pi / (1 - pi)) + log_odds_of_votes(votes, shares, tpr, tnr)
        following = np.where(known, q, 1 / (1 + np.exp(-np.clip(logit, -500, 500))))
        moved = float(np.abs(following - q).max(initial=0.0))
        q = following
        if moved <= _TOLERANCE:
            break
    return BinaryFit(tpr, tnr, pi, q)


def _no_worse_than_a_coin(tpr: Floats, tnr: Floats) -> tuple[Floats, Floats]:
    excess = np.maximum(1 - tpr - tnr, 0) / 2
    return np.clip(tpr + excess, _EDGE, 1 - _EDGE), np.clip(tnr + excess, _EDGE, 1 - _EDGE)
