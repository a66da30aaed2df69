"""`flywheel repartition`: the same events in another number of partitions.

In: the store. Out: new parts, and one commit that makes them current together with the number. Derived tables are
stale then, and built again. Memory is bounded by what waits to be written, however large the store.
"""

from __future__ import annotations

import polars as pl

from flywheel.errors import UsageError
from flywheel.results.operations import RepartitionAnswer
from flywheel.store import MOST_PARTITIONS, Part, Store

_FLUSH_BYTES = 256_000_000


def repartition(store: Store, partitions: int) -> RepartitionAnswer:
    """Write the events into so many partitions, and make them current.

    Raises:
        UsageError: the number is out of range.
    """
    if not 1 <= partitions <= MOST_PARTITIONS:
        raise UsageError(f"{partitions:,} partitions", hint=f"from 1 to {MOST_PARTITIONS:,}")
    before, current = store.partitions, store.current("ingest")
    parts = list(current.parts) if current else []
    if partitions != before:
        parts = [part for part in parts if part.table != "events"] + _moved(store, parts, partitions)
        store.repartition(partitions, parts)
    events = [part for part in parts if part.table == "events"]
    return RepartitionAnswer(
        before=before, partitions=partitions, events=sum(part.rows for part in events), parts=len(events)
    )


def _moved(store: Store, parts: list[Part], partitions: int) -> list[Part]:
    """Return new parts that hold the events; they stay invisible until a snapshot names them."""
    waiting: dict[int, list[pl.DataFrame]] = {}
    written, size = list[Part | None](), 0

    def flush() -> None:
        for home, frames in sorted(waiting.items()):
            written.append(store.write("events", pl.concat(frames), partition=home))
        waiting.clear()

    for part in (part for part in parts if part.table == "events"):
        events = store.read([part], "events").collect()
        names = events["conversation_id"].unique().to_list()
        homes = {name: store.partition(name, partitions) for name in names}
        home = events["conversation_id"].replace_strict(homes, return_dtype=pl.Int64)
        for number in sorted(set(homes.values())):
            waiting.setdefault(number, []).append(events.filter(home == number))
        size += int(events.estimated_size())
        if size >= _FLUSH_BYTES:
            flush()
            size = 0
    flush()
    return list(dict.fromkeys(part for part in written if part is not None))
