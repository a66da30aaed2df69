"""The home page: how production does, what is waiting, the last night and the newest verdict, for everyone.

In: `HomeData`, plain values. Out: one HTML page. A pure function: the same data gives the same bytes.
"""

from __future__ import annotations

from flywheel.report.build import render
from flywheel.report.home_data import HomeData
from flywheel.report.text import short, typeset
from flywheel.report.timeline import NAMES, SIGNS, drawn_until, success_over_time


def home_page(data: HomeData) -> str:
    """Return the home page as the text of an HTML file, ready for UTF-8."""
    from markupsafe import Markup

    figures = {
        name: Markup(success_over_time(data.lines, data.marks, span=data.span, wide=name == "wide"))  # noqa: S704 - serialised XML
        for name in ("wide", "narrow")
    }
    end = drawn_until(data.lines, data.span)
    later = [mark for mark in data.marks if end is not None and mark.at > end]
    return render(
        "home.html.jinja", "", {}, data=data, figures=figures, later=later, keys=list(zip(NAMES, SIGNS, strict=True)),
        sentence=typeset(data.verdict.headline.sentence) if data.verdict is not None else "",
        title=f"{short(data.project, 80)} · flywheel",
    )  # fmt: skip
