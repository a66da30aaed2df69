"""One invocation of the command line: the project that the global options name, and where its output goes."""

from __future__ import annotations

import json
import os
import re
import secrets
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import typer

from flywheel.errors import CommandLineError

if TYPE_CHECKING:
    from pydantic import BaseModel

    from flywheel.project import Project

_OURS = f"\x1f{secrets.token_hex(8)}"  # begins a colour of ours: no log can contain it
# A colour of ours, or a control character of terminals or of text direction, except line feed and tab.
_CONTROL = re.compile(
    rf"{_OURS}(?P<colour>0|31|32)m|[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]"
)


def harmless(text: str) -> str:
    """Return a text with control characters escaped, so that log text cannot control the terminal, nor colour it."""
    return _CONTROL.sub(lambda m: f"\x1b[{m['colour']}m" if m["colour"] else f"\\u{ord(m[0]):04x}", text)


_COLOURS = {"red": 31, "green": 32, "yellow": 33}


def coloured(text: str, colour: Literal["red", "green", "yellow"]) -> str:
    """Return a text in colour, where stdout is a terminal that wants colour."""
    if not sys.stdout.isatty() or os.environ.get("NO_COLOR"):
        return text
    return f"{_OURS}{_COLOURS[colour]}m{text}{_OURS}0m"


@dataclass(frozen=True)
class Output:
    """Where and how a command prints: results on stdout, messages on stderr, one JSON document with --json."""

    as_json: bool = False
    quiet: bool = False
    verbose: bool = False
    progress: bool = True

    def result(self, lines: Sequence[str], document: BaseModel) -> None:
        """Print a command's result: text, or with --json one document."""
        if self.as_json:
            text = json.dumps(document.model_dump(mode="json"), indent=1, ensure_ascii=False)
            sys.stdout.write(f"{harmless(text)}\n")  # what it writes out is an escape of JSON too
        elif not self.quiet:
            sys.stdout.write("".join(f"{harmless(line)}\n" for line in lines))

    def say(self, line: str) -> None:
        """Print a progress message to stderr."""
        if not self.quiet and not self.as_json:
            sys.stderr.write(f"{harmless(line)}\n")
            sys.stderr.flush()

    @property
    def live(self) -> bool:
        """Whether a progress bar may be shown: on a terminal only."""
        return self.progress and not self.quiet and not self.as_json and sys.stderr.isatty()


@dataclass(frozen=True)
class Session:
    """The global options of one invocation."""

    folder: Path | None
    config: Path | None
    out: Output

    def project(self) -> Project:
        """Open the project: -C, else the nearest folder with a flywheel.toml, else the current folder.

        Raises:
            UsageError: --config is not a file.
        """
        from flywheel.config import load_config
        from flywheel.errors import UsageError
        from flywheel.project import Project, find_project

        folder = self.folder if self.folder is not None else find_project(Path.cwd())
        if self.config is not None and not self.config.is_file():
            raise UsageError(f"`{self.config}` is not a file", hint="pass a configuration file with --config")
        config = load_config(self.config) if self.config is not None else None
        return Project(folder, config=config, say=self.out.say)


def session(ctx: typer.Context) -> Session:
    """Return the session that the application's callback created."""
    current = ctx.obj
    if not isinstance(current, Session):
        raise TypeError("commands run below the application's callback")
    return current


def confirm(question: str, *, yes: bool) -> None:
    """Ask on a terminal, unless `yes`.

    Raises:
        CommandLineError: there is no terminal.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise CommandLineError(f"{question} There is no terminal to ask on.", hint="confirm with --yes")
    stoppable()
    try:
        agreed = typer.confirm(question, err=True)
    except typer.Abort:
        raise KeyboardInterrupt("nothing was changed") from None
    if not agreed:
        raise typer.Abort


def stoppable() -> None:
    """Let Ctrl-C end a question on the terminal: polars lets what reads there go on."""
    signal.siginterrupt(signal.SIGINT, True)
