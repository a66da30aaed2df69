"""What the stages over everything hold and take where they read it in pieces: `tasks` and `reliability`.

`python benchmarks/pieces.py [SIZE ...] [--partitions N]`: the world of `build.py` with requests that name no task:
22 words each, three attempts a task, half of them with one word changed, all with a number of their own. Printed for
each stage: seconds of processors of all processes, and the memory of the process that puts all together and of the
larger of the two that read pieces, both beyond what the first holds with all modules loaded. Each stage is built by a
command of its own, whose processes load these modules too: some 8 seconds of what is printed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import polars as pl
from flywheel.config import Config
from flywheel.pipeline.build import functions, workers  # noqa: F401 - loaded before anything is measured
from flywheel.pipeline.build.run import build, select_stages
from flywheel.records import content_id
from flywheel.store import Store

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import build as world

SIZES = (20_000, 100_000)
ATTEMPTS, WORDS = 3, 22
SYLLABLES = ("ba", "de", "ki", "lo", "mu", "na", "pe", "ri", "so", "tu", "va", "xe"), ("lar", "mon", "nit", "qued")


def requests(first: int, n: int) -> list[str]:
    """Return the requests of the episodes from `first` on."""
    words, asked = [one + other for one in SYLLABLES[0] for other in SYLLABLES[1]], []
    for number in range(first, first + n):
        task, own = (random.Random(seed) for seed in (number // ATTEMPTS, -1 - number))  # noqa: S311 - a world
        request = [task.choice(words) for _ in range(WORDS)]
        if own.random() < 0.5:  # noqa: PLR2004
            request[own.randrange(WORDS)] = own.choice(words)
        asked.append(" ".join([*request[:5], str(own.randrange(10**6)), *request[5:]]))
    return asked


def fill(folder: Path, size: int, partitions: int) -> None:
    """Make the store, with its rewards."""
    named = world.frames

    def unnamed(first: int, n: int) -> dict[str, pl.DataFrame]:
        made, asked = named(first, n), requests(first, n)
        ids = pl.Series("task_id", [content_id("request", one) for one in asked])
        rule = pl.lit("first_request")
        made["episodes"] = made["episodes"].with_columns(ids, request=pl.Series(asked), task_rule=rule)
        return made

    world.frames = unnamed
    store = Store(folder, partitions)
    world.fill(store, size)
    first = select_stages(None)
    build(store, config(), folder, stages=[stage for stage in first if stage.name in {"tasks", "opinions", "rewards"}])


def config() -> Config:
    """Return settings: two workers, whatever the rows."""
    return Config.model_validate({"rewards": {"fit": "always"}, "build": {"workers": 2}})


def measure(folder: Path, stage: str) -> dict[str, Any]:
    """Build a stage; return what it took and held."""
    setattr(workers, "TOGETHER", 1)  # noqa: B010 - a partition is a piece
    store, held = Store(folder), Held()
    build(store, config(), folder, stages=select_stages(stage), full_refresh=True)
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    seconds = sum(one.ru_utime + one.ru_stime for one in used)
    return {"seconds": seconds, "together": held.here - held.before, "piece": held.there - held.before}


class Held:
    """Samples the memory of this process, and of the largest of those that it started, in MB."""

    def __init__(self) -> None:
        self.before, self.here, self.there = memory(os.getpid()), 0.0, 0.0
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            began = time.thread_time()
            self.here = max(self.here, memory(os.getpid()))
            self.there = max([self.there, *map(memory, world.children())])
            time.sleep(max(0.02, world.REST * (time.thread_time() - began)))


def memory(process: int) -> float:
    """Return what a process holds, in MB."""
    return world.memory(process) / 1e6


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sizes", nargs="*", type=int, default=SIZES)
    parser.add_argument("--partitions", type=int, default=16)
    parser.add_argument("--stage", nargs=2, metavar=("FOLDER", "STAGE"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.stage:
        print(json.dumps(measure(Path(given.stage[0]), given.stage[1])))
        return
    for size in given.sizes:
        with tempfile.TemporaryDirectory() as folder:
            fill(Path(folder), size, given.partitions)
            for stage in ("tasks", "reliability"):
                call = [sys.executable, __file__, "--stage", folder, stage]
                told = json.loads(subprocess.run(call, check=True, capture_output=True, text=True).stdout)
                shown = f"{told['seconds']:.1f} s, together {told['together']:.0f} MB, a piece {told['piece']:.0f} MB"
                print(f"{size:,} episodes, {stage}: {shown}", flush=True)


if __name__ == "__main__":
    main()
