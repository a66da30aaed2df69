"""The report's plots: numbers in, inline SVG text out; '' where there is nothing to draw.

Each plot has its numbers as a table in the page, so a plot may leave out what it has no room for. All are as wide as a
phone: text that shrinks with its picture cannot be read.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from flywheel.present import count, difference
from flywheel.records import MetricRow
from flywheel.report.data import Agreement, Histogram, PastRound, SignalRow
from flywheel.report.svg import (
    ACCENT,
    BAD,
    BROKEN,
    GOOD,
    INK,
    LINE,
    PAPER,
    SECOND,
    SOFT,
    Drawing,
    Panel,
    Point,
    limits,
    ticks,
)  # fmt: skip
from flywheel.report.text import typeset

_WIDTH, _ROW = 281.0, 20.0  # pixels
_BAR = 0.275  # half the height of a bar, in rows
_LABEL, _LINE = 19, 9.5  # characters of a line of a row's name, pixels between two
_MOST_ROWS, _MOST_TICKS = 24, 8
_FEW = 5  # ticks of an axis under rows

CURVES: dict[str, str] = {
    "loss": "Loss",
    "rewards/margins": "Reward margin",
    "rewards/accuracies": "Preference accuracy",
    "nll": "Negative log-likelihood",
    "mean_token_accuracy": "Token accuracy",
    "kl_parent": "KL to the parent",
    "entropy": "Entropy",
    "grad_norm": "Gradient norm",
    "learning_rate": "Learning rate",
}
_MOST_PANELS = 6


def _short(text: str) -> str:
    return text if len(text) <= _LABEL else text[: _LABEL - 1] + "…"


def _in_lines(name: str) -> tuple[str, str]:
    """Return a row's name in two lines, parted where a word of it ends; the second is empty where one is enough."""
    if len(name) <= _LABEL:
        return name, ""
    end = max(name.rfind(sign, 0, _LABEL) for sign in "_ =/:.-") + 1 or _LABEL
    return name[:end], _short(name[end:])


def _rows(
    names: Sequence[str], across: Point, axis: str, title: str, *, left: float = 104.0, right: float = 58.0
) -> tuple[Drawing, Panel]:
    """Return a drawing with a row for each name, first on top, and the panel in which row `y` has the height `y`.

    Args:
        names: of the rows.
        across: the values at the left and right edge.
        axis: title of the axis below.
        title: of the drawing, for screen readers.
        left: pixels for the names.
        right: pixels for what is written at the end of a row.
    """
    drawing = Drawing(_WIDTH, 54 + _ROW * len(names), title)
    panel = Panel(drawing, left, 7, _WIDTH - left - right, 7 + _ROW * len(names), across, up=(len(names) - 0.4, -0.6))
    panel.axis_below(ticks(across, _FEW), title=axis)
    for y, name in enumerate(names):
        first, second = _in_lines(name)  # both are written: no name changes what elements a page has
        drawing.text((left - 7, panel.y(y) - (_LINE / 2 if second else 0)), first, anchor="end")
        drawing.text((left - 7, panel.y(y) + _LINE / 2), second, anchor="end")
    return drawing, panel


def _beside(panel: Panel, y: int, words: str) -> None:
    """Write at the end of a row."""
    panel.drawing.text((panel.left + panel.width * 1.02, panel.y(y)), words)


def _interval(panel: Panel, y: int, span: Sequence[float], colour: str, *, shape: str = "o") -> None:
    """Draw an interval as a line, and the value in it as a point: low, high and value."""
    low, high, value = span
    panel.line([(low, y), (high, y)], colour, 2)
    panel.marker((value, y), shape, 6, colour)


def _finite(value: float | None) -> float:
    return value if value is not None and math.isfinite(value) else math.nan


def _tone(low: float, high: float) -> str:
    if low > 0:
        return GOOD
    return BAD if high < 0 else INK


def forest(rows: Sequence[MetricRow], *, binary: bool) -> str:
    """Return the differences to the baseline with their intervals, a row each; a row is green or red only if sure."""
    drawn = [r for r in rows if r.binary == binary and r.n and math.isfinite(_finite(r.delta))][:_MOST_ROWS]
    if not drawn:
        return ""
    scale = 100.0 if binary else 1.0
    names = [r.metric if r.slice == "all" else r.slice for r in drawn]
    spans = [[scale * _finite(v) for v in (r.low, r.high, r.delta)] for r in drawn]
    across = limits([0.0, *(value for span in spans for value in span)], 0.08)
    unit = "percentage points" if binary else "metric's unit"
    title = "Differences to the baseline with 95 % intervals"
    drawing, panel = _rows(names, across, unit, title, right=54)
    panel.upright(0, LINE, dash=BROKEN)
    for y, (row, span) in enumerate(zip(drawn, spans, strict=True)):
        _interval(panel, y, span, _tone(span[0], span[1]), shape="D" if row.primary else "o")
        _beside(panel, y, typeset(difference(row.delta, binary=row.binary)))
    return drawing.svg()


def return_histogram(histogram: Histogram | None) -> str:
    """Return the distribution of episode returns as shares, one outline a split."""
    if histogram is None or not any(sum(c) for c in histogram.counts.values()):
        return ""
    drawing = Drawing(_WIDTH, 166, "Distribution of episode returns by split")
    splits = [(split, counts) for split, counts in sorted(histogram.counts.items(), reverse=True) if sum(counts)]
    shares = [[100 * c / sum(counts) for c in counts] for _, counts in splits]
    edges = [float(edge) for edge in histogram.edges]
    highest = 1.05 * max(map(max, shares))
    panel = Panel(drawing, 43, 22, _WIDTH - 57, 108, limits(edges, 0.05), (0, highest))
    panel.axis_below(ticks(panel.across, 7), title="return of an episode")
    panel.axis_left(ticks(panel.up, 5), title="% of episodes")
    for i, ((split, counts), heights) in enumerate(zip(splits, shares, strict=True)):
        colour = (ACCENT, SECOND, GOOD)[i % 3]
        tops = [(edge, height) for n, height in enumerate(heights) for edge in edges[n : n + 2]]
        outline = [(edges[0], 0.0), *tops, (edges[-1], 0.0)]
        if i == 0:
            drawing.area([(panel.x(x), panel.y(y)) for x, y in outline], colour, opacity=0.18)
        panel.line(outline, colour, 1.6)
        at = panel.left + 105 * i
        drawing.text((at, panel.top - 12), "\u25a0", colour=colour)
        drawing.text((at + 13, panel.top - 12), f"{_short(split)} (n = {count(sum(counts))})")
    return drawing.svg()


def signal_scores(rows: Sequence[SignalRow]) -> str:
    """Return each signal's mean score as a bar from zero; costs have units of their own, and are left out."""
    drawn = [r for r in rows if r.n and r.kind != "cost" and math.isfinite(_finite(r.mean))][:_MOST_ROWS]
    if not drawn:
        return ""
    means = [_finite(r.mean) for r in drawn]
    across = (min(0, *means, -1) * 1.04, 1.04)
    drawing, panel = _rows([r.signal for r in drawn], across, "mean score", "Mean score of each reward signal")
    for y, (row, mean) in enumerate(zip(drawn, means, strict=True)):
        panel.box((0, y - _BAR), (mean, y + _BAR), SECOND if row.kind == "risk" else ACCENT)
        _beside(panel, y, f"n = {count(row.n)}")
    panel.upright(0, LINE)
    return drawing.svg()


def signal_spread(rows: Sequence[SignalRow]) -> str:
    """Return how each signal's scores are spread, as shares of its opinions from lowest to highest."""
    drawn = [r for r in rows if sum(r.counts)][:_MOST_ROWS]
    if not drawn:
        return ""
    votes = [(BAD, 1.0), (BAD, 0.45), (SOFT, 0.5), (GOOD, 0.45), (GOOD, 1.0)]
    harms = [(SOFT, 0.5), (SOFT, 0.5), (SOFT, 0.5), (SECOND, 0.45), (SECOND, 1.0)]
    drawing, panel = _rows([r.signal for r in drawn], (0, 100), "% of opinions", "Spread of each signal's scores")
    for y, row in enumerate(drawn):
        left = 0.0
        for n, (colour, opacity) in zip(row.counts, harms if row.kind == "risk" else votes, strict=True):
            share = 100 * n / sum(row.counts)
            if share:
                panel.box((left, y - _BAR), (left + share, y + _BAR), colour, opacity=opacity)
            left += share
        _beside(panel, y, f"n = {count(row.n)}")
    return drawing.svg()


def agreements(rows: Sequence[Agreement]) -> str:
    """Return how often signals agree, a row for every two, with intervals; the broken line is a coin."""
    drawn = rows[:_MOST_ROWS]
    if not drawn:
        return ""
    pairs = [f"{r.first} · {r.second}" for r in drawn]
    drawing, panel = _rows(pairs, (-3, 103), "% agreement", "How often signals agree")
    panel.upright(50, LINE, dash=BROKEN)
    for y, row in enumerate(drawn):
        span = [100 * share for share in (row.low, row.high, row.share)]
        _interval(panel, y, span, _tone(row.low - 0.5, row.high - 0.5))
        _beside(panel, y, f"n = {count(row.n)}")
    return drawing.svg()


def training_curves(metrics: Sequence[Mapping[str, Any]]) -> str:
    """Return one small panel for each known metric that was logged."""
    series = {key: _series(metrics, key) for key in CURVES}
    drawn = [key for key, points in series.items() if len(points) > 1][:_MOST_PANELS]
    if not drawn:
        return ""
    drawing = Drawing(_WIDTH, 126 * len(drawn), "Training curves by optimiser step")
    for row, key in enumerate(drawn):
        steps, values = zip(*series[key], strict=True)
        panel = Panel(drawing, 48, 126 * row + 22, _WIDTH - 62, 86, limits(steps, 0.02), limits(values, 0.1))
        panel.axis_below(ticks(panel.across, 5))
        panel.axis_left(ticks(panel.up, 5))
        panel.line(series[key], ACCENT, 1.6)
        drawing.text((panel.left, panel.top - 10), CURVES[key], bold=True)
    return drawing.svg()


def _series(metrics: Sequence[Mapping[str, Any]], key: str) -> list[Point]:
    points = []
    for i, row in enumerate(metrics):
        value, step = row.get(key), row.get("step", i)
        if all(isinstance(v, (int, float)) and math.isfinite(v) for v in (value, step)):
            points.append((float(step), float(value or 0)))
    return points


def funnel(funnels: Mapping[str, Mapping[str, int]]) -> str:
    """Return what each stage kept and dropped as shares of what it considered."""
    drawn = [(stage, c.get("considered", 0), c.get("kept", 0)) for stage, c in funnels.items()]
    drawn = [row for row in drawn if row[1] > 0][:_MOST_ROWS]
    if not drawn:
        return ""
    stages = [stage for stage, _, _ in drawn]
    drawing, panel = _rows(stages, (0, 100), "% kept", "Share kept by each stage", left=88, right=92)
    for y, (_, considered, kept) in enumerate(drawn):
        panel.box((0, y - _BAR), (100, y + _BAR), SOFT, opacity=0.35)
        panel.box((0, y - _BAR), (100 * kept / considered, y + _BAR), ACCENT)
        _beside(panel, y, f"{count(kept)} of {count(considered)}")
    return drawing.svg()


def drift(rounds: Sequence[PastRound], *, current: int) -> str:
    """Return the primary metric over rounds; the current round is filled, others are open."""
    points = [r for r in rounds if math.isfinite(_finite(r.value))]
    if not points:
        return ""
    binary = all(r.binary for r in points)
    scale = 100.0 if binary else 1.0
    drawing = Drawing(_WIDTH, 166, "Primary metric by round")
    spans = [[scale * _finite(v) for v in (r.low, r.high, r.value)] for r in points]
    across, up = limits([r.round for r in points], 0.1), limits([v for span in spans for v in span], 0.15)
    panel = Panel(drawing, 50, 11, _WIDTH - 65, 119, across, up)
    panel.axis_below([(n, str(n)) for n in sorted({r.round for r in points})[-_MOST_TICKS:]], title="round")
    panel.axis_left(ticks(up, 5), title="primary metric" + (", %" if binary else ""))
    panel.line([(r.round, value) for r, (_, _, value) in zip(points, spans, strict=True)], SOFT, 1.2)
    for row, (low, high, value) in zip(points, spans, strict=True):
        panel.line([(row.round, low), (row.round, high)], ACCENT, 1.6)
        panel.marker((row.round, value), "o", 7, ACCENT, face=ACCENT if row.round == current else PAPER)
    return drawing.svg()
