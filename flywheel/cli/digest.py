"""report: a span of time in words, for people who do not watch the wheel every night."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from flywheel.cli.session import session

if TYPE_CHECKING:
    from flywheel.results import DigestAnswer, DigestChange, DigestCost, DigestIntent, DigestRate

__all__ = ["add_commands"]

_HOUR_S = 3600


def report(
    ctx: typer.Context,
    *,
    since: Annotated[str, typer.Option("--since", help="How far back: 7d, 24h, 2w.", metavar="SPAN")] = "7d",
    as_of: Annotated[
        str | None, typer.Option("--as-of", help="Where it ends; default: the newest event.", metavar="TIME")
    ] = None,
    markdown: Annotated[bool, typer.Option("--md", help="Print Markdown, for a mail or a channel.")] = False,
) -> None:
    """Tell what the agent learnt, what it still fails at, and what it cost.

    A digest of a week, or of any span, beside the span before. The end is the newest event, not today, so that the
    same project gives the same words.
    """
    current = session(ctx)
    answer = current.project().report(since, as_of=as_of)
    head = f"{answer.project}, {answer.since[:16]} to {answer.until[:16]}".replace("T", " ")
    said = _markdown if markdown else _plain
    current.out.result([*said(head, _parts(answer, quote=_code if markdown else _quoted)), *_next(answer)], answer)


def _plain(head: str, parts: Sequence[tuple[str, list[str]]]) -> list[str]:
    return [head, *(line for title, said in parts for line in (title, *(f"  {one}" for one in said)))]


def _markdown(head: str, parts: Sequence[tuple[str, list[str]]]) -> list[str]:
    lines = [f"# {head}", ""]
    for title, said in parts:
        items = [f"{'  ' if one.startswith('  ') else ''}- {one.strip()}" for one in said]
        lines += [f"## {title}", "", *items, ""]
    return lines


def _quoted(text: str) -> str:
    return f"“{text}”"


def _code(text: str) -> str:
    """Return log text as code, so that no Markdown or HTML in it is read as such."""
    return f"`` {text.replace('`', chr(39))} ``"


def _next(a: DigestAnswer) -> list[str]:
    examples = [example for intent in a.failing for example in intent.examples]
    return [f"next  flywheel view {examples[0].episode[:12]}" if examples else "next  flywheel status"]


def _parts(a: DigestAnswer, *, quote: Callable[[str], str]) -> list[tuple[str, list[str]]]:
    """Return what is said, by heading."""
    traffic = [f"{a.episodes:,} episodes ({a.episodes_before:,} in the span before)", f"success {_rate(a.success)}"]
    traffic += [f"before  {_rate(a.success_before)}"] if a.success_before.n else []
    traffic += [f"{a.without_time:,} episodes have no time and are not counted"] if a.without_time else []
    return [
        ("traffic", traffic),
        ("learnt", _learnt(a)),
        (
            "still fails at",
            [line for intent in a.failing for line in _intent(intent, quote)] or ["nothing that is known"],
        ),
        ("cost", _cost(a.cost, a.cost_before if a.episodes_before else None)),
    ]


def _rate(rate: DigestRate) -> str:
    if rate.rate is None or rate.low is None or rate.high is None:
        return "unknown: no signal said anything"
    return f"{rate.rate:.1%} [{rate.low:.1%}, {rate.high:.1%}], n {rate.n:,}"


def _learnt(a: DigestAnswer) -> list[str]:
    lines = [
        f"round {r.round} {r.decision.replace('_', ' ')}: {r.method} on {r.rows:,} rows"
        + (f"; {r.metric}; {r.wins} wins, {r.regressions} regressions" if r.metric else "")
        for r in a.rounds
    ]
    lines += [f"better at {_change(c)}" for c in a.better] + [f"worse at {_change(c)}" for c in a.worse]
    champion = "the base model" if a.champion is None else f"round {a.champion}"
    return [*(lines or ["no round was decided on, and no intent surely changed"]), f"champion {champion}"]


def _change(c: DigestChange) -> str:
    return f"{c.intent}: {_rate(c.before)} → {_rate(c.now)}, difference [{100 * c.low:+.1f}, {100 * c.high:+.1f}] pp"


def _intent(i: DigestIntent, quote: Callable[[str], str]) -> list[str]:
    lines = [f"{i.intent}: {i.failures:,.1f} failures expected, success {_rate(i.success)}"]
    for one in i.examples:
        against = f"; against: {', '.join(one.against)}" if one.against else ""
        times = f", {one.attempts} attempts" if one.attempts > 1 else ""
        lines.append(f"  {one.episode[:12]}  {quote(one.request)} P(success) {one.p_success:.2f}{times}{against}")
    return lines


def _cost(now: DigestCost, before: DigestCost | None) -> list[str]:
    lines = [
        _beside("dollars", _money, now.usd, before.usd if before else None),
        _beside("input tokens", _count, now.input_tokens, before.input_tokens if before else None),
        _beside("output tokens", _count, now.output_tokens, before.output_tokens if before else None),
        _beside("model time", _long, now.latency_s, before.latency_s if before else None),
    ]
    return [*lines, f"training {now.train_s:,.1f} s"] if now.train_s else lines


def _beside(name: str, words: Callable[[float | None], str], now: float | None, before: float | None) -> str:
    return f"{name} {words(now)}" + (f" (before: {words(before)})" if before is not None else "")


def _money(value: float | None) -> str:
    return "not logged" if value is None else f"{value:,.2f}"


def _count(value: float | None) -> str:
    return "not logged" if value is None else f"{value:,}"


def _long(seconds: float | None) -> str:
    if seconds is None:
        return "not logged"
    return f"{seconds / _HOUR_S:,.1f} h" if seconds >= _HOUR_S else f"{seconds:,.1f} s"


def add_commands(app: typer.Typer) -> None:
    """Register this file's commands."""
    app.command()(report)
