"""Errors that nobody raised on purpose, as a user sees them: what and where, but no message, which may quote a log."""

from __future__ import annotations

import os
import traceback
from pathlib import Path

import typer

from flywheel.errors import FlywheelError, where

__all__ = ["explain"]

_WHOLE = "FLYWHEEL_TRACEBACK"


def explain(error: Exception) -> FlywheelError:
    """Return what to tell of an error.

    The operating system's refusals name the file. Of all else it is the type and the places that the error came
    through; `FLYWHEEL_TRACEBACK=1` shows the whole.
    """
    if os.environ.get(_WHOLE):
        traceback.print_exception(error)
    if isinstance(error, OSError) and error.errno:
        return FlywheelError(
            f"{f'`{error.filename}`: ' if error.filename else ''}{os.strerror(error.errno)}",
            hint="check the path, who may use it, and the space left on its disk",
        )
    if isinstance(error, RuntimeError) and "Symlink loop" in str(error):  # Python 3.11 and 3.12's way to say it
        return FlywheelError("a path leads through a link to itself", hint="`ls -l` shows where links lead")
    if isinstance(error, MemoryError):
        return FlywheelError("out of memory", hint="take fewer logs at once, or a machine with more memory")
    typed = Path(typer.__file__).parent
    frames = [f for f in traceback.extract_tb(error.__traceback__) if typed not in Path(f.filename).parents]
    places = [f"  {f.filename}:{f.lineno} in {f.name}" for f in frames]
    tables = type(error).__module__.partition(".")[0] in {"polars", "pyarrow", "duckdb"}
    cause = "a damaged table, or a defect of flywheel" if tables else "a defect of flywheel or of an extension"
    return FlywheelError(
        "\n".join([f"{where(error)}: {cause}, reached through", *places]),
        hint="where `flywheel doctor` finds the store whole, report it with these lines; "
        f"{_WHOLE}=1 also shows the message, which may quote your logs",
    )
