"""query, config, doctor, schedule: keeping a project in order, and asking it anything."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from flywheel.cli.render import columns, mark
from flywheel.cli.session import session
from flywheel.results import QueryAnswer

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["add_commands"]

_CELL = 60  # widest cell of a printed table


def query(
    ctx: typer.Context,
    sql: Annotated[str, typer.Argument(help="A query; - reads it from standard input.", metavar="SQL")],
    *,
    form: Annotated[
        Literal["table", "csv", "json", "parquet"], typer.Option("--format", help="How the rows are printed.")
    ] = "table",
    limit: Annotated[int, typer.Option("--limit", help="Most rows of a printed table.", min=1)] = 100,
) -> None:
    """Ask the store in SQL.

    The tables are events, episodes, steps, rewards, returns, pairs, groups and the others of `flywheel schema`. DuckDB
    answers; it can read nothing but these tables, and change nothing.
    """
    current = session(ctx)
    found = current.project().query(sys.stdin.read() if sql == "-" else sql)
    if form in {"csv", "parquet"}:
        _binary(found, form)
    elif form == "json":
        for row in found.to_pylist():
            sys.stdout.write(json.dumps(row, default=_text, ensure_ascii=False) + "\n")
    else:
        shown = found.slice(0, limit)
        rows = [[_text(value) for value in row.values()] for row in shown.to_pylist()]
        answer = QueryAnswer(
            columns=found.column_names,
            rows=json.loads(json.dumps([list(row.values()) for row in shown.to_pylist()], default=_text)),
            total=found.num_rows,
        )
        current.out.result(_lines(found.column_names, rows, found.num_rows), answer)


def _binary(found: pa.Table, form: str) -> None:
    """Write CSV or Parquet to stdout."""
    if form == "csv":
        import polars as pl

        frame = pl.DataFrame(found)
        nested = [name for name, kind in frame.schema.items() if kind.is_nested()]
        texts = [pl.Series(name, [_text(value) for value in frame[name].to_list()], pl.String) for name in nested]
        frame.with_columns(texts).write_csv(sys.stdout.buffer)
    else:
        import pyarrow.parquet as pq

        pq.write_table(found, sys.stdout.buffer)


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, list | dict):
        return json.dumps(value, default=_text, ensure_ascii=False)
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _lines(names: list[str], rows: list[list[str]], total: int) -> list[str]:
    cells = [[" ".join(cell.split()) for cell in row] for row in rows]
    short = [[cell if len(cell) <= _CELL else f"{cell[: _CELL - 1]}…" for cell in row] for row in cells]
    more = total - len(rows)
    rest = [f"and {more:,} more rows; --limit or --format csv shows them"] if more else []
    return [*columns([names, *short]), *rest]


def config(
    ctx: typer.Context,
    *,
    origin: Annotated[bool, typer.Option("--origin", help="Say where each value comes from.")] = False,
) -> None:
    """Print every value of the configuration.

    With --origin, whether it is a default or stands in a file, and on which line.
    """
    current = session(ctx)
    answer = current.project().settings(current.config)
    current.out.result(
        [f"{one.key} = {json.dumps(one.value, ensure_ascii=False)}" + (f"  # {one.origin}" if origin else "")
         for one in answer.values], answer,
    )  # fmt: skip


def doctor(ctx: typer.Context) -> None:
    """Check whether a night would go through.

    Environment, device, disk, key, store, clock, model, rounds and extensions, each with a fix where something is
    wrong. Exit 1 when a check fails; a warning is none.
    """
    current = session(ctx)
    answer = current.project().doctor()
    lines = []
    for check in answer.checks:
        lines.append(f"{mark(passed=check.state == 'ok')} {check.name:<10}  {check.says}")
        if check.fix:
            lines.append(f"  {'':<10}  fix: {check.fix}")
    failed = sum(check.state == "failed" for check in answer.checks)
    warned = sum(check.state == "warning" for check in answer.checks)
    end = "all is well" if not failed and not warned else f"{failed} failed, {warned} to look at"
    current.out.result([*lines, end], answer)
    if failed:
        raise typer.Exit(1)


def schedule(
    ctx: typer.Context,
    scheduler: Annotated[Literal["cron", "systemd", "airflow"], typer.Argument(help="cron, systemd or airflow.")],
    *,
    at: Annotated[str, typer.Option("--at", help="Time of day.", metavar="HH:MM")] = "02:30",
    pipeline: Annotated[str, typer.Option("--pipeline", help="What to run.", metavar="NAME")] = "nightly",
) -> None:
    """Print a schedule that runs the nightly job of this project.

    Nothing is installed: the text says where it goes.
    """
    from flywheel.pipeline.nightly.schedule import schedule as made

    folder = session(ctx).project().folder
    command = Path(shutil.which("flywheel") or Path(sys.executable).with_name("flywheel")).absolute()
    typer.echo(made(scheduler, folder=folder, command=command, at=at, pipeline=pipeline), nl=False)


def add_commands(app: typer.Typer) -> None:
    """Register this file's commands."""
    for command in (query, config, doctor, schedule):
        app.command()(command)
