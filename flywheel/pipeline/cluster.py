"""The Ray cluster of a configuration, with the project's own modules that tasks need."""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.machinery import all_suffixes
from pathlib import Path

from flywheel.config import Config
from flywheel.config.approval import named_code
from flywheel.io.cluster import Cluster


def cluster_of(config: Config, project: Path) -> Cluster | None:
    """Return the cluster that does the work, by `build.engine`; None for processes of this machine.

    Where a setting names `module:function`, all modules of the project are shipped, since one may import another:
    Python files and compiled ones, never data, logs, the key or hidden folders.
    """
    if config.build.engine == "processes":
        return None
    modules = tuple(sorted(_modules(project))) if any(named_code(config)) else ()
    return Cluster(config.build.address, project, modules)


def _modules(project: Path) -> Iterator[Path]:
    for folder, folders, names in os.walk(project):
        here = Path(folder)
        folders[:] = [
            name for name in folders if not name.startswith((".", "__")) and not (here / name / "pyvenv.cfg").exists()
        ]
        yield from ((here / name).relative_to(project) for name in names if name.endswith(tuple(all_suffixes())))
