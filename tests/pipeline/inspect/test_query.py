"""flywheel query: the tables as they stand, and nothing else on the machine."""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from flywheel.errors import StoreError, UsageError
from flywheel.project import Project
from tests.projects import FLYWHEEL


@pytest.fixture(scope="module")
def project(projects: Callable[[str], Path]) -> Project:
    return Project(projects("built"))


def test_a_query_gives_the_rows_of_the_tables(project: Project) -> None:
    found = project.query("SELECT policy, count(*) AS n FROM episodes GROUP BY ALL ORDER BY ALL").to_pylist()

    expected = project.store.table("episodes", "episodes").collect()["policy"].value_counts().sort("policy")
    assert found == [{"policy": policy, "n": n} for policy, n in expected.iter_rows()]


def test_a_pivot_is_a_query_and_making_a_table_of_it_is_none(project: Project) -> None:
    (counts,) = project.query("PIVOT (SELECT policy FROM episodes) ON policy USING count(*)").to_pylist()
    policies = project.store.table("episodes", "episodes").collect()["policy"].value_counts()
    assert counts == dict(policies.iter_rows())
    for sql in ("CREATE TABLE t AS PIVOT episodes ON policy", "COPY (PIVOT episodes ON policy) TO 'x.csv'"):
        with pytest.raises(UsageError, match="exactly one query"):
            project.query(sql)


def test_tables_join_and_times_are_in_utc(project: Project) -> None:
    rows = project.query(
        "SELECT e.episode_id, min(v.ts) AS first FROM episodes e JOIN events v USING (conversation_id) "
        "WHERE v.ts IS NOT NULL GROUP BY 1 ORDER BY 1 LIMIT 1"
    ).to_pylist()

    assert rows[0]["first"].tzinfo is not None
    assert rows[0]["first"].utcoffset().total_seconds() == 0


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM read_csv('/etc/hosts')",
        "SELECT * FROM '/etc/hosts'",
        "SELECT * FROM read_text('/etc/hosts')",
        "SELECT * FROM glob('/*')",
        "COPY (SELECT 1) TO '{folder}/out.csv'",
        "EXPORT DATABASE '{folder}'",
        "ATTACH '{folder}/x.duckdb'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SET enable_external_access = true; SELECT * FROM read_text('/etc/hosts')",
        "RESET enable_external_access; SELECT * FROM read_text('/etc/hosts')",
        "SELECT * FROM project",
        "SELECT * FROM sql",
    ],
)
def test_nothing_beside_the_tables_can_be_read_or_written(project: Project, tmp_path: Path, sql: str) -> None:
    with pytest.raises(UsageError):
        project.query(sql.format(folder=tmp_path))
    assert not list(tmp_path.iterdir())


def test_no_statement_changes_the_store(project: Project) -> None:
    before = {path: path.read_bytes() for path in project.store.root.rglob("*") if path.is_file()}
    for sql in (
        "DROP VIEW events",
        "DELETE FROM events",
        "UPDATE events SET kind = 'x'",
        "INSERT INTO events SELECT * FROM events",
    ):
        with pytest.raises(UsageError):
            project.query(sql)

    assert {path: path.read_bytes() for path in project.store.root.rglob("*") if path.is_file()} == before
    assert project.query("SELECT count(*) AS n FROM events").to_pylist()[0]["n"] > 0


def test_an_error_never_quotes_a_value_of_a_log(project: Project) -> None:
    told = project.query("SELECT conversation_id FROM events LIMIT 1").to_pylist()[0]["conversation_id"]
    with pytest.raises(UsageError) as refused:
        project.query("SELECT CAST(conversation_id AS INTEGER) FROM events")

    assert told not in refused.value.message
    assert "a value has the wrong type or range" in refused.value.message


def test_a_part_that_is_missing_is_named(project: Project, tmp_path: Path) -> None:
    copy = Project(shutil.copytree(project.folder, tmp_path / "copy"))
    next((copy.store.root / "tables" / "episodes").rglob("*.parquet")).unlink()
    with pytest.raises(StoreError, match="is missing"):
        copy.query("SELECT count(*) FROM episodes")


def test_half_a_character_is_no_query(project: Project) -> None:
    with pytest.raises(UsageError, match="exactly one query"):
        project.query("SELECT '\ud83d'")


def test_a_typing_error_is_named(project: Project) -> None:
    with pytest.raises(UsageError, match="episods") as refused:
        project.query("SELECT * FROM episods")
    assert "episodes" in refused.value.hint


def test_an_empty_store_has_empty_tables(tmp_path: Path) -> None:
    assert Project(tmp_path).query("SELECT count(*) AS n FROM pairs").to_pylist() == [{"n": 0}]


_ENDLESS = "SELECT count(*) FROM range(100000) a, range(100000) b, range(100000) c WHERE a.range + b.range = c.range"


def test_a_query_that_takes_too_long_is_stopped(project: Project) -> None:
    began = time.monotonic()
    with pytest.raises(UsageError, match=r"longer than 0\.5 s and was stopped") as caught:
        project.query(_ENDLESS, seconds=0.5)
    assert time.monotonic() - began < 20
    assert "--seconds" in caught.value.hint


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT count(*) FROM (SELECT DISTINCT i::VARCHAR || repeat('x', 50) FROM range(5000000) t(i))",
        "SELECT repeat('x', 1000) || i FROM range(1000000) t(i)",
    ],
)
def test_a_query_that_needs_too_much_memory_is_refused(project: Project, sql: str) -> None:
    with pytest.raises(UsageError, match=r"0\.1 GB") as caught:
        project.query(sql, gigabytes=0.1)
    assert "LIMIT" in caught.value.hint


def test_ctrl_c_ends_a_query_at_once(project: Project) -> None:
    command = [FLYWHEEL, "-C", str(project.folder), "query", _ENDLESS]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as running:
        time.sleep(1)
        running.send_signal(signal.SIGINT)
        began = time.monotonic()
        assert running.wait(30) == 130
    assert time.monotonic() - began < 20


def test_no_two_columns_have_one_name(project: Project) -> None:
    found = project.query("SELECT e.episode_id, e.policy, l.* FROM episodes e JOIN labels l USING (episode_id) LIMIT 1")
    assert len(set(found.column_names)) == len(found.column_names)
    assert {"episode_id", "episode_id_1"} <= set(found.column_names)
