"""A Ray cluster of separate processes: a head without processors, and raylets with one each."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Self

RAY = Path(sys.executable).with_name("ray")
_STORE = ["--object-store-memory", "300000000", "--disable-usage-stats"]
_PATIENCE_S = 120


class RayCluster:
    """Head and `nodes` raylets with a token of their own; `environment` is what a command needs to reach them."""

    def __init__(self, nodes: int = 2) -> None:
        self._home = Path(tempfile.mkdtemp(prefix="fw-ray-"))  # a short path: sockets lie in it
        (self._home / "token").write_text(secrets.token_hex(32), encoding="ascii")
        self.port, self.client_port = _free_port(), _free_port()
        self.address = f"127.0.0.1:{self.port}"
        self.environment = {
            **os.environ,
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(self._home / "token"),
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_ADDRESS": self.address,
        }
        self._wanted, self._groups = nodes, list[subprocess.Popen[bytes]]()

    def __enter__(self) -> Self:
        ports = ["--port", str(self.port), "--ray-client-server-port", str(self.client_port)]
        self._start("--head", *ports, "--num-cpus", "0", "--include-dashboard=false", "--temp-dir", str(self._home))
        for _ in range(self._wanted):
            self.add_node()
        return self

    def __exit__(self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> None:
        for group in reversed(self._groups):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(group.pid, signal.SIGKILL)
            group.wait()
        shutil.rmtree(self._home, ignore_errors=True)

    @property
    def sessions(self) -> set[int]:
        """The sessions of its processes."""
        return {group.pid for group in self._groups}

    def add_node(self) -> None:
        """Start one more raylet."""
        self._start("--address", self.address, "--num-cpus", "1")

    def kill_busy_node(self) -> None:
        """Kill the raylet of the next node that works on a task, with signal 9; its workers end by themselves."""
        until = time.monotonic() + _PATIENCE_S
        while not (busy := [node for node in self._groups[1:] if _processes(node.pid, "ray::_work")]):
            if time.monotonic() > until:
                raise RuntimeError("no node got a task")
            time.sleep(0.01)
        (raylet,) = _processes(busy[0].pid, "raylet")
        os.kill(raylet, signal.SIGKILL)
        self._groups.remove(busy[0])
        busy[0].wait(_PATIENCE_S)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(busy[0].pid, signal.SIGKILL)

    def _start(self, *arguments: str) -> None:
        log = (self._home / f"start-{len(self._groups)}-{secrets.token_hex(2)}.log").open("wb")
        call = [str(RAY), "start", "--block", *arguments, *_STORE]
        started = subprocess.Popen(
            call, stdout=log, stderr=log, env=self.environment, start_new_session=True, cwd=self._home
        )
        self._groups.append(started)
        until = time.monotonic() + _PATIENCE_S
        while "Ray runtime started" not in Path(log.name).read_text(encoding="utf-8", errors="replace"):
            if started.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"a node of the cluster did not start: {Path(log.name).read_text(encoding='utf-8')}")
            time.sleep(0.2)
        log.close()


def _processes(group: int, name: str) -> list[int]:
    """Return the processes of that title among those that a `ray start` has started, which leads their session."""
    found = []
    for place in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            session = int((place / "stat").read_text().rpartition(")")[2].split()[3])
            title = (place / "cmdline").read_text().partition("\0")[0]
            if session == group and title.rpartition("/")[2].startswith(name):
                found.append(int(place.name))
    return found


def _free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port: int = listening.getsockname()[1]
        return port
