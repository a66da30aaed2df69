"""kill -9 at every place where a command changes what is on the disk, one place after the other.

Armed, a process kills itself and all it started (SIGKILL, to the process group) at the first place on its way at which
no process was killed before. A place is the n-th time that a process is about to rename something to a path, has done
so and is about to sync the folder, or has opened a file of somebody else's (a checkpoint of transformers') for writing;
of a command that removes files, also the n-th time that it is about to remove one.
Typed again and again, a command is killed at each of its places once and then comes to its end.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

KILLS = b"FORKED_KILLS"  # PROJECT:LEDGER, and options after further colons, in the environment arm a command
_VOLATILE = ("lock", "lock.json")
_NUMBER = re.compile(r"/\d+\.json$")


def arm(project: Path, ledger: Path, *options: Path) -> None:
    """Be killed at the first new place.

    Args:
        project: what happens outside of it does not count.
        ledger: a line for each place at which a process was killed.
        options: with `removals`, removing a file counts, and the number of a snapshot does not: it is another one each
            time that `forget` goes on. With `before`, what is on the disk after a rename is left to the place that
            comes next, which finds the same. With a number N, one place in N is one, chosen by its name.
    """
    os.setpgid(0, 0)
    names = {option.name for option in options}
    one_in = next((int(name) for name in names if name.isdigit()), 1)
    places = _Places(project, ledger, removals="removals" in names, one_in=one_in)
    sync = os.fsync

    def fsync(file: int) -> None:
        if "before" not in names and Path(f"/proc/self/fd/{file}").is_dir():
            places.reached("renamed", places.renamed)
        sync(file)

    os.fsync = fsync  # type: ignore[assignment]
    sys.addaudithook(places.hook)


class _Places:
    """The places of this process; see `arm`."""

    def __init__(self, project: Path, ledger: Path, *, removals: bool, one_in: int) -> None:
        self._project, self._ledger, self._removals, self._one_in = project, ledger, removals, one_in
        self._past = set(ledger.read_text(encoding="utf-8").splitlines()) if ledger.exists() else set[str]()
        self._times: Counter[str] = Counter()
        self.renamed = project

    def reached(self, event: str, path: Path) -> None:
        if path.name in _VOLATILE or not path.is_relative_to(self._project):
            return
        place = f"{event} {path.relative_to(self._project)}"
        place = _NUMBER.sub("/N.json", place) if self._removals else place
        self._times[place] += 1
        place += f" {self._times[place]}"
        if place not in self._past and zlib.crc32(place.encode()) % self._one_in == 0:
            with self._ledger.open("a", encoding="utf-8") as handle:
                handle.write(place + "\n")
            os.killpg(0, signal.SIGKILL)

    def hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "os.rename":
            self.renamed = Path(os.fsdecode(arguments[1]))
            self.reached("rename", self.renamed)
        elif event == "os.remove" and self._removals:
            removed = _of(*arguments)
            if removed.suffix != ".partial":
                self.reached("remove", removed)
        elif event == "open":
            path, mode = (*arguments, None, None)[:2]
            if isinstance(path, str) and "w" in (mode or "") and not path.endswith(".partial"):
                self.reached("open", Path(path))


def _of(path: Any, folder: int) -> Path:
    """Return a path that may be relative to an open folder, as `shutil.rmtree` names files."""
    return Path("" if folder == -1 else Path(f"/proc/self/fd/{folder}").readlink(), os.fsdecode(path))
