"""Where Python looks for modules: never in the folder in which a command is typed.

Python puts the current folder first on the path of modules for `python -c` and `python -m`, and so do the processes of
`multiprocessing` and the launchers of training libraries: a `pickle.py` among the logs would run. PYTHONSAFEPATH turns
that off, for whatever such a process starts too. Only what a project's configuration names is looked for in the
project's folder, after everything that is installed: a `json.py` there replaces nothing.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import (
    BYTECODE_SUFFIXES,
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    ExtensionFileLoader,
    FileFinder,
    SourceFileLoader,
    SourcelessFileLoader,
)
from pathlib import Path
from types import CodeType

VARIABLE = "PYTHONSAFEPATH"
_of_the_user = os.environ.get(VARIABLE)
_searched: set[str] = set()


def start_safely() -> None:
    """Let this process, from here on, start Python with a safe path only."""
    os.environ[VARIABLE] = "1"


@contextmanager
def starting_safely() -> Iterator[None]:
    """Let this process start Python with a safe path only, for the time of the block."""
    before = os.environ.get(VARIABLE)
    start_safely()
    try:
        yield
    finally:
        if before is None:
            del os.environ[VARIABLE]
        else:
            os.environ[VARIABLE] = before


def can_start_safely() -> bool:
    """Return whether children can have a safe path; `python -E` passes on that the environment is to be ignored."""
    return bool(sys.flags.safe_path) or not sys.flags.ignore_environment


def users_environment() -> dict[str, str]:
    """Return the environment for a program that the user named, whose modules may be next to it."""
    environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
    return environment if _of_the_user is None else {**environment, VARIABLE: _of_the_user}


def search(folder: Path) -> None:
    """Look for modules in a project's folder too, last, and compile them from their source each time."""
    if str(folder) not in sys.path:
        if not _searched:
            sys.path_hooks.insert(0, _finder)
        sys.path.append(str(folder))
        _searched.add(str(folder))
        for place in [place for place in sys.path_importer_cache if Path(place).is_relative_to(folder)]:
            del sys.path_importer_cache[place]


class _Source(SourceFileLoader):
    """Loads from the source: a `__pycache__` that came with an archive may hold anything."""

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)


def _finder(place: str) -> FileFinder:
    path, environment = Path(place), Path(sys.prefix)
    around = [folder for folder in _searched if path.is_relative_to(folder)]
    # The environment that runs this may lie in the project: its packages are installed, and compiled once.
    installed = path.is_relative_to(environment) and any(environment.is_relative_to(folder) for folder in around)
    if not around or installed:
        raise ImportError(name=place)
    compiled = (ExtensionFileLoader, EXTENSION_SUFFIXES), (SourcelessFileLoader, BYTECODE_SUFFIXES)
    return FileFinder(place, compiled[0], (_Source, SOURCE_SUFFIXES), compiled[1])


def installed_path() -> tuple[str, ...]:
    """Return where installed packages are: a folder that is only searched for modules installs none."""
    return tuple(entry for entry in sys.path if entry not in _searched)
