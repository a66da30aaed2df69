"""The Python API: a project, opened from its folder; one method for each command of the command line.

from flywheel import Project
project = Project(".")
project.ingest(["logs"]); project.build(); project.train(); project.evaluate(promote=True)
"""

from __future__ import annotations

from flywheel.project.data import DataCommands
from flywheel.project.keeping import KeepCommands
from flywheel.project.looking import LookCommands
from flywheel.project.opened import KEY_FILE, find_project
from flywheel.project.rounds import RoundCommands

__all__ = ["KEY_FILE", "Project", "find_project"]


class Project(DataCommands, RoundCommands, LookCommands, KeepCommands):
    """A folder with logs, a store and rounds.

    Args:
        folder: the project's folder; no configuration file is needed.
        config: configuration to use instead of the folder's flywheel.toml.
        say: gets progress, in sentences for people.

    Raises:
        ConfigError: flywheel.toml does not fit.
        StoreError: the store has another layout.
    """
