"""The report's plots: numbers in, inline SVG text out; '' where there is nothing to draw.

Each plot has its numbers as a table in the page, so a plot may leave out what it has no room for. All are as wide as a
phone: text that shrinks with its picture cannot be read. matplotlib is used without pyplot (no global figures) and only
inside `drawing()`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from flywheel.present import count, difference
from flywheel.records import MetricRow
from flywheel.report.data import Agreement, Histogram, PastRound, SignalRow
from flywheel.report.svg import ACCENT, BAD, GOOD, INK, LINE, PAPER, SECOND, SOFT, drawing, to_svg
from flywheel.report.text import typeset

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_WIDTH_IN, _ROW_IN = 3.9, 0.28
_LABEL = 19  # characters of a row's name
_MOST_ROWS, _MOST_TICKS = 24, 8

CURVES: dict[str, str] = {
    "loss": "Loss",
    "rewards/margins": "Reward margin",
    "rewards/accuracies": "Preference accuracy",
    "mean_token_accuracy": "Token accuracy",
    "kl_parent": "KL to the parent",
    "entropy": "Entropy",
    "grad_norm": "Gradient norm",
    "learning_rate": "Learning rate",
}
_MOST_PANELS = 6


def _figure(height_in: float) -> Figure:
    from matplotlib.figure import Figure

    return Figure(figsize=(_WIDTH_IN, height_in))


def _axes(figure: Figure, box_in: tuple[float, float, float, float]) -> Axes:
    """Return axes in a box of left, bottom, right and top margins in inches: nothing is placed by measuring text."""
    left, bottom, right, top = box_in
    width, height = figure.get_size_inches()
    return figure.add_axes((left / width, bottom / height, (width - left - right) / width, 1 - (bottom + top) / height))


def _short(text: str) -> str:
    return text if len(text) <= _LABEL else text[: _LABEL - 1] + "…"


def _rows(names: Sequence[str], left: float, right: float) -> tuple[Figure, Axes, dict[str, str]]:
    """Return a figure with a row for each name, first on top: figure, axes, and the name behind each placeholder."""
    figure = _figure(0.75 + _ROW_IN * len(names))
    ax = _axes(figure, (left, 0.55, right, 0.1))
    labels = {f"@row{i}": _short(name) for i, name in enumerate(names)}
    ax.set_yticks(range(len(names)), list(labels))
    ax.set_ylim(len(names) - 0.4, -0.6)
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)
    ax.locator_params(axis="x", nbins=4)
    return figure, ax, labels


def _beside(ax: Axes, y: int, words: str) -> None:
    """Write at the end of a row."""
    ax.text(1.02, y, words, transform=ax.get_yaxis_transform(), va="center", color=INK, fontsize=9)


def _finite(value: float | None) -> float:
    return value if value is not None and math.isfinite(value) else math.nan


def _tone(low: float, high: float) -> str:
    if low > 0:
        return GOOD
    return BAD if high < 0 else INK


def forest(rows: Sequence[MetricRow], *, binary: bool, name: str) -> str:
    """Return the differences to the baseline with their intervals, a row each; a row is green or red only if sure."""
    drawn = [r for r in rows if r.binary == binary and r.n and math.isfinite(_finite(r.delta))][:_MOST_ROWS]
    if not drawn:
        return ""
    scale = 100.0 if binary else 1.0
    with drawing():
        names = [r.metric if r.slice == "all" else r.slice for r in drawn]
        figure, ax, labels = _rows(names, 1.45, 0.75)
        ax.axvline(0, color=LINE, linewidth=1, linestyle=(0, (3, 3)))
        for y, row in enumerate(drawn):
            _interval_row(ax, y, row, scale)
        ax.margins(x=0.08)
        unit = "percentage points" if binary else "metric's unit"
        ax.set_xlabel(unit)
        return to_svg(figure, name=name, title="Differences to the baseline with 95 % intervals", labels=labels)


def _interval_row(ax: Axes, y: int, row: MetricRow, scale: float) -> None:
    delta, low, high = (scale * _finite(v) for v in (row.delta, row.low, row.high))
    colour = _tone(low, high)
    if math.isfinite(low) and math.isfinite(high):
        ax.plot([low, high], [y, y], color=colour, linewidth=2, solid_capstyle="butt")
    ax.plot([delta], [y], marker="D" if row.primary else "o", markersize=6, color=colour, linestyle="none")
    _beside(ax, y, typeset(difference(row.delta, binary=row.binary)))


def return_histogram(histogram: Histogram | None, *, name: str = "returns") -> str:
    """Return the distribution of episode returns as shares, one outline a split."""
    if histogram is None or not any(sum(c) for c in histogram.counts.values()):
        return ""
    with drawing():
        figure = _figure(2.3)
        ax = _axes(figure, (0.6, 0.5, 0.2, 0.3))
        labels = {}
        for i, (split, counts) in enumerate(sorted(histogram.counts.items(), reverse=True)):
            total = sum(counts)
            if not total:
                continue
            labels[f"@split{i}"] = f"{_short(split)} (n = {count(total)})"
            shares = [100 * c / total for c in counts]
            colour = (ACCENT, SECOND, GOOD)[i % 3]
            ax.stairs(shares, list(histogram.edges), color=colour, linewidth=1.6, zorder=3)
            if len(labels) == 1:
                ax.stairs(shares, list(histogram.edges), color=colour, fill=True, alpha=0.18)
            _key(ax, 105 * (len(labels) - 1), f"@split{i}", colour)
        ax.set_ylim(bottom=0)
        ax.set_xlabel("return of an episode")
        ax.set_ylabel("% of episodes")
        return to_svg(figure, name=name, title="Distribution of episode returns by split", labels=labels)


def _key(ax: Axes, at: int, label: str, colour: str) -> None:
    """Write an entry of a legend above the axes, `at` points from the left.

    A real legend would measure the placeholder, not the label.
    """
    for dx, text, shade in ((0, "\u25a0", colour), (13, label, INK)):
        ax.annotate(
            text, (0, 1), (at + dx, 12), xycoords="axes fraction", textcoords="offset points",
            va="center", color=shade, fontsize=9,
        )  # fmt: skip


def signal_scores(rows: Sequence[SignalRow], *, name: str = "signals") -> str:
    """Return each signal's mean score as a bar from zero; costs have units of their own, and are left out."""
    drawn = [r for r in rows if r.n and r.kind != "cost" and math.isfinite(_finite(r.mean))][:_MOST_ROWS]
    if not drawn:
        return ""
    with drawing():
        signals = [r.signal for r in drawn]
        figure, ax, labels = _rows(signals, 1.45, 0.8)
        means = [_finite(r.mean) for r in drawn]
        against = [r.kind == "risk" for r in drawn]
        colours = [SECOND if cost else ACCENT for cost in against]
        ax.barh(range(len(drawn)), means, height=0.55, color=colours)
        ax.axvline(0, color=LINE, linewidth=1)
        for y, row in enumerate(drawn):
            _beside(ax, y, f"n = {count(row.n)}")
        ax.set_xlim(min(0, *means, -1) * 1.04, 1.04)
        ax.set_xlabel("mean score")
        return to_svg(figure, name=name, title="Mean score of each reward signal", labels=labels)


def signal_spread(rows: Sequence[SignalRow], *, name: str = "spread") -> str:
    """Return how each signal's scores are spread, as shares of its opinions from lowest to highest."""
    drawn = [r for r in rows if sum(r.counts)][:_MOST_ROWS]
    if not drawn:
        return ""
    votes = [(BAD, 1.0), (BAD, 0.45), (SOFT, 0.5), (GOOD, 0.45), (GOOD, 1.0)]
    harms = [(SOFT, 0.5), (SOFT, 0.5), (SOFT, 0.5), (SECOND, 0.45), (SECOND, 1.0)]
    with drawing():
        signals = [r.signal for r in drawn]
        figure, ax, labels = _rows(signals, 1.45, 0.8)
        for y, row in enumerate(drawn):
            left = 0.0
            for n, (colour, alpha) in zip(row.counts, harms if row.kind == "risk" else votes, strict=True):
                share = 100 * n / sum(row.counts)
                ax.barh([y], [share], left=left, height=0.55, color=colour, alpha=alpha)
                left += share
            _beside(ax, y, f"n = {count(row.n)}")
        ax.set_xlim(0, 100)
        ax.set_xlabel("% of opinions")
        return to_svg(figure, name=name, title="Spread of each signal's scores", labels=labels)


def agreements(rows: Sequence[Agreement], *, name: str = "agreements") -> str:
    """Return how often signals agree, a row for every two, with intervals; the broken line is a coin."""
    drawn = rows[:_MOST_ROWS]
    if not drawn:
        return ""
    with drawing():
        pairs = [f"{r.first} · {r.second}" for r in drawn]
        figure, ax, labels = _rows(pairs, 1.45, 0.8)
        ax.axvline(50, color=LINE, linewidth=1, linestyle=(0, (3, 3)))
        for y, row in enumerate(drawn):
            colour = _tone(row.low - 0.5, row.high - 0.5)
            ax.plot([100 * row.low, 100 * row.high], [y, y], color=colour, linewidth=2, solid_capstyle="butt")
            ax.plot([100 * row.share], [y], marker="o", markersize=6, color=colour, linestyle="none")
            _beside(ax, y, f"n = {count(row.n)}")
        ax.set_xlim(-3, 103)
        ax.set_xlabel("% agreement")
        return to_svg(figure, name=name, title="How often signals agree", labels=labels)


def training_curves(metrics: Sequence[Mapping[str, Any]], *, name: str = "training") -> str:
    """Return one small panel for each known metric that was logged."""
    series = {key: _series(metrics, key) for key in CURVES}
    drawn = [key for key, points in series.items() if len(points) > 1][:_MOST_PANELS]
    if not drawn:
        return ""
    with drawing():
        height = 1.75 * len(drawn)
        figure = _figure(height)
        for row, key in enumerate(drawn):
            top = 0.3 + 1.75 * row
            ax = _axes(figure, (0.55, height - top - 1.2, 0.15, top))
            steps, values = zip(*series[key], strict=True)
            ax.plot(steps, values, color=ACCENT, linewidth=1.6)
            ax.set_title(CURVES[key], fontweight="bold")
            ax.margins(x=0.02, y=0.1)
            ax.locator_params(axis="both", nbins=5, steps=[1, 2, 5, 10])
        return to_svg(figure, name=name, title="Training curves by optimiser step")


def _series(metrics: Sequence[Mapping[str, Any]], key: str) -> list[tuple[float, float]]:
    points = []
    for i, row in enumerate(metrics):
        value, step = row.get(key), row.get("step", i)
        if all(isinstance(v, (int, float)) and math.isfinite(v) for v in (value, step)):
            points.append((float(step), float(value or 0)))
    return points


def funnel(funnels: Mapping[str, Mapping[str, int]], *, name: str = "funnel") -> str:
    """Return what each stage kept and dropped as shares of what it considered."""
    drawn = [(stage, c.get("considered", 0), c.get("kept", 0)) for stage, c in funnels.items()]
    drawn = [row for row in drawn if row[1] > 0][:_MOST_ROWS]
    if not drawn:
        return ""
    with drawing():
        stages = [stage for stage, _, _ in drawn]
        figure, ax, labels = _rows(stages, 0.95, 1.5)
        shares = [100 * kept / considered for _, considered, kept in drawn]
        ax.barh(range(len(drawn)), [100] * len(drawn), height=0.55, color=SOFT, alpha=0.35)
        ax.barh(range(len(drawn)), shares, height=0.55, color=ACCENT)
        for y, (_, considered, kept) in enumerate(drawn):
            _beside(ax, y, f"{count(kept)} of {count(considered)}")
        ax.set_xlim(0, 100)
        ax.set_xlabel("% kept")
        return to_svg(figure, name=name, title="Share kept by each stage", labels=labels)


def drift(rounds: Sequence[PastRound], *, current: int, name: str = "drift") -> str:
    """Return the primary metric over rounds; the current round is filled, others are open."""
    points = [r for r in rounds if math.isfinite(_finite(r.value))]
    if not points:
        return ""
    binary = all(r.binary for r in points)
    scale = 100.0 if binary else 1.0
    with drawing():
        figure = _figure(2.3)
        ax = _axes(figure, (0.7, 0.5, 0.2, 0.15))
        values = [scale * _finite(r.value) for r in points]
        ax.plot([r.round for r in points], values, color=SOFT, linewidth=1.2, zorder=1)
        for row, value in zip(points, values, strict=True):
            low, high = scale * _finite(row.low), scale * _finite(row.high)
            if math.isfinite(low) and math.isfinite(high):
                ax.plot([row.round] * 2, [low, high], color=ACCENT, linewidth=1.6, solid_capstyle="butt")
            face = ACCENT if row.round == current else PAPER
            ax.plot([row.round], [value], marker="o", markersize=7, color=ACCENT, markerfacecolor=face, linestyle="")
        ax.set_xticks(sorted({r.round for r in points})[-_MOST_TICKS:])
        ax.margins(x=0.1, y=0.15)
        ax.set_xlabel("round")
        ax.set_ylabel("primary metric" + (", %" if binary else ""))
        return to_svg(figure, name=name, title="Primary metric by round")
