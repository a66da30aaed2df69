"""The store's documents are input: nothing that they name leads out of the store, and a changed byte is found."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import polars as pl
import pytest
from flywheel.contracts import polars_schema
from flywheel.errors import FlywheelError, StoreError
from flywheel.project import Project
from flywheel.records import FileHash, LogEvent, Reward
from flywheel.store import Store
from tests.reports import manifest

OUT = "../../victim"


def _rewards(signal: str) -> pl.DataFrame:
    row = {
        "episode_id": "e1", "task_id": "t1", "step": None, "signal": signal, "family": "f", "kind": "implicit",
        "score": 1.0, "weight": 1.0, "evidence": ["a"], "arrived": datetime(2026, 1, 1, tzinfo=UTC),
        "signal_version": 1,
    }  # fmt: skip
    return pl.DataFrame([row], schema=polars_schema(Reward))


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A project with three snapshots of the rewards, without a log."""
    (tmp_path / "a" / "p").mkdir(parents=True)
    made = Project(tmp_path / "a" / "p")
    made.store.create()
    for number in range(3):
        part = made.store.write("rewards", _rewards(f"s{number}"), partition=0)
        made.store.commit("rewards", fingerprint={}, parts=[part] if part else [], funnel={})
    return Project(made.folder)


def _edit(path: Path, change: Callable[[dict], object]) -> None:  # type: ignore[type-arg]
    document = json.loads(path.read_text(encoding="utf-8"))
    change(document)
    path.write_text(json.dumps(document), encoding="utf-8")


@pytest.mark.parametrize("how", ["gc", "prune", "other part", "other table", "other stage"])
def test_a_snapshot_that_leads_elsewhere_removes_nothing(project: Project, how: str, tmp_path: Path) -> None:
    victim = tmp_path / "a" / "victim"
    victim.write_text("mine")
    oldest = project.store.root / "snapshots" / "rewards" / "1.json"
    edits: dict[str, Callable[[dict], object]] = {  # type: ignore[type-arg]
        "other part": lambda d: d["parts"][0].update(path=d["parts"][0]["path"].replace("part-", "part-0")),
        "other table": lambda d: d["parts"][0].update(table="events"),
        "other stage": lambda d: d.update(stage="../../.."),
    }
    _edit(oldest, edits.get(how, lambda d: d["parts"][0].update(path=OUT)))

    with pytest.raises(StoreError, match="damaged") as caught:
        project.store.prune("rewards", 1) if how == "prune" else project.gc()  # commits and `forget` prune
    assert "backup" in caught.value.hint
    assert victim.read_text() == "mine"


@pytest.mark.parametrize("at", [".flywheel/cache", ".flywheel/tables/rewards", ".flywheel/lock", "rounds/0001"])
def test_a_link_out_of_the_store_or_the_rounds_is_refused(project: Project, at: str, tmp_path: Path) -> None:
    """`gc` would empty what it leads to, and a lock be written through it."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "old").write_text("mine")
    link = project.folder / at
    link.parent.mkdir(exist_ok=True)
    if link.is_dir():
        link.rename(link.with_name("moved"))
    link.symlink_to(elsewhere / "old" if at.endswith("lock") else elsewhere)

    with pytest.raises(StoreError, match="link that leads out"):
        project.gc()
    assert (elsewhere / "old").read_text() == "mine"


def test_links_of_trackers_are_theirs(project: Project, tmp_path: Path) -> None:
    """Weights & Biases links to its own cache."""
    logs = project.registry.folder(1) / "tracking" / "wandb" / "logs"
    logs.mkdir(parents=True)
    (logs / "debug-core.log").symlink_to(tmp_path)
    assert project.gc(dry_run=True)


def test_a_link_where_a_file_is_written_is_not_written_through(tmp_path: Path) -> None:
    from flywheel.io.files import atomic_write

    victim = tmp_path / "victim"
    victim.write_text("mine")
    (tmp_path / ".x.json.partial").symlink_to(victim)

    atomic_write(tmp_path / "x.json", "{}")

    assert victim.read_text() == "mine"
    assert (tmp_path / "x.json").read_text() == "{}"


@pytest.mark.parametrize("audits", [{"../../../victim": ["0"]}, {"../victim.answers.jsonl": []}, [1]])
def test_a_planted_intent_to_forget_touches_nothing_elsewhere(project: Project, audits: object, tmp_path: Path) -> None:
    victim = tmp_path / "a" / "p" / "victim.answers.jsonl"
    victim.write_text("mine\n")
    mine = {"user": "u", "rounds": {}}
    intent = {"belongings": mine, "certificate": {}, "audits": audits}
    (project.store.root / "forgetting.json").write_text(json.dumps(intent))

    with pytest.raises(StoreError, match="not the intent"):
        project.gc()
    assert victim.read_text() == "mine\n"


@pytest.mark.parametrize("header", ["[]", '{"layout": 1}', '{"layout": 1, "partitions": 1000000000}'])
def test_a_damaged_header_is_refused(project: Project, header: str) -> None:
    (project.store.root / "store.json").write_text(header)
    with pytest.raises(StoreError):
        Project(project.folder)


def _event() -> pl.DataFrame:
    fields = dict.fromkeys(LogEvent.model_fields)
    columns = polars_schema(LogEvent)
    words = {name: "x" for name, kind in columns.items() if kind == pl.String}
    numbers = {name: 0 for name, kind in columns.items() if kind.is_integer()}
    lists: dict[str, list[str]] = {name: [] for name, kind in columns.items() if kind == pl.List(pl.String)}
    return pl.DataFrame([{**fields, **words, **numbers, **lists}], schema=columns)


def test_a_flipped_byte_of_a_part_is_found_when_it_is_read(project: Project) -> None:
    part = project.store.current("rewards").parts[0]  # type: ignore[union-attr]
    path = project.store.root / part.path
    whole = path.read_bytes()
    path.write_bytes(whole[:200] + bytes([whole[200] ^ 1]) + whole[201:])

    with pytest.raises(StoreError, match="a part of table rewards is changed") as caught:
        Project(project.folder).store.table("rewards", "rewards")
    assert "--full-refresh" in caught.value.hint


@pytest.mark.parametrize("lost", ["missing", "changed"])
def test_a_lost_part_of_the_events_is_never_called_fresh(project: Project, lost: str) -> None:
    part = project.store.write("events", _event(), partition=0)
    assert part is not None
    project.store.commit("ingest", fingerprint={}, parts=[part], funnel={}, extra={"sources": {}})
    path = project.store.root / part.path
    path.write_bytes(b"short") if lost == "changed" else path.unlink()

    for command in (project.status, project.build, lambda: project.ingest(["."])):
        with pytest.raises(FlywheelError, match=f"a part of table events is {lost}") as caught:
            command()
        assert "only a backup" in caught.value.hint


def test_a_lost_part_of_a_derived_table_makes_its_stage_stale(project: Project) -> None:
    current = project.store.current("rewards")
    assert current is not None
    (project.store.root / current.parts[0].path).unlink()
    assert "a part of rewards is missing" in {s.stage: s for s in project.status().stages}["rewards"].why


@pytest.mark.e2e
def test_a_lost_part_of_a_derived_table_is_made_again(projects: Callable[[str], Path]) -> None:
    """`tasks` remembers itself and needs a full refresh."""
    project = Project(projects("built"))
    before = {stage: project.store.current(stage).sha256 for stage in project.store.stages()}  # type: ignore[union-attr]
    for stage in ("pairs", "tasks"):
        (project.store.root / project.store.current(stage).parts[0].path).unlink()  # type: ignore[union-attr]
    with pytest.raises(StoreError, match="a part of table tasks is missing"):
        Project(project.folder).build()

    Project(project.folder).build(full_refresh=True)

    again = Project(project.folder).store
    assert {stage: again.current(stage).sha256 for stage in again.stages()} == before  # type: ignore[union-attr]


@pytest.mark.parametrize("path", ["/etc/passwd", "../0001/x", "adapter/../../x", ".."])
def test_a_manifest_names_no_file_elsewhere(path: str) -> None:
    assert FileHash(path="adapter/..x/y", sha256="", size_bytes=0)
    with pytest.raises(ValueError, match="path"):
        FileHash(path=path, sha256="", size_bytes=0)


def test_a_manifest_of_another_round_is_refused(project: Project) -> None:
    project.registry.save(manifest(1))
    (project.registry.folder(2)).mkdir()
    (project.registry.folder(1) / "manifest.json").rename(project.registry.folder(2) / "manifest.json")
    with pytest.raises(StoreError, match="round"):
        project.registry.manifest(2)


def test_the_store_checks_each_part_once(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    store, hashed = Store(project.store.root), list[Path]()
    from flywheel.io import files

    real = files.hash_file
    monkeypatch.setattr("flywheel.store.files.hash_file", lambda path: hashed.append(path) or real(path))  # type: ignore[func-returns-value]
    for _ in range(3):
        store.table("rewards", "rewards").collect()
    assert len(hashed) == 1
