"""forget and gc: what goes out of a project."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from flywheel.cli.render import columns, size
from flywheel.cli.rounds import confirm
from flywheel.cli.session import session

if TYPE_CHECKING:
    from flywheel.results import ForgetAnswer

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


def gc(  # noqa: PLR0913 - one parameter an option
    ctx: typer.Context,
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count, remove nothing.")] = False,
    snapshots: Annotated[
        int, typer.Option("--keep-snapshots", help="Newest snapshots of each stage that stay.", min=1)
    ] = 3,
    days: Annotated[int, typer.Option("--keep-cache", help="Days that cached values stay.", min=0)] = 30,
    rounds: Annotated[
        int, typer.Option("--keep-rounds", help="Newest rounds whose adapters stay; 0: all of them.", min=0)
    ] = 0,
    tables: Annotated[
        bool, typer.Option("--drop-provenance", help="Old tables go although a round was made from them.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Remove what nothing needs any more.

    Parts that an interrupted command left, old snapshots, old cached values, checkpoints of finished rounds, and
    adapters that learnt from forgotten users. The tables a round was made from stay, and so does the adapter of every
    alias and its ancestors.
    """
    from flywheel.pipeline.admin.gc import Kept

    current = session(ctx)
    if not dry_run and (rounds or tables):
        confirm("remove adapters or tables of older rounds?", yes=yes)
    kept = Kept(snapshots=snapshots, days=days, rounds=rounds, provenance=not tables)
    answer = current.project().gc(kept, dry_run=dry_run)
    rows = [[row.what, f"{row.count:,}", size(row.size_bytes), row.why] for row in answer.rows]
    word = "would go" if dry_run else "went"
    end = f"{size(answer.size_bytes)} {word}" if rows else "nothing to remove"
    current.out.result([*columns(rows, right=(1, 2)), end], answer)


def add_commands(app: typer.Typer) -> None:
    """Register this file's commands."""
    app.command()(forget)
    app.command()(gc)
