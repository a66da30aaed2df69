"""Reading files again: what an older reader made of them is named, and replaced as a whole or not at all."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from flywheel.errors import UsageError
from flywheel.store import Store
from tests.pipeline.ingest.test_run import LINES, adds_up, events, line, run


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "a.jsonl").write_text("".join(LINES[:10]))
    (tmp_path / "logs" / "b.jsonl").write_text("".join(LINES[10:]))
    return tmp_path


def age(project: Path) -> None:
    """Make the store one that the version before this one wrote."""
    newest = max((project / ".flywheel" / "snapshots" / "ingest").glob("*.json"), key=lambda path: int(path.stem))
    snapshot = json.loads(newest.read_text())
    snapshot["fingerprint"]["readers"]["native"] -= 1
    for state in snapshot["extra"]["sources"].values():
        del state["version"], state["offset_records"]
    newest.write_text(json.dumps(snapshot))


def lose(project: Path) -> None:
    """Take one of the stored events away, as a reader would that did not see it."""
    store = Store(project / ".flywheel")
    snapshot = store.current("ingest")
    assert snapshot is not None
    rows = store.table("events", "ingest").collect()[1:]
    others = [part for part in snapshot.parts if part.table != "events"]
    new = [store.write("events", rows.filter(rows["conversation_id"] == c), partition=store.partition(c))
           for c in rows["conversation_id"].unique()]  # fmt: skip
    parts = [*others, *(part for part in new if part is not None)]
    store.commit("ingest", fingerprint=snapshot.fingerprint, parts=parts, funnel=snapshot.funnel, extra=snapshot.extra)


def test_what_an_older_reader_read_is_named_and_replaced(project: Path) -> None:
    store, first = run(project)
    whole = events(store)
    assert not first.older
    lose(project)
    age(project)
    store, again = run(project)
    assert [(row.reader, row.files, row.now - row.read_with) for row in again.older] == [("native", 2, 1)]
    assert len(events(store)) == len(whole) - 1
    store, dry = run(project, paths=[], reread=True, dry_run=True)
    assert (dry.replaced, len(events(store))) == (19, 19)
    store, reread = run(project, paths=[], reread=True)
    assert (reread.replaced, reread.read, reread.kept, reread.older) == (19, 20, 20, [])
    assert adds_up(reread)
    assert events(store) == whole
    with pytest.raises(UsageError, match="no file was read by an older reader"):
        run(project, paths=[], reread=True)


def test_a_named_file_is_read_again_whatever_read_it(project: Path) -> None:
    store, _ = run(project)
    before = store.table("events", "ingest").collect().sort("event_id")
    store, reread = run(project, paths=[project / "logs" / "a.jsonl"], reread=True)
    assert (reread.replaced, reread.events) == (10, 10)
    assert store.table("events", "ingest").collect().sort("event_id").equals(before)


def test_events_of_a_file_that_holds_something_else_now_stay(project: Path) -> None:
    store, _ = run(project)
    whole = events(store)
    (project / "logs" / "a.jsonl").write_text(line("new", 0, "another log under this name"))
    store, reread = run(project, reread=True)
    assert [(row.path, row.why) for row in reread.not_read] == [
        ("logs/a.jsonl", "its events stay: it no longer begins with what was read of it")
    ]
    assert set(events(store)) > set(whole)


def test_what_a_file_held_before_it_was_overwritten_stays(project: Path) -> None:
    """Of an older store it is not known whether that happened, so what is stored is compared with what is read."""
    log = project / "logs" / "a.jsonl"
    run(project)
    log.write_text("".join(line(f"day two {n}", 0, "another question") for n in range(3)))
    store, _ = run(project)
    whole = events(store)
    age(project)
    store, reread = run(project, paths=[], reread=True)
    assert [(row.path, row.why) for row in reread.not_read] == [
        ("logs/a.jsonl", "its events stay: it no longer holds all that was read under its name")
    ]
    assert events(store) == whole


@pytest.mark.parametrize("now", [0, 3, 8])
def test_what_a_conversation_had_before_its_file_was_overwritten_stays(project: Path, now: int) -> None:
    """One conversation goes on behind a rotation, in fewer or more lines; or the file is only emptied."""
    log = project / "logs" / "a.jsonl"
    log.write_text("".join(line("long", n, f"before {n}") for n in range(5)))
    run(project)
    log.write_text("".join(line("long", 5 + n, f"after {n}") for n in range(now)))
    store, _ = run(project)
    whole = events(store)
    store, reread = run(project, paths=[log], reread=True)
    assert ([row.path for row in reread.not_read], reread.replaced) == (["logs/a.jsonl"], 0)
    assert events(store) == whole


def test_a_file_that_is_written_anew_with_all_that_it_held_is_replaced(project: Path) -> None:
    log = project / "logs" / "a.jsonl"
    run(project)
    log.write_text("".join([line("first", 0, "now at the beginning"), *LINES[:10]]))
    store, _ = run(project)
    whole = events(store)
    store, reread = run(project, paths=[log], reread=True)
    assert (reread.not_read, reread.replaced, len(events(store))) == ([], 11, len(whole))


def test_events_of_a_file_that_cannot_be_read_any_more_stay(project: Path) -> None:
    store, _ = run(project)
    whole = events(store)
    with (project / "logs" / "a.jsonl").open("a") as log:
        log.write("{broken}\n" * 30)
    store, reread = run(project, reread=True)
    assert reread.replaced == 10
    assert [row.path for row in reread.not_read] == ["logs/a.jsonl"]
    assert events(store) == whole


def test_a_log_that_was_rotated_is_not_counted_twice(project: Path) -> None:
    run(project)
    (project / "logs" / "a.jsonl").rename(project / "logs" / "a.jsonl.1")
    with (project / "logs" / "a.jsonl.1").open("a") as log:
        log.write(line("late", 30, "the last line before it was rotated"))
    run(project)
    store, reread = run(project, paths=[project / "logs" / "a.jsonl.1"], reread=True)
    assert [row.why for row in reread.not_read] == ["its events stay: its beginning was read under another name"]
    assert len(events(store)) == 21
