"""Who builds, in how many processes and slices, changes no byte; what goes wrong elsewhere is told here."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest
from flywheel import Project
from flywheel.config import Config
from flywheel.errors import ExtensionError, StoreError
from flywheel.io.crew import Crew
from flywheel.pipeline.build.registry import STAGES
from flywheel.store import Part, Store

BROKEN = """
def lonely(episodes, steps, events, cfg):
    return episodes
"""


@pytest.fixture(scope="module")
def ingested(tmp_path_factory: pytest.TempPathFactory, sample_logs: Path) -> Path:
    folder = tmp_path_factory.mktemp("ingested")
    (folder / "logs").mkdir()
    for name in ("native.jsonl", "feedback.jsonl"):
        shutil.copy(sample_logs / name, folder / "logs")
    Project(folder).ingest()
    return folder


def current(project: Project, stage: str, table: str) -> list[Part]:
    snapshot = project.store.current(stage)
    assert snapshot is not None
    return [part for part in snapshot.parts if part.table == table]


def parts(folder: Path, config: Config | None = None) -> dict[str, list[str]]:
    project = Project(folder, config=config)
    project.build(full_refresh=True)
    found = {}
    for stage in STAGES:
        snapshot = project.store.current(stage.name)
        assert snapshot is not None
        found[stage.name] = sorted(part.sha256 for part in snapshot.parts)
    return found


def test_slices_and_processes_change_no_byte(ingested: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = parts(ingested)
    assert sum(map(len, whole.values())) > 2 * len(STAGES)
    monkeypatch.setattr("flywheel.pipeline.build.partition.SLICE", 50)
    assert parts(ingested) == whole
    monkeypatch.setattr("flywheel.pipeline.build.workers.SLICE", 50)  # the tasks of one partition at a time
    assert parts(ingested) == whole
    assert parts(ingested, Config.model_validate({"build": {"workers": 2}})) == whole
    monkeypatch.setattr("flywheel.pipeline.build.workers._MANY", 0)  # each stage gets new processes
    assert parts(ingested, Config.model_validate({"build": {"workers": 2}})) == whole


def test_new_processes_take_the_place_of_the_old_ones() -> None:
    with Crew() as crew:
        first = crew.start(1, os.getpid).submit(os.getpid).result()
        assert crew.start(1, os.getpid).submit(os.getpid).result() == first
        crew.renew()
        assert crew.start(1, os.getpid).submit(os.getpid).result() not in {first, os.getpid()}


def test_what_lies_by_conversation_is_read_once_for_many_partitions(
    ingested: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = Project(shutil.copytree(ingested, tmp_path / "p"))
    monkeypatch.setattr("flywheel.pipeline.build.workers.SLICE", 0)  # as if there were many rows
    reads, paths = Counter[str](), Store.paths
    tables = [("episodes", "episodes"), ("episodes", "steps"), ("values", "values")]

    def counting(store: Store, parts: Iterable[Part], table: str) -> list[Path]:
        read = paths(store, parts, table)
        reads[table] += sum(path.stat().st_size for path in read)
        return read

    monkeypatch.setattr(Store, "paths", counting)
    together = parts(project.folder)
    for stage_name, table in tables:
        size = sum(part.size_bytes for part in current(project, stage_name, table))
        again = 2 * (table == "episodes")  # `tasks` reads them for requests, for accounts, and for its rows
        assert 0 < reads[table] <= size * (sum(table in stage.needs for stage in STAGES) + again), table
    reads.clear()
    monkeypatch.setattr("flywheel.pipeline.build.workers.TOGETHER", 1)  # one partition at a time
    assert parts(project.folder) == together
    for stage_name, table in tables[:2]:
        size = sum(part.size_bytes for part in current(project, stage_name, table))
        assert reads[table] > 4 * size * sum(table in stage.needs for stage in STAGES if stage.by == "task"), table


def test_the_number_of_processes_makes_nothing_stale(ingested: Path) -> None:
    Project(ingested).build()
    other = Project(ingested, config=Config.model_validate({"build": {"workers": 2}}))
    assert {s.state for s in other.status().stages} == {"fresh"}


def test_an_error_in_another_process_is_told_as_in_this_one(ingested: Path, tmp_path: Path) -> None:
    folder = tmp_path / "p"
    shutil.copytree(ingested, folder)
    (folder / "mine_of_crew.py").write_text(BROKEN, encoding="utf-8")
    told = []
    for workers in (1, 2):
        config = Config.model_validate(
            {"build": {"workers": workers}, "rewards": {"signals": ["outcome", "mine_of_crew:lonely"]}}
        )
        with pytest.raises(ExtensionError) as caught:
            Project(folder, config=config).build()
        told.append((caught.value.message, caught.value.hint))
    assert told[0] == told[1]
    assert "mine_of_crew" in told[0][0]


def test_a_worker_that_dies_is_an_error_that_says_what_to_do(ingested: Path, tmp_path: Path) -> None:
    folder = tmp_path / "p"
    shutil.copytree(ingested, folder)
    (folder / "dying.py").write_text("import os\n\ndef now(*_):\n    os._exit(9)\n", encoding="utf-8")
    config = Config.model_validate({"build": {"workers": 2}, "rewards": {"signals": ["dying:now"]}})
    with pytest.raises(StoreError, match="a process that built `opinions` died") as caught:
        Project(folder, config=config).build()
    assert "build.workers" in str(caught.value.hint)
