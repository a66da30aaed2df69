"""Production success by policy over time, with the decisions that moved the champion, as an inline SVG.

There is a picture for a wide page and one for a narrow one, because text that shrinks with its picture cannot be
read on a phone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from flywheel.report.svg import ACCENT, BROKEN, FOURTH, INK, SECOND, SOFT, THIRD, Drawing, Panel

if TYPE_CHECKING:
    from flywheel.report.home_data import Mark, PolicyLine

COLOURS = (ACCENT, SECOND, THIRD, FOURTH, INK, SOFT)
SHAPES = ("o", "s", "^", "D", "v", "P")
SIGNS = ("●", "■", "▲", "◆", "▼", "✚")  # of the shapes, in the page
NAMES = ("accent", "second", "third", "fourth", "ink", "soft")  # of the colours, as classes of the page
_SPANS = {"day": timedelta(days=1), "week": timedelta(weeks=1), "month": timedelta(days=30)}
_WIDE, _NARROW = (648.0, 223.0), (281.0, 216.0)  # pixels
_PERCENT = [(0.0, "0"), (25.0, "25"), (50.0, "50"), (75.0, "75"), (100.0, "100%")]
_MOST_MARKS = 8
_EDGE = 0.75  # share of the width from which a label would leave the picture, were it centred
_A_YEAR = 330  # days from which a date needs its year


def success_over_time(lines: Sequence[PolicyLine], marks: Sequence[Mark], *, span: str, wide: bool) -> str:
    """Return the picture; '' where no policy has a known outcome at a known time."""
    shown = lines[: len(COLOURS)]
    drawn = [line for line in shown if any(p.success.rate is not None for p in line.points)]
    if not drawn:
        return _without_times(shown, wide=wide)
    width, height = _WIDE if wide else _NARROW
    drawing = Drawing(width, height, "Success of episodes by policy over time, with 95% intervals")
    times = [point.at for line in drawn for point in line.points]
    first, last = min(times), max(times) + _SPANS[span]
    room = 0.01 * _day_span(first, last)
    panel = Panel(drawing, 36, 25, width - 54, height - 50, (_day(first) - room, _day(last) + room), (-3, 103))
    panel.axis_left(_PERCENT, grid=True)
    panel.axis_below(_dates(first, last, most=7 if wide else 3))
    _marks(panel, [m for m in marks if first <= m.at <= last], wide=wide)
    for place, line in enumerate(shown):
        if line in drawn:
            _line(panel, line, place, _SPANS[span] / 2)
    return drawing.svg()


def _without_times(lines: Sequence[PolicyLine], *, wide: bool) -> str:
    """Return each policy's success as a point with its interval; '' where no outcome is known."""
    known = [(place, line) for place, line in enumerate(lines) if line.success.rate is not None]
    if not known:
        return ""
    width, height = (_WIDE if wide else _NARROW)[0], 36 + 21.6 * len(known)
    drawing = Drawing(width, height, "Success of episodes by policy, with 95% intervals")
    panel = Panel(drawing, 25, 7, width - 43, height - 32, (-1, 101), (len(known) - 0.5, -0.5))
    panel.axis_below(_PERCENT, grid=True)
    for y, (place, line) in enumerate(known):
        ends = [(100 * _known(end), float(y)) for end in (line.success.low, line.success.high)]
        panel.line(ends, COLOURS[place], 2)
        panel.marker((100 * _known(line.success.rate), y), SHAPES[place], 7, COLOURS[place])
    return drawing.svg()


def drawn_until(lines: Sequence[PolicyLine], span: str) -> datetime | None:
    """Return the end of the picture's time; None where it has none."""
    times = [point.at for line in lines for point in line.points]
    return max(times) + _SPANS[span] if times else None


def _line(panel: Panel, line: PolicyLine, place: int, middle: timedelta) -> None:
    """Draw a policy: its points with their intervals, joined where no span is missing between them."""
    colour, points = COLOURS[place], [p for p in line.points if p.success.rate is not None]
    xs = [_day(point.at + middle) for point in points]
    rates, lows, highs = (
        [(x, 100 * _known(getattr(p.success, name))) for x, p in zip(xs, points, strict=True)]
        for name in ("rate", "low", "high")
    )
    if len(points) > 1:
        panel.band(lows, highs, colour, opacity=0.14)
        panel.line(rates, colour, 1.8)
    else:
        panel.line([lows[0], highs[0]], colour, 1.6)
    for at in rates:
        panel.marker(at, SHAPES[place], 5.5, colour)


def _known(value: float | None) -> float:
    return value if value is not None else math.nan


def _marks(panel: Panel, marks: Sequence[Mark], *, wide: bool) -> None:
    """Draw each decision as a broken line with its name above; a narrow page has room for the last name only."""
    for place, mark in enumerate(marks[-_MOST_MARKS:]):
        panel.upright(_day(mark.at), INK, dash=BROKEN)
        if wide or place == len(marks[-_MOST_MARKS:]) - 1:
            x = panel.x(_day(mark.at))
            at = (x - panel.left) / panel.width
            anchor = "end" if at > _EDGE else "start" if at < 1 - _EDGE else "middle"
            panel.drawing.text((x, panel.top - 10), mark.label, anchor=anchor)


def _day(at: datetime) -> float:
    """Return a time in days."""
    return at.timestamp() / 86400


def _day_span(first: datetime, last: datetime) -> float:
    return max(_day(last) - _day(first), 1.0)


def _dates(first: datetime, last: datetime, *, most: int) -> list[tuple[float, str]]:
    """Return some dates of an axis: whole days, evenly apart."""
    days = max(1, round(_day_span(first, last)))
    stride = max(1, math.ceil(days / most))
    start = first.replace(hour=0, minute=0, second=0, microsecond=0)
    ticks = [start + timedelta(days=n) for n in range(0, days + 1, stride)]
    return [
        (_day(t), f"{t.day} {t:%b}" + (f" {t:%y}" if days > _A_YEAR else "")) for t in ticks if _day(t) >= _day(first)
    ]
