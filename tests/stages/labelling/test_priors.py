"""What a vote is worth."""

from __future__ import annotations

import math

import pytest
from flywheel.config import RewardsConfig
from flywheel.stages.labelling.priors import PRIORS, SENTIMENT_CAP, log_odds
from flywheel.stages.signals.rows import ANSWERED, REJECTIONS


@pytest.mark.parametrize(
    ("signal", "score", "odds"),
    [
        ("adopted", 1, math.log(0.85 / 0.25)),
        ("complaint", -1, math.log(0.08 / 0.85)),
        ("thumbs", 1, SENTIMENT_CAP),
        ("thumbs", -0.5, math.log(0.10 / 0.80) / 2),
        ("a plugin", 1, math.log(7 / 3)),
        ("a plugin", -1, math.log(3 / 7)),
    ],
)
def test_known_log_odds(signal: str, score: float, odds: float) -> None:
    assert log_odds(signal, score) == pytest.approx(odds)


UNPROVEN = {"claim"}  # worth nothing until known outcomes show otherwise
NO_VOTE = {"cost", "latency", "questions", "risk", "unconfirmed", "tainted", "injection", "leak"}


def test_every_voting_signal_has_a_prior_that_points_its_way() -> None:
    answered = {ANSWERED + name for name in REJECTIONS}
    assert {name for name, _ in PRIORS} == (set(RewardsConfig().signals) - NO_VOTE - UNPROVEN) | answered
    assert all(log_odds(name, sign) * sign > 0 for name, sign in PRIORS)
