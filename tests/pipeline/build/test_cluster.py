"""The seam to a cluster, with a stand-in for Ray that runs tasks in a thread; `make scale` has the real one."""

from __future__ import annotations

import os
import pickle
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest
from flywheel import Project
from flywheel.config import Config
from flywheel.config.approval import wish_of
from flywheel.errors import ClusterError, ExtensionError, FlywheelError
from flywheel.pipeline.cluster import cluster_of
from flywheel.pipeline.evaluate.logged_attempts import read_attempts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from flywheel.store import Store

ON_RAY = {"build": {"engine": "ray"}}
OF_A_TASK = """
def broken(episodes, steps, events, cfg):
    raise ValueError("private words")
"""


class _Task:
    def __init__(self, future: Any) -> None:
        self._future = future

    def future(self) -> Any:
        return self._future


class StandIn(ModuleType):
    """What flywheel calls of Ray, run here: arguments and results are pickled, as on their way to a node."""

    def __init__(self) -> None:
        super().__init__("ray")
        self.begun: list[dict[str, Any]] = []
        self.tasks, self.lost, self._running = 0, False, False
        self._pool = ThreadPoolExecutor(1)
        self._put: list[bytes] = []

    def init(self, **settings: Any) -> None:
        self.begun.append(settings)
        self._running = True
        os.write(1, b"(raylet) said by Ray\n")

    def is_initialized(self) -> bool:
        return self._running

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": 2.0}

    def put(self, value: Any) -> int:
        self._put.append(pickle.dumps(value))
        return len(self._put) - 1

    def get(self, number: int) -> Any:
        return pickle.loads(self._put[number])  # noqa: S301 - pickled above

    def remote(self, function: Callable[..., Any]) -> Any:
        def work(sent: bytes) -> Any:
            if self.lost:
                raise OSError("private words of Ray's")
            return pickle.loads(pickle.dumps(function(*pickle.loads(sent))))  # noqa: S301 - pickled below

        class Remote:
            @staticmethod
            def remote(*args: Any) -> _Task:
                self.tasks += 1
                return _Task(self._pool.submit(work, pickle.dumps(args)))

        return Remote

    def cancel(self, task: _Task) -> None:
        task.future().cancel()

    def shutdown(self) -> None:
        self._running = False


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    stand_in = StandIn()
    monkeypatch.setitem(sys.modules, "ray", stand_in)
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name in ("RAY_AUTH_MODE", "RAY_USAGE_STATS_ENABLED"):
        monkeypatch.setenv(name, "unset")
        monkeypatch.delenv(name)
    yield stand_in
    assert not stand_in.is_initialized()


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory, sample_logs: Path) -> Path:
    folder = tmp_path_factory.mktemp("logged")
    (folder / "logs").mkdir()
    with (sample_logs / "native.jsonl").open(encoding="utf-8") as log:
        (folder / "logs" / "native.jsonl").write_text("".join(islice(log, 300)), encoding="utf-8")
    return folder


def project(logs: Path, folder: Path, **settings: Any) -> Project:
    shutil.copytree(logs, folder)
    return Project(folder, config=Config.model_validate(settings))


def everything(store: Store) -> dict[str, bytes]:
    rooms = (store.root / "tables", store.root / "snapshots")
    return {str(p.relative_to(store.root)): p.read_bytes() for room in rooms for p in room.rglob("*") if p.is_file()}


def test_tasks_of_a_cluster_write_the_bytes_of_this_process(
    logs: Path, tmp_path: Path, ray: StandIn, capfd: pytest.CaptureFixture[str]
) -> None:
    here, there = project(logs, tmp_path / "here"), project(logs, tmp_path / "there", **ON_RAY)
    for one in (here, there):
        one.ingest()
        one.build(on_stage=lambda status: print(status.stage, end=""))  # noqa: T201 - it must not come out elsewhere
    assert everything(there.store) == everything(here.store)
    assert ray.tasks > 4 * 2 + 2 * 7  # a partition of conversations a task; those of tasks together, one a processor
    assert "said by Ray" not in capfd.readouterr().out
    os.write(1, b"back\n")
    assert capfd.readouterr().out == "back\n"
    assert {stage.state for stage in Project(there.folder).status().stages} == {"fresh"}  # who builds changes nothing
    settings = ray.begun[-1]
    assert (settings["address"], settings["log_to_driver"]) == ("auto", False)
    assert (os.environ["RAY_AUTH_MODE"], os.environ["RAY_USAGE_STATS_ENABLED"]) == ("token", "0")


def test_tasks_of_a_cluster_look_up_what_is_stored(logs: Path, tmp_path: Path, ray: StandIn) -> None:
    answers = []
    for one in (project(logs, tmp_path / "here"), project(logs, tmp_path / "there", **ON_RAY)):
        log = one.folder / "logs" / "native.jsonl"
        lines = log.read_text(encoding="utf-8").splitlines(keepends=True)
        log.write_text("".join(lines[:200]), encoding="utf-8")
        one.ingest()
        before = ray.tasks
        (one.folder / "logs" / "again.jsonl").write_text("".join(lines[100:]), encoding="utf-8")
        answer = one.ingest()
        answers.append((answer.kept, answer.duplicate, answer.events, everything(one.store)))
    assert answers[0] == answers[1]
    assert (answer.kept, answer.duplicate) == (100, 100)
    assert ray.tasks - before > one.store.partitions  # one a partition, besides those that read the file


def test_what_goes_wrong_in_a_task_is_told_without_its_text(logs: Path, tmp_path: Path, ray: StandIn) -> None:
    mine = project(logs, tmp_path / "mine", **ON_RAY, rewards={"signals": ["of_a_task:broken"]})
    (mine.folder / "of_a_task.py").write_text(OF_A_TASK, encoding="utf-8")
    mine.ingest()
    with pytest.raises(FlywheelError, match=r"ValueError at of_a_task\.py:3 on the node") as told:
        mine.build()
    assert "private" not in str(told.value)
    ray.lost = True
    with pytest.raises(ClusterError, match=r"the Ray cluster lost a task: OSError") as lost:
        mine.build(full_refresh=True)
    assert "private" not in lost.value.message + lost.value.hint


def test_a_cluster_that_cannot_be_had_is_an_error_with_a_hint(
    logs: Path, tmp_path: Path, ray: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = project(logs, tmp_path / "mine", build={"engine": "ray", "address": "127.0.0.1:1"})
    with pytest.raises(ClusterError, match=r"no Ray cluster at `127\.0\.0\.1:1`: Connection refused"):
        mine.ingest()
    ray.init()
    with pytest.raises(ClusterError, match="connected to Ray already"):
        mine.ingest()
    ray.shutdown()
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ExtensionError, match="needs Ray, which is not installed") as missing:
        mine.ingest()
    assert missing.value.hint == "pip install 'flywheel-rl[ray]'"
    assert mine.store.current("ingest") is None


def test_logs_that_are_only_compared_are_read_on_this_machine(
    logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They go through a folder of their own, which no node sees."""
    monkeypatch.setitem(sys.modules, "ray", None)
    config = Config.model_validate(ON_RAY)
    assert read_attempts([logs / "logs"], config, tmp_path, b"k").attempts


def test_modules_are_shipped_where_a_setting_names_one_and_nothing_else_ever(tmp_path: Path) -> None:
    for name in (
        "mine.py",
        "kit/words.py",
        "notes.txt",
        ".flywheel.key",
        ".hidden/x.py",
        "venv/lib/y.py",
        "logs/a.jsonl",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("", encoding="utf-8")
    (tmp_path / "venv" / "pyvenv.cfg").write_text("", encoding="utf-8")
    named = cluster_of(Config.model_validate(ON_RAY | {"rewards": {"signals": ["mine:signal"]}}), tmp_path)
    assert named is not None
    assert [str(module) for module in named.modules] == ["kit/words.py", "mine.py"]
    plain = cluster_of(Config.model_validate(ON_RAY), tmp_path)
    assert plain is not None
    assert plain.modules == ()
    assert cluster_of(Config(), tmp_path) is None


def test_an_address_to_which_logs_would_go_has_to_be_approved(tmp_path: Path) -> None:
    elsewhere = Config.model_validate({"build": {"engine": "ray", "address": "ray://other.example:10001"}})
    assert "build.address = ray://other.example:10001" in wish_of(tmp_path, elsewhere).code
    assert not wish_of(tmp_path, Config.model_validate(ON_RAY)).code


def test_a_worker_reads_the_snapshots_that_it_is_told(logs: Path, tmp_path: Path) -> None:
    """On a shared folder it may not see the newest one yet, or one that came after."""
    mine = project(logs, tmp_path / "mine")
    mine.ingest()
    first = mine.store.current("ingest")
    assert first is not None
    mine.store.commit("ingest", fingerprint={}, parts=(), funnel={})
    mine.store.hold({"ingest": first.number})
    assert mine.store.current("ingest") == first
    assert mine.store.current("links") is None
