"""Inline SVG that follows the page's theme and obeys its content security policy: lines, boxes, markers, texts, axes.

The policy forbids `style` attributes and elements, so colours are presentation attributes, with classes that style.css
gives a light and a dark value; nothing has an id, so several plots live in one page. Every text is cleaned and escaped
here. The same numbers give the same bytes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise

from flywheel.report.text import clean

# Mid-tones: readable on white and on black even where the page's classes do not apply.
INK, LINE, SOFT, PAPER = "#73787e", "#a4a9af", "#b9bdc2", "#fdfdfc"
ACCENT, SECOND, GOOD, BAD = "#3f83d4", "#cf7a22", "#2f9c68", "#d2524a"
THIRD, FOURTH = "#168f96", "#8b63c9"
_CLASSES = {
    INK: "ink",
    LINE: "line",
    SOFT: "soft",
    PAPER: "paper",
    ACCENT: "accent",
    SECOND: "second",
    GOOD: "good",
    BAD: "bad",
    THIRD: "third",
    FOURTH: "fourth",
}
BROKEN = "3 3"  # the dashes of a line that only helps
_FONT, _LETTER = "9", 5.2  # pixels of a text's height, and of a digit with what is around it
_TICK, _BELOW = 3.5, 14.0  # a tick's length; from an axis to the middle of its tick labels
_STEPS = {1.0: 0, 2.0: 0, 2.5: -1, 5.0: 0, 10.0: 1, 20.0: 1}  # round steps: decimal exponents of their last digits
_PLAIN = range(-4, 6)  # decimal exponents of numbers that are written without one
# Corners of markers, in half their size; a circle is one of its own.
_CORNERS = {
    "s": ((-1, -1), (1, -1), (1, 1), (-1, 1)),
    "^": ((0, -1), (1, 1), (-1, 1)),
    "v": ((0, 1), (1, -1), (-1, -1)),
    "D": ((0, -1.5), (1.5, 0), (0, 1.5), (-1.5, 0)),
    "P": tuple((x, y) for x, y in ((-0.35, -1), (0.35, -1), (0.35, -0.35), (1, -0.35), (1, 0.35), (0.35, 0.35),
                                   (0.35, 1), (-0.35, 1), (-0.35, 0.35), (-1, 0.35), (-1, -0.35), (-0.35, -0.35))),
}  # fmt: skip

Point = tuple[float, float]


class Drawing:
    """An `<svg>` element that grows.

    Args:
        width: in pixels.
        height: in pixels.
        title: for screen readers.
    """

    def __init__(self, width: float, height: float, title: str) -> None:
        self.width, self.height = width, height
        self._title = title
        self._parts: list[str] = []

    def line(self, points: Sequence[Point], colour: str, width: float, *, dash: str = "", opacity: float = 1.0) -> None:
        """Draw a line through points."""
        broken = {"stroke-dasharray": dash} if dash else {}
        drawn = {"d": _path(points), "fill": "none", "stroke": colour, "stroke-width": _text(width)}
        self._add("path", {**drawn, **broken, **_pale(opacity)})

    def area(self, points: Sequence[Point], colour: str, *, opacity: float = 1.0) -> None:
        """Fill a polygon."""
        self._add("path", {"d": _path(points) + " z", "fill": colour, **_pale(opacity)})

    def marker(self, at: Point, shape: str, size: float, colour: str, *, face: str = "") -> None:
        """Draw a point: `o`, or a shape of `_CORNERS`."""
        (x, y), half = at, size / 2
        if shape == "o":
            place = {"cx": _text(x), "cy": _text(y), "r": _text(half)}
            self._add("circle", {**place, "fill": face or colour, "stroke": colour, "stroke-width": "1"})
        else:
            self.area([(x + half * dx, y + half * dy) for dx, dy in _CORNERS[shape]], colour)

    def text(self, at: Point, words: str, *, anchor: str = "start", colour: str = INK, bold: bool = False) -> None:
        """Write words, their middle at the height of `at`."""
        self._write(at, words, {"text-anchor": anchor, "fill": colour, **({"font-weight": "bold"} if bold else {})})

    def upward(self, at: Point, words: str) -> None:
        """Write words from below to above, their middle at `at`."""
        turn = f"rotate(-90 {_text(at[0])} {_text(at[1])})"
        self._write(at, words, {"text-anchor": "middle", "fill": INK, "transform": turn})

    def _write(self, at: Point, words: str, attributes: Mapping[str, str]) -> None:
        place = {"x": _text(at[0]), "y": _text(at[1]), "dy": "0.35em", "font-size": _FONT}
        self._add("text", {**place, **attributes}, words)

    def svg(self) -> str:
        """Return the element."""
        width, height = _text(self.width), _text(self.height)
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
            f'class="plot" role="img" aria-label="{escape(clean(self._title))}" stroke-linejoin="round" '
            'font-family="system-ui, sans-serif">'
        )
        return head + "".join(self._parts) + "</svg>"

    def _add(self, tag: str, attributes: Mapping[str, str], words: str = "") -> None:
        colours = [(key, attributes[key]) for key in ("fill", "stroke") if attributes.get(key) in _CLASSES]
        named = {"class": " ".join(f"{key[0]}-{_CLASSES[colour]}" for key, colour in colours)} if colours else {}
        written = " ".join(f'{name}="{value}"' for name, value in sorted({**attributes, **named}.items()))
        end = f">{escape(clean(words), quote=False)}</{tag}>" if words else "/>"
        self._parts.append(f"<{tag} {written}{end}")


@dataclass(frozen=True)
class Panel:
    """A box of a drawing with an axis below and an axis at its left.

    Args:
        drawing: that it is in.
        left, top, width, height: the box, in pixels.
        across: the values at its left and right edge.
        up: the values at its lower and upper edge.
    """

    drawing: Drawing
    left: float
    top: float
    width: float
    height: float
    across: Point
    up: Point

    def x(self, value: float) -> float:
        """Return the place of a value; of one beyond the box, its edge."""
        return self.left + self.width * _share(value, *self.across)

    def y(self, value: float) -> float:
        """Return the place of a value; of one beyond the box, its edge."""
        return self.top + self.height * (1 - _share(value, *self.up))

    def line(self, points: Iterable[Point], colour: str, width: float, *, dash: str = "") -> None:
        """Draw a line through values; a missing value leaves a gap."""
        for run in _runs(points):
            if len(run) > 1:
                self.drawing.line([(self.x(x), self.y(y)) for x, y in run], colour, width, dash=dash)

    def band(self, lows: Sequence[Point], highs: Sequence[Point], colour: str, *, opacity: float) -> None:
        """Fill what lies between two lines."""
        known = [all(map(math.isfinite, (*low, *high))) for low, high in zip(lows, highs, strict=True)]
        run: list[int] = []
        for i, whole in enumerate([*known, False]):
            if whole:
                run.append(i)
            elif len(run) > 1:
                outline = [lows[n] for n in run] + [highs[n] for n in reversed(run)]
                self.drawing.area([(self.x(x), self.y(y)) for x, y in outline], colour, opacity=opacity)
            run = run if whole else []

    def box(self, start: Point, end: Point, colour: str, *, opacity: float = 1.0) -> None:
        """Fill a rectangle from one corner to the other."""
        (left, low), (right, high) = ((self.x(x), self.y(y)) for x, y in (start, end))
        self.drawing.area([(left, low), (right, low), (right, high), (left, high)], colour, opacity=opacity)

    def marker(self, at: Point, shape: str, size: float, colour: str, *, face: str = "") -> None:
        """Draw a value as a point; none where it is missing."""
        if all(map(math.isfinite, at)):
            self.drawing.marker((self.x(at[0]), self.y(at[1])), shape, size, colour, face=face)

    def upright(self, value: float, colour: str, *, dash: str = "") -> None:
        """Draw a line from below to above."""
        x = self.x(value)
        self.drawing.line([(x, self.top), (x, self.top + self.height)], colour, 1, dash=dash)

    def axis_below(self, ticks: Iterable[tuple[float, str]], *, title: str = "", grid: bool = False) -> None:
        """Draw the axis below, its ticks with their labels, and its title."""
        bottom = self.top + self.height
        self.drawing.line([(self.left, bottom), (self.left + self.width, bottom)], LINE, 0.8)
        for value, label in self._apart(list(ticks)):
            x = self.x(value)
            if grid:
                self.drawing.line([(x, self.top), (x, bottom)], LINE, 0.5, opacity=0.4)
            self.drawing.line([(x, bottom), (x, bottom + _TICK)], LINE, 0.8)
            self.drawing.text((x, bottom + _BELOW), label, anchor="middle")
        if title:
            self.drawing.text((self.left + self.width / 2, bottom + 2 * _BELOW), title, anchor="middle")

    def _apart(self, ticks: list[tuple[float, str]]) -> list[tuple[float, str]]:
        """Leave out every second tick until no two labels touch; zero stays, where there is one."""
        least = _LETTER * (1 + max((len(label) for _, label in ticks), default=0))
        if all(self.x(right) - self.x(left) >= least for (left, _), (right, _) in pairwise(ticks)):
            return ticks
        zero = next((n for n, (value, _) in enumerate(ticks) if not value), 0)
        return self._apart(ticks[zero % 2 :: 2])

    def axis_left(self, ticks: Iterable[tuple[float, str]], *, title: str = "", grid: bool = False) -> None:
        """Draw the axis at the left, its ticks with their labels, and its title."""
        bottom = self.top + self.height
        self.drawing.line([(self.left, self.top), (self.left, bottom)], LINE, 0.8)
        for value, label in ticks:
            y = self.y(value)
            if grid:
                self.drawing.line([(self.left, y), (self.left + self.width, y)], LINE, 0.5, opacity=0.4)
            self.drawing.line([(self.left - _TICK, y), (self.left, y)], LINE, 0.8)
            self.drawing.text((self.left - 2 * _TICK, y), label, anchor="end")
        if title:
            self.drawing.upward((self.left - 34, self.top + self.height / 2), title)


def limits(values: Iterable[float], margin: float) -> Point:
    """Return the smallest and the largest value with a margin around them, as a share of what lies between."""
    known = [v for v in values if math.isfinite(v)] or [0.0]
    low, high = min(known), max(known)
    room = (high / 2 - low / 2) * 2 * margin if high > low else max(abs(low) * 0.05, 1e-9 if low else 0.05)
    return max(low - room, -1.7e308), min(high + room, 1.7e308)


def ticks(between: Point, most: int) -> list[tuple[float, str]]:
    """Return at most so many round values between two, evenly apart, as they are written."""
    low, high = sorted(between)
    rough = (high / most - low / most) or 1.0
    power = math.floor(math.log10(rough))
    multiple = next(n for n in _STEPS if n * 10.0**power >= rough)
    step, finest = multiple * 10.0**power, power + _STEPS[multiple]
    first, last = math.ceil(low / step), math.floor(high / step)
    values = [n * step for n in range(first, min(last, first + most) + 1)]
    size = max(map(abs, values), default=0.0)
    highest = math.floor(math.log10(size)) if size else 0
    return [(value, _number(value, highest, finest)) for value in values]


def _number(value: float, highest: int, finest: int) -> str:
    """Write a number whose axis has digits from one decimal exponent down to another."""
    if not value:
        return "0"
    if highest in _PLAIN:
        return f"{value:.{max(0, -finest)}f}".replace("-", "\u2212")
    mantissa, _, power = f"{value:.{min(max(0, highest - finest), 6)}e}".partition("e")
    return f"{mantissa}e{int(power)}".replace("-", "\u2212")


def _share(value: float, low: float, high: float) -> float:
    """Return how far a value lies between two, from 0 to 1; halves keep the largest numbers finite."""
    return min(1.0, max(0.0, (value / 2 - low / 2) / (high / 2 - low / 2)))


def _pale(opacity: float) -> dict[str, str]:
    return {} if opacity == 1.0 else {"opacity": _text(opacity)}


def _runs(points: Iterable[Point]) -> list[list[Point]]:
    runs: list[list[Point]] = [[]]
    for point in points:
        if all(map(math.isfinite, point)):
            runs[-1].append(point)
        elif runs[-1]:
            runs.append([])
    return runs


def _path(points: Sequence[Point]) -> str:
    return " ".join(f"{'L' if i else 'M'} {_text(x)} {_text(y)}" for i, (x, y) in enumerate(points))


def _text(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".") or "0"
