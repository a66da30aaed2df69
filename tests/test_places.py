"""A store in a bucket, of a real server over HTTP, from the public API."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from flywheel.errors import BucketError, BusyError, ConfigError, StoreError
from flywheel.io.bucket import Address, address
from flywheel.io.places import InBucket
from flywheel.pipeline.admin.gc import Kept
from flywheel.store import Store
from tests.bucket_server import SECRET, URL, BucketServer, machine

if TYPE_CHECKING:
    from flywheel import Project

pytest.importorskip("obstore")


def _logs(folder: Path, first: int = 0, last: int = 3) -> list[Path]:
    path = folder / f"{first}.jsonl"
    rows = [
        {
            "id": f"r{number}",
            "user": f"u{number}@shop.example",
            "request": {"messages": [{"role": "user", "content": f"Where is order {number}?"}]},
            "response": {"choices": [{"message": {"role": "assistant", "content": "In Lyon."}}]},
        }
        for number in range(first, last)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return [path]


def test_two_machines_share_a_store_that_equals_one_in_a_folder(bucket: BucketServer, tmp_path: Path) -> None:
    one, alone = machine(tmp_path / "one"), machine(tmp_path / "alone", ".flywheel")
    logs = _logs(tmp_path)
    for project in (one, alone):
        project.ingest(logs)
        project.build(select="links")
        project.build(select="episodes")
    other = machine(tmp_path / "other")
    for stage in alone.store.stages():
        here, there = alone.store.current(stage), other.store.current(stage)
        assert here is not None
        assert there is not None
        path = f"/b/team/project/snapshots/{stage}/{here.number}.json"
        if stage == "ingest":  # paths of logs are relative to the project
            assert here.parts == there.parts
        else:
            assert bucket.objects[path].body == (alone.store.root / f"snapshots/{stage}/1.json").read_bytes()
    assert other.store.stages() == alone.store.stages()
    assert other.status().stages == alone.status().stages
    assert other.query("SELECT count(*) AS n FROM events").to_pylist() == [{"n": 3}]
    parts = [name for name in bucket.names() if "/tables/" in name]
    assert parts
    assert all(
        file.read_bytes() == bucket.objects[f"/b/team/project/tables/{name}"].body for name, file in _cached(other)
    )
    assert SECRET not in "".join(path.read_text(errors="replace") for path in tmp_path.rglob("*") if path.is_file())

    other.ingest(_logs(tmp_path, 3, 4))
    assert other.store.numbers("ingest") == [1, 2]
    assert one.ingest(logs).kept == 0  # which sees what the other one has stored
    assert one.query("SELECT count(*) AS n FROM events").to_pylist() == [{"n": 4}]


def _cached(project: Project) -> list[tuple[str, Path]]:
    tables = project.store.root / "tables"
    return [(path.relative_to(tables).as_posix(), path) for path in tables.rglob("part-*.parquet")]


def test_tables_in_a_bucket_are_published_where_they_are(bucket: BucketServer, tmp_path: Path) -> None:
    one, other = machine(tmp_path / "one"), machine(tmp_path / "other")
    one.ingest(_logs(tmp_path))
    published = {table.table: table for table in one.publish().tables}
    assert published["events"].folder == f"{URL}/tables/events"
    log = "/b/team/project/tables/events/_delta_log/00000000000000000000.json"
    added = [json.loads(line)["add"]["path"] for line in bucket.objects[log].body.splitlines() if b'"add"' in line]
    assert added
    assert {f"/b/team/project/tables/events/{path}" for path in added} <= set(bucket.objects)
    assert {table.version for table in other.publish().tables} == {0}
    for kept in bucket.objects.values():
        kept.modified = kept.modified.replace(year=2020)
    assert other.gc().count == 0  # a log is not an orphan
    other.ingest(_logs(tmp_path, 3, 4))
    assert {table.table: table.version for table in one.publish().tables}["events"] == 1


def test_of_two_commits_on_one_ground_the_second_is_refused(bucket: BucketServer, tmp_path: Path) -> None:
    stores = [Store(InBucket(tmp_path / str(number), _address())) for number in range(6)]
    stores[0].create()
    for store in stores[1:]:
        store.create()
        assert store.numbers("ingest") == []
    accepted = []
    for round_ in range(3):
        for number, store in enumerate(stores):
            try:
                store.commit("ingest", fingerprint={"of": number, "in": round_}, parts=(), funnel={})
            except BusyError:
                store.create()  # the next command looks again
            else:
                accepted.append((number, round_))
    documents = [json.loads(kept.body) for name, kept in sorted(bucket.objects.items()) if "/ingest/" in name]
    assert sorted((d["fingerprint"]["of"], d["fingerprint"]["in"]) for d in documents) == sorted(accepted)
    assert [d["number"] for d in sorted(documents, key=lambda d: d["number"])] == list(range(1, len(accepted) + 1))
    assert len(accepted) < 18


def test_an_own_commit_is_known_again_when_its_answer_was_lost(bucket: BucketServer, tmp_path: Path) -> None:
    store = Store(InBucket(tmp_path, _address()))
    store.create()
    bucket.loses_answer_of = put = "PUT /b/team/project/snapshots/ingest/1.json"
    assert store.commit("ingest", fingerprint={}, parts=(), funnel={}).number == 1
    assert bucket.asked.count(put) == 2


def test_google_s_storage_holds_a_store_and_logs_as_s3_does(
    bucket: BucketServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket.use_as_google(monkeypatch, tmp_path)
    one = machine(tmp_path / "one", "gs://b/team/project")
    one.ingest(_logs(tmp_path))
    one.build(select="links")
    one.build(select="episodes")
    other = machine(tmp_path / "other", "gs://b/team/project")
    assert other.query("SELECT count(*) AS n FROM episodes").to_pylist() == [{"n": 3}]
    bucket.put("/b/logs/3.jsonl", _logs(tmp_path, 3, 5)[0].read_bytes())
    assert other.ingest(["gs://b/logs"]).kept == 2
    assert one.ingest(["gs://b/logs"]).kept == 0  # which sees what the other one has stored
    assert other.store.numbers("ingest") == [1, 2]
    for kept in bucket.objects.values():
        kept.modified = kept.modified.replace(year=2020)
    assert one.gc(Kept(snapshots=1)).count > 0
    assert one.query("SELECT count(*) AS n FROM events").to_pylist() == [{"n": 5}]
    bucket.clear()
    bucket.lies = True
    with pytest.raises(BucketError, match="overwrites what it was asked only to create"):
        machine(tmp_path / "third", "gs://b/team/project").ingest(_logs(tmp_path))


def test_a_server_that_overwrites_is_refused_before_anything_is_written(bucket: BucketServer, tmp_path: Path) -> None:
    bucket.lies = True
    with pytest.raises(BucketError, match="overwrites what it was asked only to create"):
        machine(tmp_path / "one").ingest(_logs(tmp_path))
    assert bucket.names() == ["team/project/probe"]


def test_gc_holds_off_other_machines_and_takes_over_from_a_dead_one(bucket: BucketServer, tmp_path: Path) -> None:
    one, other = machine(tmp_path / "one"), machine(tmp_path / "other")
    for number in range(4):
        one.ingest(_logs(tmp_path, number, number + 1))
    assert one.store.numbers("ingest") == [1, 2, 3, 4]
    late = Store(InBucket(tmp_path / "late", _address()))
    late.create()
    place = other.store.place
    other.store.create()
    with place.alone("gc", ["ingest", "links"]):
        with pytest.raises(BusyError, match=r"`gc` on .* holds the lease"):
            one.ingest(_logs(tmp_path, 9, 10))
        with pytest.raises(BusyError, match="another machine has written a snapshot of `ingest`"):
            late.commit("ingest", fingerprint={}, parts=(), funnel={})
        with pytest.raises(BusyError, match="another machine has written a snapshot of `links`"):
            late.commit("links", fingerprint={}, parts=(), funnel={})
    lock = "/b/team/project/locks/1.json"
    claim = json.loads(bucket.objects[lock].body)
    bucket.put(lock, json.dumps({**claim, "until": "2100-01-01T00:00:00+00:00"}).encode())
    with pytest.raises(BusyError, match="holds the lease"):
        one.gc(Kept(snapshots=1))
    bucket.put(lock, json.dumps({**claim, "until": "2020-01-01T00:00:00+00:00"}).encode())
    answer = one.gc(Kept(snapshots=1))
    assert answer.count > 0
    assert one.store.numbers("ingest") == [6]
    assert "team/project/locks/2.json" in bucket.names()  # a higher number than the dead holder's
    assert one.query("SELECT count(*) AS n FROM events").to_pylist() == [{"n": 4}]
    assert other.ingest(_logs(tmp_path, 0, 1)).kept == 0
    assert dict(_cached(other)).keys() <= {name.removeprefix("team/project/tables/") for name in bucket.names()}


def test_forgetting_reaches_the_bucket(bucket: BucketServer, tmp_path: Path) -> None:
    project = machine(tmp_path / "one")
    project.ingest(_logs(tmp_path))
    project.build(select="links")
    project.build(select="episodes")
    before = {name for name in bucket.names() if "/tables/events/" in name or "/tables/episodes/" in name}
    everything = set(bucket.names())
    project.forget("u1@shop.example", dry_run=True)
    assert set(bucket.names()) <= {*everything, "/b/team/project/probe"}, "a dry run changes nothing"
    project.forget("u1@shop.example")
    assert not before & set(bucket.names())
    fresh = machine(tmp_path / "fresh")
    assert fresh.query("SELECT count(*) AS n FROM episodes").to_pylist() == [{"n": 2}]
    assert fresh.ingest(_logs(tmp_path, 1, 3)).forgotten == 1


@pytest.mark.usefixtures("bucket")
def test_a_move_counts_only_with_its_own_snapshot(tmp_path: Path) -> None:
    """Another machine's commit of the same number leaves the partitions as they were."""
    project = machine(tmp_path / "one")
    project.ingest(_logs(tmp_path))
    number = project.store.place.next("ingest")
    machine(tmp_path / "two").ingest(_logs(tmp_path, 3, 5))
    project.store._write_header(4, number, moved="by a holder whose lease had ended")
    assert machine(tmp_path / "three").store.partitions == 1


def test_what_else_is_in_a_bucket_leads_nowhere(bucket: BucketServer, tmp_path: Path) -> None:
    project = machine(tmp_path / "one")
    project.ingest(_logs(tmp_path))
    for lock in (b"[]", b'{"command": 1}', b"\xff"):
        bucket.put("/b/team/project/locks/1.json", lock)
        with pytest.raises(StoreError, match=r"locks/1\.json` is damaged"):
            project.gc()
    del bucket.objects["/b/team/project/locks/1.json"]
    bucket.put("/b/team/project/tables/../../../x/part-1.parquet", b"")
    with pytest.raises(BucketError, match="not a name that an object can have"):
        project.gc()


def test_a_store_in_a_bucket_is_asked_about_first(
    bucket: BucketServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FLYWHEEL_TRUST")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with pytest.raises(ConfigError, match="store = s3://b/team/project"):
        machine(tmp_path / "one")
    assert not bucket.asked


def _address() -> Address:
    where = address(URL)
    assert where is not None
    return where
