"""Fixtures that every room's tests may use."""

from __future__ import annotations

import gc
import os
import re
import sys
from collections.abc import Callable, Generator, Iterator
from itertools import groupby
from pathlib import Path

import pytest
from hypothesis import settings
from tests.bucket_server import BucketServer, serving
from tests.projects import Projects

ROOT = Path(__file__).resolve().parents[1]

# No deadline: a busy machine is not a failure. `make test` tries the same few examples each time, so that a commit
# fails for what it did; `make e2e` searches further.
settings.register_profile("commit", deadline=None, max_examples=25, derandomize=True)
settings.register_profile("e2e", deadline=None, max_examples=100)
settings.load_profile("commit")

_COMMANDS = {"FLYWHEEL", "REAL", "flywheel", "launch", "subprocess", "killed_everywhere"}
_HEAVY = {"polars", "torch", "transformers", "peft", "trl"}
_LIBRARIES = {"torch", "transformers", "load_tokenizer", "make_tiny_model"}
_IMPORTED = re.compile(r"^(?:import|from) (?:torch|transformers)\b", re.MULTILINE)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave a module that imports torch unread where no test with a model runs: the import takes over a second."""
    if "not model" not in config.option.markexpr or collection_path.suffix != ".py":
        return None
    return bool(_IMPORTED.search(collection_path.read_text(encoding="utf-8"))) or None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what starts a process, needs a model or torch, or reads real logs, which `make test-fast` leaves out."""
    for item in items:
        names = set(vars(item.module)) if isinstance(item, pytest.Function) else set[str]()
        fixtures = set(getattr(item, "fixturenames", ()))
        if names & _COMMANDS or fixtures & {"projects", "session_projects"}:
            item.add_marker("process")
        if names & _LIBRARIES or "tiny_model" in fixtures:
            item.add_marker("model")
        if fixtures & {"shared_data", "tau_airline"}:
            item.add_marker("data")
    if "PYTEST_XDIST_WORKER" in os.environ:
        items[:] = _for_two_workers(items)


def _for_two_workers(items: list[pytest.Item]) -> list[pytest.Item]:
    """Sort tests so that each half begins with long modules and ends with quick ones.

    Each of two workers gets a half, and one that is done takes over from the end of the other's: of a module of quick
    tests, not of one whose fixture would have to be made twice.
    """
    modules = [list(tests) for _, tests in groupby(items, lambda item: item.path)]
    long = [tests for tests in modules if _is_long(tests)]
    quick = [tests for tests in modules if not _is_long(tests)]
    halves = [[test for tests in long[n::2] for test in tests] for n in (0, 1)]
    rest = [test for tests in quick for test in tests]
    wanting = max(0, len(items) // 2 - len(halves[0]))
    return [*halves[0], *rest[:wanting], *halves[1], *rest[wanting:]]


def _is_long(tests: list[pytest.Item]) -> bool:
    return any(test.get_closest_marker(name) for test in tests for name in ("process", "model"))


class _Memory:
    """What was imported stays; looking through it for garbage costs a third of a second, and each trainer has it done.

    Only what a test leaves behind could be garbage: so modules are set aside before a test that follows an import.
    """

    def __init__(self) -> None:
        self._imported: set[str] | None = None

    @pytest.hookimpl(wrapper=True)
    def pytest_collection(self) -> Generator[None, object, object]:
        """Collect modules and tests without looking for garbage among them, of which there is none."""
        gc.disable()
        try:
            return (yield)
        finally:
            gc.enable()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        imported = _HEAVY & sys.modules.keys()
        if imported != self._imported:
            self._imported = imported
            gc.collect()
            gc.freeze()


def pytest_configure(config: pytest.Config) -> None:
    """Set imported modules aside."""
    config.pluginmanager.register(_Memory())


@pytest.fixture(scope="session")
def root() -> Path:
    """The checkout."""
    return ROOT


@pytest.fixture(scope="session")
def sample_logs() -> Path:
    """The repository's own logs."""
    return ROOT / "sample_logs"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Real agent logs next to the checkout; the test is skipped where they are absent."""
    folder = ROOT.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("the real logs are not next to this checkout (../shared/data)")
    return folder


@pytest.fixture(scope="session")
def tau_airline(shared_data: Path) -> Path:
    """200 gpt-4o attempts at 50 airline tasks."""
    path = shared_data / "tau-bench" / "gpt-4o-airline.json.gz"
    if not path.is_file():
        pytest.skip("../shared/data/tau-bench/gpt-4o-airline.json.gz is absent")
    return path


@pytest.fixture(scope="session")
def tiny_model(session_projects: Projects) -> Path:
    """A two-layer random Llama with the commonest tokens of the embedded model's tokenizer."""
    return session_projects.model


@pytest.fixture(scope="session")
def session_projects(tmp_path_factory: pytest.TempPathFactory) -> Projects:
    """Projects on sample_logs/, made once a session, whichever worker of pytest-xdist needs them first."""
    base = tmp_path_factory.getbasetemp()
    return Projects((base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "projects")


@pytest.fixture(scope="module")
def projects(session_projects: Projects, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Copy a project of the session: `projects("built")` is a folder that the module may change."""
    return lambda name: session_projects.copy(name, tmp_path_factory.mktemp(name) / "agent")


@pytest.fixture(scope="session")
def _bucket() -> Iterator[BucketServer]:
    with serving(BucketServer()) as server:
        yield server


@pytest.fixture
def bucket(_bucket: BucketServer, monkeypatch: pytest.MonkeyPatch) -> BucketServer:
    """An empty server of buckets, which this process's commands talk to, with one key for all machines."""
    pytest.importorskip("obstore")
    _bucket.clear()
    _bucket.use(monkeypatch)
    monkeypatch.setenv("FLYWHEEL_TRUST", "1")
    monkeypatch.setenv("FLYWHEEL_KEY", "one key for all machines")
    return _bucket
