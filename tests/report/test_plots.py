"""Every plot, with numbers, without, and with numbers that are none."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest
from flywheel.records import MetricRow
from flywheel.report import Histogram, PastRound, ReportData, SignalRow, plots
from flywheel.report.views import funnels_of, metric_rows
from tests.report.sample import full_data, hostile_data, parse_svg


def _all(data: ReportData) -> dict[str, str]:
    rows = metric_rows(data, slices=False)
    return {
        "metrics": plots.forest(rows, binary=True),
        "plain": plots.forest(rows, binary=False),
        "slices": plots.forest(metric_rows(data, slices=True), binary=True),
        "funnel": plots.funnel(funnels_of(data)),
        "signals": plots.signal_scores(data.signals),
        "returns": plots.return_histogram(data.returns),
        "training": plots.training_curves(data.training),
        "drift": plots.drift(data.history, current=data.round),
        "agreements": plots.agreements(data.agreements),
    }


def _texts(svg: str) -> list[str]:
    return [e.text for e in parse_svg(svg).iter() if e.tag.endswith("}text") and e.text]


def test_plots_are_wellformed_reproducible_and_self_contained() -> None:
    first, second = _all(full_data()), _all(full_data())

    assert first == second
    for svg in first.values():
        assert parse_svg(svg).tag == "{http://www.w3.org/2000/svg}svg"
        assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", svg)


def test_hostile_labels_and_numbers_break_no_plot() -> None:
    drawn = _all(hostile_data("</svg><script>alert(1)</script>\ud800\x00 $\\frac{"))

    assert all(parse_svg(svg) is not None for svg in drawn.values() if svg)
    assert not any("<script" in svg for svg in drawn.values())
    assert drawn["slices"] == ""


def test_a_row_is_coloured_only_if_its_interval_excludes_zero() -> None:
    def row(low: float, high: float) -> MetricRow:
        return MetricRow(suite="s", metric="m", n=9, delta=(low + high) / 2, low=low, high=high)

    def colours(low: float, high: float) -> set[str]:
        svg = plots.forest([row(low, high)], binary=True)
        return set(re.findall(r"s-(good|bad|ink)", svg))

    assert colours(0.1, 0.2) == {"good"}
    assert colours(-0.2, -0.1) == {"bad"}
    assert colours(-0.1, 0.1) == {"ink"}


def test_a_long_name_takes_two_lines_and_loses_no_letter() -> None:
    named = MetricRow(suite="s", metric="resolved_without_a_call_back", n=9, delta=0.1, low=0.0, high=0.2)
    assert {"resolved_without_a_", "call_back"} <= set(_texts(plots.forest([named], binary=True)))


def test_the_forest_writes_names_and_differences() -> None:
    texts = _texts(_all(full_data())["metrics"])

    assert {"executed_success", "pair_accuracy", "+12.5\u00a0pp"} <= set(texts)
    assert "log_ratio_margin" not in texts


def test_the_funnel_writes_counts() -> None:
    assert "164 of 1,312" in _texts(_all(full_data())["funnel"])


@pytest.mark.parametrize(
    "svg",
    [
        plots.forest([], binary=True),
        plots.forest([MetricRow(suite="s", metric="m", n=0)], binary=True),
        plots.funnel({}),
        plots.funnel({"stage": {"considered": 0, "kept": 0}}),
        plots.signal_scores([SignalRow("s", "f", "implicit", 0, None, None)]),
        plots.return_histogram(None),
        plots.return_histogram(Histogram([0, 1], {"train": [0]})),
        plots.training_curves([{"step": 1, "loss": 0.5}]),
        plots.drift([PastRound(1, "sft", "held", "m", None)], current=1),
    ],
)
def test_nothing_to_draw_is_no_plot(svg: str) -> None:
    assert svg == ""


@pytest.mark.parametrize("value", [0.0, 1e300, -1e-300, 5])
def test_constant_and_extreme_curves_are_drawn(value: float) -> None:
    metrics: list[dict[str, Any]] = [{"step": i, "loss": value} for i in range(3)]

    svg = plots.training_curves([*metrics, {"step": 3, "loss": math.nan}])

    assert _texts(svg)[0] or svg
    assert parse_svg(svg) is not None


def test_many_rows_are_cut_to_what_a_plot_can_hold() -> None:
    rows = [SignalRow(f"signal {i}", "f", "implicit", 5, 0.1, 0.5) for i in range(200)]

    assert len([t for t in _texts(plots.signal_scores(rows)) if t.startswith("signal ")]) == 24
