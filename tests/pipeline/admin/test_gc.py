"""What `gc` removes, what it never removes, and that a kill in between leaves nothing broken."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import polars as pl
import pytest
from flywheel.contracts import polars_schema
from flywheel.errors import BusyError
from flywheel.io import files
from flywheel.pipeline.admin.gc import Kept
from flywheel.project import Project
from flywheel.records import TABLES, Promotion
from flywheel.registry.registry import ADAPTER_WEIGHTS
from tests.reports import manifest

ROW = {
    "episode_id": "e", "task_id": "t", "request_id": "r", "cluster_id": "c", "split": "train", "formerly": [],
}  # fmt: skip


def commit(project: Project, mark: str) -> None:
    """Commit a snapshot of `tasks` with one row."""
    frame = pl.DataFrame([ROW | {"episode_id": mark}], schema=polars_schema(TABLES["tasks"]))
    part = project.store.write("tasks", frame, partition=0)
    assert part is not None
    project.store.commit("tasks", fingerprint={}, parts=[part], funnel={})


def round_of(project: Project, number: int, **rest: object) -> Path:
    """Make a trained round and return its adapter's folder."""
    weights = project.registry.folder(number) / "adapter" / ADAPTER_WEIGHTS
    weights.parent.mkdir(parents=True)
    weights.write_text(f"weights {number}")
    project.registry.save(manifest(number, **{"adapter_sha256": files.hash_file(weights), "inputs": {}} | rest))
    return weights.parent


@pytest.fixture
def project(tmp_path: Path) -> Project:
    made = Project(tmp_path)
    made.store.create()
    return made


def parts(project: Project) -> int:
    return len(list((project.store.root / "tables").rglob("*.parquet")))


def test_old_snapshots_go_but_not_those_a_round_was_made_from(project: Project) -> None:
    for number in range(1, 7):
        commit(project, f"episode {number}")
    round_of(project, 1, inputs={"tasks": {"snapshot": "tasks/2", "sha256": ""}})

    counted = project.gc(dry_run=True)
    assert (parts(project), project.store.numbers("tasks")) == (6, [1, 2, 3, 4, 5, 6])
    removed = project.gc()

    assert removed.rows == counted.rows
    assert (removed.count, removed.rows[0].what) == (4, "old snapshots")
    assert project.store.numbers("tasks") == [2, 4, 5, 6]
    assert parts(project) == 4
    assert Project(project.folder).store.table("tasks", "tasks").collect()["episode_id"].to_list() == ["episode 6"]
    assert project.gc().count == 0

    assert project.gc(Kept(snapshots=1, provenance=False)).count == 6
    assert Project(project.folder).store.numbers("tasks") == [6]


def test_a_part_that_two_snapshots_name_stays(project: Project) -> None:
    for mark in ("same", "other", "same"):
        commit(project, mark)

    project.gc(Kept(snapshots=1))

    assert Project(project.folder).store.table("tasks", "tasks").collect()["episode_id"].to_list() == ["same"]


def test_orphans_cached_values_and_checkpoints_go(project: Project) -> None:
    commit(project, "kept")
    orphan = pl.DataFrame([ROW | {"episode_id": "orphan"}], schema=polars_schema(TABLES["tasks"]))
    project.store.write("tasks", orphan, partition=0)
    for name in ("old", "new"):
        project.store.cache("scores", name, [1])
    os.utime(project.store.root / "cache" / "scores" / "old.json", (0, 0))
    adapter = round_of(project, 1)
    (adapter.parent / "work").mkdir()
    (adapter.parent / "work" / "checkpoint").write_text("x" * 100)
    (project.registry.folder(2) / "data").mkdir(parents=True)

    answer = project.gc()

    assert {row.what: row.count for row in answer.rows} == {
        "orphan parts": 1, "cached values": 1, "checkpoints": 1, "unfinished rounds": 1,
    }  # fmt: skip
    assert {row.what: row.size_bytes for row in answer.rows}["checkpoints"] == 100
    assert project.store.cached("scores", "new") == [1]
    assert project.store.orphans() == []
    assert not project.registry.folder(2).exists()


def test_a_round_that_is_being_trained_keeps_its_checkpoints(project: Project) -> None:
    folder = project.registry.folder(1)
    (folder / "work").mkdir(parents=True)
    project.registry.save(manifest(1, adapter_sha256="", state="built", inputs={}))

    assert project.gc(Kept(rounds=1)).count == 0
    assert (folder / "work").exists()


def decide(project: Project, before: int | None, after: int | None) -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    moved = Promotion(round=1, decision="forced", champion_before=before, champion_after=after, by="test", at=at)
    project.registry.decide(moved)


def test_adapters_of_older_rounds_go_but_no_aliases_and_no_ancestors(project: Project) -> None:
    adapters = [round_of(project, n, parent=1 if n == 2 else None) for n in range(1, 6)]
    decide(project, None, 2)

    answer = project.gc(Kept(rounds=1))

    assert [a.exists() for a in adapters] == [True, True, False, False, True]
    assert answer.count == 2
    assert project.registry.trained() == [1, 2, 5]
    assert project.registry.problems([1, 2, 5]) == []
    assert project.registry.problems([3]) == ["the adapter of round 3 was removed: flywheel gc --keep-rounds 1"]
    assert project.registry.next_number() == 6
    assert project.gc(Kept(rounds=1)).count == 0


def test_a_kill_between_writing_down_and_removing_is_made_good(project: Project) -> None:
    adapters = [round_of(project, n) for n in (1, 2)]
    project.registry.save(project.registry.manifest(1).model_copy(update={"erased": "flywheel gc --keep-rounds 1"}))

    assert project.gc(Kept(rounds=1)).count == 1
    assert [a.exists() for a in adapters] == [False, True]


def test_beside_another_command_it_does_nothing(project: Project) -> None:
    with files.ProjectLock(project.store.root, "train"), pytest.raises(BusyError, match="train"):
        project.gc()


def test_the_champion_is_a_link(project: Project) -> None:
    adapters = [round_of(project, n) for n in (1, 2)]
    link = project.registry.root / "champion"

    decide(project, None, 1)
    assert (link.is_symlink(), link.resolve()) == (True, adapters[0])
    decide(project, 1, 2)
    assert (link / ADAPTER_WEIGHTS).read_text() == "weights 2"
    link.unlink()
    with project.locked("anything"):
        assert link.resolve() == adapters[1]
    link.unlink()
    link.mkdir()  # as a copy that followed links has it
    with project.locked("anything"):
        assert link.resolve() == adapters[1]
    decide(project, 2, None)
    assert not link.is_symlink()
