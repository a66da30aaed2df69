"""Data: logs in, tables up to date, queries and datasets out."""

from __future__ import annotations

import json
import shlex
import signal
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from flywheel import present
from flywheel.cli.completing import stages
from flywheel.cli.ingested import ingest_lines, policy_lines, refusal_lines
from flywheel.cli.progress import counted, working
from flywheel.cli.render import columns, funnel_lines
from flywheel.cli.session import Session, harmless, session
from flywheel.errors import CommandLineError, UsageError
from flywheel.funnel import errors_in
from flywheel.io.bucket_path import source_path

if TYPE_CHECKING:
    import pyarrow as pa

    from flywheel.cli.progress import Show
    from flywheel.pipeline.ingest.counts import ReadSoFar
    from flywheel.results.data import QuarantineAnswer, QueryAnswer, StageAnswer, StatusAnswer

commands = typer.Typer()
DetailedExit = Annotated[bool, typer.Option("--detailed-exitcode", help="Exit 99 when there was nothing to do.")]
_MB = 1_000_000
_FORMULA = ("=", "+", "-", "@", "＝", "＋", "－", "＠")  # begin what spreadsheets execute  # noqa: RUF001
_CELL = 60  # characters of the widest cell in a printed table


@commands.command()
def ingest(  # noqa: PLR0913 - one parameter an option
    ctx: typer.Context,
    paths: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Files, folders or globs, also in a bucket (s3://...); default: ingest.sources.",
            metavar="[PATHS]...",
            readable=False,  # ingest sets it aside
        ),
    ] = None,
    *,
    log_format: Annotated[str | None, typer.Option("--format", help="Name of a reader; default: detected.")] = None,
    policy: Annotated[
        str | None, typer.Option("--policy", help="Policy that acted, where the logs name none.", metavar="NAME")
    ] = None,
    max_quarantine: Annotated[
        float | None,
        typer.Option(
            "--max-quarantine",
            help="Share of unreadable records above which a file is set aside; default: ingest.max_quarantine.",
            metavar="SHARE",
        ),
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Keep reading as files grow, until Ctrl-C.")] = False,
    interval: Annotated[float, typer.Option("--interval", help="Seconds between two passes.", min=0.1)] = 10.0,
    reread: Annotated[
        bool,
        typer.Option(
            "--reread",
            help="Read files again, in place of what is stored of them; default: those that an older reader read.",
        ),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Read and count everything, store nothing.")] = False,
    detailed: DetailedExit = False,
) -> None:
    """Read new log lines into the store.

    `-` reads standard input. Records are redacted and de-duplicated, and each is counted: read = kept + duplicate +
    ignored + quarantined. Ingesting the same files again changes nothing. A file that cannot be read is set aside with
    its reason, and the others are stored; the exit code is 1 where a path that was named gave nothing.
    """
    current = session(ctx)
    sources = [p if str(p) == "-" else source_path(p).resolve() for p in paths or []]
    if follow:
        if dry_run or reread or any(str(p) == "-" for p in sources):
            raise UsageError("--follow reads growing files", hint="drop --dry-run, --reread and `-`")
        options: dict[str, Any] = {"log_format": log_format, "policy": policy, "max_quarantine": max_quarantine}
        _follow(current, sources, interval=interval, options=options)
        return
    with counted(current.out, "reading logs", "MB") as show:
        answer = current.project().ingest(
            sources,
            log_format=log_format,
            policy=policy,
            max_quarantine=max_quarantine,
            reread=reread,
            dry_run=dry_run,
            on_read=partial(_show_reading, show),
        )
    current.out.result(ingest_lines(answer, verbose=current.out.verbose, named=log_format), answer)
    if answer.refused:
        raise typer.Exit(1)
    if detailed and answer.kept == 0 and not answer.quarantined:
        raise typer.Exit(99)


def _show_reading(show: Show, far: ReadSoFar) -> None:
    """Show how much is read; the rate is that of reading, so what was known before does not count."""
    counts = f", {far.records:,} records, {far.files:,} of {far.all_files:,} files"
    what = "reading logs" if far.bytes else "looking for what is new"
    show(what, far.bytes // _MB, max(far.all_bytes // _MB, 1), counts)


def _follow(current: Session, sources: list[Path], *, interval: float, options: dict[str, Any]) -> None:
    """Ingest until Ctrl-C or SIGTERM; records read so far stay in the store."""
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    current.out.say("following; Ctrl-C stops")
    try:
        for a in current.project().ingest_follow(sources, interval_s=interval, **options):
            counts = f"read {a.read:,}  kept {a.kept:,}  duplicate {a.duplicate:,}"
            counts += f"  quarantined {sum(a.quarantined.values()):,}  events {a.events:,}"
            current.out.result([counts, *refusal_lines(a, verbose=False)], a)
            sys.stdout.flush()
    except KeyboardInterrupt:
        current.out.say("stopped")


@commands.command()
def quarantine(
    ctx: typer.Context,
    *,
    reason: Annotated[str | None, typer.Option("--reason", help="Only this reason.")] = None,
    file: Annotated[str | None, typer.Option("--file", help="Only files whose path contains this.")] = None,
    limit: Annotated[int, typer.Option("--limit", help="Number of records to show.", min=0)] = 20,
    retry: Annotated[bool, typer.Option("--retry", help="Read their files again.")] = False,
) -> None:
    """Show which records ingest refused and why.

    --retry reads them again, after an export was fixed or a reader was installed or updated. The text of refused
    records is never stored.
    """
    current = session(ctx)
    if not retry:
        answer = current.project().quarantine(reason=reason, file=file, limit=limit)
        current.out.result(_quarantine_lines(answer), answer)
        return
    with working(current.out, "reading again"):
        again = current.project().quarantine_retry()
    lines = [
        f"read {again.files:,} file(s) again: {again.kept:,} records kept",
        f"quarantined records: {again.before:,} before, {again.after:,} now",
        *(f"missing  {name}" for name in again.gone),
        "next  flywheel build" if again.kept else "next  flywheel quarantine",
    ]
    current.out.result(lines, again)


def _quarantine_lines(a: QuarantineAnswer) -> list[str]:
    if not a.records:
        return ["the quarantine is empty"]
    reasons = columns([[r.reason, f"{r.records:,}", r.meaning] for r in a.reasons], right=(1,))
    rows = columns([[f"{r.source_file}:{r.source_line}", r.reason, r.detail] for r in a.rows])
    more = a.records - len(a.rows)
    rest = [f"and {more:,} more; --limit shows them"] if more else []
    return [*reasons, "", *rows, *rest, "next  flywheel quarantine --retry"]


@commands.command()
def readers(
    ctx: typer.Context,
    file: Annotated[Path | None, typer.Argument(help="A file to detect the format of.", metavar="[FILE]")] = None,
    *,
    events: Annotated[int, typer.Option("--events", help="First events of the file to print.", min=0)] = 0,
    sketch: Annotated[bool, typer.Option("--sketch", help="Print Python code that begins a reader for it.")] = False,
) -> None:
    """List the readers; with a file, detect its format.

    Formats are detected from the content, never from a file's name. --events N prints the events that ingest would make
    of the file's first lines: line, kind, conversation, tool and redacted payload. --sketch prints a reader for a file
    that none knows, with guesses to be mended: flywheel readers FILE --sketch > my_reader.py
    """
    if (events or sketch) and file is None:
        option = "--sketch" if sketch else "--events 5"
        raise UsageError(f"{option} needs a file", hint=f"flywheel readers FILE {option}")
    current = session(ctx)
    answer = current.project().readers(file.resolve() if file is not None else None, events=events, sketch=sketch)
    verbose = current.out.verbose
    if file is None:
        rows = [[r.name, str(r.reader_version), r.reads, r.distribution] for r in answer.readers]
    else:
        likely = [r for r in answer.readers if r.confidence or verbose]
        rows = [[r.name, f"{present.percent(r.confidence, 0)}", r.reads] for r in likely]
    lines = columns(rows, right=(1,)) + policy_lines(answer.policies, verbose=verbose)
    lines += [answer.verdict] if answer.verdict else []
    lines += columns(
        [
            [str(e.source_line), e.kind, e.conversation_id[:_CELL], e.tool_name or "", e.payload[: 2 * _CELL]]
            for e in answer.events
        ],
        right=(0,),
    )
    current.out.result(answer.sketch.splitlines() or lines, answer)


@commands.command()
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

    Episodes, rewards, returns, examples, pairs and groups; fresh stages are skipped.
    """
    current = session(ctx)
    with working(current.out, "building") as far:
        answer = current.project().build(
            select=select, full_refresh=full_refresh, on_stage=lambda stage: far(f"{stage.stage} done")
        )
    rows = []
    for stage in answer.stages:
        counts = present.table_counts(stage.stage, stage.rows, stage.funnel)
        seconds = f"{stage.seconds:.1f} s" if stage.state == "built" else ""
        rows.append([stage.stage, stage.state, counts, seconds, "; ".join(stage.why)])
    lines = columns(rows, right=(3,))
    empty = _has_no_episodes(answer.stages)
    if current.out.verbose:
        lines = [x for s, line in zip(answer.stages, lines, strict=True) for x in (line, *funnel_lines(s.funnel))]
    elif empty:
        lines = ["no episodes: all tables are empty"]
    after = "next  flywheel ingest LOGS" if empty else "next  flywheel plan"
    current.out.result([*lines, *_error_lines(answer.stages), after], answer)
    if detailed and all(s.state == "fresh" for s in answer.stages):
        raise typer.Exit(99)


def _has_no_episodes(stages: Sequence[StageAnswer]) -> bool:
    return any(s.stage == "episodes" and s.state != "never" and not any(s.rows.values()) for s in stages)


def _error_lines(stages: Sequence[StageAnswer]) -> list[str]:
    """Return what each stage counted that should be in no log."""
    return [f"! {s.stage}: {count:,} {name}" for s in stages for name, count in errors_in(s.funnel)]


@commands.command()
def status(ctx: typer.Context) -> None:
    """Show what is new, stale and pending, and what to run next."""
    current = session(ctx)
    answer = current.project().status()
    current.out.result(_status_lines(answer), answer)


def _files_line(a: StatusAnswer) -> str:
    aside = f"{a.set_aside:,} set aside, " if a.set_aside else ""
    return f"{present.count(a.source_files - a.set_aside, 'file')} ingested, {aside}{a.new_files:,} new or grown"


def _status_lines(a: StatusAnswer) -> list[str]:
    challenger = "none" if a.challenger is None else f"round {a.challenger}"
    head = [
        ["project", f"{a.project}   store {a.store} ({present.size(a.store_bytes)})"],
        ["rounds", f"champion {present.round_name(a.champion)}   challenger {challenger}   next {a.next_round}"],
        ["logs", _files_line(a)],
    ]
    stages = [[s.stage, s.state, "; ".join(s.why) or present.table_counts(s.stage, s.rows, s.funnel)] for s in a.stages]
    if all(s.state == "never" for s in a.stages):
        head, stages = [*head, ["tables", "none yet"]], []
    elif _has_no_episodes(a.stages):
        head, stages = [*head, ["tables", "empty: there are no episodes"]], []
    head += [["deciding", present.looks_needed(a.looks)]] if a.looks else []
    head += [["forgotten", copy] for copy in a.left_elsewhere]
    return columns(head) + columns(stages) + _error_lines(a.stages) + [f"next     {a.next}"]


@commands.command()
def query(  # noqa: PLR0913 - one parameter an option
    ctx: typer.Context,
    sql: Annotated[str, typer.Argument(help="A query; - reads it from standard input.", metavar="SQL")],
    *,
    form: Annotated[
        Literal["table", "csv", "json", "parquet"], typer.Option("--format", help="Output format of the rows.")
    ] = "table",
    limit: Annotated[int, typer.Option("--limit", help="Rows of a printed table.", min=1)] = 100,
    seconds: Annotated[float, typer.Option("--seconds", help="Time after which it is stopped.", min=0.1)] = 60.0,
    memory: Annotated[float, typer.Option("--memory", help="Gigabytes that it may use.", min=0.1)] = 2.0,
    spreadsheet: Annotated[
        bool, typer.Option("--spreadsheet", help="Write CSV that no spreadsheet takes for formulas.")
    ] = False,
) -> None:
    """Query the store in SQL.

    The tables are events, episodes, steps, rewards, returns, pairs, groups and the others of `flywheel schema`. DuckDB
    runs the query; it can read only these tables and change nothing, within limits of time and memory. Control
    characters of logs are written out, except in Parquet.
    """
    from flywheel.results.data import QueryAnswer

    current = session(ctx)
    if spreadsheet and (form in {"json", "parquet"} or (current.out.as_json and form != "csv")):
        raise CommandLineError("--spreadsheet writes CSV", hint="drop --json and --format, or say --format csv")
    text = sys.stdin.read() if sql == "-" else sql
    table = current.project().query(text, seconds=seconds, gigabytes=memory)
    if form == "parquet":
        _write_parquet(table)
    elif form == "csv" or spreadsheet:
        _write_csv(table, spreadsheet=spreadsheet)
    elif form == "json":
        for row in table.to_pylist():
            sys.stdout.write(harmless(json.dumps(row, default=_text, ensure_ascii=False)) + "\n")
    else:
        rows = [list(row.values()) for row in table.slice(0, limit).to_pylist()]
        answer = QueryAnswer(
            columns=table.column_names, rows=json.loads(json.dumps(rows, default=_text)), total=table.num_rows
        )
        current.out.result(_query_lines(answer, [[_text(value) for value in row] for row in rows]), answer)


def _write_parquet(table: pa.Table) -> None:
    """Write Parquet to stdout.

    Raises:
        CommandLineError: stdout is a terminal.
    """
    if sys.stdout.isatty():
        raise CommandLineError("Parquet is not text", hint="write it to a file: ... > rows.parquet")
    import pyarrow.parquet as pq

    pq.write_table(table, sys.stdout.buffer)


def _write_csv(table: pa.Table, *, spreadsheet: bool) -> None:
    """Write CSV to stdout; for a spreadsheet, with a quote before texts that it would take for formulas."""
    import polars as pl

    def cell(value: Any) -> str:
        text = harmless(_text(value))
        return f"'{text}" if spreadsheet and text.lstrip().startswith(_FORMULA) else text

    frame = pl.DataFrame(table)
    texts = [name for name, kind in frame.schema.items() if kind.is_nested() or kind == pl.String]
    columns = [
        pl.Series(name, [value if value is None else cell(value) for value in frame[name].to_list()], pl.String)
        for name in texts
    ]
    frame.with_columns(columns).rename(cell).write_csv(sys.stdout.buffer)


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, list | dict):
        return json.dumps(value, default=_text, ensure_ascii=False)
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _query_lines(a: QueryAnswer, rows: list[list[str]]) -> list[str]:
    cells = [[" ".join(cell.split()) for cell in row] for row in rows]
    short = [[cell if len(cell) <= _CELL else f"{cell[: _CELL - 1]}…" for cell in row] for row in cells]
    more = a.total - len(rows)
    rest = [f"and {more:,} more rows; --limit or --format csv shows them"] if more else []
    return [*columns([a.columns, *short]), *rest]


@commands.command()
def export(
    ctx: typer.Context,
    folder: Annotated[Path, typer.Argument(help="Folder to write; an earlier export is replaced.")],
    *,
    form: Annotated[
        list[str] | None, typer.Option("--form", help="preference, unpaired, sft or groups; default: all.")
    ] = None,
    split: Annotated[str, typer.Option("--split", help="train or holdout.")] = "train",
    to: Annotated[
        str,
        typer.Option(
            help="System whose files to write: trl, verl, swift, art, agent-lightning, skyrl, areal, agentfly, "
            "openrlhf, rllib, tianshou or jsonl; default: TRL's dataset forms."
        ),
    ] = "",
) -> None:
    """Write the mined rows as datasets for other trainers.

    JSON lines in TRL's forms, with a card and hashes; `datasets.load_dataset` opens the folder. With --to, the files of
    one system, its launch files, and a README with the command. What the system has no place for is listed.
    """
    current = session(ctx)
    with working(current.out, "exporting"):
        answer = current.project().export(folder, forms=form or [], split=split, to=to)
    listed = answer.row_files
    lines = columns([[f"{file.rows:,}", file.path, file.trainers] for file in listed], right=(0,))
    if current.out.verbose:
        lines = [x for f, line in zip(listed, lines, strict=True) for x in (line, *funnel_lines(f.counts))]
    lost = columns([["lost", loss.field, f"{loss.rows:,} rows", loss.why] for loss in answer.lost], right=(2,))
    runs = [f"next  cd {shlex.quote(answer.folder)} && {command}" for command in answer.command[:1]]
    warnings = [f"! {warning}" for warning in answer.warnings]
    current.out.result([*lines, *lost, *warnings, f"in    {answer.folder}", *runs], answer)


@commands.command()
def publish(
    ctx: typer.Context,
    *,
    delta: Annotated[bool, typer.Option("--delta", help="As Delta tables.")] = False,
) -> None:
    """Open the current tables to other programs.

    Nothing is copied. With --delta a log next to each table's files lists those of its current snapshot: polars, Spark,
    DuckDB and others read `.flywheel/tables/NAME` as a Delta table, and earlier versions as long as their files exist.
    Type it again after a build. Never VACUUM or write to these tables from elsewhere.
    """
    if not delta:
        raise CommandLineError("no form is given", hint="flywheel publish --delta")
    current = session(ctx)
    with working(current.out, "publishing"):
        answer = current.project().publish()
    lines = columns(
        [[table.table, f"version {table.version}", f"{table.rows:,} rows", table.folder] for table in answer.tables],
        right=(2,),
    )
    current.out.result(lines or ["nothing to publish: no table was built"], answer)
