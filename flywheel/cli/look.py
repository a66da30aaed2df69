"""log, show, explain, schema, plugins: looking at what is there and why."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from flywheel.cli.preview import preview_lines
from flywheel.cli.render import columns, plain
from flywheel.cli.session import session

__all__ = ["add_commands"]


def log(
    ctx: typer.Context,
    *,
    limit: Annotated[int | None, typer.Option("--limit", help="Show only so many.", min=1)] = None,
) -> None:
    """List rounds, newest first."""
    current = session(ctx)
    answer = current.project().log(limit)
    rows = [["round", "state", "method", "from", "rows", "primary metric", ""]]
    rows += [
        [str(r.round), r.state, r.method, "base" if r.parent is None else str(r.parent), f"{r.rows:,}", r.metric,
         " ".join(r.aliases)]
        for r in answer.rounds
    ]  # fmt: skip
    current.out.result(
        columns(rows, right=(0, 4)) if answer.rounds else ["no rounds yet", "next  flywheel plan"], answer
    )


def show(
    ctx: typer.Context, subject: Annotated[str, typer.Argument(help="Round number, alias or id.", metavar="SUBJECT")]
) -> None:
    """Print one thing in full.

    A round by number or alias; an episode, pair, example or group by the first digits of its id. Of what is trained
    on, the text that the model reads, with the trained tokens marked.
    """
    current = session(ctx)
    answer = current.project().show(subject)
    lines = preview_lines(answer) if answer.rendering else [answer.kind, plain(answer.record)]
    current.out.result(lines, answer)


def explain(
    ctx: typer.Context, subject: Annotated[str, typer.Argument(help="Stage, round or id.", metavar="SUBJECT")]
) -> None:
    """Say why, in sentences with numbers.

    Why a stage is stale, a round was held, an episode got its reward.
    """
    current = session(ctx)
    answer = current.project().explain(subject)
    current.out.result(answer.lines, answer)


def schema(name: Annotated[str | None, typer.Argument(help="Name of a schema; without one, the list.")] = None) -> None:
    """Print a published JSON Schema."""
    from flywheel.pipeline.schemas import all_schemas, schema_document

    if name is None:
        typer.echo("\n".join(sorted(all_schemas())))
    else:
        typer.echo(json.dumps(schema_document(name), indent=1, ensure_ascii=False))


def plugins(ctx: typer.Context) -> None:
    """List the installed extensions by group."""
    current = session(ctx)
    answer = current.project().plugins()
    rows = [[e["group"], e["name"], e["target"], f"{e['distribution']} {e['version']}"] for e in answer.extensions]
    current.out.result(columns(rows), answer)


def add_commands(app: typer.Typer) -> None:
    """Register this file's commands."""
    for command in (log, show, explain, schema, plugins):
        app.command()(command)
