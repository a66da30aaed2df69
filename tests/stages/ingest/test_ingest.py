"""The whole way of a log: nothing lost, nothing twice, whatever the order and however it grows."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
import zstandard
from flywheel.config import IngestConfig
from flywheel.contracts import conform
from flywheel.records import LogEvent, Quarantined
from flywheel.stages.ingest.dedup import Ids, dedup
from flywheel.stages.ingest.discovery import discover
from flywheel.stages.ingest.events import ingest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

if TYPE_CHECKING:
    from flywheel.extensions import Reader

Take = Callable[..., Any]
NONE = Ids()
WHERE = ["source_file", "source_line"]


def facts(events: pl.DataFrame) -> pl.DataFrame:
    """Events without where they were found."""
    return dedup(events, NONE).drop(WHERE).sort("event_id")


def test_every_layout_and_packing_gives_the_same_events(tmp_path: Path, take: Take, pairs: Callable[..., Any]) -> None:
    records = pairs()
    lines = "".join(json.dumps(r) + "\n" for r in records).encode()
    packed = {
        "lines.jsonl": lines,
        "array.json": json.dumps(records, indent=1).encode(),
        "packed.log": gzip.compress(lines),
        "packed.json": zstandard.compress(json.dumps(records).encode()),
    }
    found = []
    for name, content in packed.items():
        (tmp_path / name).write_bytes(content)
        taken = take(tmp_path / name)
        assert (taken.read, taken.quarantined.height, taken.states[name].format) == (6, 0, "openai")
        found.append(facts(taken.events))
    frame = pl.DataFrame({k: [json.dumps(r[k]) for r in records] for k in ("request", "response", "metadata")})
    frame.with_columns(timestamp=pl.Series([r["timestamp"] for r in records])).write_parquet(tmp_path / "rows")
    found.append(facts(take(tmp_path / "rows").events))
    assert found[0].height == 6
    assert all(f.equals(found[0]) for f in found)


def test_frames_fit_the_contract(write: Callable[..., Path], take: Take, pairs: Callable[..., Any]) -> None:
    write("a.jsonl", [*pairs(), {"request": {"messages": 7}, "response": {"choices": [{"message": {}}]}}])
    taken = take()
    assert conform(taken.events, LogEvent).collect().height == 6
    assert conform(taken.quarantined, Quarantined).collect().height == 1
    assert taken.adds_up()


def test_reading_twice_is_reading_once(write: Callable[..., Path], take: Take, pairs: Callable[..., Any]) -> None:
    path = write("a.jsonl", pairs())
    first = take()
    assert take(known=first.states).read == 0
    path.rename(path.with_name("b.jsonl"))
    assert take(known=first.states).read == 0, "a renamed file is known by its content"
    again = take()
    known = Ids()
    known.add(first.events["event_id"])
    assert dedup(again.events, known).height == 0


def test_the_order_of_files_does_not_matter(
    write: Callable[..., Path], tmp_path: Path, readers: Mapping[str, Reader], pairs: Callable[..., Any]
) -> None:
    write("a.jsonl", pairs(2, 2))
    write("b.jsonl", pairs(3, 2))
    files = discover([tmp_path])
    frames = []
    for order in (files, files[::-1]):
        batches = list(ingest(order, root=tmp_path, known={}, cfg=IngestConfig(), key=b"k", readers=readers))
        frames.append(dedup(pl.concat([b.events for b in batches]), NONE))
    assert frames[0].equals(frames[1])
    assert frames[0].height == 6


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cut=st.integers(0, 6))
def test_a_file_cut_between_lines_is_the_whole(cut: int, tmp_path: Path, take: Take, pairs: Callable[..., Any]) -> None:
    shutil.rmtree(tmp_path)
    tmp_path.mkdir()
    records = pairs()
    for name, part in (("whole", records), ("one", records[:cut]), ("two", records[cut:])):
        (tmp_path / name).write_text("".join(json.dumps(r) + "\n" for r in part))
    whole = take(tmp_path / "whole")
    parts = take(tmp_path / "one", tmp_path / "two")
    assert parts.read == whole.read
    assert facts(parts.events).equals(facts(whole.events))


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_file_cut_at_any_two_bytes_and_given_in_pieces_is_the_whole(
    data: st.DataObject, tmp_path: Path, take: Take, pairs: Callable[..., Any]
) -> None:
    shutil.rmtree(tmp_path)
    tmp_path.mkdir()
    content = "".join(json.dumps(r) + "\n" for r in pairs()).encode()
    ends = sorted(data.draw(st.lists(st.integers(0, len(content)), min_size=2, max_size=2)))
    cuts = [0, *ends, len(content)]
    paths = [tmp_path / f"x{letter}" for letter in "abc"]
    for path, start, end in zip(paths, cuts, cuts[1:], strict=False):
        path.write_bytes(content[start:end])
    (tmp_path / "whole").write_bytes(content)
    whole = facts(take(tmp_path / "whole").events)
    together = take(*paths)
    assert together.adds_up()
    assert facts(together.events).equals(whole)
    known: dict[str, Any] = {}
    one_by_one = []
    for path in paths:
        taken = take(path, known=known)
        known.update(taken.states)
        one_by_one.append(taken.events)
    assert facts(pl.concat([e for e in one_by_one if e.height])).equals(whole)


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cuts=st.lists(st.integers(0, 2000), min_size=1, max_size=3))
def test_a_log_that_grows_by_any_bytes_is_the_whole(
    cuts: list[int], tmp_path: Path, take: Take, pairs: Callable[..., Any]
) -> None:
    content = "".join(json.dumps(r) + "\n" for r in pairs()).encode()
    path, seen = tmp_path / "growing.jsonl", []
    known: dict[str, Any] = {}
    for end in [*sorted(cuts), len(content)]:
        path.write_bytes(content[:end])
        taken = take(path, known=known)
        known.update(taken.states)
        seen.append(taken.events)
    path.write_bytes(content)
    frames = [e for e in seen if e.height]
    assert dedup(pl.concat(frames), NONE).equals(dedup(take(path).events, NONE))


def test_growth_is_read_from_where_it_began(write: Callable[..., Path], take: Take, pairs: Callable[..., Any]) -> None:
    path = write("a.jsonl", pairs(1, 3))
    first = take()
    with path.open("a") as log:
        log.writelines(json.dumps(r) + "\n" for r in pairs(2, 3)[3:])
    second = take(known=first.states)
    assert (second.read, second.events["source_line"].to_list()) == (3, [4, 5, 6])
    assert second.states["a.jsonl"].records == 6
    assert take(known=second.states).read == 0
    path.write_text(path.read_text().replace("question", "QUESTION"))
    assert take(known=second.states).read == 6, "a file that was changed is read anew"


def test_what_is_no_log_is_told_apart(
    tmp_path: Path, write: Callable[..., Path], take: Take, pairs: Callable[..., Any]
) -> None:
    write("good.jsonl", pairs(1, 1))
    (tmp_path / "README.md").write_text("# Logs")
    (tmp_path / "empty.jsonl").write_text("")
    (tmp_path / "tools.json").write_text(json.dumps([{"type": "function", "function": {"name": "f"}}] * 2))
    (tmp_path / "photo.jpg").write_bytes(bytes(range(256)))
    write("orders.jsonl", [{"order": 7, "geheim": "x"}] * 3)
    taken = take()
    assert taken.ignored == {"text document": 1, "tool schemas": 2}
    rows = {r["source_file"]: r for r in taken.quarantined.iter_rows(named=True)}
    assert {name: row["reason"] for name, row in rows.items()} == dict.fromkeys(
        ["orders.jsonl", "photo.jpg"], "unknown_format"
    )
    assert "geheim, order" in rows["orders.jsonl"]["detail"]
    assert "'x'" not in rows["orders.jsonl"]["detail"]
    assert taken.read == 6
    assert take(known=taken.states).read == 0


def test_one_bad_line_costs_one_line(tmp_path: Path, take: Take, pairs: Callable[..., Any]) -> None:
    lines = [json.dumps(r) for r in pairs()]
    lines[2:2] = [
        "{broken",
        '{"request":{"messages":[{"role":"x"}]},"response":{"choices":[{"message":{}}]}}',
        '{"a":"\udcff"}',
    ]
    (tmp_path / "a.jsonl").write_bytes("\n".join(lines).encode("utf-8", "surrogateescape"))
    taken = take()
    assert taken.adds_up()
    assert sorted(zip(taken.quarantined["source_line"], taken.quarantined["reason"], strict=True)) == [
        (3, "bad_json"),
        (4, "bad_record"),
        (5, "bad_encoding"),
    ]


@pytest.mark.slow
def test_batches_are_bounded_and_the_last_has_the_state(
    write: Callable[..., Path], tmp_path: Path, readers: Mapping[str, Reader], pairs: Callable[..., Any]
) -> None:
    path = write("a.jsonl", [r | {"feedback": {"value": 1}} for r in pairs(5500, 2)])
    batches = list(ingest([path], root=tmp_path, known={}, cfg=IngestConfig(), key=b"k", readers=readers))
    assert len(batches) > 1
    assert all(b.read * 400 < 5_000_000 for b in batches)
    assert [len(b.states) for b in batches] == [0] * (len(batches) - 1) + [1]
    assert sum(b.read for b in batches) == 11_000


def test_many_small_files_are_one_batch(
    tmp_path: Path, readers: Mapping[str, Reader], pairs: Callable[..., Any]
) -> None:
    for number, record in enumerate(pairs(10, 3)):
        (tmp_path / f"{number:02}.json").write_text(json.dumps(record, indent=1))
    files = discover([tmp_path])
    (batch,) = ingest(files, root=tmp_path, known={}, cfg=IngestConfig(), key=b"k", readers=readers)
    assert (batch.read, len(batch.states), batch.events["source_file"].n_unique()) == (30, 30, 30)


def test_nothing_of_a_person_leaves(write: Callable[..., Path], take: Take, pairs: Callable[..., Any]) -> None:
    (record,) = pairs(1, 1)
    record["request"]["messages"][1]["content"] = "I am joe@example.com, +49 30 1234567"
    record["request"]["user"] = "joe"
    record["metadata"]["session_id"] = "joe@example.com"
    write("a.jsonl", [record])
    taken = take()
    row = taken.events.row(0, named=True)
    text = json.dumps({k: str(v) for k, v in row.items()})
    assert not [word for word in ("joe", "1234567") if word in text]
    assert row["conversation_id"] in row["payload"]
    assert taken.redacted == {"email": 2, "phone": 1}


def test_a_named_format_is_used_without_guessing(write: Callable[..., Path], take: Take) -> None:
    write("a.jsonl", [{"order": 7}])
    taken = take(cfg=IngestConfig(format="native"))
    assert taken.quarantined["detail"].to_list() == ["order: unknown field"]
    assert taken.quarantined["source_format"].to_list() == ["native"]


def test_the_four_sample_dialects_are_read_whole(sample_logs: Path, take: Take) -> None:
    expected = json.loads((sample_logs.parent / "examples" / "warehouse" / "expected.json").read_text())
    taken = take(*sorted(sample_logs.glob("*.jsonl*")), root=sample_logs)
    assert {"native", "openai", "otel", "anthropic"} == {state.format for state in taken.states.values()}
    assert taken.read == sum(expected["lines"].values())
    assert set(taken.quarantined["reason"]) <= {"bad_json"}
    assert taken.quarantined.height == expected["unreadable_lines"]
    assert taken.events["conversation_id"].n_unique() == expected["episodes"]
    assert not taken.ignored
    assert taken.adds_up()
