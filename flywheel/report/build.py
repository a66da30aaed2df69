"""`ReportData` → one HTML file that opens from disk: plots, tables and an episode viewer, and nothing to load.

The page carries its style, its script and its data, and a content security policy that names the first two by hash.
Every text passes `clean` and jinja2's autoescape; episodes pass `island` and the viewer's textContent. A pure function:
the same data gives the same bytes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from flywheel import present
from flywheel.report import plots, views
from flywheel.report.data import ReportData
from flywheel.report.text import clean, clip, island, policy, short, stackable, typeset

if TYPE_CHECKING:
    from jinja2 import Environment


def build_report(data: ReportData) -> str:
    """Return the report of a round as the text of an HTML file, ready for UTF-8."""
    from markupsafe import Markup

    return render(
        "page.html.jinja",
        "viewer.js",
        _island(data),
        **_sections(data),
        data=data,
        figures={name: Markup(plot) for name, plot in _figures(data).items()},  # noqa: S704 - serialised XML
    )


def render(template: str, script: str, values: object, **context: Any) -> str:
    """Return a page with its style, the scripts `draw.js` and `script` ('' for none), and `values` as JSON island."""
    from markupsafe import Markup

    style, code = _asset("style.css"), "\n".join(_asset(name) for name in ("draw.js", script) if name)
    page = (
        _environment()
        .get_template(template)
        .render(
            **context,
            policy=policy(style=style, script=code),
            style=Markup(style),  # noqa: S704 - our own file
            script=Markup(code),  # noqa: S704 - our own file
            island=Markup(island(values)),  # noqa: S704 - `island` escapes all that HTML knows
        )
    )
    return stackable(page)


@cache
def _asset(name: str) -> str:
    return (files("flywheel.report") / name).read_text(encoding="utf-8").strip()


@cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    env = Environment(
        loader=PackageLoader("flywheel.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    env.filters |= {
        "clip": lambda text, limit=160: clip(str(text), limit),
        "capital": lambda text: text[:1].upper() + text[1:],
        "short": short,
        "typeset": typeset,
        "the_round": present.the_round,
        "showed_nothing": present.showed_nothing,
        "race_lines": present.race_lines,
        "fragment": lambda episode: quote("episode-" + clean(episode), safe=""),
    }
    for words in (
        present.count, present.level, present.number, present.signed, present.difference, present.interval,
    ):  # fmt: skip
        env.filters[words.__name__] = _typesetting(words)
    return env


def _typesetting(words: Callable[..., str]) -> Callable[..., str]:
    return lambda *args, **options: typeset(words(*args, **options))


def _finalize(value: Any) -> Any:
    """Clean every text that a template prints, except markup of our own."""
    return clean(value) if type(value) is str else value


def _island(data: ReportData) -> dict[str, Any]:
    linked = {
        name: sorted({episode for row in rows for episode in row.episodes})
        for name, rows in (("regressions", data.regressions), ("wins", data.wins))
    }
    return {"episodes": [views.shown_episode(episode) for episode in data.episodes], **linked}


def _figures(data: ReportData) -> dict[str, str]:
    rows, slices = (views.metric_rows(data, slices=s) for s in (False, True))
    return {
        "metrics": plots.forest(rows, binary=True),
        "metrics_plain": plots.forest(rows, binary=False),
        "slices": plots.forest(slices, binary=True),
        "slices_plain": plots.forest(slices, binary=False),
        "funnel": plots.funnel(views.funnels_of(data)),
        "signals": plots.signal_scores(data.signals),
        "distributions": plots.signal_spread(data.signals),
        "agreements": plots.agreements(data.agreements),
        "returns": plots.return_histogram(data.returns),
        "training": plots.training_curves(data.training),
        "drift": plots.drift(data.history, current=data.round),
    }


def _sections(data: ReportData) -> Mapping[str, Any]:
    """Return what each section of the page lays out."""
    shown = {episode["id"] for episode in data.episodes}
    report = data.report
    reasons = present.reasons(data.promotion)
    verdict = present.headline(data.manifest, report, data.promotion, numbers=not reasons)
    return {
        "verdict": verdict._replace(sentence=typeset(verdict.sentence)),
        "reasons": [typeset(reason) for reason in reasons],
        "steps": present.next_steps(data.manifest, report, data.promotion),
        "metrics": views.metric_rows(data, slices=False),
        "slices": views.metric_rows(data, slices=True),
        "baselines": views.Baselines(report.rivals if report else ()),
        "no_baselines": views.Baselines(()),
        "measures": views.measure_table(data),
        "off_policy": views.off_policy_table(data),
        "off_policy_refused": views.off_policy_refused(data),
        "funnel": views.funnel_rows(views.funnels_of(data)),
        "distributions": views.signal_table(data.signals),
        "returns": views.histogram_table(data),
        "training": views.training_table(data.training),
        "regressions": views.case_list(data.regressions, report.regressions if report else (), shown),
        "wins": views.case_list(data.wins, report.wins if report else (), shown),
        "pairs": views.pair_cards(data.pairs),
        "shown_episodes": shown,
        "config": json.dumps(data.manifest.config, indent=2, sort_keys=True, ensure_ascii=False, default=str),
        "facts": views.facts(data),
        "commands": views.commands(data),
    }
