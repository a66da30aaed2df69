"""Rewards: how reliable they are, and audits by a person."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flywheel import present
from flywheel.cli.progress import working
from flywheel.cli.render import columns
from flywheel.cli.session import session, stoppable
from flywheel.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from flywheel.results.rewards import AuditAnswer, AuditQuestion, RewardsAnswer, SignalRow

commands = typer.Typer()
_GRADED = "scores between worst and best: their means are not rates; rewards.success_at sets a threshold"
_MOST_ODDS = 5  # of a source, in its line; `--json` has all
_SHOWN_CHARS = 700  # of one message on the terminal
# Characters that control a terminal or the direction of text.
_UNSAFE = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069]")


@commands.command()
def rewards(ctx: typer.Context) -> None:
    """Show how reliable the rewards are.

    Coverage and worth of each signal, calibration against known outcomes, what ratings show about all users, and drift
    by policy, intent and month.
    """
    current = session(ctx)
    answer = current.project().rewards()
    current.out.result(_rewards_lines(answer), answer)


def _rewards_lines(a: RewardsAnswer) -> list[str]:
    known = f"{a.known:,} with a vote, {a.audited:,} audited, {a.verified:,} with a recorded outcome"
    unused = f"{a.provisional:,} not mature yet, {a.suspect:,} with a suspect reward"
    lines = [
        f"episodes {a.episodes:,}: {known}",
        f"  {unused}",
        f"P(success) before any vote: {a.prior:.2f}",
        *([f"{a.graded:,} recorded outcomes are {_GRADED}"] if a.graded else []),
        *(f"! {note}" for note in a.warnings),
        "",
    ]
    head = ["signal", "", "family", "votes", "share", "agreement", "odds ratio", "80 % within"]
    lines += columns([head, *map(_signal_row, a.signals)], right=(3, 4, 5))
    if a.calibration:
        rows = [[c.what, f"{c.n:,}", f"{c.ece:.3f}", f"{c.brier:.3f}"] for c in a.calibration]
        lines += ["", *columns([["calibration", "n", "ECE", "Brier"], *rows], right=(1, 2, 3))]
    if a.transport:
        head = ["transport", "", "n", "users", "truth - p", "interval", "verdict"]
        rows = [
            [t.by, t.group, f"{t.n:,}", f"{t.clusters:,}", f"{t.residual:+.3f}",
             present.interval(t.low, t.high, binary=False), t.verdict]
            for t in a.transport
        ]  # fmt: skip
        lines += ["", *columns([head, *rows], right=(2, 3, 4))]
    if a.ratings is not None:
        r = a.ratings
        response, mean = present.percent(r.response), present.percent(r.mean, 0)
        low, high = present.percent(r.low, 0), present.percent(r.high, 0)
        lines += [
            "",
            f"ratings: {r.ratings:,} ({response} of all episodes), {mean} good",
            f"  between {low} and {high} of all episodes satisfied their user:",
            f"  {r.sentence}",
        ]
    lines += _who_lines(a)
    head = ["by", "", "episodes", "voted", "mean score" if a.graded else "mean P", "against all", ""]
    rows = [
        [g.by, g.name, f"{g.episodes:,}", f"{g.known:,}", "-" if g.p_mean is None else f"{g.p_mean:.2f}",
         "-" if g.drift is None else f"{g.drift:+.2f}", "notable" if g.notable else ""]
        for g in a.groups
    ]  # fmt: skip
    lines += ["", *columns([head, *rows], right=(2, 3, 4, 5))]
    return [*lines, "next  flywheel audit" if not a.audited else "next  flywheel explain EPISODE"]


def _who_lines(a: RewardsAnswer) -> list[str]:
    """Return who speaks: accounts and bursts, sources, and who was verified."""
    who, lines = a.accounts, [""]
    if who.accounts:
        share = f"{who.established:,} established" if who.counted else "hardly any comes back, so none counts as new"
        lines += [f"accounts {who.accounts:,}: {share}, {who.discounted:,} votes of new ones count less"]
    if who.bursts:
        lines += [f"! {who.in_bursts:,} episodes in {who.bursts:,} bursts of accounts: each burst counts as one"]
    if who.crowds:
        count = present.count(who.crowds, "crowd")
        lines += [f"! {who.in_crowds:,} episodes in {count} of accounts that came at once, and are of another opinion"]
        lines += ["  than those before and after them: their votes are set aside; flywheel plan shows where to look"]
    if who.doubted:
        lines += [f"  {who.doubted:,} accounts' votes count less: outcomes contradict them, or they are all alike"]
    claims = sum(s.claims for s in a.sources)
    if claims:
        lines += [
            f"! {claims:,} episodes have an outcome that is only a claim: whoever sent a request may have written it"
        ]
        lines += ['  there; where your own program did, let its file state it: [trust] outcomes = [..., "file:GLOB"]']
    if len(a.sources) > 1 and any(s.outcomes or s.claims or s.odds for s in a.sources):
        rows = [
            [s.source, f"{s.episodes:,}", f"{s.outcomes:,}", f"{s.claims:,}", f"{s.prior:.2f}",
             _odds(s.odds)]
            for s in a.sources
        ]  # fmt: skip
        head = ["source", "episodes", "outcomes", "claims", "prior", "odds ratios learned there"]
        lines += columns([head, *rows], right=(1, 2, 3, 4))
    if a.verification is not None:
        v = a.verification
        lines += [
            f"verified {v.verified:,} ({v.share:.1%}), {v.good:.0%} good; taken: {v.taken or 'nothing'}",
            f"  between {v.low:.0%} and {v.high:.0%} of all episodes succeeded, whoever chose whom to verify",
        ]
    return lines if len(lines) > 1 else []


def _odds(learned: Mapping[str, float]) -> str:
    """Return what a source's votes are worth, those furthest from nothing first: 'agreement(+) 6.3'."""
    worth = sorted(learned.items(), key=lambda vote: (-abs(math.log(max(vote[1], 1e-9))), vote[0]))
    shown = [f"{name[:-2]}({name[-1]}) {odds:.2g}" for name, odds in worth[:_MOST_ODDS]]
    return ", ".join(shown) + (f" and {len(worth) - len(shown)} more" if len(worth) > len(shown) else "")


def _signal_row(s: SignalRow) -> list[str]:
    sign = "+" if s.sign > 0 else "-"
    agreement = "-" if s.agreement is None else f"{present.percent(s.agreement, 0)} of {s.checked:,}"
    odds = s.source if s.source == "decides alone" else f"{s.odds:.2f} {s.source.removeprefix('fitted with ')}"
    arrival = "" if s.mature_after_s is None else _span(s.mature_after_s)
    return [
        s.signal,
        sign,
        s.family,
        f"{s.votes:,}",
        present.percent(s.coverage, 0),
        agreement,
        odds,
        arrival,
    ]


def _span(seconds: float) -> str:
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.0f} s"


@commands.command()
def audit(
    ctx: typer.Context,
    *,
    n: Annotated[int, typer.Option("--n", help="Episodes to sample.", min=1)] = 200,
    out: Annotated[Path | None, typer.Option("--out", help="Write the questions to a file.", metavar="FILE")] = None,
    answers: Annotated[
        Path | None, typer.Option("--answers", help="Record the answers in such a file.", metavar="FILE")
    ] = None,
    new: Annotated[bool, typer.Option("--new", help="Draw a new sample even if the last one is unfinished.")] = False,
    reviewer: Annotated[str, typer.Option("--reviewer", help="Your name; stored as a pseudonym.")] = "reviewer",
) -> None:
    """Ask a person whether episodes succeeded.

    Samples episodes by score, intent and signals, each with a known probability, and asks about one after the other on
    the terminal; or writes the questions with --out and records the file with --answers. Answers are events: they
    decide their episodes, estimate how reliable the signals are, and calibrate the other episodes.
    """
    current = session(ctx)
    project = current.project()
    if answers is not None:
        answer = project.audit_answers(answers.resolve(), reviewer=reviewer)
    else:
        if out is None and not sys.stdin.isatty():
            raise UsageError("there is no terminal to ask on", hint="flywheel audit --out questions.jsonl")
        with working(current.out, "sampling"):
            answer = project.audit(n, new=new, out=out.resolve() if out is not None else None)
        if out is None and answer.answered < answer.drawn:
            asker = _Asker(answer)
            answer = project.audit(n, ask=asker, reviewer=reviewer)
            if asker.interrupted:
                current.out.result(_audit_lines(answer), answer)
                raise typer.Exit(ExitCode.INTERRUPTED)
    current.out.result(_audit_lines(answer), answer)


def _audit_lines(a: AuditAnswer) -> list[str]:
    strata = f"{a.strata:,} {'stratum' if a.strata == 1 else 'strata'}"
    lines = [f"sample {a.draw}: {a.drawn:,} of {a.eligible:,} episodes in {strata}, {a.answered:,} answered"]
    lines += [f"recorded {present.count(a.recorded, 'answer')}"] if a.recorded else []
    lines += [f"skipped {count:,}: {reason}" for reason, count in a.left_out.items()]
    if a.file:
        return [*lines, f"wrote {a.file}", f"next  set `success` in it, then flywheel audit --answers {a.file}"]
    return [*lines, "next  flywheel build" if a.recorded else "next  flywheel rewards"]


class _Asker:
    """Asks on the terminal; Ctrl-C or q ends."""

    def __init__(self, sample: AuditAnswer) -> None:
        self._number, self._total = sample.answered, sample.drawn
        self.interrupted = False
        stoppable()

    def __call__(self, question: AuditQuestion) -> tuple[float, str] | None:
        self._number += 1
        typer.echo(f"\n── {self._number} of {self._total}  episode {question.episode_id[:12]} ──", err=True)
        for turn in question.conversation:
            typer.echo(f"{turn.role:>9}  {excerpt(turn.text)}", err=True)
        while True:
            reply = self._reply()
            if reply[:1] == "q":
                raise KeyboardInterrupt
            if reply[:1] in {"y", "n", "h"}:
                return {"y": 1.0, "n": 0.0, "h": 0.5}[reply[0]], ""
            if reply[:1] == "s":
                return None

    def _reply(self) -> str:
        try:
            reply = typer.prompt("Did it do what was asked? [y]es [n]o [h]alf [s]kip [q]uit", err=True)
        except typer.Abort:
            self.interrupted = True
            raise KeyboardInterrupt from None
        return str(reply).strip().lower()


def excerpt(text: str) -> str:
    """Return log text without control characters, cut to a readable length."""
    safe = _UNSAFE.sub("\ufffd", text)
    cut = safe if len(safe) <= _SHOWN_CHARS else f"{safe[:_SHOWN_CHARS]} ... ({len(safe) - _SHOWN_CHARS:,} more)"
    return cut.replace("\n", "\n           ")
