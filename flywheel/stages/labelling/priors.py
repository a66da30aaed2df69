"""The prior reliability of each signal, before anything is audited.

In: a signal's name and the sign of its vote. Out: its rates, its log-odds, and how long its evidence may take. They are
engineering priors, not measurements: a success probability made from them is uncalibrated until an audit has checked
it. The stage `reliability` starts from them and moves away as far as the log allows.
"""

from __future__ import annotations

import math
from typing import NamedTuple

PRAISE = "sentiment_pos"
PRAISE_ALONE = 0.65  # highest P(success) by praise alone: below what a chosen action needs
UNBACKED = frozenset({PRAISE, "peers", "task", "claims"})  # families without an outcome, a user's deed or a tool
# Highest P(success) by these together: an agent that errs the same way every time agrees with itself. What would be
# above the first is squeezed between both; below it, a probability stays what it is.
PEERS_KEPT, PEERS_ALONE = 0.68, 0.69
FAINT, BACKS = math.log(1.1), math.log(1.5)  # log-odds of other evidence that lifts nothing, and all of it

SURE = 0.97  # P(success) by a verifier's verdict: it decides alone, and is not quite certain
SENTIMENT_CAP = math.log(2)  # praise is cheap: all of it together at most doubles the odds


class Rates(NamedTuple):
    """P(vote is + | success, it votes) and P(vote is - | failure, it votes)."""

    tpr: float
    tnr: float


PRIORS: dict[tuple[str, int], Rates] = {
    ("outcome", 1): Rates(SURE, SURE),
    ("outcome", -1): Rates(SURE, SURE),
    ("adopted", 1): Rates(0.85, 0.75),
    ("user_edit", 1): Rates(0.92, 0.88),  # retained
    ("user_edit", -1): Rates(0.85, 0.80),  # replaced
    ("undo", -1): Rates(0.85, 0.80),
    ("complaint", -1): Rates(0.92, 0.85),
    ("correction", -1): Rates(0.85, 0.80),
    ("retry", -1): Rates(0.80, 0.75),
    ("rephrase", -1): Rates(0.75, 0.80),
    # The agent acted again. Odds ratios on real logs, half of the tasks: .47, .36, .19 (of 9) and 1.02.
    ("answered_complaint", -1): Rates(0.68, 0.55),
    ("answered_correction", -1): Rates(0.70, 0.65),
    ("answered_retry", -1): Rates(0.65, 0.70),
    ("answered_rephrase", -1): Rates(0.60, 0.45),
    ("escalate", -1): Rates(0.90, 0.80),
    ("tool_error", -1): Rates(0.85, 0.75),
    ("recovery", 1): Rates(0.52, 0.50),  # almost no evidence for the episode: an error was made as well
    ("effort", 1): Rates(0.70, 0.70),
    ("effort", -1): Rates(0.70, 0.70),
    ("agreement", 1): Rates(0.85, 0.80),
    ("agreement", -1): Rates(0.85, 0.80),
    ("loop", -1): Rates(0.75, 0.80),
    ("thumbs", -1): Rates(0.90, 0.80),
    ("thumbs", 1): Rates(0.80, 0.60),
    ("thanks", 1): Rates(0.80, 0.60),
    ("abandon", -1): Rates(0.60, 0.70),
}
_UNKNOWN = Rates(0.70, 0.70)  # a signal without a prior of its own, such as a plugin's
# No evidence until known outcomes show its reliability.
_UNPROVEN = {"judge": Rates(0.5, 0.5), "claim": Rates(0.5, 0.5)}


def log_odds(signal: str, score: float) -> float:
    """Return what a vote adds to the log-odds of success, in proportion to its size."""
    sign = 1 if score > 0 else -1
    return abs(score) * full_log_odds(prior_rates(signal, sign), sign)


def prior_rates(signal: str, sign: int) -> Rates:
    """Return the prior rates of a signal's vote of this sign."""
    return _UNPROVEN.get(signal) or PRIORS.get((signal, sign), _UNKNOWN)


def full_log_odds(rates: Rates, sign: int) -> float:
    """Return the log-odds of a full vote of this sign."""
    return math.log(rates.tpr / (1 - rates.tnr)) if sign > 0 else math.log((1 - rates.tpr) / rates.tnr)


_HOUR, _DAY = 3600.0, 86400.0
_HORIZONS = {"verifier": _HOUR, "adoption": _DAY, "sentiment_neg": 14 * _DAY, "sentiment_pos": 7 * _DAY}


def horizon_s(family: str) -> float:
    """Return for how many seconds evidence of a family is waited for."""
    return _HORIZONS.get(family, _DAY)
