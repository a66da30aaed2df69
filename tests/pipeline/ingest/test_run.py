"""From files to the events table: idempotent, order-free, counted, nothing stored when too much is unreadable."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from flywheel import Project
from flywheel.config import Config
from flywheel.errors import IngestError, StoreError
from flywheel.pipeline.ingest.run import ingest_logs
from flywheel.store import Store

if TYPE_CHECKING:
    from flywheel.results.data import IngestAnswer

KEY = b"k"


def line(conversation: str, seq: int, text: str) -> str:
    event = {
        "conversation_id": conversation,
        "seq": seq,
        "ts": f"2026-10-01T00:00:{seq:02d}Z",
        "kind": "request",
        "payload": {"messages": [{"role": "user", "content": text}]},
    }
    return json.dumps(event) + "\n"


LINES = [line(f"c{n % 5}", n, f"question {n}") for n in range(20)]


def run(project: Path, **changes: Any) -> tuple[Store, IngestAnswer]:
    store = Store(project / ".flywheel")
    store.create()
    config = Config.model_validate({"ingest": changes.pop("ingest", {})})
    paths = changes.pop("paths", [project / "logs"])
    return store, ingest_logs(store, config, project, paths, key=KEY, **changes)


def events(store: Store) -> list[str]:
    return sorted(store.table("events", "ingest").collect()["event_id"].to_list())


def adds_up(result: IngestAnswer) -> bool:
    bad = sum(result.quarantined.values()) + sum(result.ignored.values())
    return result.read == result.kept + result.duplicate + bad


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "a.jsonl").write_text("".join(LINES))
    return tmp_path


def test_twice_is_once(project: Path) -> None:
    store, first = run(project)
    again_store, again = run(project)

    assert (first.read, first.kept, first.events) == (20, 20, 20)
    assert (again.read, again.kept, again.unchanged) == (0, 0, 1)
    assert events(store) == events(again_store)
    assert store.numbers("ingest") == [1]
    assert adds_up(first)


def test_the_same_events_in_another_file_are_duplicates(project: Path) -> None:
    run(project)
    with gzip.open(project / "logs" / "copy.jsonl.gz", "wt") as handle:
        handle.writelines(["\n", *LINES])
    store, result = run(project)

    assert (result.read, result.kept, result.duplicate) == (20, 0, 20)
    assert len(events(store)) == 20
    assert adds_up(result)


def test_duplicates_are_found_among_stored_parts_and_among_those_of_the_same_run(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(project)
    (project / "logs" / "b.jsonl").write_text("".join([*LINES[5:], line("c1", 30, "new"), line("c9", 31, "new")]))
    (project / "logs" / "c.jsonl").write_text("".join([line("c9", 31, "new"), line("c2", 32, "newer")]))
    monkeypatch.setattr("flywheel.stages.ingest.batches._RECORDS", 4)  # every block is written as it comes
    monkeypatch.setattr("flywheel.pipeline.ingest.intake._FLUSH_BYTES", 1)
    assert run(project, dry_run=True)[1].duplicate == len(LINES) - 5 + 1
    store, result = run(project)
    assert (result.read, result.kept, result.duplicate, result.events) == (len(LINES) - 5 + 4, 3, len(LINES) - 5 + 1, 3)
    assert len(set(events(store))) == len(events(store)) == len(LINES) + 3


def test_the_same_content_packed_or_rotated_is_not_read_again(project: Path) -> None:
    run(project)
    log = project / "logs" / "a.jsonl"
    (project / "logs" / "a.jsonl.gz").write_bytes(gzip.compress(log.read_bytes()))
    log.rename(log.with_name("a.jsonl.1"))
    log.write_text(line("c9", 30, "after the rotation"))
    store, result = run(project)

    assert (result.files, result.unchanged, result.read, result.kept) == (3, 2, 1, 1)
    assert len(events(store)) == 21


def test_lines_written_just_before_a_rotation_are_read_under_the_new_name(project: Path) -> None:
    run(project)
    log = project / "logs" / "a.jsonl"
    log.write_text(log.read_text() + line("c9", 30, "just before"))
    log.rename(log.with_name("a.jsonl.1"))
    _, result = run(project)

    assert (result.read, result.kept) == (1, 1)


@pytest.mark.slow
def test_many_small_parts_are_put_together(project: Path) -> None:
    log = project / "logs" / "a.jsonl"
    for number in range(40):
        with log.open("a") as handle:
            handle.write(line("c9", number, "more"))
        store, _ = run(project)
    snapshot = store.current("ingest")
    assert snapshot is not None
    assert sum(p.partition == store.partition("c9") for p in snapshot.parts) < 33
    assert len(events(store)) == 60


def test_a_grown_file_gives_only_its_new_lines(project: Path) -> None:
    run(project)
    with (project / "logs" / "a.jsonl").open("a") as handle:
        handle.write(line("c9", 99 % 60, "new"))
    store, result = run(project)

    assert (result.events, result.kept) == (1, 1)
    assert len(events(store)) == 21


def test_cut_in_pieces_in_any_order_equals_the_whole(project: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    whole, _ = run(project)
    pieces = tmp_path_factory.mktemp("pieces")
    (pieces / "logs").mkdir()
    for name, part in (("z", LINES[:7]), ("m", LINES[7:9]), ("a", LINES[9:])):
        (pieces / "logs" / f"{name}.jsonl").write_text("".join(part))
    cut, _ = run(pieces)

    assert events(cut) == events(whole)
    rows = "ts", "seq", "conversation_id", "kind", "payload"
    frames = [s.table("events", "ingest").select(rows).collect().sort(rows) for s in (whole, cut)]
    assert frames[0].equals(frames[1])


def test_a_few_bad_lines_are_quarantined_with_file_and_line(project: Path) -> None:
    (project / "logs" / "a.jsonl").write_text("".join(LINES[:10]) + '{"cut": \n' + "".join(LINES[10:]))
    store, result = run(project)

    row = store.table("quarantine", "ingest").collect().row(0, named=True)
    assert (row["source_file"], row["source_line"]) == ("logs/a.jsonl", 11)
    assert sum(result.quarantined.values()) == 1
    assert result.first_quarantined[0].startswith("logs/a.jsonl:11: ")
    assert adds_up(result)


def test_too_many_bad_lines_store_nothing_and_say_which(project: Path) -> None:
    (project / "logs" / "a.jsonl").write_text("".join(LINES) + "not json, private words\n" * 5)

    with pytest.raises(IngestError, match="5 of 25 records are unreadable") as caught:
        run(project)
    assert "logs/a.jsonl:21" in caught.value.message
    assert "private" not in caught.value.message
    assert Store(project / ".flywheel").current("ingest") is None
    _, result = run(project, ingest={"max_quarantine": 0.5})
    assert sum(result.quarantined.values()) == 5


def test_a_truncated_gzip_keeps_what_is_readable(project: Path) -> None:
    packed = gzip.compress("".join(LINES).encode())
    (project / "logs" / "a.jsonl").unlink()
    many = gzip.compress("".join(line("big", n, f"{n} {n * 7919}") for n in range(60)).encode())
    (project / "logs" / "b.jsonl.gz").write_bytes(many[: len(many) * 3 // 4])
    (project / "logs" / "c.jsonl.gz").write_bytes(packed)
    store, result = run(project)

    assert 20 < len(events(store)) < 80
    assert result.quarantined["truncated"] == 1
    assert adds_up(result)


def test_an_empty_folder_and_a_missing_path_are_errors_with_hints(project: Path) -> None:
    (project / "logs" / "a.jsonl").unlink()
    for paths in ([project / "logs"], [project / "nowhere"]):
        with pytest.raises(IngestError) as caught:
            run(project, paths=paths)
        assert caught.value.hint


def test_an_unknown_file_is_quarantined_and_named(project: Path) -> None:
    (project / "logs" / "b.jsonl").write_text('{"colour": "red"}\n')
    store, result = run(project, ingest={"max_quarantine": 0.5})

    assert result.quarantined == {"unknown_format": 1}
    detail = store.table("quarantine", "ingest").collect()["detail"].to_list()[0]
    assert "red" not in detail
    assert adds_up(result)


def test_a_dry_run_stores_nothing(project: Path) -> None:
    store, result = run(project, dry_run=True)

    assert result.events == 20
    assert store.current("ingest") is None


def test_a_store_that_cannot_be_written_is_an_error_with_a_hint(tmp_path: Path, project: Path) -> None:
    """A file stands where the store's tables should be: refused for every user, root too."""
    store = Store(project / ".flywheel")
    store.create()
    (project / ".flywheel" / "tables").write_text("in the way")
    with pytest.raises(StoreError) as caught:
        run(project)
    assert caught.value.hint
    shutil.rmtree(project / ".flywheel")
    assert tmp_path == project


def test_values_are_redacted_before_they_are_stored(project: Path) -> None:
    secret = "sk-proj-" + "a1B2c3D4" * 5
    (project / "logs" / "b.jsonl").write_text(line("pii", 1, f"mail jane.roe@example.org, key {secret}"))
    store, result = run(project)

    everything = b"".join(p.read_bytes() for p in store.root.rglob("*") if p.is_file())
    text = " ".join(store.table("events", "ingest").collect()["payload"].to_list())
    assert "jane.roe" not in text
    assert secret not in text
    assert b"jane.roe" not in everything
    assert result.redacted["email"] == 1
    assert result.redacted["secret"] == 1


def test_a_configured_source_that_is_not_there_is_named_as_such(tmp_path: Path) -> None:
    with pytest.raises(IngestError, match=r"which `ingest.sources` names, does not exist") as caught:
        Project(tmp_path).ingest()
    assert "flywheel ingest PATH" in caught.value.hint
    with pytest.raises(IngestError, match="does not exist") as caught:
        Project(tmp_path).ingest([tmp_path / "logs"])
    assert "ingest.sources" not in caught.value.message


def test_a_path_that_is_not_there_stops_no_other(project: Path) -> None:
    store, answer = run(project, paths=[project / "nowhere.jsonl", project / "logs"])
    assert len(events(store)) == len(LINES)
    assert [(Path(one.source).name, one.files, one.reason) for one in answer.refused] == [
        ("nowhere.jsonl", 0, "it does not exist")
    ]


def test_the_first_row_of_a_table_without_names_is_stored_nowhere(project: Path) -> None:
    (project / "logs" / "people.csv").write_text("zqxalice,17,zqxillness,zqxtown\nbob,18,flu,rome\n")
    store, answer = run(project)
    assert [one.detail for one in answer.set_aside] == [
        "no reader knows its records: a table of 4 columns, none of a name that a log has"
    ]
    stored = b"".join(path.read_bytes() for path in store.root.rglob("*") if path.is_file())
    assert b"zqx" not in stored
    (project / "logs" / "people.csv").write_text("name,age,illness,town,user_id\nbob,18,flu,rome,7\n")
    assert "their fields: age, illness, name" in run(project)[1].set_aside[0].detail
