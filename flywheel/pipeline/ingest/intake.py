"""Takes batches of events into the store: what is known, or of a forgotten user, stays out.

In: batches. Out: parts, which stay invisible until a snapshot names them, and a new quarantine.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import polars as pl

from flywheel.io.crew import Crew
from flywheel.io.places import Folder
from flywheel.pipeline.cluster import store_at
from flywheel.pipeline.ingest.counts import Counts
from flywheel.pipeline.ingest.verdicts import MEMBER
from flywheel.stages.ingest.batches import Batch
from flywheel.stages.ingest.dedup import Ids, dedup
from flywheel.stages.ingest.forgotten import Forgotten
from flywheel.stages.ingest.workers import asked
from flywheel.store import Part, Snapshot, Store

FORGOTTEN = "forgotten"  # in the snapshot: hashes of whom and what ingest refuses
_FLUSH_BYTES = 128_000_000
_SMALL_ROWS, _MANY_PARTS = 20_000, 32

_seen: dict[str, Store] = {}  # of a process that looks up: a store checks the hash of each part once


class Intake:
    """Collects deduplicated rows and writes them as parts when enough have come.

    Args:
        store: of the tables.
        before: the last snapshot.
        crew: who looks up what is stored.
        replaces: files whose events are replaced.
        forgotten: marks of users.
    """

    def __init__(
        self,
        store: Store,
        before: Snapshot | None,
        crew: Crew,
        replaces: Collection[str] = (),
        forgotten: Collection[str] = (),
    ) -> None:
        self._store, self._crew = store, crew
        self._before = before
        self._seen: dict[int, Ids] = {}  # of this run, by partition
        self._waiting: dict[int, list[pl.DataFrame]] = {}  # for a look at what is stored
        self._settled: dict[int, list[pl.DataFrame]] = {}
        self._offered = self._offered_events = 0  # records, and their events, since that look
        self._bytes = 0
        self._bad: list[pl.DataFrame] = []
        self._again: dict[str, int] = {}  # files read now, and behind which line
        self.forgotten = Forgotten({*forgotten, *(before.extra.get(FORGOTTEN, ()) if before else ())})
        self.parts: list[Part] = list(before.parts) if before else []
        self.replaced = 0  # events that are not kept, for their files are read again
        if replaces:
            stored, gone = _events(self.parts), of_files(replaces)
            self.parts = without(store, self.parts, gone)
            self.replaced = stored - _events(self.parts)
        self._kept = list(self.parts)

    def add(self, batch: Batch, result: Counts) -> None:
        """Take in one batch; its records are counted by outcome now, or by `settle`."""
        ours = batch.events.filter(~self.forgotten.refused(batch.events))
        refused = _records(batch.events) - _records(ours) if ours.height < batch.events.height else 0
        result.add(batch)
        result.forgotten += refused
        self._offered += batch.read - sum(batch.ignored.values()) - batch.quarantined.height - refused
        self._offered_events += ours.height
        self._wait(ours)
        if batch.quarantined.height:
            self._bad.append(batch.quarantined)
        self._again |= {state.path: state.from_line for state in batch.states}
        if self._bytes >= _FLUSH_BYTES:
            self.settle(result)
            self._flush()

    def _wait(self, events: pl.DataFrame) -> None:
        """Let events wait, each once in this run, by partition."""
        if events.height == 0:
            return
        conversations = events["conversation_id"].unique().to_list()
        where = {c: self._store.partition(c) for c in conversations}
        partition = events["conversation_id"].replace_strict(where, return_dtype=pl.Int64)
        for number in sorted(set(where.values())):
            seen = self._seen.setdefault(number, Ids())
            rows = dedup(events.filter(partition == number), seen)
            seen.add(rows["event_id"])
            self._waiting.setdefault(number, []).append(rows)
            self._bytes += int(rows.estimated_size())

    def settle(self, result: Counts) -> None:
        """Leave out what is stored, by partition, and count."""
        waiting = {number: pl.concat(frames) for number, frames in sorted(self._waiting.items())}
        calls = [(self._stored_in(number), rows["event_id"]) for number, rows in waiting.items()]
        place = self._store.place.resolved()
        stored = (
            asked(self._crew, _stored_there, [(place, *call) for call in calls])
            if self._crew.pool is not None and any(parts for parts, _ in calls)
            else (stored_among(self._store, *call) for call in calls)
        )
        fresh = [
            rows.filter(~pl.col("event_id").is_in(known.implode()))
            for rows, known in zip(waiting.values(), stored, strict=True)
        ]
        events = sum(rows.height for rows in fresh)
        kept = self._offered if events == self._offered_events else _records(pl.concat(fresh))
        result.kept += kept
        result.duplicate += self._offered - kept
        result.events += events
        for number, rows in zip(waiting, fresh, strict=True):
            self._settled.setdefault(number, []).append(rows)
        self._waiting, self._offered, self._offered_events = {}, 0, 0

    def _stored_in(self, partition: int) -> list[Part]:
        """Return the parts with a partition's events."""
        return [part for part in self._kept if (part.table, part.partition) == ("events", partition)]

    def _flush(self) -> None:
        """Write what is settled as parts; they stay invisible until the snapshot names them."""
        for number, frames in sorted(self._settled.items()):
            part = self._store.write("events", pl.concat(frames), partition=number)
            if part is not None and part not in self.parts:
                self.parts.append(part)
        self._settled, self._bytes = {}, 0

    def _compact(self) -> None:
        """Put a partition's many small parts together, as following a log leaves them."""
        for number in range(self._store.partitions):
            small = [p for p in self.parts if (p.table, p.partition) == ("events", number) and p.rows < _SMALL_ROWS]
            if len(small) < _MANY_PARTS:
                continue
            part = self._store.write("events", self._store.read(small, "events").collect(), partition=number)
            gone = {p.path for p in small}
            self.parts = [p for p in self.parts if p.path not in gone] + ([part] if part is not None else [])

    def finish(self) -> None:
        """Write all that is settled, and a new quarantine: rows of lines that were read again are replaced."""
        self._flush()
        if self.forgotten.learnt:  # a conversation may have shown late whose it is
            gone = pl.col("conversation_id").is_in(sorted(self.forgotten.learnt))
            self.parts = without(self._store, self.parts, gone)
        self._compact()
        before = self._store.read(self._before.parts if self._before else (), "quarantine").collect()
        file = pl.col("source_file").str.split(MEMBER).list.first()
        behind = file.replace_strict(self._again, default=None, return_dtype=pl.Int64)
        line = pl.col("source_line")
        again = behind.is_not_null() & ((line > behind) | (line == 0))
        rows = pl.concat([before.filter(~again), *self._bad])
        rows = rows.unique(["source_file", "source_line", "reason", "content_hash"], keep="first", maintain_order=True)
        part = self._store.write("quarantine", rows, partition=0)
        self.parts = [p for p in self.parts if p.table != "quarantine"] + ([part] if part is not None else [])


def stored_among(store: Store, parts: Sequence[Part], ids: pl.Series) -> pl.Series:
    """Return which of some events are stored; what is stored passes by as a stream, none of it is kept."""
    stored = store.read(parts, "events").select("event_id")
    return stored.filter(pl.col("event_id").is_in(ids.implode())).collect(engine="streaming")["event_id"]


def _stored_there(place: Folder, parts: Sequence[Part], ids: pl.Series) -> pl.Series:
    """Return the same in another process, or on another node."""
    store = _seen.get(place.shown()) or _seen.setdefault(place.shown(), store_at(place))
    return stored_among(store, parts, ids)


def of_files(names: Collection[str]) -> pl.Expr:
    """Whether an event, or a refused record, is of one of these files, or of a member of one that is an archive."""
    return pl.col("source_file").str.split(MEMBER).list.first().is_in(sorted(names))


def _events(parts: Sequence[Part]) -> int:
    return sum(part.rows for part in parts if part.table == "events")


def _records(events: pl.DataFrame) -> int:
    return events.select("source_file", "source_line").n_unique() if events.height else 0


def without(store: Store, parts: Sequence[Part], gone: pl.Expr) -> list[Part]:
    """Return the parts without the events for which `gone` is true: a part that holds any is written again."""
    kept: list[Part] = []
    for part in parts:
        if part.table != "events" or store.read([part], "events").filter(gone).limit(1).collect().is_empty():
            kept.append(part)
            continue
        rest = store.read([part], "events").filter(~gone.fill_null(value=False)).collect()
        written = store.write("events", rest, partition=part.partition)
        kept += [written] if written is not None else []
    return kept
