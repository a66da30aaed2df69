"""Pictures as SVG that a page with a strict policy can hold."""

from __future__ import annotations

import math

import pytest
from flywheel.report.svg import ACCENT, GOOD, INK, Drawing, Panel, limits, ticks
from tests.report.sample import parse_svg


def _draw(label: str = "label") -> str:
    drawing = Drawing(200, 100, 'a "title" <b>')
    panel = Panel(drawing, 20, 10, 160, 70, (0, 4), (0, 2))
    panel.axis_below(ticks(panel.across, 4), title="steps")
    panel.axis_left(ticks(panel.up, 2))
    panel.line([(0, 1), (1, math.nan), (2, 1), (3, 2)], ACCENT, 1)
    panel.band([(0, 0), (1, 0), (2, math.nan)], [(0, 1), (1, 1), (2, 1)], GOOD, opacity=0.2)
    panel.marker((4, 9), "D", 6, ACCENT)
    drawing.text((10, 10), label)
    return drawing.svg()


def _paths(colour: str) -> list[str]:
    return [
        e.attrib["d"] for e in parse_svg(_draw()).iter() if colour in (e.attrib.get("fill"), e.attrib.get("stroke"))
    ]


def test_nothing_is_left_that_a_strict_policy_would_block_or_that_two_plots_would_share() -> None:
    root = parse_svg(_draw())

    assert not [e for e in root.iter() if e.tag.endswith(("}style", "}script", "}metadata")) or "style" in e.attrib]
    assert not [e for e in root.iter() if {"id", "href"} & e.attrib.keys()]


def test_the_palette_follows_the_theme() -> None:
    root = parse_svg(_draw())

    classes = {e.attrib["class"] for e in root.iter() if "class" in e.attrib}
    assert {"s-accent", "f-accent", "f-good", "f-ink", "s-line", "plot"} <= classes
    assert root.attrib["role"] == "img"
    assert root.attrib["aria-label"] == 'a "title" <b>'
    assert INK in {e.attrib.get("fill") for e in root.iter() if e.tag.endswith("}text")}


def test_labels_are_text_and_nothing_else() -> None:
    label = "</text><script>alert(1)</script> $x_{ \ud800 成功"

    root = parse_svg(_draw(label))

    assert "</text><script>alert(1)</script> $x_{ \ufffd 成功" in [e.text for e in root.iter()]
    assert not [e for e in root.iter() if e.tag.endswith("script")]


def test_values_are_drawn_where_they_belong() -> None:
    """A missing value leaves a gap, and one beyond the box is at its edge."""
    line, marker = _paths(ACCENT)
    assert line == "M 100 45 L 140 10"
    assert marker == "M 180 5.5 L 184.5 10 L 180 14.5 L 175.5 10 z"
    assert _paths(GOOD) == ["M 20 80 L 60 80 L 60 45 L 20 45 z"]


@pytest.mark.parametrize(
    ("between", "labels"),
    [
        ((0, 100), ["0", "50", "100"]),
        ((-1.04, 1.04), ["\u22121", "0", "1"]),
        ((0.68, 0.7), ["0.68", "0.69", "0.70"]),
        ((0, 2.3e-5), ["0", "1e\u22125", "2e\u22125"]),
        ((1, 24), ["10", "20"]),
        ((0, 0.75), ["0", "0.25", "0.50", "0.75"]),
        ((30_000, 90_000), ["40000", "60000", "80000"]),
        ((0, 3.2e9), ["0", "2e9"]),
    ],
)
def test_ticks_are_few_round_and_evenly_apart(between: tuple[float, float], labels: list[str]) -> None:
    assert [label for _, label in ticks(between, 3)] == labels


def test_labels_of_an_axis_never_touch_and_zero_stays() -> None:
    """Five labels such as -0.04 once ran into one another below a plot as wide as a phone."""
    drawing = Drawing(281, 60, "narrow")
    panel = Panel(drawing, 104, 7, 100, 20, (-0.05, 0.05), up=(0, 1))
    panel.axis_below(ticks(panel.across, 5))

    labels = [text.split(">")[1].split("<")[0] for text in drawing.svg().split("<text")[1:]]
    assert labels == ["\u22120.04", "0", "0.04"]


@pytest.mark.parametrize(
    "values", [[0.0], [5.0, 5.0], [1e300], [-1e-300], [-1.7e308, 1.7e308], [math.nan], [1e-320, 0]]
)
def test_any_numbers_have_limits_and_ticks(values: list[float]) -> None:
    low, high = limits(values, 0.1)

    assert low < high
    assert len(ticks((low, high), 5)) <= 7
