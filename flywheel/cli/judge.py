"""rewards, audit: what is known of success, and asking a person about it."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flywheel.cli.progress import working
from flywheel.cli.render import columns
from flywheel.cli.session import session

if TYPE_CHECKING:
    from flywheel.results import AuditAnswer, AuditQuestion, RewardsAnswer, SignalRow

__all__ = ["add_commands"]

_SHOWN_CHARS = 700  # of one message on the terminal
# What a log could do to a terminal: control characters and signs that turn the direction of text.
_UNSAFE = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069]")


def rewards(ctx: typer.Context) -> None:
    """Show how far the rewards can be believed.

    What each signal covers and what its vote is worth, how well probabilities hold where the truth is known, what
    ratings say of everybody, and what drifts by policy, intent and month.
    """
    current = session(ctx)
    answer = current.project().rewards()
    current.out.result(_rewards_lines(answer), answer)


def _rewards_lines(a: RewardsAnswer) -> list[str]:
    known = f"{a.known:,} known ({a.audited:,} by audit, {a.verified:,} by a recorded outcome)"
    not_used = f"{a.provisional:,} too young to learn from, {a.suspect:,} with a suspect reward"
    lines = [
        f"episodes {a.episodes:,}: {known}, {not_used}",
        f"P(success) before any vote: {a.prior:.2f}",
        *(f"! {note}" for note in a.warnings),
        "",
    ]
    head = ["signal", "", "family", "votes", "of all", "truth agrees", "odds x", "from", "80 % come by"]
    lines += columns([head, *map(_signal_row, a.signals)], right=(3, 4, 5, 6))
    if a.calibration:
        rows = [[c.what, f"{c.n:,}", f"{c.ece:.3f}", f"{c.brier:.3f}"] for c in a.calibration]
        lines += ["", *columns([["calibration", "n", "ECE", "Brier"], *rows], right=(1, 2, 3))]
    if a.transport:
        head = ["transport", "", "n", "users", "truth - p", "interval", "verdict"]
        rows = [
            [t.by, t.group, f"{t.n:,}", f"{t.clusters:,}", f"{t.residual:+.3f}",
             "-" if t.low is None or t.high is None else f"[{t.low:+.3f}, {t.high:+.3f}]", t.verdict]
            for t in a.transport
        ]  # fmt: skip
        lines += ["", *columns([head, *rows], right=(2, 3, 4))]
    if a.ratings is not None:
        r = a.ratings
        lines += [
            "",
            f"ratings: {r.ratings:,} ({r.response:.1%} of all), {r.mean:.0%} good",
            f"  of everybody, between {r.low:.0%} and {r.high:.0%} are content: {r.sentence}",
        ]
    head = ["by", "", "episodes", "known", "mean P", "drift", ""]
    rows = [
        [g.by, g.name, f"{g.episodes:,}", f"{g.known:,}", "-" if g.p_mean is None else f"{g.p_mean:.2f}",
         "-" if g.drift is None else f"{g.drift:+.2f}", "notable" if g.notable else ""]
        for g in a.groups
    ]  # fmt: skip
    lines += ["", *columns([head, *rows], right=(2, 3, 4, 5))]
    return [*lines, "next  flywheel audit" if not a.audited else "next  flywheel explain EPISODE"]


def _signal_row(s: SignalRow) -> list[str]:
    agrees = "-" if s.agreement is None else f"{s.agreement:.0%} of {s.checked:,}"
    late = "" if s.mature_after_s is None else _span(s.mature_after_s)
    odds = "" if s.source == "decides alone" else f"{s.odds:.2f}"
    return [
        s.signal,
        "+" if s.sign > 0 else "-",
        s.family,
        f"{s.votes:,}",
        f"{s.coverage:.1%}",
        agrees,
        odds,
        s.source,
        late,
    ]


def _span(seconds: float) -> str:
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"


def audit(
    ctx: typer.Context,
    *,
    n: Annotated[int, typer.Option("--n", help="Episodes to draw.", min=1)] = 200,
    out: Annotated[Path | None, typer.Option("--out", help="Write the questions there.", metavar="FILE")] = None,
    answers: Annotated[
        Path | None, typer.Option("--answers", help="Record the answers of such a file.", metavar="FILE")
    ] = None,
    new: Annotated[bool, typer.Option("--new", help="Draw anew, though an older draw still waits.")] = False,
    reviewer: Annotated[str, typer.Option("--reviewer", help="Who answers; stored as a pseudonym.")] = "reviewer",
) -> None:
    """Ask a person whether episodes did what was asked.

    Draws a sample by score, intent and signals, each episode with a known probability, and asks about one after the
    other on the terminal; or writes the questions with --out and records the file with --answers. The answers are
    events like any other: they decide their episodes, teach how far signals are believed, and calibrate the rest.
    """
    current = session(ctx)
    project = current.project()
    if answers is not None:
        done = project.audit_answers(answers.resolve(), reviewer=reviewer)
    else:
        _need_somewhere(out)
        with working(current.out, "drawing"):
            drawn = project.audit(n, new=new, out=out.resolve() if out is not None else None)
        asks = out is None and drawn.answered < drawn.drawn
        done = project.audit(n, ask=_Asker(drawn), reviewer=reviewer) if asks else drawn
    current.out.result(_audit_lines(done), done)


def _need_somewhere(out: Path | None) -> None:
    from flywheel.errors import UsageError

    if out is None and not sys.stdin.isatty():
        raise UsageError("there is no terminal to ask on", hint="flywheel audit --out questions.jsonl")


def _audit_lines(a: AuditAnswer) -> list[str]:
    lines = [f"draw {a.draw}: {a.drawn:,} of {a.eligible:,} episodes in {a.strata:,} strata, {a.answered:,} answered"]
    lines += [f"recorded {a.recorded:,} answers"] if a.recorded else []
    lines += [f"left out {count:,}: {reason}" for reason, count in a.left_out.items()]
    if a.file:
        return [*lines, f"wrote {a.file}", f"next  set `success` in it, then flywheel audit --answers {a.file}"]
    return [*lines, "next  flywheel build" if a.recorded else "next  flywheel rewards"]


class _Asker:
    """Asks on the terminal; Ctrl-C or q ends."""

    def __init__(self, drawn: AuditAnswer) -> None:
        self._number, self._all = drawn.answered, drawn.drawn

    def __call__(self, question: AuditQuestion) -> tuple[float, str] | None:
        self._number += 1
        typer.echo(f"\n── {self._number} of {self._all}  episode {question.episode_id[:12]} ──", err=True)
        for turn in question.conversation:
            typer.echo(f"{turn.role:>9}  {shown(turn.text)}", err=True)
        while True:
            said = typer.prompt("Did it do what was asked? [y]es [n]o [h]alf [s]kip [q]uit", err=True).strip().lower()
            if said[:1] == "q":
                raise KeyboardInterrupt
            if said[:1] in {"y", "n", "h"}:
                return {"y": 1.0, "n": 0.0, "h": 0.5}[said[0]], ""
            if said[:1] == "s":
                return None


def shown(text: str) -> str:
    """Return log text that can do nothing to a terminal, cut to what one reads."""
    safe = _UNSAFE.sub("\ufffd", text)
    cut = safe if len(safe) <= _SHOWN_CHARS else f"{safe[:_SHOWN_CHARS]} ... ({len(safe) - _SHOWN_CHARS:,} more)"
    return cut.replace("\n", "\n           ")


def add_commands(app: typer.Typer) -> None:
    """Register this file's commands."""
    for command in (rewards, audit):
        app.command()(command)
