"""Logs in a bucket, served by a real server over HTTP."""

from __future__ import annotations

import gzip
import io
import json
import sqlite3
import tarfile
import zipfile
from pathlib import Path

import polars as pl
import pytest
from flywheel import Project
from flywheel.config import Config, IngestConfig
from flywheel.errors import BucketError, ConfigError, IngestError
from flywheel.io.bucket_path import BucketPath, source_path
from flywheel.stages.ingest.discovery import discover
from tests.bucket_server import ACCESS, SECRET, BucketServer

pytest.importorskip("obstore")

OTHER = ["source_file", "event_id"]


def _line(number: int, more: str = "") -> bytes:
    message = {"role": "user", "content": f"Where is order {number}?{more}"}
    answer = {"choices": [{"message": {"role": "assistant", "content": f"In Lyon, {number}."}}]}
    return (json.dumps({"id": f"r{number}", "request": {"messages": [message]}, "response": answer}) + "\n").encode()


def _logs() -> dict[str, bytes]:
    """Return logs of every kind of file, by name."""
    rows = [_line(number) for number in range(60)]
    packed, members = io.BytesIO(), io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("inside.jsonl", b"".join(rows[20:30]))
    with tarfile.open(fileobj=members, mode="w:gz") as archive:
        member = tarfile.TarInfo("inside.jsonl")
        member.size = len(b"".join(rows[30:40]))
        archive.addfile(member, io.BytesIO(b"".join(rows[30:40])))
    kept = sqlite3.connect(":memory:")
    kept.execute("CREATE TABLE calls (id TEXT, request TEXT, response TEXT)")
    values = (json.loads(row) for row in rows[50:55])
    kept.executemany(
        "INSERT INTO calls VALUES (?, ?, ?)",
        [(r["id"], json.dumps(r["request"]), json.dumps(r["response"])) for r in values],
    )
    kept.commit()
    table = io.BytesIO()
    pl.DataFrame([json.loads(row) for row in rows[40:50]]).write_parquet(table)
    return {
        "2026/plain.jsonl": b"".join(rows[:10]),
        "2026/packed.jsonl.gz": gzip.compress(b"".join(rows[10:20]), mtime=0),
        "2026/deep/down.zip": packed.getvalue(),
        "all.tar.gz": members.getvalue(),
        "table.parquet": table.getvalue(),
        "kept.db": kept.serialize(),
        ".hidden.jsonl": b"".join(rows[55:]),
    }


def _read(project: Project) -> pl.DataFrame:
    events = project.store.table("events", "ingest").collect()
    return events.with_columns(pl.col("source_file").str.replace("^s3://b/", "")).sort("source_file", "source_line")


def test_logs_in_a_bucket_are_read_as_those_in_a_folder_and_once(bucket: BucketServer, tmp_path: Path) -> None:
    here, there = Project(_made(tmp_path / "here")), Project(_made(tmp_path / "there"))
    for name, content in _logs().items():
        bucket.put(f"/b/logs/{name}", content)
        path = here.folder / "logs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    (here.folder / ".flywheel.key").write_text("the same key")
    (there.folder / ".flywheel.key").write_text("the same key")
    expected = here.ingest([here.folder / "logs"])
    answer = there.ingest(["s3://b/logs"])
    assert (answer.read, answer.kept, answer.files) == (expected.read, expected.kept, expected.files) == (55, 55, 6)
    assert _read(there).drop(OTHER, strict=False).equals(_read(here).drop(OTHER, strict=False))
    assert "s3://b/logs/2026/plain.jsonl" in there.store.current("ingest").extra["sources"]  # type: ignore[union-attr]
    assert not any("logs" in path.name for path in there.folder.rglob("*"))  # nothing unredacted on the disk

    number = there.store.numbers("ingest")
    bucket.asked.clear()
    assert there.ingest(["s3://b/logs/"]).unchanged == 6
    assert bucket.asked == ["HEAD /b/logs", "GET /b"]  # the list has the tags; no object is read
    assert there.store.numbers("ingest") == number

    grown = bucket.objects["/b/logs/2026/plain.jsonl"].body + _line(70)
    bucket.put("/b/logs/2026/plain.jsonl", grown)
    bucket.put("/b/logs/moved.jsonl.gz", bucket.objects.pop("/b/logs/2026/packed.jsonl.gz").body)
    answer = there.ingest(["s3://b/logs/*/*.jsonl", "s3://b/logs/moved.jsonl.gz"])
    assert (answer.read, answer.kept, answer.duplicate, answer.unchanged) == (1, 1, 0, 1)
    found = discover([source_path("s3://b/logs/**/down.*"), source_path("s3://b/*/2026")])
    assert [str(path) for path in found] == ["s3://b/logs/2026/deep/down.zip", "s3://b/logs/2026/plain.jsonl"]


def test_large_objects_are_read_in_pieces_and_never_of_two_versions(bucket: BucketServer, tmp_path: Path) -> None:
    rows = b"".join(_line(number, " Please!" * 9_000) for number in range(20))
    bucket.put("/b/large.jsonl", rows)
    assert len(rows) > 1 << 20
    swapped: list[str] = []

    def swap(request: str) -> None:
        if request == "GET /b/large.jsonl" and bucket.asked.count(request) == 1 and not swapped:
            swapped.append(request)
            bucket.put("/b/large.jsonl", rows.replace(b"Lyon", b"Rome"))

    bucket.before = swap
    project = Project(tmp_path)
    try:
        with pytest.raises(BucketError, match="was changed while it was read"):
            project.ingest(["s3://b/large.jsonl"])
    finally:
        bucket.before = lambda _: None
    assert project.store.current("ingest") is None
    assert project.ingest(["s3://b/large.jsonl"]).kept == 20
    assert set(_read(project)["source_line"]) == set(range(1, 21))


def test_refusals_tell_what_to_do_and_no_secret(bucket: BucketServer, tmp_path: Path) -> None:
    project = Project(tmp_path)
    with pytest.raises(IngestError, match="`s3://b/none` holds nothing"):
        project.ingest(["s3://b/none"])
    bucket.refuses = True
    with pytest.raises(BucketError, match="`s3://b/logs` is refused") as refused:
        project.ingest(["s3://b/logs/"])
    told = f"{refused.value.message} {refused.value.hint} {refused.value.__cause__}"
    assert ACCESS not in told
    assert SECRET not in told


def test_a_bucket_that_a_configuration_names_is_asked_about_first(
    bucket: BucketServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FLYWHEEL_TRUST", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    config = Config(ingest=IngestConfig(sources=["s3://b/logs"]))
    with pytest.raises(ConfigError, match=r"ingest\.sources = s3://b/logs"):
        Project(tmp_path, config=config)
    assert not bucket.asked


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def test_what_a_source_covers_is_asked_for_and_no_other_bucket() -> None:
    def covers(source: str, other: str) -> bool:
        return BucketPath(source).covers(BucketPath(other))

    assert covers("s3://b/logs/*.jsonl", "s3://b/logs/a.jsonl")
    assert covers("s3://b/logs", "s3://b/logs/x/a.jsonl")
    assert covers("s3://b", "s3://b/logs/a.jsonl")
    assert not covers("s3://b/logs", "s3://b/logs-private/a.jsonl")
    assert not covers("s3://b", "s3://b-other/a.jsonl")
