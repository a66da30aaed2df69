"""Off-policy estimates: what a new policy would have earned, from what an old one logged.

In: arrays over logged rows or trajectories. Out: one term a row, whose mean is the estimate, so that intervals are
those of a mean and a known answer can be enumerated exactly. They inform and may veto; nothing is promoted on them.

One step:   IPS  w r        SNIPS  s + w (r - s) / mean w        DM  v        DR  v + w (r - q)
Many steps: PDIS  sum_t gamma^t rho_0:t r_t
with w = e(a|s)/b(a|s), s = sum w r / sum w, q = q(s, a) of the logged action, v = sum_a e(a|s) q(s, a).
(Horvitz & Thompson 1952; Precup et al. 2000; Dudik et al. 2011; MIPS: Saito & Joachims 2022.)
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from flywheel.stats.overlap import REFUSED, Certificate, certify

if TYPE_CHECKING:
    Floats = npt.NDArray[np.float64]

LONGEST = 5  # steps; the product of more ratios is noise
_DRAWS = 2_000


class Estimate(NamedTuple):
    """An estimate with its interval and certificate; no number where it is refused."""

    name: str
    value: float | None
    low: float | None
    high: float | None
    n: int
    certificate: Certificate


# --- one step ------------------------------------------------------------------------------------------------------


def ips_terms(weights: Floats, rewards: Floats, *, clip: float = math.inf) -> Floats:
    """Return w r, weights clipped from above."""
    terms: Floats = np.minimum(weights, clip) * rewards
    return terms


def snips_terms(weights: Floats, rewards: Floats) -> Floats:
    """Return the self-normalised estimate's terms: it is their mean, and as a ratio it varies by theirs, linearised."""
    total = float(weights.sum()) or 1.0
    value = float((weights * rewards).sum()) / total
    terms: Floats = value + weights * (rewards - value) * (len(weights) / total)
    return terms


def dr_terms(weights: Floats, rewards: Floats, q: Floats, v: Floats) -> Floats:
    """Return v + w (r - q): unbiased if either the weights or q are right."""
    terms: Floats = v + weights * (rewards - q)
    return terms


def marginal_weight(
    target: Mapping[str, float], logger: Mapping[str, float], kind: Mapping[str, str], of: str
) -> float:
    """Return the weight of an action by its kind: e and b summed over all actions of that kind (MIPS).

    Args:
        target: e(a|s).
        logger: b(a|s).
        kind: the kind of each action, e.g. its tool and which arguments it has.
        of: the logged action.
    """
    mine = kind[of]
    wanted = math.fsum(p for action, p in target.items() if kind[action] == mine)
    logged = math.fsum(p for action, p in logger.items() if kind[action] == mine)
    return wanted / logged if logged > 0 else 0.0


# --- many steps: arrays of shape (trajectories, steps); a trajectory that ended has ratio 1 and reward 0 -------------


def pdis_terms(ratios: Floats, rewards: Floats) -> Floats:
    """Return each trajectory's rewards weighted by the ratio of what came before them.

    Raises:
        ValueError: more than five steps.
    """
    if ratios.shape[1] > LONGEST:
        raise ValueError(f"{ratios.shape[1]} steps; more than {LONGEST} are not estimated")
    terms: Floats = (np.cumprod(ratios, axis=1) * rewards).sum(axis=1)
    return terms


# --- the number, if its certificate allows--------------------------------------------------------------------------


def estimate(
    name: str,
    terms: Floats,
    weights: Floats,
    clusters: Sequence[str],
    *,
    typical: float | None = None,
    seed: int = 0,
) -> Estimate:
    """Return the mean of the terms with its 95 % interval, or no number where the certificate refuses.

    Args:
        name: of the estimator.
        terms: one a row.
        weights: the rows' unclipped weights, which the certificate is about.
        clusters: each row's user; whole users are resampled (2,000 draws, percentile interval).
        typical: see `overlap.certify`.
        seed: of the bootstrap.
    """
    names, place = np.unique(np.asarray(clusters), return_inverse=True)
    certificate = certify(weights, clusters=len(names), typical=typical)
    if certificate.state == REFUSED:
        return Estimate(name, None, None, None, len(terms), certificate)
    sums, sizes = np.bincount(place, terms), np.bincount(place)
    rng = np.random.default_rng(seed)
    step = max(1, 4_000_000 // len(names))
    means = [
        sums[sampled].sum(axis=1) / sizes[sampled].sum(axis=1)
        for done in range(0, _DRAWS, step)
        for sampled in [rng.integers(0, len(names), (min(step, _DRAWS - done), len(names)))]
    ]
    low, high = np.quantile(np.concatenate(means), [0.025, 0.975])
    return Estimate(name, float(terms.mean()), float(low), float(high), len(terms), certificate)
