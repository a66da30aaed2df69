"""Figures as SVG that a page with a strict policy can hold."""

from __future__ import annotations

import matplotlib as mpl
from flywheel.report.svg import ACCENT, INK, drawing, to_svg
from matplotlib.figure import Figure
from tests.report.sample import parse_svg


def _draw(label: str = "label") -> str:
    with drawing():
        figure = Figure(figsize=(4, 2))
        ax = figure.add_axes((0.2, 0.2, 0.7, 0.7))
        ax.plot([1, 2], [1, 2], color=ACCENT, marker="o")
        ax.text(1, 1, "@0", color=INK)
        return to_svg(figure, name="plot", title='a "title" <b>', labels={"@0": label})


def test_the_same_figure_gives_the_same_bytes_whatever_the_users_settings() -> None:
    first = _draw()
    with mpl.rc_context({"font.size": 30, "axes.grid": True, "svg.fonttype": "path"}):
        second = _draw()

    assert first == second


def test_settings_are_put_back() -> None:
    before = dict(mpl.rcParams)
    _draw()

    assert dict(mpl.rcParams) == before


def test_nothing_is_left_that_a_strict_policy_would_block_or_that_two_plots_would_share() -> None:
    root = parse_svg(_draw())

    assert not [e for e in root.iter() if e.tag.endswith(("}style", "}script", "}metadata")) or "style" in e.attrib]
    ids = [e.attrib["id"] for e in root.iter() if "id" in e.attrib]
    assert ids
    assert len(ids) == len(set(ids))
    assert all(i.startswith("plot-") for i in ids)
    references = [v.strip("url()#") for e in root.iter() for k, v in e.attrib.items() if k in {"href", "clip-path"}]
    assert references
    assert set(references) <= set(ids)


def test_the_palette_follows_the_theme() -> None:
    root = parse_svg(_draw())

    classes = {e.attrib["class"] for e in root.iter() if "class" in e.attrib}
    assert {"s-accent", "f-ink", "plot"} <= classes
    assert root.attrib["role"] == "img"
    assert root.attrib["aria-label"] == 'a "title" <b>'


def test_labels_are_text_and_nothing_else() -> None:
    label = "</text><script>alert(1)</script> $x_{ \ud800 成功"

    root = parse_svg(_draw(label))

    assert "</text><script>alert(1)</script> $x_{ \ufffd 成功" in [e.text for e in root.iter()]
    assert not [e for e in root.iter() if e.tag.endswith("script")]
