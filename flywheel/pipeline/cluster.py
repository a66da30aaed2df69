"""The Ray cluster of a configuration, with the project's own modules that tasks need; the store as its nodes see it."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from importlib.machinery import all_suffixes
from pathlib import Path

from flywheel.config import Config
from flywheel.config.approval import named_code
from flywheel.errors import StoreError
from flywheel.io.cluster import Cluster
from flywheel.io.places import Folder
from flywheel.store import Store


def cluster_of(config: Config, project: Path) -> Cluster | None:
    """Return the cluster that does the work, by `build.engine`; None for processes of this machine.

    Where a setting names `module:function`, all modules of the project are shipped, since one may import another:
    Python files and compiled ones, never data, logs, the key or hidden folders.
    """
    if config.build.engine == "processes":
        return None
    modules = tuple(sorted(_modules(project))) if any(named_code(config)) else ()
    return Cluster(config.build.address, project, modules)


def store_at(place: Folder) -> Store:
    """Return the store of a place that another process named.

    Raises:
        StoreError: it is not there on this machine.
    """
    if not place.shared and not place.root.is_dir():
        raise StoreError(
            f"`{place.root}` is not there on the node {socket.gethostname()}",
            hint="the store's folder has to be shared with all nodes, at the same path",
        )
    return Store(place)


def _modules(project: Path) -> Iterator[Path]:
    for folder, folders, names in os.walk(project):
        here = Path(folder)
        folders[:] = [
            name for name in folders if not name.startswith((".", "__")) and not (here / name / "pyvenv.cfg").exists()
        ]
        yield from ((here / name).relative_to(project) for name in names if name.endswith(tuple(all_suffixes())))
