"""eval --logs and canary: two policies compared from what they served."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from flywheel.cli.progress import working
from flywheel.cli.render import columns, metric_lines, off_policy_lines, rule_lines
from flywheel.cli.session import Session, session

if TYPE_CHECKING:
    from flywheel.results import CanaryAnswer, LogsEvalAnswer

__all__ = ["add_commands", "evaluate_logs"]

_EXIT = {"promote": 0, "continue": 3, "roll_back": 5}


def evaluate_logs(current: Session, logs: Sequence[str], old: str | None, new: str | None) -> None:
    """Print the comparison of two policies' logs; exit 0 for PROMOTE, 3 for everything else."""
    with working(current.out, "reading both logs"):
        answer = current.project().compare_logs(list(logs), old=old, new=new)
    current.out.result(_lines(answer), answer)
    if answer.verdict != "PROMOTE":
        raise typer.Exit(3)


def _lines(answer: LogsEvalAnswer) -> list[str]:
    paired = ", ".join(f"{n:,} by {how}" for how, n in answer.paired_by.items()) or "none"
    lines = columns(
        [
            ["old", _side(answer, "old")],
            ["new", _side(answer, "new")],
            ["cases", f"{answer.cases:,} paired ({paired}); outcome {answer.outcome}; units {answer.unit}s"],
        ]
    )
    lines += metric_lines(answer.report, old="old", new="new")
    lines += [_pass_line(k, found) for k, found in answer.pass_k.items()]
    lines += _amounts(answer)
    for gap in answer.gaps:
        where = "" if gap.slice == "all" else f" where {gap.slice}"
        lines.append(f"gap   the new policy lacks {gap.lacking:,} of {gap.of:,} cases{where}: {_some(gap.names)}")
    lines += off_policy_lines(answer.off_policy)
    lines += [f"note  {note}" for note in answer.notes]
    needed = f": about {answer.needed_n:,} cases are needed" if answer.needed_n is not None else ""
    return [*lines, *rule_lines(answer.rules), f"{answer.verdict}{needed}"]


def _side(answer: LogsEvalAnswer, side: str) -> str:
    name, numbers = (answer.old if side == "old" else answer.new), answer.numbers
    if f"{side}_successes" not in numbers:
        return name
    low, high = numbers[f"{side}_low"], numbers[f"{side}_high"]
    of = f"{numbers[f'{side}_successes']:,.0f} of {numbers['n']:,.0f}"
    return f"{name}   {of} ({numbers[side]:.1%}, 95 % interval [{low:.1%}, {high:.1%}])"


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")  # noqa: PLR2004 - a line's worth


def _pass_line(k: str, found: dict[str, float]) -> str:
    old, new = (f"{found[s]:.1%} of {found[f'{s}_tasks']:,.0f} tasks" for s in ("old", "new"))
    return f"pass^{k}  {old} -> {new}"


def _amounts(answer: LogsEvalAnswer) -> list[str]:
    rows = [
        [name, f"{found['n']:,.0f}", f"{found['old']:,.6g}", f"{found['new']:,.6g}"]
        for name, found in answer.amounts.items()
    ]
    return columns([["measured beside", "n", "old", "new"], *rows], right=(1, 2, 3)) if rows else []


def canary(
    ctx: typer.Context,
    *,
    logs: Annotated[
        list[str] | None,
        typer.Option(
            "--logs", help="The old side's logs, then the canary's; default: what was ingested.", metavar="PATH"
        ),
    ] = None,
    old: Annotated[str | None, typer.Option("--old", help="Policy or model of the old side.", metavar="NAME")] = None,
    new: Annotated[str | None, typer.Option("--new", help="Policy or model of the canary.", metavar="NAME")] = None,
    share: Annotated[
        float | None, typer.Option("--share", help="Share of users the canary should get; default: canary.share.")
    ] = None,
) -> None:
    """Watch a canary beside the old policy, night by night, and say what to do.

    Exit 0: promote; 3: continue; 5: roll back. It may be asked as often as one likes: its error holds over all looks,
    and attempts that were looked at before are not counted again.
    """
    current = session(ctx)
    with working(current.out, "looking at fresh attempts"):
        answer = current.project().canary(logs or [], old=old, new=new, share=share)
    current.out.result(_canary_lines(answer), answer)
    if _EXIT[answer.decision]:
        raise typer.Exit(_EXIT[answer.decision])


def _canary_lines(a: CanaryAnswer) -> list[str]:
    rows = [
        ["old", f"{a.old}   {a.mean_old:.1%} of {a.n_old:,}"],
        ["new", f"{a.new}   {a.mean_new:.1%} of {a.n_new:,}"],
        [
            "delta",
            f"{a.delta * 100:+.1f} pp, at any look in [{a.low * 100:+.1f}, {a.high * 100:+.1f}] pp; pairs {a.pairs:,}",
        ],
        ["look", f"{a.night}" + ("" if a.looked else ", nothing fresh since")],
    ]
    words = a.decision.upper().replace("_", " ")
    return [*columns(rows), *(f"note   {note}" for note in a.notes), f"{words}: {'; '.join(a.reasons)}"]


def add_commands(app: typer.Typer) -> None:
    """Register this file's commands."""
    app.command()(canary)
