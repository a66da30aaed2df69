"""Numbers and verdicts in words."""

from __future__ import annotations

import math
from typing import Any

import pytest
from flywheel.records import Verdict
from flywheel.report.wording import count, difference, interval, level, number, signed, verdict_words
from tests.report.sample import full_data, manifest, minimal_data

NBSP = "\u00a0"


def test_rates_are_percentages_and_differences_percentage_points() -> None:
    assert level(0.54689) == f"54.7{NBSP}%"
    assert difference(-0.0625) == f"\u22126.2{NBSP}pp"
    assert interval(-0.016, 0.266) == f"[\u22121.6,{NBSP}+26.6]"


def test_other_metrics_are_plain_numbers() -> None:
    assert level(-1.5, binary=False) == "\u22121.500"
    assert difference(0.412, binary=False) == "+0.412"
    assert interval(0.1, 0.2, binary=False) == f"[+0.100,{NBSP}+0.200]"


@pytest.mark.parametrize("missing", [None, math.nan, math.inf])
def test_a_missing_number_is_a_dash(missing: float | None) -> None:
    assert {f(missing) for f in (number, count, level, signed, difference)} == {"\u2013"}
    assert interval(missing, 0.1) == interval(0.1, missing) == "\u2013"


@pytest.mark.parametrize(
    ("value", "words"),
    [(0.0, "0"), (1234.5678, "1,235"), (0.69314, "0.6931"), (5e-5, "5.00e\u221205"), (-2, "\u22122")],
)
def test_plain_numbers_are_short(value: float, words: str) -> None:
    assert number(value) == words


NUMBERS = (
    f"executed_success went from 54.7{NBSP}% (round 1) to 67.2{NBSP}%: +12.5{NBSP}pp, 95 % interval "
    f"[\u22121.6,{NBSP}+26.6], n{NBSP}={NBSP}64."
)


@pytest.mark.parametrize(
    ("decision", "verdict", "label", "sentence", "tone"),
    [
        ("promoted", Verdict.PROMOTE, "Promoted", "Round 2 was promoted: ", "good"),
        (
            "held",
            Verdict.INCONCLUSIVE,
            "Inconclusive",
            "Round 2 was held because the evidence is inconclusive: ",
            "unsure",
        ),
        ("held", Verdict.REJECT, "Rejected", "Round 2 was rejected: ", "bad"),
        ("held", Verdict.BLOCKED, "Blocked", "Round 2 was blocked because it could not be judged: ", "bad"),
    ],
)
def test_a_decision_is_one_sentence_with_its_numbers(
    decision: str, verdict: Verdict, label: str, sentence: str, tone: str
) -> None:
    data = full_data()
    assert data.promotion is not None
    promotion = data.promotion.model_copy(update={"decision": decision, "verdict": verdict})

    words = verdict_words(full_data(promotion=promotion))

    assert words == (label, sentence + NUMBERS, tone)


@pytest.mark.parametrize(
    ("decision", "after", "sentence"),
    [
        ("forced", 2, "Round 2 was promoted by force, without the gate: because."),
        ("rolled_back", 1, "The champion was rolled back to round 1: because."),
        ("rolled_back", None, "The champion was rolled back to the base model: because."),
    ],
)
def test_moves_by_hand_give_their_reason(decision: str, after: int | None, sentence: str) -> None:
    data = full_data()
    assert data.promotion is not None
    changes = {"decision": decision, "verdict": None, "champion_after": after, "reason": "because"}

    assert verdict_words(full_data(promotion=data.promotion.model_copy(update=changes))).sentence == sentence


@pytest.mark.parametrize(
    ("changes", "label", "sentence"),
    [
        ({"manifest": manifest(state="trained")}, "Trained", "Round 2 has not been evaluated."),
        ({"manifest": manifest(state="failed", error="out of memory")}, "Failed", "Round 2 failed: out of memory"),
        ({"report": full_data().report}, "Evaluated", f"Round 2 awaits the gate: {NUMBERS}"),
    ],
)
def test_without_a_decision_the_state_speaks(changes: dict[str, Any], label: str, sentence: str) -> None:
    words = verdict_words(minimal_data(**changes))

    assert (words.label, words.sentence) == (label, sentence)


def test_an_evaluation_without_scored_cases_says_so() -> None:
    report = full_data().report
    assert report is not None

    words = verdict_words(full_data(report=report.model_copy(update={"metrics": []})))

    assert words.sentence.endswith("no paired case could be scored.")
