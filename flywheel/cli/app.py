"""The entry point: global options, error boundary, exit codes. Heavy packages are imported inside commands only."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from flywheel import __version__
from flywheel.cli import data, deploy, digest, forget, judge, keep, look, rounds, served
from flywheel.cli.render import Output
from flywheel.cli.session import Session
from flywheel.errors import FlywheelError

__all__ = ["app", "hoist_globals", "main"]

app = typer.Typer(
    name="flywheel",
    help="Learn continuously from your agent's production logs: ingest, build, train, eval, promote.",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "FLYWHEEL"},
)

_FLAGS = {"-q", "--quiet", "-v", "--verbose", "--json", "--no-progress"}
_VALUED = {"-C", "--project", "--config"}


def _version(value: bool) -> None:  # noqa: FBT001 - typer's callback form
    if value:
        typer.echo(f"flywheel {__version__}")
        raise typer.Exit


@app.callback()
def _globals(  # noqa: PLR0913 - one parameter a global option
    ctx: typer.Context,
    *,
    project: Annotated[Path | None, typer.Option("-C", "--project", help="Project folder.", metavar="DIR")] = None,
    config: Annotated[Path | None, typer.Option("--config", help="Configuration file.", metavar="FILE")] = None,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Print nothing but errors.")] = False,
    verbose: Annotated[bool, typer.Option("-v", "--verbose", help="Print funnels and timings too.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")] = False,
    no_progress: Annotated[bool, typer.Option("--no-progress", help="Draw no progress bars.")] = False,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Options that every command understands, before or after its name."""
    del version
    ctx.obj = Session(project, config, Output(as_json, quiet, verbose, progress=not no_progress))


data.add_commands(app)
rounds.add_commands(app)
served.add_commands(app)
judge.add_commands(app)
look.add_commands(app)
digest.add_commands(app)
keep.add_commands(app)
forget.add_commands(app)
deploy.add_commands(app)


def hoist_globals(arguments: Sequence[str]) -> list[str]:
    """Move global options to the front, so that they work before and after the command's name; stop at `--`."""
    front, rest, waiting = [], [], list(arguments)
    while waiting:
        word = waiting.pop(0)
        if word == "--":
            rest += [word, *waiting]
            break
        if word in _FLAGS or word.split("=")[0] in _VALUED:
            front.append(word)
            if word in _VALUED and waiting:
                front.append(waiting.pop(0))
        else:
            rest.append(word)
    return front + rest


def main() -> None:
    """Run the command line; errors that a user can act on become two lines on stderr and an exit code."""
    # Threads that wait by spinning make two processes on the same cores ten times slower; read when torch loads.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        app(args=hoist_globals(sys.argv[1:]))
    except FlywheelError as error:
        _end(error)
    except Exception as error:  # noqa: BLE001 - the last boundary: a traceback would show text of logs
        from flywheel.cli.boundary import explain

        _end(explain(error))


def _end(error: FlywheelError) -> NoReturn:
    sys.stderr.write(f"error: {error.message}\n")
    if error.hint:
        sys.stderr.write(f"\nhint: {error.hint}\n")
    sys.exit(error.exit_code)
