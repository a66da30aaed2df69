"""What a cluster costs: processors' seconds of ingest and build on a pool and on Ray, in pairs, on the same logs.

`.scale/bin/python -m tests.scale.overhead EPISODES [PAIRS]`, after `make scale`. Seconds are those of the command and
all that it starts, and of every process of the cluster from the command's beginning to its end: Ray's daemons apart,
of which a cluster without work spends some too (they look every so often, by the clock), printed first.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from tests.scale.ray_cluster import RayCluster
from tests.scale.world import write_logs

_ENGINES = {"pool": "workers = 2", "ray": 'engine = "ray"'}
_TICKS = os.sysconf("SC_CLK_TCK")
_IDLE_S = 20
_KINDS = ("commands", "tasks", "daemons")
_TASKS = ("ray::_work", "ray::IDLE")  # titles; agents of nodes have others


class Spent:
    """Processors' seconds of all processes of some sessions; of one that ended, up to its last sample."""

    def __init__(self, sessions: set[int]) -> None:
        self.sessions, self._seen = sessions, dict[int, tuple[str, float]]()
        self._done, self._began = threading.Event(), time.monotonic()
        self.sample()
        self._before = self.by_kind()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def by_kind(self) -> dict[str, float]:
        """Return the seconds of commands, of tasks' processes and of daemons."""
        return {kind: sum(spent for name, spent in self._seen.values() if name == kind) for kind in _KINDS}

    def _run(self) -> None:
        while not self._done.wait(0.1):
            self.sample()

    def sample(self) -> None:
        for place in Path("/proc").iterdir():
            with contextlib.suppress(OSError, ValueError, IndexError):
                fields = (place / "stat").read_text().rpartition(")")[2].split()
                if int(fields[3]) in self.sessions:
                    kind = self._kind(int(place.name), (place / "cmdline").read_text())
                    self._seen[int(place.name)] = kind, (int(fields[11]) + int(fields[12])) / _TICKS

    def _kind(self, process: int, title: str) -> str:
        """Return what a process is; one that has ended has no title any more."""
        if not title:
            return self._seen[process][0] if process in self._seen else "daemons"
        if "flywheel" in title or "multiprocessing" in title:
            return "commands"
        return "tasks" if title.startswith(_TASKS) or "default_worker.py" in title else "daemons"

    def stop(self) -> dict[str, float]:
        """Return the seconds since the beginning, of processors by kind and of the clock."""
        self.sample()
        self._done.set()
        self._thread.join()
        spent = {kind: seconds - self._before[kind] for kind, seconds in self.by_kind().items()}
        return spent | {"clock": time.monotonic() - self._began}


def seconds(folder: Path, engine: str, cluster: RayCluster) -> dict[str, float]:
    """Ingest and build in a new project; return the processors' seconds by kind of process."""
    (folder / "flywheel.toml").write_text(f"[ingest]\nworkers = 2\n[build]\n{_ENGINES[engine]}\n", encoding="utf-8")
    shutil.rmtree(folder / ".flywheel", ignore_errors=True)
    spent = dict.fromkeys((*_KINDS, "clock"), 0.0)
    for command in ("ingest", "build"):
        call = [sys.executable, "-P", "-m", "flywheel", "-C", str(folder), command]
        environment = {**cluster.environment, "FLYWHEEL_KEY": "k", "FLYWHEEL_TRUST": "1"}
        sessions = cluster.sessions if engine == "ray" else set[int]()
        watch = Spent({*sessions})
        started = subprocess.Popen(call, env=environment, start_new_session=True, stdout=subprocess.DEVNULL)
        watch.sessions.add(started.pid)
        if started.wait():
            raise SystemExit(f"{command} failed")
        spent = {kind: spent[kind] + more for kind, more in watch.stop().items()}
    return spent


def main(episodes: int, pairs: int = 2) -> None:
    """Print what an idle cluster spends, then each pair."""
    with tempfile.TemporaryDirectory() as folder, RayCluster() as cluster:
        write_logs(Path(folder) / "logs", episodes)
        watch = Spent(cluster.sessions)
        time.sleep(_IDLE_S)
        idle = watch.stop()["daemons"] / _IDLE_S
        print(f"without work: {idle:.3f} processors")  # noqa: T201
        for _ in range(pairs):
            pool, ray = (seconds(Path(folder), engine, cluster) for engine in _ENGINES)
            alone, work = pool["commands"], ray["commands"] + ray["tasks"]
            whole = work + ray["daemons"]
            kinds = ", ".join(f"{kind} {ray[kind]:.1f}" for kind in ray)
            print(  # noqa: T201
                f"{episodes:,} episodes: pool {alone:.1f} s, Ray {whole:.1f} s ({kinds}), {whole / alone - 1:+.0%}; "
                f"without what it spends idle {(whole - idle * ray['clock']) / alone - 1:+.0%}", flush=True,
            )  # fmt: skip


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
