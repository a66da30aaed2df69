"""Evidence that comes late: how much of it has arrived at an age, and what silence so far implies.

In: for each item, how long it was watched and whether its evidence came. Out: the share of all items whose evidence has
come by an age, which levels off below 1 because for most it never comes. Times are in any one unit.

Sources: Kaplan and Meier, JASA 53 (1958); the use for delayed labels follows Chapelle, KDD 2014.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    Floats = npt.NDArray[np.float64]


class Delays(NamedTuple):
    """P(evidence has come by a time): `shares[k]` from `times[k]` on, 0 before the first; the last is the plateau."""

    times: tuple[float, ...]
    shares: tuple[float, ...]

    def at(self, age: float) -> float:
        """Return P(evidence has come by this age)."""
        from bisect import bisect_right

        place = bisect_right(self.times, age)
        return self.shares[place - 1] if place else 0.0


def kaplan_meier(watched: Floats, came: npt.NDArray[np.bool_], counts: npt.NDArray[np.int64] | None = None) -> Delays:
    """Return the Kaplan-Meier estimate of the delay's distribution.

    Args:
        watched: (n) min(delay, age) of each item, not negative.
        came: (n) whether the evidence came; where it did not, the item was watched for its age.
        counts: (n) how many items are like that; None: one each.
    """
    counts = np.ones(len(watched), dtype=np.int64) if counts is None else counts
    order = np.argsort(watched)
    left = np.cumsum(counts[order][::-1])[::-1]  # items watched for at least so long
    times, places = np.unique(watched[came], return_inverse=True)
    events = np.zeros(len(times), dtype=np.int64)
    np.add.at(events, places, counts[came])
    at_risk = left[np.searchsorted(watched[order], times, side="left")]
    shares = 1 - np.cumprod(1 - events / at_risk)
    return Delays(tuple(times.tolist()), tuple(shares.tolist()))


def thinned(delays: Delays, most: int) -> Delays:
    """Return the curve with at most so many knots, spread evenly over its rise; first and last stay."""
    if len(delays.times) <= most:
        return delays
    last = len(delays.times) - 1
    kept = sorted({round(k * last / (most - 1)) for k in range(most)})
    return Delays(tuple(delays.times[k] for k in kept), tuple(delays.shares[k] for k in kept))


def maturity(delays: Delays, age: float, horizon: float) -> float:
    """Return the share of the evidence expected by the horizon that has come at an age; 1 from the horizon on."""
    expected = delays.at(horizon)
    return 1.0 if age >= horizon or expected <= 0 else min(delays.at(age) / expected, 1.0)


def late_after_silence(ever: float, arrived: float) -> float:
    """Return P(it comes yet | nothing came so far) = p (1 - F) / (1 - p F).

    Args:
        ever: p, the probability that it comes at all.
        arrived: F, the share of what comes that has come by now.
    """
    left = 1 - ever * arrived
    return ever * (1 - arrived) / left if left > 0 else 0.0
