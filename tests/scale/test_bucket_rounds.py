"""Real commands of a round in a bucket, killed with signal 9 at their writes, then typed again; run by `make scale`.

One process trains, evaluates, promotes and rolls back. At one of the requests by which it changes the bucket, before it
is carried out or after, the process and all that it started are killed. Whoever looks meanwhile sees all of a round or
nothing; the same commands on the same machine end with the round, reports and decisions of an uninterrupted run.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from flywheel import Project
from tests.bucket_server import BucketServer, environment, serving

pytestmark = pytest.mark.scale
pytest.importorskip("obstore")

KILLS = int(os.environ.get("KILLS", "50"))
_KEY = {"FLYWHEEL_KEY": "the key of all machines", "FLYWHEEL_TRUST": "1"}
_ROUND = """
import sys
from flywheel import Project
def registry(): return Project(sys.argv[1]).registry
def decisions(): return [decision.decision for decision in registry().promotions()]
if 1 not in registry().trained():
    Project(sys.argv[1]).train()
if registry().report(1) is None:
    Project(sys.argv[1]).evaluate(1)
if "forced" not in decisions():
    Project(sys.argv[1]).promote(1, force=True, reason="rehearsal")
if "rolled_back" not in decisions():
    Project(sys.argv[1]).rollback(reason="rehearsal")
"""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[BucketServer]:
    with serving(BucketServer()) as started:
        for name, value in {**environment(started.url), **_KEY}.items():
            monkeypatch.setenv(name, value)
        yield started


@pytest.fixture
def config(server: BucketServer, projects: Callable[[str], Path]) -> str:
    """Build the tables of sample_logs in the bucket; return the configuration, for a store of any name."""
    project = projects("logs")
    text = 'store = "s3://b/STORE"\n[build]\npartitions = 1\n' + (project / "flywheel.toml").read_text(encoding="utf-8")
    (project / "flywheel.toml").write_text(text.replace("STORE", "built"), encoding="utf-8")
    Project(project).ingest()
    Project(project).build()
    assert server.names()
    return text


def _machine(folder: Path, config: str, store: str) -> Path:
    folder.mkdir()
    (folder / "flywheel.toml").write_text(config.replace("STORE", store), encoding="utf-8")
    return folder


def _copied(server: BucketServer, store: str) -> None:
    """Give a store of another name the tables that are built."""
    before = "/b/built/"
    server.objects |= {
        f"/b/{store}/{name.removeprefix(before)}": kept
        for name, kept in server.objects.items()
        if name.startswith(before)
    }


def _started(folder: Path) -> subprocess.Popen[str]:
    words = [sys.executable, "-P", "-c", _ROUND, str(folder)]
    return subprocess.Popen(words, start_new_session=True, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)


def _seen(folder: Path) -> dict[str, Any]:
    """Return what a machine sees of rounds and decisions."""
    registry = Project(folder).registry
    rounds = registry.numbers()
    assert registry.problems(rounds) == []
    return {
        "adapters": {number: registry.manifest(number).adapter_sha256 for number in rounds},
        "reports": [registry.report(number) is not None for number in rounds],
        "decisions": [decision.decision for decision in registry.promotions()],
        "champion": registry.champion,
    }


class _Killer:
    """Kills a process, and all that it started, at one of its writes; `after` lets the server carry it out."""

    def __init__(self, at: int, *, after: bool) -> None:
        self._at, self._after, self.writes = at, after, 0
        self.process: subprocess.Popen[str] | None = None

    def __call__(self, request: str) -> None:
        """Look at a request."""
        if not request.startswith(("PUT", "DELETE", "POST")):
            return
        self.writes += 1
        if self.writes == self._at and self.process is not None:
            os.killpg(self.process.pid, signal.SIGKILL)
            if not self._after:
                raise ConnectionAbortedError


def test_a_round_killed_at_its_writes_ends_as_if_it_had_not_been(
    server: BucketServer, config: str, tmp_path: Path
) -> None:
    _copied(server, "whole")
    whole = server.before = _Killer(0, after=False)
    assert _started(_machine(tmp_path / "whole", config, "whole")).communicate()[1] == ""
    expected = _seen(_machine(tmp_path / "whole-other", config, "whole"))
    assert (expected["decisions"], expected["reports"]) == (["forced", "rolled_back"], [True])
    for kill in range(KILLS):
        store = f"kill{kill}"
        _copied(server, store)
        folder = _machine(tmp_path / store, config, store)
        killer = server.before = _Killer(1 + kill * whole.writes // KILLS, after=bool(kill % 2))
        killer.process = _started(folder)
        killer.process.communicate()
        assert killer.process.returncode == -signal.SIGKILL, kill
        server.before = lambda _: None
        early = _seen(_machine(tmp_path / f"{store}-early", config, store))
        assert early["decisions"] == expected["decisions"][: len(early["decisions"])], kill
        assert _started(folder).communicate()[1] == "", kill
        for machine in (folder, _machine(tmp_path / f"{store}-other", config, store)):
            assert _seen(machine) == expected, kill
    print(f"\n{KILLS} kills at {whole.writes} writes of a round")  # noqa: T201 - the figure
