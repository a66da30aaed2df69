"""Many noisy differences at once: how large they are in truth, each with its uncertainty (empirical Bayes).

In: observed differences and the variance of each one's noise. Out: how the true differences are spread (`fit_prior`),
and with that each difference's posterior (`posterior`). The prior is symmetric and discrete: a spike at 0 and pairs of
atoms at plus and minus each of `SIZES`. Its shares are uncertain: hypotheses, each weighed by how well it explains what
was observed: nothing differs; or some share differs, all by one size or normally. A few differences cannot tell these
apart, so they show little; many can, and then the prior follows the log, whether one decision of many matters or all
do. A posterior is the mean over hypotheses of what each makes of the difference; with the mean of their shares instead,
an observation would count twice, for the hypotheses and again under them. A difference has no direction of its own: d
and -d are one observation.

A spike and a slab: Mitchell and Beauchamp (1988), JASA 83(404). Means over hypotheses: Hoeting et al. (1999), "Bayesian
model averaging", Statistical Science 14(4).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

# Sizes of true differences in units of the returns: with two outcomes, -1 and 1, .1 is five points of P(success).
SIZES = np.array([0.0, 0.03, 0.06, 0.09, 0.12, 0.16, 0.21, 0.27, 0.35, 0.45, 0.58, 0.75, 0.97, 1.25, 1.6])
NOTHING_DIFFERS = 0.3  # probability of it, before anything is observed
# Shares of differences that are none, with their weights: that most are none is likelier than that all are some.
SHARES_OF_NONE = {0.0: 1, 0.3: 1, 0.5: 2, 0.7: 4, 0.8: 8, 0.9: 8, 0.95: 8, 0.98: 8}
_UNEXPLAINED = 0.3  # least share of the outcomes' variance that no difference explains
_UNLIKELY = 1e-4  # hypotheses of which less is left are forgotten
_DIGITS = 9  # after the point, of the weights of hypotheses
_TINY = 1e-300


class Differences(NamedTuple):
    """N observed differences."""

    x: Floats  # (N,)
    variance: Floats  # of their noise where there is no difference, (N,); infinite where nothing was observed
    apart: Floats  # (N,): a true difference was observed elsewhere, and its variance from here is this part of d^2
    explained: Floats  # (N,): of the noise, a true difference takes off this part of d^2: it is not chance


class Prior(NamedTuple):
    """How true differences are spread, under each of H hypotheses."""

    weights: Floats = np.ones(1)  # the hypotheses' probabilities, (H,)
    shares: Floats = np.eye(1, len(SIZES))  # of each of `SIZES`, (H, K)

    @property
    def none(self) -> float:
        """Return the share of differences that are expected to be none."""
        return float(self.weights @ self.shares[:, 0])


class Posterior(NamedTuple):
    """What is known of each of N true differences."""

    mean: Floats
    sd: Floats
    above: Floats  # P(difference > 0)
    below: Floats  # P(difference < 0); the rest is P(no difference)


def _sides(seen: Differences) -> tuple[Floats, Floats]:
    """Return half the density of each observation at plus and at minus each size, up to a factor of its own, (N, K).

    Outcomes vary by the difference too. What it explains is taken off the noise, so that a large difference shows
    itself more exactly than none.
    """
    explained, apart = ((part / seen.variance)[:, None] * SIZES**2 for part in (seen.explained, seen.apart))
    noise = np.maximum(1 - explained, _UNEXPLAINED) + apart
    spread = seen.variance[:, None] * noise
    plus, minus = (-0.5 * ((seen.x[:, None] - sign * SIZES) ** 2 / spread + np.log(noise)) for sign in (1, -1))
    most = np.maximum(plus, minus).max(axis=1, keepdims=True)
    return np.exp(plus - most) / 2, np.exp(minus - most) / 2


def densities(seen: Differences) -> Floats:
    """Return the density of each observation under each size, up to a factor of its own, (N, K)."""
    return np.add(*_sides(seen))


def _hypotheses() -> tuple[Floats, Floats]:
    """Return the shares of `SIZES` under each of H hypotheses, (H, K), and the hypotheses' probabilities, (H,)."""
    atoms = np.eye(len(SIZES))
    edges = [*(SIZES[1:] + SIZES[:-1]) / 2, np.inf]
    normal = [[0, *np.diff([math.erf(edge / size / math.sqrt(2)) for edge in edges])] for size in SIZES[2:]]
    some = np.concatenate([atoms[1:], np.array(normal) / np.sum(normal, axis=1, keepdims=True)])
    mixed = [none * atoms[0] + (1 - none) * some for none in SHARES_OF_NONE]
    weights = np.repeat(list(SHARES_OF_NONE.values()), len(some))
    each = (1 - NOTHING_DIFFERS) * weights / weights.sum()
    return np.concatenate([atoms[:1], *mixed]), np.concatenate([[NOTHING_DIFFERS], each])


def fit_prior(seen: Differences, weight: Floats | None = None) -> Prior:
    """Return how true differences are spread.

    Args:
        seen: observed differences, of finite variance.
        weight: how many differences each counts as, (N,); one, if not given.
    """
    weight = np.ones(len(seen.x)) if weight is None else weight
    hypotheses, before = _hypotheses()
    explained = weight @ np.log(np.maximum(densities(seen) @ hypotheses.T, _TINY))
    after = before * np.exp(explained - explained.max())
    left = after > _UNLIKELY * after.sum()
    # Another CPU's kernel adds up in another order: the last digits are not part of what was learned.
    return Prior((after[left] / after[left].sum()).round(_DIGITS), hypotheses[left])


def posterior(seen: Differences, prior: Prior) -> Posterior:
    """Return each true difference's posterior."""
    blind = ~np.isfinite(seen.variance)
    finite = (np.where(blind, other, values) for values, other in zip(seen, (0.0, 1.0, 0.0, 0.0), strict=True))
    plus, minus = (np.where(blind[:, None], 0.5, side) for side in _sides(Differences(*finite)))
    weights = prior.weights / np.maximum((plus + minus) @ prior.shares.T, _TINY)
    plus, minus = (side * (weights @ prior.shares) for side in (plus, minus))
    mean = (plus - minus) @ SIZES
    second = (plus + minus) @ SIZES**2
    return Posterior(
        mean=mean,
        sd=np.sqrt(np.maximum(second - mean**2, 0.0)),
        above=plus[:, 1:].sum(axis=1),
        below=minus[:, 1:].sum(axis=1),
    )
