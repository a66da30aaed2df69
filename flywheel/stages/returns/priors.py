"""How far each signal is believed before anything was audited.

In: a signal's name and the sign of its vote. Out: its log-odds. The rates are engineering priors, not measurements: a
success probability made from them is uncalibrated until an audit says otherwise.
"""

from __future__ import annotations

import math
from typing import NamedTuple

__all__ = ["PRIORS", "SENTIMENT_CAP", "SURE", "Reliability", "log_odds"]

SURE = 0.97  # what a verifier's verdict is worth: it decides alone, and is not quite certain
SENTIMENT_CAP = math.log(2)  # praise is cheap: all of it together doubles the odds at most


class Reliability(NamedTuple):
    """P(vote is + | success, it votes) and P(vote is - | failure, it votes)."""

    tpr: float
    tnr: float


PRIORS: dict[tuple[str, int], Reliability] = {
    ("outcome", 1): Reliability(SURE, SURE),
    ("outcome", -1): Reliability(SURE, SURE),
    ("adopted", 1): Reliability(0.85, 0.75),
    ("user_edit", 1): Reliability(0.92, 0.88),  # retained
    ("user_edit", -1): Reliability(0.85, 0.80),  # replaced
    ("undo", -1): Reliability(0.85, 0.80),
    ("complaint", -1): Reliability(0.92, 0.85),
    ("correction", -1): Reliability(0.85, 0.80),
    ("retry", -1): Reliability(0.80, 0.75),
    ("rephrase", -1): Reliability(0.75, 0.80),
    ("escalate", -1): Reliability(0.90, 0.80),
    ("tool_error", -1): Reliability(0.85, 0.75),
    ("recovery", 1): Reliability(0.52, 0.50),  # next to nothing for the episode: an error was made as well
    ("effort", 1): Reliability(0.70, 0.70),
    ("effort", -1): Reliability(0.70, 0.70),
    ("agreement", 1): Reliability(0.85, 0.80),
    ("agreement", -1): Reliability(0.85, 0.80),
    ("loop", -1): Reliability(0.75, 0.80),
    ("thumbs", -1): Reliability(0.90, 0.80),
    ("thumbs", 1): Reliability(0.80, 0.60),
    ("thanks", 1): Reliability(0.80, 0.60),
    ("abandon", -1): Reliability(0.60, 0.70),
}
_UNKNOWN = Reliability(0.70, 0.70)  # a signal of which nothing is known, such as a plugin's


def log_odds(signal: str, score: float) -> float:
    """Return what a vote adds to the log-odds of success; a half-hearted vote counts by its size."""
    sign = 1 if score > 0 else -1
    tpr, tnr = PRIORS.get((signal, sign), _UNKNOWN)
    full = math.log(tpr / (1 - tnr)) if sign > 0 else math.log((1 - tpr) / tnr)
    return abs(score) * full
