"""Fresh stages are skipped, stale ones rebuilt, and the component that changed is named."""

from __future__ import annotations

import gzip
import json
import shutil
from itertools import permutations
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from flywheel import Project
from flywheel.config import Config
from flywheel.errors import UsageError
from flywheel.pipeline.build.registry import STAGES
from flywheel.pipeline.build.run import changes, select_stages
from flywheel.records import TABLES
from flywheel.store import Store
from tests.projects import digest

NAMES = [s.name for s in STAGES]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, sample_logs: Path) -> Path:
    folder = tmp_path_factory.mktemp("built")
    (folder / "logs").mkdir()
    for name in ("native.jsonl", "feedback.jsonl"):
        shutil.copy(sample_logs / name, folder / "logs")
    project = Project(folder)
    project.ingest()
    assert [s.state for s in project.build().stages] == ["built"] * len(NAMES)
    return folder


@pytest.fixture
def folder(built: Path, tmp_path: Path) -> Path:
    shutil.copytree(built, tmp_path / "p")
    return tmp_path / "p"


def states(folder: Path, config: Config | None = None) -> dict[str, str]:
    return {s.stage: s.state for s in Project(folder, config=config).status().stages}


def configured(**sections: Any) -> Config:
    return Config.model_validate(sections)


def test_a_second_build_does_nothing(folder: Path) -> None:
    before = digest(folder)

    assert [s.state for s in Project(folder).build().stages] == ["fresh"] * len(NAMES)
    assert digest(folder) == before


def test_a_full_refresh_gives_the_same_bytes(folder: Path) -> None:
    before = digest(folder)

    assert {s.state for s in Project(folder).build(full_refresh=True).stages} == {"built"}
    assert digest(folder) == before


def test_a_changed_weight_rebuilds_returns_and_what_follows_but_no_signal(folder: Path) -> None:
    changed = configured(rewards={"beta": 0.05})

    assert states(folder, changed) == {
        "links": "fresh", "episodes": "fresh", "tasks": "fresh", "opinions": "fresh", "crowds": "fresh",
        "rewards": "fresh", "reliability": "fresh", "labels": "stale", "values": "stale",
        "returns": "stale", "examples": "stale", "pairs": "stale", "groups": "stale",
        "fixtures": "stale",
    }  # fmt: skip
    assert Project(folder, config=changed).explain("returns").lines[0] == (
        "returns is stale: config rewards.beta 0.1 → 0.05."
    )
    assert "returns is stale" in Project(folder, config=changed).explain("pairs").lines[0]


def test_new_logs_make_everything_stale(folder: Path, sample_logs: Path) -> None:
    shutil.copy(sample_logs / "openai.jsonl", folder / "logs")
    project = Project(folder)
    assert project.status().new_files == 1
    project.ingest()

    assert set(states(folder).values()) == {"stale"}
    assert project.explain("episodes").lines[0] == "episodes is stale: events changed."
    assert [s.state for s in project.build().stages] == ["built"] * len(NAMES)
    assert set(states(folder).values()) == {"fresh"}


def test_copies_of_ingested_logs_are_not_waiting(folder: Path) -> None:
    project = Project(folder)
    project.ingest()
    log = min((folder / "logs").glob("*.jsonl"))
    shutil.copy(log, folder / "logs" / "copy.jsonl")
    (folder / "logs" / "rotated.jsonl.gz").write_bytes(gzip.compress(log.read_bytes()))
    assert (project.status().new_files, project.status().next) == (0, "flywheel plan")
    (folder / "logs" / "grown.jsonl").write_bytes(2 * log.read_bytes())
    assert (project.status().new_files, project.status().next) == (1, "flywheel ingest")


def test_every_funnel_adds_up(folder: Path) -> None:
    for status in Project(folder).status().stages:
        dropped = sum(n for reason, n in status.funnel.items() if reason.startswith("dropped"))
        assert status.funnel["considered"] == status.funnel["kept"] + dropped, status.stage


def test_the_number_of_partitions_does_not_change_the_rows(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(folder / "logs", other / "logs")
    project = Project(other, config=Config.model_validate({"build": {"partitions": 3}}))
    project.ingest()
    project.build()

    for stage in STAGES:
        for table in stage.makes:
            one, three = (Project(p).store.table(table, stage.name).collect() for p in (folder, other))
            order = list(TABLES[table].key)
            assert one.sort(order).equals(three.sort(order)), table


def test_no_task_crosses_the_holdout(folder: Path) -> None:
    episodes = Project(folder).store.table("episodes", "episodes").collect()
    assert episodes.group_by("task_id").agg(n=episodes["split"].n_unique()).height > 0
    assert episodes.select("task_id", "split").unique().height == episodes["task_id"].n_unique()


def test_a_stage_without_what_it_reads_is_refused(tmp_path: Path) -> None:
    project = Project(tmp_path)
    with pytest.raises(UsageError, match=r"rewards cannot be built: .* \(episodes, tasks, opinions\)"):
        project.build(select="rewards+")
    with pytest.raises(UsageError, match=r"\(episodes, tasks, rewards, reliability\)"):
        project.build(select="returns")  # which brings labels and values
    project.build()
    assert [state.stage for state in project.build(select="pairs").stages] == ["pairs"]


def test_selecting_stages() -> None:
    assert [s.name for s in select_stages("pairs")] == ["pairs"]
    assert [s.name for s in select_stages("examples+")] == ["examples", "pairs", "groups", "fixtures"]
    with pytest.raises(UsageError, match="no stage `pears`"):
        select_stages("pears")


def test_changes_are_sentences() -> None:
    before = {"input events": "a", "settings": {"pairs": {"min_margin": 0.2}}, "version": 1, "extensions": {"x": "p 1"}}
    now = {"input events": "b", "settings": {"pairs": {"min_margin": 0.3}}, "version": 2, "extensions": {"x": "p 2"}}
    assert changes(before, now) == [
        "extensions x p 1 → p 2", "events changed", "config pairs.min_margin 0.2 → 0.3", "stage version 1 → 2",
    ]  # fmt: skip
    assert changes(now, now) == []


def told(folder: Path, name: str, *records: dict[str, Any]) -> None:
    (folder / "logs" / name).write_text("".join(json.dumps(r) + "\n" for r in records))
    Project(folder).ingest()


CALL = {
    "conversation_id": "trace-1", "kind": "model_call", "seq": 1, "ts": "2026-10-01T09:00:00Z",
    "payload": {"message": {"content": "On Monday."}, "input": [{"role": "user", "content": "When?"}]},
}  # fmt: skip
SESSION = {
    "conversation_id": "session-1", "kind": "request", "seq": 0, "ts": "2026-10-01T08:00:00Z",
    "ids": ["trace:trace-1"], "payload": {"messages": [{"role": "user", "content": "Hello"}]},
}  # fmt: skip
THUMB = {"target": "trace", "target_id": "trace-1", "name": "thumbs", "value": 0, "created_at": "2026-10-03T09:00:00Z"}


@pytest.mark.parametrize("order", list(permutations([CALL, SESSION, THUMB])))
def test_late_feedback_and_sessions_join_in_any_order(order: tuple[dict[str, Any], ...], tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    for number, record in enumerate(order):
        told(tmp_path, f"{number}.jsonl", record)
        Project(tmp_path).build()
    store = Store(tmp_path / ".flywheel")
    (episode,) = store.table("episodes", "episodes").collect().iter_rows(named=True)
    assert (episode["conversation_id"], episode["n_steps"]) == ("session-1", 1)
    rewards = store.table("rewards", "rewards").collect()
    assert rewards.filter(pl.col("signal") == "thumbs")["score"].to_list() == [-1.0]
    assert store.table("links", "links").collect()["state"].to_list() == ["joined", "joined"]


def test_a_build_as_of_a_time_knows_nothing_later(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    told(tmp_path, "a.jsonl", CALL, THUMB)
    now = Project(tmp_path)
    now.build()
    today = digest(tmp_path)["tables"]
    then = Project(tmp_path, config=configured(build={"as_of": "2026-10-02"}))
    then.build()
    rewards = now.store.table("rewards", "rewards").collect()
    assert rewards.filter(pl.col("signal") == "thumbs").is_empty()
    now.build()
    assert digest(tmp_path)["tables"] == today
