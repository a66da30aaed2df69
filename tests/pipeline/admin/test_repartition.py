"""Another number of partitions: the same rows, in one step, whenever it is killed."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from flywheel import Project
from flywheel.config import Config
from flywheel.errors import StoreError, UsageError
from flywheel.pipeline.build.registry import stage_of
from flywheel.records import TABLES
from tests.commands import flywheel, killed_everywhere

if TYPE_CHECKING:
    import polars as pl

LOGS = ("native.jsonl", "feedback.jsonl")


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory, sample_logs: Path) -> Path:
    """A project in four partitions, built."""
    folder = tmp_path_factory.mktemp("four") / "p"
    (folder / "logs").mkdir(parents=True)
    for name in LOGS:
        shutil.copy(sample_logs / name, folder / "logs")
    project = Project(folder)
    project.ingest()
    project.build()
    return folder


@pytest.fixture
def project(before: Path, tmp_path: Path) -> Project:
    return Project(shutil.copytree(before, tmp_path / "p"))


def rows(project: Project) -> dict[str, pl.DataFrame]:
    frames = {name: project.store.table(name, stage_of(name)).collect() for name in TABLES}
    return {name: frame.sort(list(TABLES[name].key)) for name, frame in frames.items()}


def same(one: dict[str, pl.DataFrame], other: dict[str, pl.DataFrame]) -> bool:
    return all(frame.equals(other[name]) for name, frame in one.items())


def homes(project: Project) -> set[int]:
    current = project.store.current("ingest")
    assert current is not None
    return {part.partition for part in current.parts if part.table == "events"}


def test_the_rows_stay_and_the_next_build_makes_the_same_tables(project: Project, tmp_path: Path) -> None:
    was = rows(project)
    answer = project.repartition(7)
    assert (answer.before, answer.partitions, answer.events) == (4, 7, was["events"].height)
    assert homes(project) == set(range(7))
    assert same({"events": rows(project)["events"]}, was)
    assert {stage.state for stage in project.status().stages} == {"stale"}
    project.build()
    assert same(rows(project), was)
    assert Project(project.folder).ingest().kept == 0  # all of it is known where it lies now
    fresh = Project(tmp_path / "p", config=Config.model_validate({"store": "fresh", "build": {"partitions": 7}}))
    fresh.ingest()
    fresh.build()
    assert same(rows(fresh), was)


def test_killed_anywhere_it_is_as_before_or_done(before: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(before, tmp_path / "p")
    assert killed_everywhere(folder, "repartition", "3", before=True) == len(("header", *"012", "snapshot", "header"))
    done = Project(folder)
    assert (done.store.partitions, homes(done)) == (3, {0, 1, 2})
    flywheel(folder, "gc")
    whole = Project(shutil.copytree(before, tmp_path / "whole"))
    whole.repartition(3)
    assert same({"events": rows(done)["events"]}, {"events": rows(whole)["events"]})
    one, other = done.store.current("ingest"), whole.store.current("ingest")
    assert one is not None
    assert one == other
    assert (folder / ".flywheel/store.json").read_bytes() == (whole.store.root / "store.json").read_bytes()


def test_what_is_left_half_way_is_settled_by_whichever_command_comes(project: Project, sample_logs: Path) -> None:
    """The header is written first: until the snapshot that it names is there, the old number holds."""
    current = project.store.current("ingest")
    assert current is not None
    project.store._write_header(7, current.number + 1)
    assert Project(project.folder).store.partitions == 4
    shutil.copy(sample_logs / "openai.jsonl", project.folder / "logs")
    assert Project(project.folder).ingest().kept > 0  # commits the snapshot of that number
    assert Project(project.folder).store.partitions == 4


def test_a_project_that_was_opened_before_writes_where_events_lie_now(project: Project, sample_logs: Path) -> None:
    opened = Project(project.folder)
    project.repartition(7)
    shutil.copy(sample_logs / "openai.jsonl", project.folder / "logs")
    assert opened.ingest().kept > 0
    assert opened.store.partitions == 7


def test_tables_of_two_numbers_are_not_put_together(project: Project) -> None:
    project.repartition(7)
    with pytest.raises(StoreError, match="`episodes` was built in 4 partitions, and the store has 7 now") as refused:
        project.build(select="opinions")
    assert "flywheel build" in refused.value.hint
    with pytest.raises(UsageError):
        project.repartition(0)
    assert project.repartition(7).before == 7
