"""What the global options give to a command: the opened project and the output."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from flywheel.cli.render import Output

if TYPE_CHECKING:
    import typer

    from flywheel.project import Project

__all__ = ["Session", "session"]


@dataclass(frozen=True)
class Session:
    """One invocation of the command line."""

    folder: Path | None
    config: Path | None
    out: Output

    def project(self) -> Project:
        """Open the project: -C, else the nearest folder with a flywheel.toml, else this folder."""
        from flywheel.config import load_config
        from flywheel.errors import UsageError
        from flywheel.project import Project, find_project

        folder = self.folder if self.folder is not None else find_project(Path.cwd())
        if self.config is not None and not self.config.is_file():
            raise UsageError(f"`{self.config}` is no file", hint="give a configuration file with --config")
        config = load_config(self.config) if self.config is not None else None
        return Project(folder, config=config, say=self.out.say)


def session(ctx: typer.Context) -> Session:
    """Return the session that the global options made."""
    found = ctx.obj
    if not isinstance(found, Session):
        raise TypeError("commands run below the application's callback")
    return found
