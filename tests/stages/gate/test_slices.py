"""Slices: declared ones must be shown, large found ones must not look lost, unguarded ones are let be."""

from __future__ import annotations

from typing import Any

import pytest
from flywheel.config import GateConfig
from flywheel.records import MetricRow, RuleResult, Verdict
from flywheel.stages.gate import decide, no_deterioration, non_inferior, slices, superiority, validity
from flywheel.stages.gate.non_inferior import guarded_rows
from flywheel.stats.tango import non_inferiority_z
from tests.reports import given_input, report, row

HEAD = row(140, 40, 400)


def part(wins: int, losses: int, n: int, name: str = "tool=refund", **rest: Any) -> MetricRow:
    return row(wins, losses, n, slice=name, **rest)


def said(*rows: MetricRow, **cfg: Any) -> RuleResult:
    return slices(given_input(report(HEAD, *rows)), GateConfig(**cfg))


def test_without_slices_nothing_is_held() -> None:
    found = said()

    assert (found.passed, found.verdict) == (True, Verdict.PROMOTE)
    assert found.message == "No slice is declared, and none of those found is large enough (0 checked)."


def test_a_declared_slice_must_be_shown_not_to_have_lost_the_margin() -> None:
    shown = said(part(10, 9, 200, "slice refunds=yes", standing="declared"))
    open_one = said(part(4, 4, 40, "slice refunds=yes", standing="declared"))

    assert (shown.passed, shown.numbers["shown"]) == (True, 1)
    assert shown.numbers["z: good where slice refunds=yes"] == pytest.approx(non_inferiority_z(10, 9, 200, 0.1))
    assert (open_one.passed, open_one.verdict, open_one.numbers["not_shown"]) == (False, Verdict.INCONCLUSIVE, 1)
    assert "Slice refunds: a loss of 10.0 pp cannot be ruled out (good where slice refunds=yes" in open_one.message
    assert "about 124 cases needed" in open_one.message
    assert said(part(4, 4, 40, "slice refunds=yes", standing="declared"), slice_margin=0.2).passed


def test_a_declared_slice_whose_scores_are_all_alike_is_shown_like_one_of_zeros_and_ones() -> None:
    alike: dict[str, Any] = {"binary": False, "low": 0.0, "high": 0.0, "delta": 0.0, "standing": "declared"}
    many, few = (said(part(0, 0, n, "slice refunds=yes", **alike)) for n in (200, 10))

    assert (many.passed, many.numbers["shown"]) == (True, 1)
    assert (few.passed, few.numbers["not_shown"]) == (False, 1)


def test_a_declared_slice_without_a_case_holds() -> None:
    found = said(part(0, 0, 0, "slice refunds=yes", standing="declared"))

    assert not found.passed
    assert found.message == "Slice refunds has no cases."


def test_a_large_found_slice_that_looks_lost_holds() -> None:
    found = said(part(2, 7, 40))  # p .09: no_deterioration alone lets it pass

    assert (found.passed, found.numbers["lost"]) == (False, 1)
    assert "tool=refund" in found.message
    assert found.message.startswith("In a found slice, good where tool=refund")
    assert "looks more like a loss of 20.0 pp than none" in found.message
    assert no_deterioration(given_input(report(HEAD, part(2, 7, 40))), GateConfig()).passed


@pytest.mark.parametrize(
    ("wins", "losses", "n", "why"),
    [
        (4, 7, 40, "nearer to no loss"),
        (1, 2, 20, "chance does that"),
        (0, 1, 5, "chance does that"),
        (0, 4, 19, "less than a twentieth of the cases"),
    ],
)
def test_a_found_slice_does_not_hold_for_nothing(wins: int, losses: int, n: int, why: str) -> None:
    assert said(part(wins, losses, n)).passed, why


def test_what_is_declared_unguarded_is_never_judged() -> None:
    bad = part(0, 30, 40, "slice chat=yes", standing="unguarded")
    given = given_input(report(HEAD, bad))

    assert [r.slice for r in guarded_rows(given.report)] == ["all"]
    assert all(rule(given, GateConfig()).passed for rule in (slices, non_inferior, no_deterioration))


def test_an_injected_regression_of_a_small_declared_slice_does_not_pass_the_whole_gate() -> None:
    rules = {f.__name__: f for f in (validity, superiority, non_inferior, slices, no_deterioration)}
    rows = (HEAD, part(140, 32, 360, "slice rest=yes", standing="declared"))
    fine = decide(given_input(report(*rows)), rules, GateConfig())
    hidden = decide(
        given_input(report(*rows, part(3, 7, 40, "slice refunds=yes", standing="declared"))), rules, GateConfig()
    )

    assert fine.verdict == Verdict.PROMOTE
    assert hidden.verdict == Verdict.INCONCLUSIVE
