"""Many noisy differences at once: how large they are in truth, each with its uncertainty (empirical Bayes).

In: observed differences and the variance of each one's noise. Out: how the true differences are spread (`fit_prior`),
and with that each difference's posterior (`posterior`). The prior is symmetric and discrete: a spike at 0 and pairs of
atoms at plus and minus each of `SIZES`, whose shares are fitted by EM. So it follows the log, whether one decision of
many matters, or all do alike. Pseudo-counts on the spike keep a few differences from showing anything by themselves.
A difference has no direction of its own: d and -d are one observation.

Nonparametric maximum likelihood: Kiefer and Wolfowitz (1956); on a grid, Koenker and Mizera (2014), JASA 109(506). The
penalty on the spike: Stephens (2017), "False discovery rates: a new deal", Biostatistics 18(2).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

# Sizes of true differences in units of the returns: with two outcomes, -1 and 1, .1 is five points of P(success).
SIZES = np.array([0.0, 0.03, 0.06, 0.09, 0.12, 0.16, 0.21, 0.27, 0.35, 0.45, 0.58, 0.75, 0.97, 1.25, 1.6])
SPIKE = 6.0  # pseudo-differences that are none
SLAB = 2.0  # pseudo-differences, spread evenly over the other sizes
_ROUNDS, _CLOSE = 400, 1e-5
_TINY = 1e-300


class Posterior(NamedTuple):
    """What is known of each of N true differences."""

    mean: Floats
    sd: Floats
    above: Floats  # P(difference > 0)
    below: Floats  # P(difference < 0); the rest is P(no difference)


def _sides(x: Floats, variance: Floats) -> tuple[Floats, Floats]:
    """Return half the density of each observation at plus and at minus each size, up to a factor of its own, (N, K)."""
    plus, minus = (-0.5 * (x[:, None] - sign * SIZES) ** 2 / variance[:, None] for sign in (1, -1))
    most = np.maximum(plus, minus).max(axis=1, keepdims=True)
    return np.exp(plus - most) / 2, np.exp(minus - most) / 2


def _pseudo_counts() -> Floats:
    pseudo = np.full(len(SIZES), SLAB / (len(SIZES) - 1))
    pseudo[0] = SPIKE
    return pseudo


def fit_prior(x: Floats, variance: Floats, weight: Floats | None = None) -> Floats:
    """Return the share of each of `SIZES` among the true differences, (K,).

    Args:
        x: observed differences, (N,).
        variance: of their noise, positive and finite, (N,).
        weight: how many differences each counts as; one, if not given.
    """
    weight = np.ones(len(x)) if weight is None else weight
    pseudo = _pseudo_counts()
    shares: Floats = pseudo / pseudo.sum()
    densities = np.add(*_sides(x, variance))
    for _ in range(_ROUNDS):
        before, joint = shares, densities * shares
        counts = pseudo + (weight / np.maximum(joint.sum(axis=1), _TINY)) @ joint
        shares = counts / counts.sum()
        if np.abs(shares - before).max() < _CLOSE:
            break
    return shares


def posterior(x: Floats, variance: Floats, shares: Floats) -> Posterior:
    """Return each true difference's posterior.

    Args:
        x: observed differences, (N,).
        variance: of their noise, (N,); infinite where nothing was observed.
        shares: of each of `SIZES`, as `fit_prior` returns them.
    """
    blind = ~np.isfinite(variance)
    plus, minus = _sides(np.where(blind, 0.0, x), np.where(blind, 1.0, variance))
    plus, minus = (np.where(blind[:, None], 0.5, side) * shares for side in (plus, minus))
    total = np.maximum((plus + minus).sum(axis=1, keepdims=True), _TINY)
    plus, minus = plus / total, minus / total
    mean = (plus - minus) @ SIZES
    second = (plus + minus) @ SIZES**2
    return Posterior(
        mean=mean,
        sd=np.sqrt(np.maximum(second - mean**2, 0.0)),
        above=plus[:, 1:].sum(axis=1),
        below=minus[:, 1:].sum(axis=1),
    )
