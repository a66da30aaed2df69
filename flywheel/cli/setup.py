"""Setup: a new project, its configuration, its health, and its extensions."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Annotated

import typer

from flywheel import present
from flywheel.cli.render import columns, mark
from flywheel.cli.session import coloured, confirm, session

commands = typer.Typer()


@commands.command()
def init(
    ctx: typer.Context,
    directory: Annotated[Path, typer.Argument(help="Folder of the project.", metavar="[DIR]")] = Path(),
    *,
    demo: Annotated[bool, typer.Option("--demo", help="Add sample logs.")] = False,
) -> None:
    """Start a project: write flywheel.toml and a nightly pipeline.

    flywheel.toml shows every default. A .gitignore covers the store and large files of rounds.
    """
    from flywheel.project import Project

    current = session(ctx)
    folder = (current.folder or Path()) / directory
    answer = Project.init(folder, demo=demo)
    where = "" if folder == Path() else f" -C {shlex.quote(str(folder))}"
    following = f"next   flywheel{where} ingest" + ("" if demo else " LOGS")
    lines = [*(f"wrote  {name}" for name in answer.made), following]
    current.out.result(lines, answer)


@commands.command()
def trust(
    ctx: typer.Context,
    *,
    outside: Annotated[bool, typer.Option("--outside", help="Also approve a store or rounds outside of it.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Approve the code that a project names.

    A project of another owner, or one that names functions, commands, other trainers ([train.backends], their
    interpreters and arguments) or addresses, is refused until you have looked at it and approved it on this machine.
    Changed code is asked about again: a function's, and files of the project that another trainer is given. Of other
    commands only the text is approved.
    """
    from flywheel.project import Project, find_project

    current = session(ctx)
    folder = current.folder if current.folder is not None else find_project(Path.cwd())
    wish = Project.trust(folder, config=current.config, outside=outside, dry_run=True)
    lines = [f"runs      {name}" for name in wish.names] + [f"writes to {place}" for place in wish.outside]
    lines += [f"belongs to uid {wish.owner}"] if wish.owner is not None else []
    current.out.result([wish.folder, *(f"  {line}" for line in lines)], wish) if not current.out.as_json else None
    confirm("Approve this on this machine?", yes=yes)
    answer = Project.trust(folder, config=current.config, outside=outside, seen=wish.sha256)
    current.out.result([f"approved  {answer.record}"], answer)


@commands.command()
def config(
    ctx: typer.Context,
    *,
    origin: Annotated[bool, typer.Option("--origin", help="Show where each value is set.")] = False,
) -> None:
    """Print every configuration value.

    With --origin, also whether it is a default, or the file and line that set it.
    """
    current = session(ctx)
    answer = current.project().settings(current.config)
    lines = [
        f"{value.key} = {json.dumps(value.value, ensure_ascii=False)}" + (f"  # {value.origin}" if origin else "")
        for value in answer.values
    ]
    current.out.result(lines, answer)


@commands.command()
def doctor(ctx: typer.Context) -> None:
    """Check whether a nightly run would succeed.

    Environment, device, disk, key, store, clock, model, rounds and extensions, each problem with a fix. Exit 1 when a
    check fails; warnings do not fail.
    """
    current = session(ctx)
    answer = current.project().doctor()
    lines = []
    for check in answer.checks:
        sign = coloured("!", "yellow") if check.state == "warning" else mark(passed=check.state == "ok")
        lines.append(f"{sign} {check.name:<10}  {check.says}")
        if check.fix:
            lines.append(f"  {'':<10}  fix: {check.fix}")
    failed = sum(check.state == "failed" for check in answer.checks)
    warnings = sum(check.state == "warning" for check in answer.checks)
    found = f"{failed} failed, {present.count(warnings, 'warning')}"
    end = found if failed or warnings else "no problems found"
    current.out.result([*lines, end], answer)
    if failed:
        raise typer.Exit(1)


@commands.command()
def plugins(ctx: typer.Context) -> None:
    """List the installed extensions by group."""
    current = session(ctx)
    answer = current.project().plugins()
    rows = [[e["group"], e["name"], e["target"], f"{e['distribution']} {e['version']}"] for e in answer.extensions]
    current.out.result(columns(rows), answer)


@commands.command()
def schema(
    ctx: typer.Context,
    name: Annotated[str | None, typer.Argument(help="Name of a schema; without it, all names.")] = None,
) -> None:
    """Print a published JSON Schema."""
    from flywheel.pipeline.admin.schemas import all_schemas
    from flywheel.project import Project
    from flywheel.results.setup import SchemasAnswer

    if name is None:
        names = sorted(all_schemas())
        session(ctx).out.result(names, SchemasAnswer(names=names))
    else:
        typer.echo(json.dumps(Project.schema(name), indent=1, ensure_ascii=False))
