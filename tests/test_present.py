"""Numbers and decisions in words: every rate with its n, every difference with its interval."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

import pytest
from flywheel import present
from flywheel.cli.render import columns
from flywheel.records import FRESH, KlPoint, Promotion, Race, RaceCandidate, RaceHeat, RuleResult, Verdict
from tests.report.sample import full_data, manifest
from tests.reports import row


def test_counts() -> None:
    assert [present.count(n, "case") for n in (0, 1, 1_200)] == ["0 cases", "1 case", "1,200 cases"]
    assert present.count(1_234_567) == "1,234,567"


@pytest.mark.parametrize(
    ("value", "words"),
    [(0.0, "0"), (1234.5678, "1,235"), (0.69314, "0.6931"), (5e-5, "5.00e-05"), (-2, "-2"), (123_456.0, "1.23e+05")],
)
def test_plain_numbers_are_short(value: float, words: str) -> None:
    assert present.number(value) == words


def test_rates_are_percentages_and_their_differences_percentage_points() -> None:
    assert present.percent(0.54689) == present.level(0.54689) == "54.7%"
    assert present.percent(0.8, 0) == "80%"
    assert present.points(-0.0625) == present.difference(-0.0625) == "-6.2 pp"
    assert present.margin(0.03) == "3.0 pp"
    assert present.interval(-0.016, 0.266) == "[-2, +27]"
    assert present.interval(-0.016, 0.266, unit=True) == "[-2, +27] pp"
    assert present.percent_interval(0.227, 0.459) == "[23%, 46%]"


def test_other_metrics_are_plain_numbers() -> None:
    assert present.level(-1.5, binary=False) == "-1.500"
    assert present.difference(0.412, binary=False) == "+0.412"
    assert present.interval(0.1, 0.2, binary=False, unit=True) == "[+0.100, +0.200]"
    assert present.plain_interval(0.951, 1.1) == "[0.95, 1.10]"
    assert [present.p_value(p) for p in (0.25, 0.00123)] == ["0.25", "0.0012"]


@pytest.mark.parametrize("missing", [None, math.nan, math.inf])
def test_a_missing_number_is_a_dash(missing: float | None) -> None:
    words = (present.count, present.number, present.signed, present.duration, present.percent, present.points,
             present.margin, present.level, present.difference)  # fmt: skip

    assert {say(missing) for say in words} == {"-"}
    for bracket in (present.interval, present.percent_interval, present.plain_interval):
        assert bracket(missing, 0.1) == bracket(0.1, missing) == "-"


def test_slow_work_says_how_long_one_takes() -> None:
    assert present.speed(64, 20.0, "cases") == "3.2 cases/s"
    assert present.speed(10, 350.0, "cases") == "35.0 s each"
    assert present.speed(0, 350.0, "cases") == ""


def test_a_recorded_outcome_is_no_probability() -> None:
    assert present.attempt_outcome(1.0, 0.97, known=True) == "succeeded, recorded"
    assert present.attempt_outcome(0.5, 0.5, known=True) == "score 0.50, recorded"
    assert present.attempt_outcome(None, 0.83, known=True) == "P(success) 0.83"
    assert present.attempt_outcome(None, None, known=False) == "outcome unknown"


def test_sizes_and_durations() -> None:
    assert [present.size(n) for n in (512, 9_437_184, 3e12)] == ["512 B", "9.4 MB", "3.0 TB"]
    assert [present.duration(s) for s in (0, 81.44, 570, 5_400)] == ["0.0 s", "81.4 s", "9.5 min", "1.5 h"]


def test_rounds_and_baselines_have_names() -> None:
    assert [present.round_name(n) for n in (None, 3, "base", "3", "gpt-4.1")] == [
        "base model", "round 3", "base model", "round 3", "gpt-4.1"
    ]  # fmt: skip
    assert [present.the_round(n) for n in (None, 3)] == ["the base model", "round 3"]


def test_metrics_have_names() -> None:
    assert present.metric_name(row(1, 0, 5)) == "good"
    assert present.metric_name(row(1, 0, 5, slice="tool=x")) == "good where tool=x"
    assert present.metric_name(row(1, 0, 5, slice=FRESH)) == "good on fresh tasks"


def test_a_metric_in_full() -> None:
    won = row(12, 9, 200)

    assert present.metric_change(won) == "good 49.2% -> 50.7%, +1.5 pp [-3.2, +6.4], n 200"
    assert present.metric_evidence(won) == ("good 49.2% -> 50.7%, +1.5 pp [-3.2, +6.4], n 200 (200 tasks, +12/-9)")
    assert present.metric_evidence(row(0, 0, 10, binary=False, n_tasks=0, low=None)) == (
        "good 0.500 -> 0.500, +0.000, n 10"
    )
    assert present.metric_change(row(0, 0, 0)) == "good: no paired cases"


def decided(decision: str, verdict: Verdict | None = None, after: int | None = 1, reason: str = "") -> Promotion:
    values: dict[str, Any] = {"decision": decision, "verdict": verdict, "champion_after": after, "reason": reason}
    return Promotion(round=2, champion_before=1, by="test", at=datetime(2026, 3, 14, tzinfo=UTC), **values)


@pytest.mark.parametrize(
    ("promotion", "words"),
    [
        (decided("promoted", Verdict.PROMOTE, 2), "round 2 is champion (PROMOTE)"),
        (decided("held", Verdict.REJECT), "round 2 is held (REJECT); round 1 stays champion"),
        (decided("held", Verdict.BLOCKED, None), "round 2 is held (BLOCKED); the base model stays champion"),
        (decided("forced", None, 2, "because"), "round 2 is champion by force, without the gate: because"),
        (decided("rolled_back", None, 1, "because"), "round 2 is rolled back; round 1 is champion: because"),
        (decided("rolled_back", None, None), "round 2 is rolled back; the base model is champion"),
        (decided("forgotten", None, None), "round 2 is withdrawn; the base model is champion"),
    ],
)
def test_a_decision_is_one_sentence(promotion: Promotion, words: str) -> None:
    assert present.decision(promotion) == words


NUMBERS = "executed_success 54.7% -> 67.2%, +12.5 pp [-2, +27], n 64."


@pytest.mark.parametrize(
    ("promotion", "headline"),
    [
        (
            decided("promoted", Verdict.PROMOTE, 2),
            ("Promoted", f"Round 2 became champion (PROMOTE): {NUMBERS}", "good"),
        ),
        (
            decided("held", Verdict.INCONCLUSIVE),
            ("Inconclusive", f"Round 2 is held (INCONCLUSIVE); round 1 stays champion: {NUMBERS}", "unsure"),
        ),
        (
            decided("held", Verdict.REJECT),
            ("Rejected", f"Round 2 is held (REJECT); round 1 stays champion: {NUMBERS}", "bad"),
        ),
        (
            decided("held", Verdict.BLOCKED),
            ("Blocked", f"Round 2 is held (BLOCKED); round 1 stays champion: {NUMBERS}", "bad"),
        ),
        (
            decided("forced", None, 2, "because"),
            ("Forced", "Round 2 became champion by force, without the gate: because.", "unsure"),
        ),
        (
            decided("rolled_back", None, None, "because"),
            ("Rolled back", "Round 2 is rolled back; the base model is champion: because.", "bad"),
        ),
        (None, ("Evaluated", f"Round 2 is evaluated and not decided yet: {NUMBERS}", "plain")),
    ],
)
def test_an_evaluated_round_has_a_headline(promotion: Promotion | None, headline: tuple[str, str, str]) -> None:
    assert present.headline(manifest(), full_data().report, promotion) == headline


@pytest.mark.parametrize(
    ("changes", "label", "sentence"),
    [
        ({"state": "trained"}, "Trained", "Round 2 has not been evaluated."),
        ({"state": "failed", "error": "out of memory"}, "Failed", "Round 2 failed: out of memory"),
    ],
)
def test_without_an_evaluation_the_state_is_the_headline(changes: dict[str, Any], label: str, sentence: str) -> None:
    assert present.headline(manifest(**changes), None, None)[:2] == (label, sentence)


def test_how_far_a_round_was_trained_and_why_no_further() -> None:
    curve = [KlPoint(step=4, kl=0.21), KlPoint(step=8, kl=0.43)]
    made = manifest(stopped="kl", steps_taken=4, max_kl=0.4, kl_curve=curve, parent=None)

    assert present.training_end(made) == (
        "4 optimiser steps, 0.21 nats a token from the base model; stopped by train.max_kl 0.4: 0.43 at step 8"
    )
    whole = made.model_copy(update={"stopped": "steps", "kl_curve": curve[:1]})
    assert present.training_end(whole) == "4 optimiser steps, 0.21 nats a token from the base model (train.max_kl 0.4)"
    assert not present.training_end(manifest())


def test_an_evaluation_without_scored_cases_has_no_numbers() -> None:
    report = full_data().report
    assert report is not None

    words = present.headline(manifest(), report.model_copy(update={"metrics": []}), None)

    assert words.sentence.endswith(": no paired cases.")


def test_a_decision_is_a_verdict_a_reason_and_what_to_do() -> None:
    def failed(rule: str, verdict: Verdict, message: str, **numbers: float) -> RuleResult:
        return RuleResult(rule=rule, verdict=verdict, passed=False, message=message, numbers=numbers)

    held = decided("held", Verdict.INCONCLUSIVE).model_copy(
        update={
            "rules": [
                failed("slices", Verdict.BLOCKED, "A slice."),
                failed("superiority", Verdict.INCONCLUSIVE, "Too few.", n=5.0, needed_n=25.0),
            ]
        }
    )
    named = dict(present.outcome(held))
    assert named["verdict"] == "round 2 is held (INCONCLUSIVE); round 1 stays champion"
    assert named["why"] == "Too few. (-v: 1 more reason)"
    assert named["next"].startswith("Collect about 20 more cases")
    nothing = held.model_copy(update={"rules": [failed("superiority", Verdict.INCONCLUSIVE, "None.", n=0.0)]})
    assert dict(present.outcome(nothing))["next"].startswith("Name a suite first in eval.suites")
    forced = present.outcome(decided("forced", None, 2, "because"))
    assert [name for name, _ in forced] == ["verdict", "next"]


@pytest.mark.parametrize(
    ("low", "high", "words"),
    [(0.553, 0.878, "[+55, +88]"), (0.01, 0.05, "[+1.0, +5.0]"), (0.003, 0.26, "[+0.3, +26.0]"), (0, 0.5, "[+0, +50]")],
)
def test_an_interval_has_the_digits_that_it_carries_and_keeps_its_side_of_zero(
    low: float, high: float, words: str
) -> None:
    assert present.interval(low, high) == words


def test_tables_are_counted_by_what_people_count() -> None:
    counts = {"note: tasks": 67}
    assert present.table_counts("tasks", {"tasks": 402}, counts) == "67 tasks of 402 episodes"
    assert present.table_counts("crowds", {"crowds": 1}, {}) == "1 episode in crowds"
    assert present.table_counts("opinions", {"opinions": 1144, "corrections": 0}, {}) == "1,144 opinions"
    assert present.table_counts("links", {"links": 0, "policies": 0}, {}) == "nothing"
    assert present.table_counts("links", {"links": 3, "policies": 1}, {}) == "3 links, 1 policy"
    assert present.table_counts("labels", {"labels": 1, "evidence": 9579}, {}) == "1 label, 9,579 rows of evidence"


def test_a_race_names_who_ran_for_how_much_and_who_did_not() -> None:
    heat = RaceHeat(rung=1, rows=9, tokens=900, score=0.5, delta=0.25, low=0.1, high=0.4)
    planned = Race(
        state="planned",
        reason="the race decides",
        tasks=12,
        known=3,
        suite="shop",
        cases=12,
        tokens=1_800,
        rungs=1,
        candidates=[
            RaceCandidate(method="sft", rows=9),
            RaceCandidate(method="expert", rows=8),
            RaceCandidate(method="dpo", rows=0, why="0 pairs"),
        ],
    )
    first, *others = present.race_lines(planned)
    assert first.startswith(
        "2 methods on 12 development tasks, 12 cases of shop, 3 of them trained on before; at most "
    )
    assert first.endswith("; at most 1,800 trained tokens in 1 rung")
    assert others == ["sft: 9 rows", "expert: 8 rows", "dpo: not raced: 0 pairs"]
    ran = [RaceCandidate(method="sft", rows=9, heats=[heat]), *planned.candidates[1:]]
    won = planned.model_copy(update={"state": "won", "winner": "sft", "parent_score": 0.25, "candidates": ran})
    first, best, *_ = present.race_lines(won)
    assert first.endswith("in 1 rung; the parent has 25.0%")
    assert best == "sft: rung 1, 900 tokens: 50.0%, +25.0 pp [+10, +40]; best"
    assert (planned.raced, won.raced) == (0, 1)
    assert present.race_lines(Race(state="none", reason="train.race is 0")) == ["none: train.race is 0"]


def test_a_name_from_a_log_begins_no_line_of_its_own() -> None:
    rows = [["policy", "n"], ["mine\r\nverdict  round 9 is champion", "1"], ["m" * 5000, "2"]]
    table = columns(rows, right=(1,))
    assert len(table) == 3
    assert not any("\n" in line or "\r" in line for line in table)
    assert max(map(len, table)) < 210
