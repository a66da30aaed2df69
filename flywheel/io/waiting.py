"""How the threads of a computation wait for each other: awake where cores are free, asleep where others need them.

A step of a small model is thousands of short loops over two or more threads, which wait at the end of each. Asleep, a
thread costs nothing and wakes late; awake, it keeps its core from a program that could use it. The setting is read when
torch is first imported (`benchmarks/waiting.py` measures both).
"""

from __future__ import annotations

import os
import time
from pathlib import Path

ASLEEP = {"OMP_WAIT_POLICY": "PASSIVE"}
_ROUNDS = "GOMP_SPINCOUNT"  # of looking again before a thread falls asleep; counts more than the policy
_AWAKE = "5000"  # some hundred microseconds
_LOAD = Path("/proc/loadavg")
_LOOKS, _PAUSE_S = 10, 0.003
_STRAY = 0.25  # programs that run for a moment


def wait_by_load() -> None:
    """Let threads that torch starts from now on wait as the machine's load allows; what the user has set stays."""
    if os.environ.keys() & {*ASLEEP, _ROUNDS}:
        return
    os.environ.update(ASLEEP)
    if _cores_are_free():
        os.environ[_ROUNDS] = _AWAKE


def _cores_are_free() -> bool:
    """Whether all other programs leave as many cores as torch takes threads; False where that is not known."""
    running = 0
    try:
        for _ in range(_LOOKS):
            running += int(_LOAD.read_text(encoding="ascii").split()[3].partition("/")[0]) - 1  # without this one
            time.sleep(_PAUSE_S)
    except (OSError, ValueError, IndexError):
        return False
    cores = os.cpu_count() or 1
    threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else cores
    return threads > 1 and running / _LOOKS + threads <= cores + _STRAY
