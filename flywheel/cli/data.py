"""init, ingest, quarantine, readers, build, status: getting data in and up to date."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flywheel.cli.completing import stages
from flywheel.cli.progress import working
from flywheel.cli.render import columns, funnel_lines, size
from flywheel.cli.session import Session, session
from flywheel.errors import UsageError

if TYPE_CHECKING:
    from flywheel.results import IngestAnswer, StageAnswer, StatusAnswer

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
    from flywheel.pipeline.admin.init import scaffold
    from flywheel.results import InitAnswer

    current = session(ctx)
    made = scaffold(((current.folder or Path()) / directory).resolve(), demo=demo)
    lines = [f"made  {name}" for name in made] + ["next  flywheel ingest" + ("" if demo else " LOGS")]
    current.out.result(lines, InitAnswer(made=made))


def ingest(  # noqa: PLR0913 - one parameter an option
    ctx: typer.Context,
    paths: Annotated[
        list[Path] | None,
        typer.Argument(help="Files, folders or globs; default: ingest.sources.", metavar="[PATHS]..."),
    ] = None,
    *,
    log_format: Annotated[str | None, typer.Option("--format", help="A reader's name; default: detected.")] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Go on reading what is appended, until Ctrl-C.")] = False,
    interval: Annotated[float, typer.Option("--interval", help="Seconds between two looks.", min=0.1)] = 10.0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Read and count everything, store nothing.")] = False,
    detailed: DetailedExit = False,
) -> None:
    """Read new log lines into the store.

    `-` reads standard input. Redacted, de-duplicated, nothing lost: read = kept + duplicate + ignored + quarantined.
    The same files twice change nothing.
    """
    current = session(ctx)
    chosen = [p if str(p) == "-" else p.resolve() for p in paths or []]
    if follow:
        _follow(current, chosen, log_format=log_format, interval=interval, dry_run=dry_run)
        return
    with working(current.out, "reading logs"):
        answer = current.project().ingest(chosen, log_format=log_format, dry_run=dry_run)
    current.out.result(_ingest_lines(answer, verbose=current.out.verbose), answer)
    if detailed and answer.kept == 0 and not answer.quarantined:
        raise typer.Exit(99)


def _follow(current: Session, paths: list[Path], *, log_format: str | None, interval: float, dry_run: bool) -> None:
    """Read on until Ctrl-C or SIGTERM; what was read stays read."""
    import signal

    if dry_run or any(str(p) == "-" for p in paths):
        raise UsageError("--follow reads files that grow", hint="leave --dry-run and `-` away")
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    current.out.say("following; Ctrl-C ends it")
    try:
        for answer in current.project().follow(paths, log_format=log_format, interval_s=interval):
            current.out.result([_short(answer)], answer)
            sys.stdout.flush()
    except KeyboardInterrupt:
        current.out.say("stopped")


def _short(a: IngestAnswer) -> str:
    bad = sum(a.quarantined.values())
    return f"read {a.read:,}  kept {a.kept:,}  duplicate {a.duplicate:,}  quarantined {bad:,}  events {a.events:,}"


def _ingest_lines(a: IngestAnswer, *, verbose: bool) -> list[str]:
    formats = ", ".join(f"{n} {name}" for name, n in a.formats.items()) or "none new"
    rows = [["read", f"{a.read:,}", f"records in {a.files:,} files ({formats}; {a.unchanged:,} unchanged)"]]
    rows += [["kept", f"{a.kept:,}", f"records → {a.events:,} events"], ["duplicate", f"{a.duplicate:,}", ""]]
    rows += [["forgotten", f"{a.forgotten:,}", "of users who were forgotten"]] if a.forgotten else []
    rows += [["ignored", f"{n:,}", why] for why, n in a.ignored.items()]
    rows += [["quarantined", f"{n:,}", why] for why, n in a.quarantined.items()] or [["quarantined", "0", ""]]
    rows += [["redacted", f"{n:,}", kind] for kind, n in a.redacted.items()]
    rows += [
        ["lost", f"{len(one.fields):,}", f"fields of {one.format} records are not kept (-v lists them)"]
        for one in a.lost
        if one.fields and not verbose
    ]
    lines = columns(rows, right=(1,)) + [f"  {bad}" for bad in a.first_quarantined]
    if verbose:
        lines += _lost_lines(a)
    return [*lines, "dry run: nothing was stored" if a.dry_run else "next  flywheel build"]


def _lost_lines(a: IngestAnswer) -> list[str]:
    """List what a source has and no event holds."""
    lines = []
    for one in a.lost:
        lines.append(f"lost of {one.format}, in {one.sampled:,} sampled records:")
        rows = sorted(((n, path) for path, n in one.fields.items()), reverse=True)
        lines += [f"  {n / one.sampled:>4.0%}  {path}" for n, path in rows]
    return lines


def quarantine(
    ctx: typer.Context,
    *,
    reason: Annotated[str | None, typer.Option("--reason", help="Only this reason.")] = None,
    file: Annotated[str | None, typer.Option("--file", help="Only files whose path contains this.")] = None,
    limit: Annotated[int, typer.Option("--limit", help="Show only so many records.", min=0)] = 20,
    retry: Annotated[bool, typer.Option("--retry", help="Read their files once more.")] = False,
) -> None:
    """Show what ingest refused and why; read it again with --retry.

    After an export was mended, or a reader was installed or updated. The refused text itself is never stored.
    """
    current = session(ctx)
    if retry:
        with working(current.out, "reading again"):
            again = current.project().retry_quarantine()
        lines = [f"read {again.files:,} file(s) again: {again.kept:,} records kept"]
        lines += [f"{again.before:,} records were quarantined, {again.after:,} are"]
        lines += [f"gone  {name}" for name in again.gone]
        current.out.result([*lines, "next  flywheel build" if again.kept else "next  flywheel quarantine"], again)
        return
    answer = current.project().quarantine(reason=reason, file=file, limit=limit)
    if not answer.records:
        current.out.result(["nothing is quarantined"], answer)
        return
    head = columns([[r.reason, f"{r.records:,}", r.meaning] for r in answer.reasons], right=(1,))
    rows = columns([[f"{r.source_file}:{r.source_line}", r.reason, r.detail] for r in answer.rows])
    more = answer.records - len(answer.rows)
    rest = [f"and {more:,} more; --limit shows them"] if more else []
    current.out.result([*head, "", *rows, *rest, "next  flywheel quarantine --retry"], answer)


def readers(
    ctx: typer.Context,
    file: Annotated[Path | None, typer.Argument(help="A file to try them on.", metavar="[FILE]")] = None,
) -> None:
    """List the log formats that can be read; with a file, say which it is.

    Formats are detected from the content, never from a file's name.
    """
    current = session(ctx)
    answer = current.project().readers(file.resolve() if file is not None else None)
    rows = [
        [r.name, str(r.reader_version), r.reads, r.distribution]
        if file is None
        else [r.name, f"{r.confidence:.0%}", r.reads]
        for r in answer.readers
    ]
    current.out.result(columns(rows, right=(1,)) + ([answer.verdict] if answer.verdict else []), answer)


def build(
    ctx: typer.Context,
    *,
    select: Annotated[
        str | None,
        typer.Option(
            "--select", help="One stage, or STAGE+ for it and all after.", metavar="STAGE[+]", autocompletion=stages
        ),
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


def export(
    ctx: typer.Context,
    folder: Annotated[Path, typer.Argument(help="Folder to write; one that export wrote is replaced.")],
    *,
    form: Annotated[
        list[str] | None, typer.Option("--form", help="preference, unpaired, sft or groups; default: all.")
    ] = None,
    split: Annotated[str, typer.Option("--split", help="train or holdout.")] = "train",
) -> None:
    """Write the mined rows as datasets for other trainers.

    JSON lines in TRL's forms, with a card and hashes; `datasets.load_dataset` opens the folder.
    """
    current = session(ctx)
    with working(current.out, "exporting"):
        answer = current.project().export(folder, forms=form or [], split=split)
    lines = columns([[f"{one.rows:,}", one.path, one.trainers] for one in answer.files], right=(0,))
    if current.out.verbose:
        parts = zip(answer.files, lines, strict=True)
        lines = [line for one, row in parts for line in (row, *funnel_lines(one.counts))]
    current.out.result([*lines, f"in    {answer.folder}"], answer)


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
    for command in (init, ingest, quarantine, readers, build, export, status):
        app.command()(command)
