"""Work on a Ray cluster, behind the same face as `flywheel.io.processes`: core tasks, and nothing of ours schedules.

In: functions of modules that are installed on every node, and how to prepare a process for them. Out: their results, as
futures. Ray places tasks, and runs those of a lost node again; results are pure and parts are named by content, so
neither changes a byte. An error of a task travels as a value: Ray would print its text, which may quote a log.
"""

from __future__ import annotations

import os
import platform
import secrets
import shutil
import socket
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from flywheel.errors import ClusterError, ExtensionError, FlywheelError, where
from flywheel.io import safe_path
from flywheel.io.waiting import ASLEEP

_MODULES = "modules"  # in the working folder of the tasks: not on Python's path itself, so that it replaces nothing
_KNOCK_S = 10.0
_DEFAULTS = {"RAY_AUTH_MODE": "token", "RAY_USAGE_STATS_ENABLED": "0"}  # Ray asks for no token, and sends statistics
_NODES = "every node needs the same Python, Ray and flywheel-rl, and the token; `ray status` shows the nodes"

_prepared_for = ""


@dataclass(frozen=True)
class Cluster:
    """Which cluster, and the files of the project's own modules, by their path in the project."""

    address: str
    folder: Path
    modules: tuple[Path, ...] = ()


class ClusterTasks(Executor):
    """Runs functions as tasks of a Ray cluster; each process there is prepared by `begin(*given)` once.

    Args:
        cluster: where.
        begin: a function of a module; `given` are its arguments, and can be pickled.

    Raises:
        ClusterError: there is no such cluster, or it refuses this user.
        ExtensionError: Ray is not installed.
    """

    def __init__(self, cluster: Cluster, begin: Callable[..., object], *given: object) -> None:
        self._open = ExitStack()
        self._waiting: set[Any] = set()
        with ExitStack() as opening:
            self._ray = _imported()
            opening.enter_context(_own_stdout())
            _connect(self._ray, cluster)
            opening.callback(self._ray.shutdown)
            self.size = int(self._ray.cluster_resources().get("CPU", 0))
            self._token = secrets.token_hex(16)
            self._given = self._ray.put((_versions(), begin, given))
            self._task = self._ray.remote(_work)
            self._open = opening.pop_all()

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Hand a function to the cluster."""
        task = self._task.remote(self._token, [self._given], function, args, kwargs)
        self._waiting.add(task)
        told: Future[Any] = Future()
        told.set_running_or_notify_cancel()

        def tell(outcome: Future[Any]) -> None:
            self._waiting.discard(task)
            try:
                result, error = outcome.result()
            except Exception as lost:  # noqa: BLE001 - Ray's own, whose text may have anything in it
                hint = f"the same command goes on where this one ended; {_NODES}"
                result, error = None, ClusterError(f"the Ray cluster lost a task: {type(lost).__name__}", hint=hint)
            if error is None:
                told.set_result(result)
            else:
                told.set_exception(error)

        task.future().add_done_callback(tell)
        return told

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: FBT001, FBT002 - concurrent.futures'
        """Leave the cluster, which ends what still runs for this process."""
        for task in [*self._waiting] if cancel_futures or not wait else []:
            self._ray.cancel(task)
        self._open.close()


def _imported() -> Any:
    for name, value in _DEFAULTS.items():
        os.environ.setdefault(name, value)
    try:
        import ray
    except ImportError:
        raise ExtensionError(
            'build.engine = "ray" needs Ray, which is not installed', hint="pip install 'flywheel-rl[ray]'"
        ) from None
    return ray


def _connect(ray: Any, cluster: Cluster) -> None:
    if ray.is_initialized():
        raise ClusterError(
            "this process is connected to Ray already", hint="call ray.shutdown() first: flywheel connects by itself"
        )
    _knock(cluster.address)
    with tempfile.TemporaryDirectory(prefix="flywheel-") as folder:
        working = Path(folder)
        (working / _MODULES).mkdir()
        (working / "README").write_text("modules of a flywheel project\n", encoding="ascii")
        for module in cluster.modules:
            target = working / _MODULES / module
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(cluster.folder / module, target)
        # What is shipped was approved on this machine; a node has no approvals of its own.
        environment = {"FLYWHEEL_TRUST": "1", safe_path.VARIABLE: "1", **ASLEEP}
        try:
            ray.init(
                address=cluster.address,
                runtime_env={"working_dir": folder, "env_vars": environment},
                namespace="flywheel",
                log_to_driver=False,
                configure_logging=False,
            )
        except Exception as refusal:  # noqa: BLE001 - by version and kind of address they have no common class
            kind = type(refusal).__name__
            raise ClusterError(
                f"no Ray cluster at `{cluster.address}`, or it refuses this user ({kind})",
                hint="`ray start` makes one, build.address names it; it asks for a token (RAY_AUTH_TOKEN_PATH, "
                "~/.ray/auth_token): the same on all nodes, or RAY_AUTH_MODE=disabled here too",
            ) from None


def _knock(address: str) -> None:
    """Refuse at once an address where nothing listens: Ray would try for most of a minute, and print it."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not port.isdigit():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), _KNOCK_S).close()
    except OSError as error:
        raise ClusterError(
            f"no Ray cluster at `{address}`: {error.strerror or type(error).__name__}",
            hint="`ray start` makes one; build.address names it",
        ) from None


@contextmanager
def _own_stdout() -> Iterator[None]:
    """Keep standard output for what this program writes: Ray's libraries write to the same file, unasked."""
    try:
        sys.stdout.flush()
        writes_there = sys.stdout.fileno() == 1
    except (OSError, ValueError, AttributeError):
        writes_there = False
    before, kept = sys.stdout, os.dup(1)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)
    if writes_there:
        sys.stdout = os.fdopen(kept, "w", encoding=before.encoding, errors=before.errors, closefd=False)
    try:
        yield
    finally:
        if writes_there:
            sys.stdout.flush()
            sys.stdout = before
        os.dup2(kept, 1)
        os.close(kept)


def _versions() -> dict[str, str]:
    return {"Python": platform.python_version(), **{name: version(name) for name in ("flywheel-rl", "polars")}}


# --- on a node ------------------------------------------------------------------------------------------------------


def _work(token: str, given: list[Any], function: Callable[..., Any], args: Iterable[Any], kwargs: Any) -> Any:
    """Run a function in a prepared process; return its result, or its error."""
    try:
        _prepare(token, given[0])
        return function(*args, **kwargs), None
    except Exception as error:  # noqa: BLE001 - it is raised where the task came from
        return None, _sendable(error)


def _prepare(token: str, given: Any) -> None:
    global _prepared_for  # noqa: PLW0603 - a task has no other place to keep something for the next one
    if token == _prepared_for:
        return
    import ray

    safe_path.search(Path.cwd() / _MODULES)
    versions, begin, arguments = ray.get(given)
    if versions != (here := _versions()):
        other = ", ".join(f"{name} {here[name]}" for name in versions if versions[name] != here[name])
        ours = ", ".join(f"{name} {versions[name]}" for name in versions if versions[name] != here[name])
        raise ClusterError(f"the node {socket.gethostname()} has {other}, this machine {ours}", hint=_NODES)
    begin(*arguments)
    _prepared_for = token


def _sendable(error: Exception) -> Exception:
    """Return an error that can travel, and that names the place where it was raised."""
    if isinstance(error, FlywheelError | OSError | MemoryError):
        return error
    return FlywheelError(
        f"{where(error)} on the node {socket.gethostname()}: a bug in flywheel or in an extension",
        hint='build.engine = "processes" shows more of it',
    )
