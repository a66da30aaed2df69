"""forget and gc: what goes out of a project."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from flywheel.cli.render import columns
from flywheel.cli.rounds import confirm
from flywheel.cli.session import session

if TYPE_CHECKING:
    from flywheel.answers import ForgetAnswer

__all__ = ["add_commands"]


def forget(
    ctx: typer.Context,
    *,
    user: Annotated[
        str, typer.Option("--user", help="The user's id as the logs write it, or the pseudonym.", metavar="ID")
    ],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would go, change nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Forget a user.

    Events, everything made of them, rows of rounds' datasets, caches, audits and pages go. Rounds that learnt from the
    user are never champion or parent again, the next one starts from the base, and the user's logs are refused from now
    on. A certificate with hashes is appended to rounds/forgotten.jsonl.
    """
    current = session(ctx)
    if not dry_run:
        confirm("forget this user for good?", yes=yes)
    answer = current.project().forget(user, dry_run=dry_run)
    current.out.result(_forget_lines(answer), answer)


def _forget_lines(a: ForgetAnswer) -> list[str]:
    c = a.certificate
    if a.already:
        return [f"{a.user} was forgotten already, at {c.at:%Y-%m-%d %H:%M} UTC; nothing is left"]
    rows = [[name, f"{count:,}"] for name, count in c.removed.items() if count]
    lines = [f"{a.user}: what {'would go' if a.dry_run else 'went'}", *columns(rows, right=(1,))]
    lines += [f"round {one.round} is tainted: {one.why}" for one in c.tainted]
    if c.champion_before != c.champion_after:
        now = "the base model" if c.champion_after is None else f"round {c.champion_after}"
        lines.append(f"champion: round {c.champion_before} → {now}")
    if c.voided:
        lines.append(f"void: the evaluations of rounds {', '.join(map(str, c.voided))}: "
                     f"{c.holdout_share:.0%} of what they were judged on was the user's")  # fmt: skip
    lines += c.notes
    if a.dry_run:
        return [*lines, "dry run: nothing was changed"]
    return [*lines, "certificate appended to rounds/forgotten.jsonl", f"next  flywheel train --round {c.rebase_round}"]


def add_commands(app: typer.Typer) -> None:
    """Register this file's commands."""
    app.command()(forget)
