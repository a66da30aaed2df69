"""kill -9 at every place where a command changes what is on the disk, one place after the other.

Armed, a process kills itself and all it started (SIGKILL, to the process group) at the first place on its way at which
no process was killed before. A place is the n-th time that a process is about to rename something to a path, has done
so and is about to sync the folder, or has opened a file of somebody else's (a checkpoint of transformers') for writing.
Typed again and again, a command is killed at each of its places once and then comes to its end.
"""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import Any

KILLS = b"FORKED_KILLS"  # PROJECT:LEDGER in the environment arms a command
_VOLATILE = ("lock", "lock.json")


def arm(project: Path, ledger: Path) -> None:
    """Be killed at the first new place.

    Args:
        project: what happens outside of it does not count.
        ledger: a line for each place at which a process was killed.
    """
    os.setpgid(0, 0)
    past = set(ledger.read_text(encoding="utf-8").splitlines()) if ledger.exists() else set[str]()
    times: Counter[str] = Counter()
    renamed = project

    def reached(event: str, path: Path) -> None:
        if path.name in _VOLATILE or not path.is_relative_to(project):
            return
        place = f"{event} {path.relative_to(project)}"
        times[place] += 1
        place += f" {times[place]}"
        if place not in past:
            with ledger.open("a", encoding="utf-8") as handle:
                handle.write(place + "\n")
            os.killpg(0, signal.SIGKILL)

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal renamed
        if event == "os.rename":
            renamed = Path(os.fsdecode(arguments[1]))
            reached("rename", renamed)
            return
        path, mode = (*arguments, None, None)[:2]
        if event == "open" and isinstance(path, str) and "w" in (mode or "") and not path.endswith(".partial"):
            reached("open", Path(path))

    sync = os.fsync

    def fsync(file: int) -> None:
        if Path(f"/proc/self/fd/{file}").is_dir():
            reached("renamed", renamed)
        sync(file)

    os.fsync = fsync  # type: ignore[assignment]
    sys.addaudithook(hook)
