"""Who builds, in how many processes and slices, changes no byte; what goes wrong elsewhere is told here."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from flywheel import Project
from flywheel.config import Config
from flywheel.errors import ExtensionError, StoreError
from flywheel.pipeline.build.registry import STAGES

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
