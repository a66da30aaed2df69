"""Published tables open in deltalake and polars, with time travel; run by `make scale`."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from flywheel import Project
from flywheel.pipeline.build.registry import stage_of
from flywheel.records import TABLES
from tests.scale.world import write_logs

pytestmark = pytest.mark.scale


def test_other_programs_open_what_was_published(tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake")
    write_logs(tmp_path / "logs", 200)
    project = Project(tmp_path)
    project.ingest()
    project.build()
    parts = {path: path.read_bytes() for path in tmp_path.rglob("part-*.parquet")}
    assert {table.version for table in project.publish().tables} == {0}
    before = {name: project.store.table(name, stage_of(name)).collect() for name in TABLES}
    for name, rows in before.items():
        opened = pl.read_delta(str(project.store.root / "tables" / name))
        key = [column for column in rows.columns if rows[column].dtype != pl.List(pl.String)]
        assert opened.sort(key).equals(rows.sort(key)), name
    write_logs(tmp_path / "logs", 260)
    project.ingest()
    project.build()
    versions = {table.table: table.version for table in project.publish().tables}
    assert versions["episodes"] == versions["events"] == 1
    folder = str(project.store.root / "tables" / "episodes")
    assert pl.read_delta(folder).height == 260
    assert pl.read_delta(folder, version=0).height == 200
    assert deltalake.DeltaTable(folder).history()[0]["operation"] == "flywheel publish"
    assert {path: path.read_bytes() for path in parts} == parts  # nothing was copied or touched
