"""Measures of two policies: means on the cases that both have, their ratio and its interval over tasks."""

from __future__ import annotations

import math

import pytest
from flywheel.extensions import CaseScore
from flywheel.stages.evaluate.compare import build_report, compare, measure_rows


def measured(*values: float, name: str = "tokens", tasks: str = "abcdefgh") -> list[CaseScore]:
    return [
        CaseScore(f"c{i}", tasks[i], name, value, binary=False, unit="tokens an answer")
        for i, value in enumerate(values)
    ]


def test_means_ratio_and_interval() -> None:
    (row,) = measure_rows(measured(12, 22, 32), measured(10, 20, 30), "s")

    assert (row.suite, row.measure, row.unit, row.n) == ("s", "tokens", "tokens an answer", 3)
    assert (row.baseline, row.value) == (20, 22)
    assert row.ratio == pytest.approx(1.1)
    # residuals (candidate - 1.1 baseline) / 20 = .05, 0, -.05; t over 3 tasks: 4.3027 * .05 / sqrt(3)
    assert row.high == pytest.approx(1.1 + 4.302653 * 0.05 / math.sqrt(3), abs=1e-6)
    assert row.low == pytest.approx(1.1 - 4.302653 * 0.05 / math.sqrt(3), abs=1e-6)


def test_cases_that_one_side_lacks_or_could_not_measure_are_left_out() -> None:
    (row,) = measure_rows(measured(12, math.nan, 32), measured(10, 20), "s")
    assert (row.n, row.baseline, row.value, row.ratio) == (1, 10, 12, 1.2)

    (none,) = measure_rows(measured(math.nan), measured(1), "s")
    assert (none.n, none.value) == (0, None)
    (zero,) = measure_rows(measured(1, 2), measured(0, 0), "s")
    assert (zero.baseline, zero.value, zero.ratio, zero.low) == (0, 1.5, None, None)


def test_a_measure_is_no_score_no_case_and_no_gap() -> None:
    good = [CaseScore("c0", "a", "good", 1.0, primary=True)]
    found = compare([*good, *measured(500)], [*good, *measured(100, 7)], suite="s")

    assert [m.metric for m in found.metrics] == ["good"]
    assert found.coverage == {"s: offered": 1, "s: scored": 1}
    assert [m.value for m in found.measures] == [500]

    report = build_report(
        candidate={"s": measured(1)}, baseline={"s": measured(2)}, round_number=1, baseline_name="base",
        candidate_sha256="a", baseline_sha256="", cases_sha256="c", trained_tasks=["a"],
    )  # fmt: skip
    assert (report.n_cases, report.leaked_tasks, len(report.measures)) == (0, 0, 1)
