"""What a cluster costs: processors' seconds of ingest and build on a pool and on Ray, in pairs, on the same logs.

`.scale/bin/python -m tests.scale.overhead EPISODES [PAIRS]`, after `make scale`. Seconds are those of the command and
all that it starts, and of every process of the cluster from the command's beginning to its end.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from tests.scale.ray_cluster import RayCluster
from tests.scale.world import write_logs

_ENGINES = {"pool": "workers = 2", "ray": 'engine = "ray"'}
_TICKS = os.sysconf("SC_CLK_TCK")


class Spent:
    """Processors' seconds of all processes of some sessions; of one that ended, up to its last sample."""

    def __init__(self, sessions: set[int]) -> None:
        self.sessions, self._seen = sessions, dict[int, float]()
        self._done = threading.Event()
        self.sample()
        self._before = self.total
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def total(self) -> float:
        return sum(self._seen.values())

    def _run(self) -> None:
        while not self._done.wait(0.1):
            self.sample()

    def sample(self) -> None:
        for place in Path("/proc").iterdir():
            with contextlib.suppress(OSError, ValueError, IndexError):
                fields = (place / "stat").read_text().rpartition(")")[2].split()
                if int(fields[3]) in self.sessions:
                    self._seen[int(place.name)] = (int(fields[11]) + int(fields[12])) / _TICKS

    def stop(self) -> float:
        """Return the seconds since the beginning."""
        self.sample()
        self._done.set()
        self._thread.join()
        return self.total - self._before


def seconds(folder: Path, engine: str, cluster: RayCluster) -> float:
    """Ingest and build in a new project; return the processors' seconds."""
    (folder / "flywheel.toml").write_text(f"[ingest]\nworkers = 2\n[build]\n{_ENGINES[engine]}\n", encoding="utf-8")
    shutil.rmtree(folder / ".flywheel", ignore_errors=True)
    spent = 0.0
    for command in ("ingest", "build"):
        call = [sys.executable, "-P", "-m", "flywheel", "-C", str(folder), command]
        environment = {**cluster.environment, "FLYWHEEL_KEY": "k", "FLYWHEEL_TRUST": "1"}
        sessions = cluster.sessions if engine == "ray" else set[int]()
        watch = Spent({*sessions})
        started = subprocess.Popen(call, env=environment, start_new_session=True, stdout=subprocess.DEVNULL)
        watch.sessions.add(started.pid)
        if started.wait():
            raise SystemExit(f"{command} failed")
        spent += watch.stop()
    return spent


def main(episodes: int, pairs: int = 2) -> None:
    """Print each pair."""
    with tempfile.TemporaryDirectory() as folder, RayCluster() as cluster:
        write_logs(Path(folder) / "logs", episodes)
        for _ in range(pairs):
            pool, ray = (seconds(Path(folder), engine, cluster) for engine in _ENGINES)
            print(f"{episodes:,} episodes: pool {pool:.1f} s, Ray {ray:.1f} s, {ray / pool - 1:+.0%}", flush=True)  # noqa: T201


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
