"""The entry point: global options, groups of commands, errors as messages and exit codes."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from flywheel import __version__
from flywheel.cli import data, deploy, inspect, operations, rewards, rounds, setup
from flywheel.cli.session import Output, Session, harmless
from flywheel.errors import CommandLineError, ExitCode, FlywheelError, StoppedError, where
from flywheel.io.safe_path import start_safely

if TYPE_CHECKING:
    from types import ModuleType

GROUPS = (setup, data, rewards, rounds, deploy, inspect, operations)
_FLAGS = {"-q", "--quiet", "-v", "--verbose", "--json", "--no-progress"}
_VALUED = {"-C", "--project", "--config"}
_TRACEBACK = "FLYWHEEL_TRACEBACK"
_PIPE_CLOSED = 141  # as a shell reports SIGPIPE


def commands_of(group: ModuleType) -> list[str]:
    """Return the names of a group's commands, in order."""
    registered = [*group.commands.registered_commands, *group.commands.registered_groups]
    return [info.name or info.callback.__name__ for info in registered]


class Grouped(TyperGroup):
    """The application; its help lists commands by group."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command; Ctrl-C is an error of ours, with what the command knows of what is done."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as stopped:
            if str(stopped):
                raise StoppedError(f"stopped: {stopped}") from None
            raise StoppedError("stopped", hint="the same command goes on from what is done") from None

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write a section for each group."""
        width = max(map(len, self.commands))
        for group in GROUPS:
            rows = [
                (name.ljust(width), self.commands[name].get_short_help_str(formatter.width - width - 6))
                for name in commands_of(group)
            ]
            with formatter.section(group.__name__.rpartition(".")[2].capitalize()):
                formatter.write_dl(rows)
        del ctx


app = typer.Typer(
    name="flywheel",
    cls=Grouped,
    help="Learn continuously from your agent's production logs: ingest, build, train, eval, promote.",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for _group in GROUPS:
    app.add_typer(_group.commands)


def _version(value: bool) -> None:  # noqa: FBT001 - typer's callback form
    if value:
        typer.echo(f"flywheel {__version__}")
        raise typer.Exit


@app.callback()
def _globals(  # noqa: PLR0913 - one parameter a global option
    ctx: typer.Context,
    *,
    project: Annotated[
        Path | None, typer.Option("-C", "--project", help="Project folder.", metavar="DIR", envvar="FLYWHEEL_PROJECT")
    ] = None,
    config: Annotated[Path | None, typer.Option("--config", help="Configuration file.", metavar="FILE")] = None,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Print errors only.")] = False,
    verbose: Annotated[bool, typer.Option("-v", "--verbose", help="Also print funnels and timings.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document, also of an error.", envvar="FLYWHEEL_JSON")
    ] = False,
    no_progress: Annotated[bool, typer.Option("--no-progress", help="Show no progress bars.")] = False,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Options that every command accepts, before or after its name."""
    del version
    ctx.obj = Session(project, config, Output(as_json, quiet, verbose, progress=not no_progress))


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
    """Run the command line; an error becomes two lines on stderr, or with --json a document on stdout; and a code."""
    start_safely()
    arguments = hoist_globals(sys.argv[1:])
    as_json = _wants_json(arguments)
    try:
        code = app(args=arguments, prog_name="flywheel", standalone_mode=not as_json)
    except FlywheelError as error:
        _exit(error, as_json=as_json)
    except Exception as error:  # noqa: BLE001 - the last boundary: a traceback would show log text
        if _has_no_reader(error):  # who read it has read enough: `flywheel query ... | head`
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(_PIPE_CLOSED)
        _exit(_of_the_command_line(error) or unexpected(error), as_json=as_json)
    sys.exit(code if isinstance(code, int) else 0)


def _has_no_reader(error: Exception) -> bool:
    """Return whether whoever read the output has gone; polars gives the system's number in words alone."""
    return isinstance(error, OSError) and (error.errno == errno.EPIPE or f"(os error {errno.EPIPE})" in str(error))


def _wants_json(arguments: Sequence[str]) -> bool:
    """Return whether the answer is a JSON document, so that the error has to be one too."""
    rest = iter(arguments)
    for word in rest:
        if word == "--json":
            return True
        if word in _VALUED:
            next(rest, None)
        elif word not in _FLAGS and word.split("=")[0] not in _VALUED:
            break
    return os.environ.get("FLYWHEEL_JSON", "").lower() in {"1", "true", "t", "yes", "y", "on"}


def _of_the_command_line(error: Exception) -> FlywheelError | None:
    """Return a mistyped command line, or a question answered with no, as an error of ours; None for other errors."""
    if isinstance(error, typer.Abort):
        return FlywheelError("aborted: nothing was changed")
    words, code = getattr(error, "format_message", None), getattr(error, "exit_code", None)
    if words is None or not isinstance(code, int):
        return None
    mistyped = CommandLineError if code == ExitCode.USAGE else FlywheelError
    context = getattr(error, "ctx", None)
    asked_nothing = type(error).__name__ == "NoArgsIsHelpError"  # a group's name alone: its words are the whole help
    return mistyped(
        "Missing command." if asked_nothing else str(words()),
        hint=f"{context.command_path} --help" if context is not None else "flywheel --help",
    )


def _exit(error: FlywheelError, *, as_json: bool) -> NoReturn:
    if as_json:
        from flywheel.results.setup import ErrorAnswer, ErrorDetail

        detail = ErrorDetail(message=error.message, hint=error.hint, exit_code=int(error.exit_code))
        Output(as_json=True).result([], ErrorAnswer(error=detail))
    else:
        kind = "" if isinstance(error, StoppedError) else "error: "
        sys.stderr.write(f"{kind}{harmless(error.message)}\n")
        if error.hint:
            sys.stderr.write(f"\nhint: {harmless(error.hint)}\n")
    sys.exit(error.exit_code)


def unexpected(error: Exception) -> FlywheelError:
    """Return an error that was not raised on purpose as one for users: its type and places, never its message.

    A message may quote a log; `FLYWHEEL_TRACEBACK=1` prints it. Errors of the operating system name the file.
    """
    import traceback

    if os.environ.get(_TRACEBACK):
        traceback.print_exception(error)
    if isinstance(error, OSError) and error.errno:
        return FlywheelError(
            f"{f'`{error.filename}`: ' if error.filename else ''}{os.strerror(error.errno)}",
            hint="check the path, its permissions, and the free space on its disk",
        )
    if isinstance(error, RuntimeError) and "Symlink loop" in str(error):  # as Python 3.11 and 3.12 report it
        return FlywheelError("a path contains a symbolic link to itself", hint="`ls -l` shows the targets of links")
    if isinstance(error, MemoryError):
        return FlywheelError("out of memory", hint="ingest fewer logs at once, or use a machine with more memory")
    library = Path(typer.__file__).parent
    frames = [f for f in traceback.extract_tb(error.__traceback__) if library not in Path(f.filename).parents]
    places = [f"  {f.filename}:{f.lineno} in {f.name}" for f in frames]
    tables = type(error).__module__.partition(".")[0] in {"polars", "pyarrow", "duckdb"}
    cause = "a damaged table, or a bug in flywheel" if tables else "a bug in flywheel or in an extension"
    return FlywheelError(
        "\n".join([f"{where(error)}: {cause}, reached through", *places]),
        hint="if `flywheel doctor` reports no problems, please report this with the lines above; "
        f"{_TRACEBACK}=1 also shows the message, which may quote your logs",
    )
