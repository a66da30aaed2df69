"""Production success by policy over time, with the decisions that moved the champion, as an inline SVG.

There is a picture for a wide page and one for a narrow one, because text that shrinks with its picture cannot be
read on a phone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from flywheel.report.svg import ACCENT, FOURTH, INK, LINE, SECOND, SOFT, THIRD, drawing, to_svg

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from flywheel.report.home_data import Mark, PolicyLine

COLOURS = (ACCENT, SECOND, THIRD, FOURTH, INK, SOFT)
SHAPES = ("o", "s", "^", "D", "v", "P")
SIGNS = ("●", "■", "▲", "◆", "▼", "✚")  # of the shapes, in the page
NAMES = ("accent", "second", "third", "fourth", "ink", "soft")  # of the colours, as classes of the page
_SPANS = {"day": timedelta(days=1), "week": timedelta(weeks=1), "month": timedelta(days=30)}
_WIDE, _NARROW = (9.0, 3.1), (3.9, 3.0)  # inches
_MOST_MARKS = 8
_EDGE = 0.75  # share of the width from which a label would leave the picture, were it centred
_A_YEAR = 330  # days from which a date needs its year


def success_over_time(lines: Sequence[PolicyLine], marks: Sequence[Mark], *, span: str, name: str, wide: bool) -> str:
    """Return the picture; '' where no policy has a known outcome at a known time."""
    drawn = [line for line in lines[: len(COLOURS)] if any(p.success.rate is not None for p in line.points)]
    if not drawn:
        return _without_times(lines[: len(COLOURS)], name=name, wide=wide)
    from matplotlib.figure import Figure

    width, height = _WIDE if wide else _NARROW
    with drawing():
        figure = Figure(figsize=(width, height))
        left, bottom, right, top = 0.5, 0.35, 0.15, 0.35
        ax = figure.add_axes(
            (left / width, bottom / height, (width - left - right) / width, (height - bottom - top) / height)
        )
        times = [point.at for line in drawn for point in line.points]
        first, last = min(times), max(times) + _SPANS[span]
        for place, line in enumerate(lines[: len(COLOURS)]):
            if line in drawn:
                _line(ax, line, place, _SPANS[span] / 2)
        ax.set_xlim(_day(first) - 0.01 * _day_span(first, last), _day(last) + 0.01 * _day_span(first, last))
        labels = _marks(ax, [m for m in marks if first <= m.at <= last], wide=wide)
        ax.set_ylim(-3, 103)
        ax.set_yticks([0, 25, 50, 75, 100], ["0", "25", "50", "75", "100%"])
        ax.grid(axis="y", color=LINE, linewidth=0.5, alpha=0.4)
        _dates(ax, first, last, most=7 if wide else 3)
        title = "Success of episodes by policy over time, with 95% intervals"
        return to_svg(figure, name=name, title=title, labels=labels)


def _without_times(lines: Sequence[PolicyLine], *, name: str, wide: bool) -> str:
    """Return each policy's success as a point with its interval; '' where no outcome is known."""
    known = [(place, line) for place, line in enumerate(lines) if line.success.rate is not None]
    if not known:
        return ""
    from matplotlib.figure import Figure

    width, height = (_WIDE if wide else _NARROW)[0], 0.5 + 0.3 * len(known)
    with drawing():
        figure = Figure(figsize=(width, height))
        left, bottom = 0.35, 0.35
        ax = figure.add_axes(
            (left / width, bottom / height, (width - left - 0.25) / width, (height - bottom - 0.1) / height)
        )
        for y, (place, line) in enumerate(known):
            ends = [100 * _known(line.success.low), 100 * _known(line.success.high)]
            ax.plot(ends, [y, y], color=COLOURS[place], linewidth=2, solid_capstyle="butt")
            ax.plot([100 * _known(line.success.rate)], [y], marker=SHAPES[place], markersize=7, color=COLOURS[place])
        ax.set_ylim(len(known) - 0.5, -0.5)
        ax.set_yticks([])
        ax.spines["left"].set_visible(False)
        ax.set_xlim(-1, 101)
        ax.set_xticks([0, 25, 50, 75, 100], ["0", "25", "50", "75", "100%"])
        ax.grid(axis="x", color=LINE, linewidth=0.5, alpha=0.4)
        return to_svg(figure, name=name, title="Success of episodes by policy, with 95% intervals")


def drawn_until(lines: Sequence[PolicyLine], span: str) -> datetime | None:
    """Return the end of the picture's time; None where it has none."""
    times = [point.at for line in lines for point in line.points]
    return max(times) + _SPANS[span] if times else None


def _line(ax: Axes, line: PolicyLine, place: int, middle: timedelta) -> None:
    """Draw a policy: its points with their intervals, joined where no span is missing between them."""
    colour, points = COLOURS[place], [p for p in line.points if p.success.rate is not None]
    xs = [_day(point.at + middle) for point in points]
    ys = [100 * (point.success.rate or 0.0) for point in points]
    lows, highs = ([100 * _known(getattr(p.success, end)) for p in points] for end in ("low", "high"))
    if len(points) > 1:
        ax.fill_between(xs, lows, highs, color=colour, alpha=0.14, linewidth=0)
        ax.plot(xs, ys, color=colour, linewidth=1.8)
    else:
        ax.plot([xs[0]] * 2, [lows[0], highs[0]], color=colour, linewidth=1.6, solid_capstyle="butt")
    ax.plot(xs, ys, marker=SHAPES[place], markersize=5.5, color=colour, linestyle="none")


def _known(value: float | None) -> float:
    return value if value is not None else math.nan


def _marks(ax: Axes, marks: Sequence[Mark], *, wide: bool) -> dict[str, str]:
    """Draw each decision as a broken line with its name above; a narrow page has room for the last name only."""
    labels = {}
    left, right = ax.get_xlim()
    for place, mark in enumerate(marks[-_MOST_MARKS:]):
        x = _day(mark.at)
        ax.axvline(x, color=INK, linewidth=1, linestyle=(0, (3, 3)))
        if wide or place == len(marks[-_MOST_MARKS:]) - 1:
            labels[f"@mark{place}"] = mark.label
            at = (x - left) / (right - left)
            side = "right" if at > _EDGE else "left" if at < 1 - _EDGE else "center"
            ax.annotate(
                f"@mark{place}", (x, 1), (0, 5), xycoords=("data", "axes fraction"), textcoords="offset points",
                ha=side, va="bottom", color=INK, fontsize=9,
            )  # fmt: skip
    return labels


def _day(at: datetime) -> float:
    """Return a time in days, on an axis of our own: matplotlib's dates depend on its settings."""
    return at.timestamp() / 86400


def _day_span(first: datetime, last: datetime) -> float:
    return max(_day(last) - _day(first), 1.0)


def _dates(ax: Axes, first: datetime, last: datetime, *, most: int) -> None:
    """Write some dates under the axis: whole days, evenly apart."""
    days = max(1, round(_day_span(first, last)))
    stride = max(1, math.ceil(days / most))
    start = first.replace(hour=0, minute=0, second=0, microsecond=0)
    ticks = [start + timedelta(days=n) for n in range(0, days + 1, stride)]
    ax.set_xticks([_day(t) for t in ticks], [f"{t.day} {t:%b}" + (f" {t:%y}" if days > _A_YEAR else "") for t in ticks])
