"""Blocks and batches: bounded, complete, with counts that add up."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

from flywheel.contracts import conform
from flywheel.records import LogEvent, Quarantined
from flywheel.stages.ingest.batches import Batch, BlockBuilder, Counts, Segment
from flywheel.stages.ingest.framing.framed import Bad, Raw
from flywheel.stages.ingest.sources import SourceState


def row(event_id: str) -> tuple[Any, ...]:
    return (event_id, None, 0, "c", None, None, "request", *[None] * 6, [], None, "{}", "native", "f", 1, None)


def test_a_batch_fits_the_contract() -> None:
    counts = Counts(read=3, bad=[(Segment("f", "native"), Bad(3, "bad_json", "d", 5, "h"))])
    counts.ignored["no reason"] += 1
    batch = Batch.of(list(zip(row("a"), row("b"), strict=True)), counts, {"email": 1}, {})
    assert conform(batch.events, LogEvent).collect()["event_id"].to_list() == ["a", "b"]
    assert conform(batch.quarantined, Quarantined).collect().row(0) == ("f", 3, "native", "bad_json", "d", 5, "h")
    assert (batch.read, batch.ignored, batch.redacted) == (3, {"no reason": 1}, {"email": 1})


def test_a_block_is_full_by_records_or_by_bytes_and_the_file_goes_on_in_the_next() -> None:
    filled = []
    for count, size in ((19_999, 1), (20_000, 1), (3, 2_000_000)):
        builder = BlockBuilder()
        builder.open("f", "native", {"policy": "p"})
        filled.append([block for n in range(count) if (block := builder.add(Raw(n, b"x" * size, n)))])
        rest = builder.take()
        assert [(s.path, s.format, s.columns) for s in rest.segments] == [("f", "native", {"policy": "p"})]
    assert [len(blocks) for blocks in filled] == [0, 1, 1]


def test_files_that_end_in_a_block_are_named_there() -> None:
    builder = BlockBuilder()
    for name in ("one", "two"):
        builder.open(name, "native", {})
        builder.add(Raw(1, b"{}", 1))
        builder.close(SourceState(name, "native", 2, "h", 1))
    block = builder.take()
    assert [len(segment.records) for segment in block.segments] == [1, 1]
    assert [state.path for state in block.states] == ["one", "two"]
    assert builder.take().segments == []


def test_times_keep_their_instant_and_ids_their_row() -> None:
    times = [
        datetime(2026, 1, 1, 1, 2, 3, 456789, tzinfo=timezone(timedelta(hours=2))),
        None,
        datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
    ]
    ids = [["trace:a", "response:b"], [], ["trace:c"]]
    rows = [(*row("e")[:1], ts, *row("e")[2:13], names, *row("e")[14:]) for ts, names in zip(times, ids, strict=True)]
    events = Batch.of(list(zip(*rows, strict=True)), Counts(read=3), {}, {}).events
    assert events["ts"].to_list() == times
    assert events["ids"].to_list() == ids
