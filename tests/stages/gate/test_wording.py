"""Numbers in words: n and interval always, points for rates, plain figures for other scores."""

from __future__ import annotations

from flywheel.stages.gate.wording import counted, label, summary
from tests.reports import row


def test_counts() -> None:
    assert [counted(n, "case") for n in (0, 1, 1_200)] == ["0 cases", "1 case", "1,200 cases"]


def test_labels() -> None:
    assert label(row(1, 0, 5)) == "good"
    assert label(row(1, 0, 5, slice="tool=x")) == "good where tool=x"


def test_a_row_in_full() -> None:
    assert summary(row(0, 0, 0)) == "good: no paired case"
    assert summary(row(12, 9, 200)) == (
        "good 49.2 -> 50.7 % on 200 cases of 200 tasks (+12/-9), +1.5 pp, 95 % interval [-3.2, +6.4] pp"
    )
    assert summary(row(0, 0, 10, binary=False, n_tasks=0, low=None)) == "good 0.500 -> 0.500 on 10 cases, +0.000"
