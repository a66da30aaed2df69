"""Batches: bounded, complete, with counts that add up."""

from __future__ import annotations

from collections import Counter
from typing import Any

from flywheel.contracts import conform
from flywheel.records import LogEvent, Quarantined
from flywheel.stages.ingest.batches import BatchBuilder
from flywheel.stages.ingest.framing import Bad


def row(event_id: str) -> tuple[Any, ...]:
    return (event_id, None, 0, "c", None, None, "request", *[None] * 6, [], None, "{}", "native", "f", 1)


def test_a_batch_fits_the_contract_and_is_finished_before_it_leaves() -> None:
    builder = BatchBuilder("f", "native", lambda rows: [(r[0].upper(), *r[1:]) for r in rows])
    builder.accept([row("a"), row("b")], 4)
    builder.ignore("no reason")
    builder.refuse(Bad(3, "bad_json", "d", 5, "h"))
    batch = builder.take(Counter(email=1))
    assert conform(batch.events, LogEvent).collect()["event_id"].to_list() == ["A", "B"]
    assert conform(batch.quarantined, Quarantined).collect().row(0) == ("f", 3, "native", "bad_json", "d", 5, "h")
    assert (batch.read, batch.ignored, batch.redacted) == (3, {"no reason": 1}, {"email": 1})
    assert builder.take(Counter()).read == 0


def test_a_batch_is_full_by_events_or_by_size() -> None:
    filled = []
    for rows, characters in ((19_999, 1), (20_000, 1), (1, 64_000_000)):
        builder = BatchBuilder("f", "native")
        builder.accept([row("a")] * rows, characters)
        filled.append(builder.full)
    assert filled == [False, True, True]
