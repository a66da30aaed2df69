"""Worker processes that import nothing from the current folder (`flywheel.io.safe_path`) and end with their parent."""

from __future__ import annotations

import gc
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context, parent_process
from multiprocessing.connection import wait
from typing import Any

from flywheel.io.safe_path import starting_safely

_THREADS = "POLARS_MAX_THREADS"


class Processes(ProcessPoolExecutor):
    """Worker processes, each prepared by `begin(*given)`; each starts when there is work for it.

    Args:
        count: at most so many.
        begin: a function of a module; `given` are its arguments, and can be pickled.
    """

    def __init__(self, count: int, begin: Callable[..., object], *given: object) -> None:
        self._count = count
        with starting_safely():  # locks start a process that cleans up after them
            super().__init__(count, get_context("spawn"), _begin, (begin, given))

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Give work to a process, which may be started for it."""
        with starting_safely(), _sharing_cores(self._count):
            return super().submit(function, *args, **kwargs)


@contextmanager
def _sharing_cores(count: int) -> Iterator[None]:
    """Let so many processes start with the share of the cores that is theirs for polars, whose threads else compete.

    What the user sets stays. Polars reads it when it is loaded, which in this process it is already.
    """
    if _THREADS in os.environ:
        yield
        return
    os.environ[_THREADS] = str(max(1, (os.cpu_count() or 1) // count))
    try:
        yield
    finally:
        del os.environ[_THREADS]


@contextmanager
def uncollected() -> Iterator[None]:
    """Keep the cycle collector away: a block of a log, or a slice of a table, is a million objects without cycles."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def _begin(begin: Callable[..., object], given: tuple[object, ...]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends Ctrl-C to all; the parent decides what it means
    begin(*given)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """Wait for the process that started this one, and end with it."""
    parent = parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
