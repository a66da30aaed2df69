"""Guardrails: shown not worse, not shown, too few cases to show, significantly worse."""

from __future__ import annotations

from dataclasses import replace

import pytest
from flywheel.config import GateConfig
from flywheel.records import MetricRow, RuleResult, Verdict
from flywheel.stages.gate import no_deterioration, non_inferior
from flywheel.stats.paired import mcnemar_better
from flywheel.stats.tango import non_inferiority_z
from tests.reports import entry, given_input, guard, report, row

CFG = GateConfig()


def inferior(*metrics: MetricRow, margin: float = 0.03) -> RuleResult:
    return non_inferior(given_input(report(row(9, 0, 30), *metrics)), GateConfig(margin=margin))


def worse(*metrics: MetricRow) -> RuleResult:
    return no_deterioration(given_input(report(*metrics)), CFG)


def test_without_guardrails() -> None:
    found = inferior()

    assert (found.passed, found.verdict) == (True, Verdict.PROMOTE)
    assert found.message == "There are no guardrails besides the primary metric (n 0)."


def test_a_guardrail_with_many_cases_is_shown_not_worse() -> None:
    found = inferior(guard(40, 42, 2_000))

    assert found.passed
    assert found.numbers["shown"] == 1
    assert found.numbers["z: form"] == pytest.approx(non_inferiority_z(40, 42, 2_000, 0.03))
    assert found.message == "1 of 1 guardrail shown non-inferior (margin 3.0 pp)."


def test_a_guardrail_that_had_the_cases_and_is_not_shown_holds_the_round() -> None:
    found = inferior(guard(30, 80, 2_000))

    assert (found.passed, found.verdict) == (False, Verdict.INCONCLUSIVE)
    assert "not shown: form" in found.message
    assert "-2.5 pp [-3.6, -1.5], n 2,000" in found.message


def test_a_small_guardrail_is_named_and_only_watched() -> None:
    found = inferior(guard(2, 3, 40))

    assert found.passed
    assert found.numbers["unpowered"] == 1
    assert "1 with too few cases, checked for deterioration only" in found.message
    assert found.details == ["form: n 40 of 859 needed, [-16, +11] pp"]


def test_a_clean_sheet_needs_cases_too() -> None:
    assert inferior(guard(0, 0, 30)).numbers["unpowered"] == 1
    assert inferior(guard(0, 0, 87)).numbers["unpowered"] == 1
    assert inferior(guard(0, 0, 88)).numbers["shown"] == 1


def test_a_strict_guardrail_waits_until_it_is_shown_however_many_cases_that_takes() -> None:
    strict = GateConfig(strict=["form"])
    harmed, too_few, shown = (
        non_inferior(given_input(report(row(30, 5, 60), guard(0, losses, n), guard(0, 3, 60, metric="other"))), strict)
        for losses, n in ((3, 60), (0, 87), (0, 88))
    )

    for waits in (harmed, too_few):
        assert (waits.passed, waits.verdict) == (False, Verdict.INCONCLUSIVE)
        assert waits.numbers["unpowered"] == 1
        assert "not shown: form" in waits.message
    assert harmed.details[0].startswith("form: n 60 of ")
    assert shown.passed


def test_a_strict_metric_that_was_not_measured_holds_the_round_by_its_name() -> None:
    held = non_inferior(given_input(report(row(30, 5, 60), guard(0, 0, 88))), GateConfig(strict=["form", "harmles"]))
    assert (held.passed, held.verdict) == (False, Verdict.INCONCLUSIVE)
    assert held.message.startswith("not measured, though gate.strict asks for it: harmles; ")


def test_power_is_shared_among_guardrails() -> None:
    alone = inferior(guard(20, 20, 400))
    five = inferior(*(guard(20, 20, 400, metric=f"m{i}") for i in range(5)), margin=0.05)
    single = inferior(guard(20, 20, 400), margin=0.05)

    assert alone.numbers["needed_n: form"] == 687
    assert single.numbers["needed_n: form"] == 248
    assert five.numbers["needed_n: m0"] == 462


def test_several_cases_of_a_task_count_for_fewer() -> None:
    plain = inferior(guard(30, 30, 1_000))
    clustered = inferior(guard(30, 30, 1_000).model_copy(update={"n_tasks": 100, "design_effect": 4.0}))

    assert plain.numbers["shown"] == 1
    assert clustered.numbers["z: form"] == pytest.approx(plain.numbers["z: form"] / 2, rel=0.05)
    assert clustered.numbers["needed_n: form"] == pytest.approx(4 * plain.numbers["needed_n: form"], abs=4)


def real(delta: float, low: float, high: float, n: int = 100) -> MetricRow:
    return guard(0, 0, n).model_copy(
        update={"binary": False, "delta": delta, "low": low, "high": high, "p_better": 0.5, "p_worse": 0.5}
    )


def test_scores_that_are_not_binary() -> None:
    assert inferior(real(0.0, -0.01, 0.01)).numbers["shown"] == 1
    assert inferior(real(-0.05, -0.06, -0.04)).numbers["failed"] == 1
    assert inferior(real(0.0, -0.2, 0.2)).numbers["unpowered"] == 1
    assert inferior(real(0.0, 0.0, 0.0)).numbers["shown"] == 1
    assert inferior(real(-0.1, -0.1, -0.1)).numbers["unpowered"] == 1


def test_nothing_is_worse() -> None:
    found = worse(row(9, 3, 50), guard(2, 3, 40))

    assert (found.passed, found.numbers["tests"]) == (True, 2)
    assert found.message == (
        "No metric is significantly worse (2 tests, Holm-corrected, alpha 0.05, smallest adjusted p 1)."
    )
    assert worse().passed


def test_one_row_that_is_surely_worse_rejects() -> None:
    found = worse(row(9, 3, 50), guard(9, 24, 239))

    assert (found.passed, found.verdict, found.numbers["worse"]) == (False, Verdict.REJECT, 1)
    assert found.numbers["p: form"] == pytest.approx(4 * mcnemar_better(24, 9))  # one of two, at the first look
    assert "form" in found.message


def test_many_rows_are_corrected_for() -> None:
    one = guard(1, 8, 60, metric="m0")
    others = [guard(3, 3, 60, metric=f"m{i}") for i in range(1, 6)]

    assert worse(one).verdict == Verdict.REJECT
    assert worse(one, *others).verdict == Verdict.INCONCLUSIVE


def test_a_slice_that_looks_worse_without_proof_holds_the_round_and_is_named() -> None:
    slices = [guard(4, 1, 60, metric=f"m{i}") for i in range(8)]
    found = worse(row(40, 5, 500), guard(1, 7, 60, metric="refunds"), *slices)

    assert (found.passed, found.verdict, found.numbers["suspect"]) == (False, Verdict.INCONCLUSIVE, 1)
    assert "Looks worse, but is not significant after correction for 10 tests: refunds" in found.message
    assert found.message.endswith("; collect more cases.")


def test_half_of_the_error_is_the_primary_metrics_however_many_slices_there_are() -> None:
    slices = [guard(3, 3, 60, metric=f"m{i}") for i in range(40)]
    found = worse(row(9, 24, 239), *slices)

    assert found.verdict == Verdict.REJECT
    assert found.numbers["p: good"] == pytest.approx(4 * mcnemar_better(24, 9))


def test_looks_spend_the_error_in_parts_and_logs_are_compared_once() -> None:
    made = report(row(9, 24, 239))
    assert made.evidence is not None

    looked_at = [
        given_input(made.model_copy(update={"evidence": made.evidence.model_copy(update={"looks": looks})}))
        for looks in (1, 2, 3)
    ]

    found = [no_deterioration(i, CFG).numbers["p: good"] for i in [*looked_at, replace(looked_at[2], manifest=None)]]
    assert [p / mcnemar_better(24, 9) for p in found] == pytest.approx([2, 4, 12, 1])


def test_a_fixed_primary_suite_spends_the_guardrails_error_by_decisions() -> None:
    """Its cases are units at the first look alone; a blocked decision tested nothing, nor one on another round."""
    made = report(row(9, 24, 239))
    held = entry("held", number=2, verdict=Verdict.INCONCLUSIVE)
    before = [entry("held", number=2, verdict=Verdict.BLOCKED), entry("held", number=3, verdict=Verdict.INCONCLUSIVE)]
    histories = [before, [*before, held], [*before, held, held]]

    found = [no_deterioration(given_input(made, history=h), CFG).numbers["p: good"] for h in histories]
    assert [p / mcnemar_better(24, 9) for p in found] == pytest.approx([2, 4, 12])


def test_a_row_without_p_value_is_tested_by_mcnemar_if_it_is_binary() -> None:
    assert not worse(guard(1, 17, 60).model_copy(update={"p_worse": None})).passed
    assert worse(real(-1.0, -1.0, -1.0).model_copy(update={"p_worse": None})).numbers["tests"] == 0


GAINS, AHEAD = row(60, 8, 400), row(9, 3, 40)  # with its evidence at the first look, and without
LOOKS_WORSE, FORGOT = guard(1, 7, 60), guard(2, 10, 40)  # the second is significant by a look alone, not by the second


def looked(head: MetricRow, part: MetricRow, *, looks: int, waited: int = 0) -> RuleResult:
    """Return the rule's result at a look, after some at which the candidate waited for its guardrails alone."""
    passed = [RuleResult(rule="superiority", passed=True, verdict=Verdict.PROMOTE, message="Yes.")]
    passed += [RuleResult(rule="no_deterioration", passed=False, verdict=Verdict.INCONCLUSIVE, message="No.")]
    made = report(head, part)
    assert made.evidence is not None
    made = made.model_copy(update={"evidence": made.evidence.model_copy(update={"looks": looks})})
    before = [entry("held", number=2, rules=passed, verdict=Verdict.INCONCLUSIVE) for _ in range(waited)]
    return no_deterioration(given_input(made, history=before), CFG)


def test_a_candidate_that_waits_for_a_forgotten_part_alone_is_given_up() -> None:
    """The cases of a rare kind are used up: more looks would never prove what one look shows."""
    assert looked(GAINS, FORGOT, looks=1).verdict == Verdict.INCONCLUSIVE
    found = looked(GAINS, FORGOT, looks=3)
    assert found.verdict == Verdict.REJECT
    assert "not significant after correction" in found.message
    assert found.message.endswith("; given up after 3 looks.")


def test_one_that_has_waited_for_three_looks_is_given_up_for_any_part_that_looks_worse() -> None:
    found = [looked(GAINS, LOOKS_WORSE, looks=5, waited=waited).verdict for waited in (0, 2, 3)]
    assert found == [Verdict.INCONCLUSIVE, Verdict.INCONCLUSIVE, Verdict.REJECT]
    assert looked(GAINS, guard(4, 4, 60), looks=5, waited=4).verdict == Verdict.PROMOTE


def test_one_without_its_evidence_is_not_given_up_for_a_guardrail() -> None:
    """It is not known yet whether it is better, and parts look worse by chance at some look."""
    assert looked(AHEAD, FORGOT, looks=3).verdict == Verdict.INCONCLUSIVE
    assert looked(AHEAD, LOOKS_WORSE, looks=5, waited=3).verdict == Verdict.INCONCLUSIVE
