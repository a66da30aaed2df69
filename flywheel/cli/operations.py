"""Operations: nightly runs, forgetting a user, removing old files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from flywheel import present
from flywheel.cli.completing import pipelines
from flywheel.cli.progress import working
from flywheel.cli.render import columns
from flywheel.cli.session import confirm, session
from flywheel.errors import ExitCode

if TYPE_CHECKING:
    from flywheel.results.operations import ForgetAnswer

commands = typer.Typer()


@commands.command()
def run(
    ctx: typer.Context,
    pipeline: Annotated[
        str, typer.Argument(help="Name of a pipeline.", metavar="[PIPELINE]", autocompletion=pipelines)
    ] = "nightly",
    *,
    since: Annotated[str | None, typer.Option("--from", help="First stage to run.", metavar="STAGE")] = None,
    until: Annotated[str | None, typer.Option("--until", help="Last stage to run.", metavar="STAGE")] = None,
    detailed: Annotated[
        bool, typer.Option("--detailed-exitcode", help="Exit 99 when there was nothing to do.")
    ] = False,
) -> None:
    """Run a pipeline under one lock.

    One line a stage; for cron, systemd and Airflow.
    """
    current = session(ctx)
    with working(current.out, pipeline):
        answer = current.project().run(
            pipeline, since=since, until=until, on_stage=lambda name, outcome: current.out.say(f"{name:<9} {outcome}")
        )
    lines = [["", answer.text], ["why", answer.why], ["next", answer.next], ["see", answer.page]]
    lines[0][0] = "verdict" if answer.why else answer.pipeline
    current.out.result(columns([line for line in lines if line[1]]), answer)
    if answer.exit_code != ExitCode.NOTHING or detailed:
        raise typer.Exit(answer.exit_code)


@commands.command()
def schedule(
    ctx: typer.Context,
    scheduler: Annotated[Literal["cron", "systemd", "airflow"], typer.Argument(help="cron, systemd or airflow.")],
    *,
    at: Annotated[str, typer.Option("--at", help="Time of day.", metavar="HH:MM")] = "02:30",
    pipeline: Annotated[str, typer.Option("--pipeline", help="Pipeline to run.", metavar="NAME")] = "nightly",
) -> None:
    """Print a nightly schedule for cron, systemd or Airflow.

    It is not installed; comments in it explain how to install it.
    """
    from flywheel.results.operations import ScheduleAnswer

    current = session(ctx)
    text = current.project().schedule(scheduler, at=at, pipeline=pipeline)
    answer = ScheduleAnswer(scheduler=scheduler, pipeline=pipeline, at=at, text=text)
    if current.out.as_json:
        current.out.result([], answer)
    else:
        typer.echo(text, nl=False)


@commands.command()
def forget(
    ctx: typer.Context,
    *,
    user: Annotated[str, typer.Option("--user", help="The user's id in the logs, or the pseudonym.", metavar="ID")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count what would be removed, change nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Delete a user's data.

    Removes the user's events, all rows made of them, rows of round datasets, caches, audits and pages. Rounds trained
    on them can never be champion or parent again, the next round starts from the base model, and logs of the user are
    refused from now on. A certificate with hashes is appended to rounds/forgotten.jsonl.
    """
    current = session(ctx)
    if not dry_run:
        confirm("delete this user's data for good?", yes=yes)
    answer = current.project().forget(user, dry_run=dry_run)
    current.out.result(_forget_lines(answer), answer)


def _forget_lines(a: ForgetAnswer) -> list[str]:
    c = a.certificate
    if a.already:
        return [f"{a.user} was already forgotten at {c.at:%Y-%m-%d %H:%M} UTC; there is no data left"]
    rows = [[name, f"{count:,}"] for name, count in c.removed.items() if count]
    lines = [f"{a.user}: {'would be removed' if a.dry_run else 'removed'}", *columns(rows, right=(1,))]
    lines += [f"round {taint.round} is tainted: {taint.why}" for taint in c.tainted]
    if c.champion_before != c.champion_after:
        lines.append(f"champion: round {c.champion_before} → {present.the_round(c.champion_after)}")
    if c.voided:
        rounds = ", ".join(map(str, c.voided))
        share = present.percent(c.holdout_share, 0)
        lines.append(f"void: evaluations of rounds {rounds}: {share} of their cases were the user's")
    lines += c.notes
    lines.append("not reached: the logs, backups, and what export, view --bundle and audit --out wrote")
    if a.dry_run:
        return [*lines, "dry run: nothing was changed"]
    return [*lines, "certificate appended to rounds/forgotten.jsonl", f"next  flywheel train --round {c.rebase_round}"]


@commands.command()
def gc(  # noqa: PLR0913 - one parameter an option
    ctx: typer.Context,
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count, remove nothing.")] = False,
    snapshots: Annotated[int, typer.Option("--keep-snapshots", help="Newest snapshots to keep a stage.", min=1)] = 3,
    days: Annotated[int, typer.Option("--keep-cache", help="Days to keep cached values.", min=0)] = 30,
    rounds: Annotated[
        int, typer.Option("--keep-rounds", help="Newest rounds whose adapters are kept; 0: all.", min=0)
    ] = 0,
    tables: Annotated[
        bool, typer.Option("--drop-provenance", help="Also remove old tables that a round was made from.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Remove files that are no longer needed.

    Parts left by interrupted commands, old snapshots and cached values, checkpoints of finished rounds, and adapters
    trained on forgotten users. Tables that a round was made from are kept, and so is the adapter of every alias and its
    ancestors.
    """
    from flywheel.pipeline.admin.gc import Kept

    current = session(ctx)
    if not dry_run and (rounds or tables):
        confirm("remove adapters or tables of older rounds?", yes=yes)
    kept = Kept(snapshots=snapshots, days=days, rounds=rounds, provenance=not tables)
    answer = current.project().gc(kept, dry_run=dry_run)
    rows = [[row.what, f"{row.count:,}", present.size(row.size_bytes), row.why] for row in answer.rows]
    total = f"{present.size(answer.size_bytes)} {'would be removed' if dry_run else 'removed'}"
    current.out.result([*columns(rows, right=(1, 2)), total if rows else "nothing to remove"], answer)


@commands.command()
def repartition(
    ctx: typer.Context,
    partitions: Annotated[int, typer.Argument(help="How many.", min=1, max=1024, metavar="N")],
) -> None:
    """Store the events in N partitions; every row stays as it is.

    A partition is what a build holds in memory and gives to a process or node: one for 250,000 episodes. The next build
    makes all tables again. If it is killed, the store is as it was, or done.
    """
    current = session(ctx)
    with working(current.out, "repartitioning"):
        answer = current.project().repartition(partitions)
    lines = columns([["partitions", f"{answer.partitions:,}  ({answer.before:,} before)"],
                     ["events", f"{answer.events:,} in {present.count(answer.parts, 'file')}"]])  # fmt: skip
    changed = answer.before != answer.partitions
    current.out.result([*lines, *(["next  flywheel build"] if changed else [])], answer)
