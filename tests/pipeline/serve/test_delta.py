"""Published tables by the Delta protocol: what a reader finds in a log; `make scale` opens them with deltalake."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from flywheel import Project
from flywheel.errors import StoreError
from flywheel.pipeline.admin.gc import Kept
from flywheel.pipeline.build.tables import read_table
from tests.commands import flywheel


@pytest.fixture
def logged(tmp_path: Path, sample_logs: Path) -> Project:
    (tmp_path / "logs").mkdir()
    shutil.copy(sample_logs / "native.jsonl", tmp_path / "logs")
    project = Project(tmp_path)
    project.ingest()
    return project


def log_of(project: Project, table: str) -> list[list[dict[str, Any]]]:
    """A table's versions, each a list of actions."""
    versions = sorted((project.store.root / "tables" / table / "_delta_log").iterdir())
    assert [path.name for path in versions] == [f"{number:020}.json" for number in range(len(versions))]
    return [[json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] for path in versions]


def rows_of(project: Project, table: str, versions: list[list[dict[str, Any]]]) -> pl.DataFrame:
    """Read a table as its log describes it."""
    there: dict[str, int] = {}
    for action in (action for version in versions for action in version):
        if "add" in action:
            there[action["add"]["path"]] = action["add"]["size"]
        elif "remove" in action:
            del there[action["remove"]["path"]]
    paths = [project.store.root / "tables" / table / path for path in there]
    assert [path.stat().st_size for path in paths] == [*there.values()]
    return pl.read_parquet(paths)


def test_a_log_names_the_parts_of_the_current_snapshot(logged: Project, sample_logs: Path) -> None:
    assert [table.table for table in logged.publish().tables] == ["events", "quarantine"]
    first = log_of(logged, "events")
    assert len(first) == 1
    assert [next(iter(action)) for action in first[0][:3]] == ["commitInfo", "protocol", "metaData"]
    assert first[0][1]["protocol"] == {"minReaderVersion": 1, "minWriterVersion": 2}
    columns = json.loads(first[0][2]["metaData"]["schemaString"])["fields"]
    types = {column["name"]: column["type"] for column in columns}
    assert (types["ts"], types["seq"], types["payload"]) == ("timestamp", "long", "string")
    assert types["ids"] == {"type": "array", "elementType": "string", "containsNull": True}
    before = logged.store.table("events", "ingest").collect()
    shutil.copy(sample_logs / "openai.jsonl", logged.folder / "logs")
    logged.ingest()
    logged.publish()
    now = logged.store.table("events", "ingest").collect()
    assert now.height > before.height
    assert rows_of(logged, "events", log_of(logged, "events")).sort("event_id").equals(now.sort("event_id"))
    assert rows_of(logged, "events", first).sort("event_id").equals(before.sort("event_id"))  # time travel
    texts = {action["add"].get("stats") for action in first[0] if "add" in action}
    assert all(set(json.loads(text)) == {"numRecords"} for text in texts)  # no value of a row


@pytest.mark.usefixtures("logged")
def test_what_has_not_changed_gets_no_new_version(tmp_path: Path) -> None:
    done = flywheel(tmp_path, "publish", "--delta")
    assert "events" in done.stdout
    logs = {path: path.read_bytes() for path in tmp_path.rglob("_delta_log/*")}
    answer = json.loads(flywheel(tmp_path, "publish", "--delta", "--json").stdout)
    assert {table["version"] for table in answer["tables"]} == {0}
    assert {path: path.read_bytes() for path in tmp_path.rglob("_delta_log/*")} == logs
    flywheel(tmp_path, "gc")
    assert {path: path.read_bytes() for path in tmp_path.rglob("_delta_log/*")} == logs
    refused = flywheel(tmp_path, "publish", check=False)
    assert refused.returncode == 2
    assert "flywheel publish --delta" in refused.stderr


def test_a_log_of_what_is_not_there_is_not_written(logged: Project) -> None:
    current = logged.store.current("ingest")
    assert current is not None
    (logged.store.root / current.parts[0].path).unlink()
    with pytest.raises(StoreError, match="is missing"):
        logged.publish()
    assert not list(logged.folder.rglob("_delta_log"))


@pytest.mark.e2e
def test_the_newest_version_names_files_that_gc_and_forget_keep(logged: Project) -> None:
    logged.build()
    logged.publish()
    logged.repartition(2)
    logged.build()
    logged.gc(Kept(snapshots=1))
    for table in ("events", "episodes", "steps"):
        assert rows_of(logged, table, log_of(logged, table)).height == read_table(logged.store, table).collect().height

    events = read_table(logged.store, "events").collect()
    user = events["user"].drop_nulls()[0]
    logged.forget(user)
    left = rows_of(logged, "events", log_of(logged, "events"))
    assert 0 < left.height < events.height
    assert user not in left["user"].to_list()
