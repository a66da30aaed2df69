"""init, ingest, build, status: getting data in and up to date."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flywheel.cli.progress import working
from flywheel.cli.render import columns, funnel_lines, size
from flywheel.cli.session import session

if TYPE_CHECKING:
    from flywheel.answers import IngestAnswer, StageAnswer, StatusAnswer

__all__ = ["add_commands"]

DetailedExit = Annotated[bool, typer.Option("--detailed-exitcode", help="Exit 99 when there was nothing to do.")]


def init(
    ctx: typer.Context,
    directory: Annotated[Path, typer.Argument(help="Folder to make a project of.", metavar="[DIR]")] = Path(),
    *,
    demo: Annotated[bool, typer.Option("--demo", help="Add sample logs to try it on.")] = False,
) -> None:
    """Write the defaults down: flywheel.toml, a recipe.

    Also a .gitignore for the store and the rounds' heavy files.
    """
    from flywheel.answers import InitAnswer
    from flywheel.pipeline.scaffold import scaffold

    current = session(ctx)
    made = scaffold(((current.folder or Path()) / directory).resolve(), demo=demo)
    lines = [f"made  {name}" for name in made] + ["next  flywheel ingest" + ("" if demo else " LOGS")]
    current.out.result(lines, InitAnswer(made=made))


def ingest(
    ctx: typer.Context,
    paths: Annotated[
        list[Path] | None,
        typer.Argument(help="Files, folders or globs; default: ingest.sources.", metavar="[PATHS]..."),
    ] = None,
    *,
    log_format: Annotated[str | None, typer.Option("--format", help="A reader's name; default: detected.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Read and count everything, store nothing.")] = False,
    detailed: DetailedExit = False,
) -> None:
    """Read new log lines into the store.

    Redacted, de-duplicated, nothing lost: read = kept + duplicate + ignored + quarantined. The same files twice change
    nothing.
    """
    current = session(ctx)
    with working(current.out, "reading logs"):
        answer = current.project().ingest([p.resolve() for p in paths or []], log_format=log_format, dry_run=dry_run)
    current.out.result(_ingest_lines(answer), answer)
    if detailed and answer.kept == 0 and not answer.quarantined:
        raise typer.Exit(99)


def _ingest_lines(a: IngestAnswer) -> list[str]:
    formats = ", ".join(f"{n} {name}" for name, n in a.formats.items()) or "none new"
    rows = [["read", f"{a.read:,}", f"records in {a.files:,} files ({formats}; {a.unchanged:,} unchanged)"]]
    rows += [["kept", f"{a.kept:,}", f"records → {a.events:,} events"], ["duplicate", f"{a.duplicate:,}", ""]]
    rows += [["ignored", f"{n:,}", why] for why, n in a.ignored.items()]
    rows += [["quarantined", f"{n:,}", why] for why, n in a.quarantined.items()] or [["quarantined", "0", ""]]
    rows += [["redacted", f"{n:,}", kind] for kind, n in a.redacted.items()]
    lines = columns(rows, right=(1,)) + [f"  {bad}" for bad in a.first_quarantined]
    return [*lines, "dry run: nothing was stored" if a.dry_run else "next  flywheel build"]


def build(
    ctx: typer.Context,
    *,
    select: Annotated[
        str | None, typer.Option("--select", help="One stage, or STAGE+ for it and all after.", metavar="STAGE[+]")
    ] = None,
    full_refresh: Annotated[bool, typer.Option("--full-refresh", help="Rebuild fresh stages too.")] = False,
    detailed: DetailedExit = False,
) -> None:
    """Bring the derived tables up to date.

    Episodes, rewards, returns, examples, pairs and groups; what is fresh is skipped.
    """
    current = session(ctx)
    with working(current.out, "building"):
        answer = current.project().build(select=select, full_refresh=full_refresh)
    rows = [_stage_row(s) for s in answer.stages]
    lines = columns(rows, right=(3,))
    if current.out.verbose:
        lines = [line for s, row in zip(answer.stages, lines, strict=True) for line in (row, *funnel_lines(s.funnel))]
    current.out.result([*lines, "next  flywheel plan"], answer)
    if detailed and all(s.state == "fresh" for s in answer.stages):
        raise typer.Exit(99)


def _stage_row(stage: StageAnswer) -> list[str]:
    rows = ", ".join(f"{n:,} {table}" for table, n in stage.rows.items())
    seconds = f"{stage.seconds:.1f} s" if stage.state == "built" else ""
    return [stage.stage, stage.state, rows, seconds, "; ".join(stage.why)]


def status(ctx: typer.Context) -> None:
    """Show what is new, stale and pending, and what next."""
    current = session(ctx)
    answer = current.project().status()
    current.out.result(_status_lines(answer), answer)


def _status_lines(a: StatusAnswer) -> list[str]:
    champion = "base model" if a.champion is None else f"round {a.champion}"
    challenger = "none" if a.challenger is None else f"round {a.challenger}"
    head = [
        ["project", f"{a.project}   store {a.store} ({size(a.store_bytes)})"],
        ["rounds", f"champion {champion}   challenger {challenger}   next {a.next_round}"],
        ["logs", f"{a.source_files:,} files ingested, {a.new_files:,} new or grown"],
    ]
    stages = [
        [s.stage, s.state, "; ".join(s.why) or ", ".join(f"{n:,} {table}" for table, n in s.rows.items())]
        for s in a.stages
    ]
    return columns(head) + columns(stages) + [f"next     {a.next}"]


def add_commands(app: typer.Typer) -> None:
    """Register this file's commands."""
    for command in (init, ingest, build, status):
        app.command()(command)
