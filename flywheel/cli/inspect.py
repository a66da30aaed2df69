"""Inspect: one object in full, why it is so, and a report on a span of time."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from flywheel import present
from flywheel.cli.completing import rounds, subjects
from flywheel.cli.progress import working
from flywheel.cli.render import columns
from flywheel.cli.session import coloured, session

if TYPE_CHECKING:
    from flywheel.results.inspect import (
        Preview,
        ReportAnswer,
        ReportChange,
        ReportCost,
        ReportIntent,
        ReportRate,
        ShowAnswer,
    )

commands = typer.Typer()
OPEN, CLOSE = "\u27e6", "\u27e7"  # around trained tokens
_LONG = {"prompt", "tools", "chosen", "rejected", "completion", "completions_G"}


@commands.command()
def show(
    ctx: typer.Context,
    subject: Annotated[
        str, typer.Argument(help="Round number, alias or id.", metavar="SUBJECT", autocompletion=rounds)
    ],
) -> None:
    """Print one object in full.

    A round by number or alias; an episode, pair, example, group, task, case or event by the first digits of its id; a
    step as EPISODE:STEP; a task by the log's name for it. For a row to train on, also the text that the model reads,
    with the trained tokens marked.
    """
    current = session(ctx)
    answer = current.project().show(subject)
    if answer.rendering:
        lines = _preview_lines(answer)
    else:
        lines = [answer.kind, json.dumps(answer.record, indent=1, ensure_ascii=False)]
    current.out.result(lines, answer)


def _preview_lines(a: ShowAnswer) -> list[str]:
    """Return a row's fields and its text, with trained tokens between marks, and green where there is colour."""
    fields = columns([[name, _field(value)] for name, value in a.record.items() if name not in _LONG])
    return [a.kind, *fields, a.rendering, *_sides(a.preview)]


def _field(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4f}".rstrip("0").rstrip(".")
    return ", ".join(map(_field, value)) if isinstance(value, list) else str(value)


def _sides(sides: Sequence[Preview]) -> Iterator[str]:
    """Yield each side; a prompt that all sides share is shown once."""
    prompts = [side.segments[0].text for side in sides if side.segments]
    shared = prompts[0] if prompts and len(set(prompts)) == 1 else ""
    if shared:
        yield from ("", f"--- prompt: {sides[0].segments[0].tokens:,} tokens, not trained", shared)
    for side in sides:
        trained = sum(segment.tokens for segment in side.segments if segment.trained)
        yield from ("", f"--- {side.side}: {trained:,} tokens trained, between {OPEN} and {CLOSE}")
        texts = []
        for segment in side.segments[1 if shared else 0 :]:
            text = f"{OPEN}{segment.text}{CLOSE}" if segment.trained else segment.text
            texts.append(coloured(text, "green") if segment.trained else text)
        yield "".join(texts)


@commands.command()
def view(
    ctx: typer.Context,
    subject: Annotated[
        str | None, typer.Argument(help="Round, or any id of `show`; default: the newest round.", metavar="SUBJECT")
    ] = None,
    *,
    bundle: Annotated[
        Path | None, typer.Option("--bundle", help="Write a folder that any web server can serve.", metavar="DIR")
    ] = None,
    opened: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
) -> None:
    """Write pages that show the episodes in a browser.

    Steps, tool calls and results, rewards with their evidence, pairs side by side, trained tokens shaded. The pages
    need no server and no network. An episode becomes a single page.
    """
    current = session(ctx)
    with working(current.out, "writing pages"):
        answer = current.project().view(subject, bundle=bundle)
    counts = present.count(answer.episodes, "episode")
    counts += f" on {present.count(answer.pages, 'page')}" if answer.episodes > 1 else ""
    current.out.result([counts, f"open  {answer.page}"], answer)
    if opened:
        import webbrowser

        path, _, fragment = answer.page.partition("#")
        webbrowser.open(Path(path).as_uri() + (f"#{fragment}" if fragment else ""))


@commands.command()
def explain(
    ctx: typer.Context,
    subject: Annotated[
        str, typer.Argument(help="Stage, round, gate or id.", metavar="SUBJECT", autocompletion=subjects)
    ],
) -> None:
    """Explain an object in sentences with numbers.

    Why a stage is stale, a round was held, an episode got its reward; where a pair, an example or a group comes from;
    the attempts at a task, what a case is and which rounds lost it; what each gate rule requires, and its result for
    the newest round. Takes the same names as `show`.
    """
    current = session(ctx)
    answer = current.project().explain(subject)
    current.out.result([*answer.lines, *(answer.details if current.out.verbose else ())], answer)


@commands.command()
def report(
    ctx: typer.Context,
    *,
    since: Annotated[str, typer.Option("--since", help="How far back: 7d, 24h, 2w.", metavar="SPAN")] = "7d",
    as_of: Annotated[
        str | None, typer.Option("--as-of", help="End of the span; default: the newest episode.", metavar="TIME")
    ] = None,
    markdown: Annotated[bool, typer.Option("--md", help="Print Markdown, for a mail or a channel.")] = False,
) -> None:
    """Report what the agent learnt, still fails at, and cost.

    A week, or any span, compared with the span before. It ends with the newest episode, not today, so that the same
    project gives the same report.
    """
    current = session(ctx)
    a = current.project().report(since, as_of=as_of)
    timeless = "the logs have" if a.without_time == a.episodes else f"{a.without_time:,} of {a.episodes:,} have"
    every = f"all episodes: {timeless} no times" if a.episodes else "no episodes"
    span = f"{a.since[:16]} to {a.until[:16]}".replace("T", " ") if a.until else every
    title = f"{_as_text(a.project) if markdown else a.project}, {span}"
    lines = [f"# {title}", ""] if markdown else [title]
    if not a.episodes and not a.until:
        current.out.result([*lines, "next  flywheel ingest LOGS"], a)
        return
    for heading, items in _report_parts(
        a, _Style(_as_code, _as_text) if markdown else _Style("“{}”".format, present.one_line)
    ):
        if markdown:
            indented = (f"{'  ' if item.startswith('  ') else ''}- {item.strip()}" for item in items)
            lines += [f"## {heading}", "", *indented, ""]
        else:
            lines += [heading, *(f"  {item}" for item in items)]
    examples = [example for intent in a.failing for example in intent.examples]
    following = f"next  flywheel view {examples[0].episode[:12]}" if examples else "next  flywheel status"
    current.out.result([*lines, following], a)


class _Style(NamedTuple):
    """How text that comes from a log is written."""

    quoted: Callable[[str], str]
    name: Callable[[str], str]


def _as_code(text: str) -> str:
    """Return log text as code, so that it cannot contain Markdown or HTML."""
    return f"`` {' '.join(text.split()).replace('`', chr(39))} ``"


def _as_text(text: str) -> str:
    """Return a name from a log, so that it can be neither Markdown nor HTML nor a link."""
    return re.sub(r"([\\`*_{}\[\]()<>#+\-.!|~@:/&$=^])", r"\\\1", " ".join(text.split()))


def _report_parts(a: ReportAnswer, style: _Style) -> list[tuple[str, list[str]]]:
    """Return the report by heading."""
    word = "mean score" if a.success.graded else "success"
    before = f" ({a.episodes_before:,} in the span before)" if a.until else ""
    traffic = [f"{present.count(a.episodes, 'episode')}{before}", f"{word} {_rate(a.success)}"]
    guessed = a.success.n - a.success.recorded
    traffic += [f"estimated for {guessed:,} of them: no outcome is recorded (flywheel rewards)"] if guessed else []
    traffic += [f"before  {_rate(a.success_before)}"] if a.success_before.n else []
    traffic += (
        [f"without a time, and not counted: {present.count(a.without_time, 'episode')}"]
        if a.until and a.without_time
        else []
    )
    failing = [line for intent in a.failing for line in _failing(intent, style)] or ["no known failures"]
    cost = _cost(a.cost, a.cost_before if a.episodes_before else None)
    return [("traffic", traffic), ("learnt", _learnt(a, style)), ("still fails at", failing), ("cost", cost)]


def _rate(rate: ReportRate) -> str:
    if rate.rate is None or rate.low is None or rate.high is None:
        return "unknown: no signal voted"
    if rate.graded:
        limits = present.interval(rate.low, rate.high, binary=False)
        return f"{present.level(rate.rate, binary=False)} {limits}, outcomes are graded, n {rate.n:,}"
    return f"{present.percent(rate.rate)} {present.percent_interval(rate.low, rate.high)}, n {rate.n:,}"


def _learnt(a: ReportAnswer, style: _Style) -> list[str]:
    lines = [
        f"round {r.round} {r.decision.replace('_', ' ')}: {r.method} on {r.rows:,} rows"
        + (f"; {r.metric}; {r.wins} wins, {r.regressions} regressions" if r.metric else "")
        for r in a.rounds
    ]
    lines += [f"better at {_change(c, style)}" for c in a.better] + [f"worse at {_change(c, style)}" for c in a.worse]
    return [
        *(lines or ["no decision on a round, and no intent changed significantly"]),
        f"champion {present.round_name(a.champion)}",
    ]


def _change(c: ReportChange, style: _Style) -> str:
    difference = present.interval(c.low, c.high, binary=not (c.before.graded or c.now.graded), unit=True)
    return f"{style.name(c.intent)}: {_rate(c.before)} → {_rate(c.now)}, difference {difference}"


def _failing(intent: ReportIntent, style: _Style) -> list[str]:
    graded = intent.success.graded
    counted = (
        present.count(intent.failures, "failure") if intent.recorded else f"{intent.failures:,.1f} failures expected"
    )
    missed = f"{intent.failures:,.1f} points of score missed" if graded else counted
    lines = [f"{style.name(intent.intent)}: {missed}, {'mean score' if graded else 'success'} {_rate(intent.success)}"]
    for example in intent.examples:
        against = f"; against: {', '.join(map(style.name, example.against))}" if example.against else ""
        times = f", the worst of {example.attempts} attempts" if example.attempts > 1 else ""
        ended = present.attempt_outcome(example.p_success if example.recorded else None, example.p_success, known=True)
        task = f" task {style.name(example.task)}," if example.task else ""
        lines.append(f"  {example.episode[:12]}  {style.quoted(example.request)}{task} {ended}{times}{against}")
    return lines


def _cost(now: ReportCost, before: ReportCost | None) -> list[str]:
    lines = []
    for name, field, text in (
        ("dollars", "usd", "{:,.2f}".format),
        ("input tokens", "input_tokens", "{:,}".format),
        ("output tokens", "output_tokens", "{:,}".format),
        ("model time", "latency_s", present.duration),
    ):
        value, earlier = getattr(now, field), getattr(before, field, None)
        lines.append(
            f"{name} {'not logged' if value is None else text(value)}"
            + (f" (before: {text(earlier)})" if earlier is not None else "")
        )
    if all("not logged" in line for line in lines):
        lines = ["neither dollars, tokens nor times are logged"]
    return [*lines, f"training {present.duration(now.train_s)}"] if now.train_s else lines
