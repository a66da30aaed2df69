"""What ingest hands on: bounded blocks of raw records on the way in, batches of events with their counts after.

A block holds records of one or of many files, so that ten thousand small files cost no more than a large one. Within a
batch read = accepted + ignored + quarantined, record by record; a record's events are never in two batches.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import polars as pl

from flywheel.contracts import polars_schema, series
from flywheel.records import LogEvent, Quarantined
from flywheel.stages.ingest.framing.framed import Bad, Framed, Lines, Raw
from flywheel.stages.ingest.lost import LostCounts
from flywheel.stages.ingest.sources import SourceState

BAD_FILE = "bad_file"  # the reason of a file with so many unreadable records that none of it is stored
_BYTES = 4_000_000
_RECORDS = 20_000
_ROW_BYTES = 2_000  # what a record without a text (a Parquet row) is taken for


@dataclass(frozen=True)
class Segment:
    """Consecutive records of one file. `ignored` is the reason why they are not a log, if they are not."""

    path: str
    format: str
    columns: Mapping[str, str] = field(default_factory=dict)
    ignored: str = ""
    records: list[Framed] = field(default_factory=list)


class Reached(NamedTuple):
    """How far a file was read when a block was full."""

    path: str
    position: int  # bytes of the file
    state: SourceState | None  # from which reading can go on; None where the file is not read line by line


@dataclass
class Block:
    """Segments to be worked on together, and the states of the files that end in them."""

    segments: list[Segment] = field(default_factory=list)
    states: list[SourceState] = field(default_factory=list)
    reached: Reached | None = None  # None where its last record ends a file, or is one of those that show its format


class BlockBuilder:
    """Collects records of one file after the other."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._block = Block()
        self._bytes = self._records = 0

    def open(self, path: str, source_format: str, columns: Mapping[str, str], ignored: str = "") -> None:
        """Go on with another file."""
        self._block.segments.append(Segment(path, source_format, columns, ignored))

    def add(self, record: Framed, reached: Callable[[], Reached | None] = lambda: None) -> Block | None:
        """Take in a record of the file that was opened last; return a block when it is full.

        Args:
            record: the record.
            reached: gives how far the file was read with it.
        """
        self._block.segments[-1].records.append(record)
        self._records += record.n_records if isinstance(record, Lines) else 1
        self._bytes += _size(record)
        if self._bytes < _BYTES and self._records < _RECORDS:
            return None
        last = self._block.segments[-1]
        self._block.reached = reached()
        full = self.take()
        self.open(last.path, last.format, last.columns, last.ignored)
        return full

    def close(self, state: SourceState | None) -> None:
        """Note that a file was read to its end."""
        if state is not None:
            self._block.states.append(state)

    def take(self) -> Block:
        """Return what was collected, and begin a new block."""
        block = self._block
        self._begin()
        return block


def _size(record: Framed) -> int:
    if isinstance(record, Lines):
        return record.size
    return len(record.raw) if isinstance(record, Raw) else _ROW_BYTES


@dataclass
class Counts:
    """The number of records, and those without events."""

    read: int = 0
    bad: list[tuple[Segment, Bad]] = field(default_factory=list)
    ignored: Counter[str] = field(default_factory=Counter)
    by_content: Counter[str] = field(default_factory=Counter)  # records that a reader was asked to read


@dataclass(frozen=True)
class Batch:
    """The events of a block. `states` are those of the files whose last records are in it."""

    events: pl.DataFrame
    quarantined: pl.DataFrame
    read: int
    by_content: Mapping[str, int] = field(default_factory=dict)
    ignored: Mapping[str, int] = field(default_factory=dict)
    redacted: Mapping[str, int] = field(default_factory=dict)
    lost: Mapping[str, LostCounts] = field(default_factory=dict)
    states: tuple[SourceState, ...] = ()
    reached: Reached | None = None

    @classmethod
    def of(
        cls,
        columns: Sequence[Sequence[Any]],
        counts: Counts,
        redacted: Mapping[str, int],
        lost: Mapping[str, LostCounts],
    ) -> Batch:
        """Return the columns of finished events and counts as a batch."""
        schema = polars_schema(LogEvent)
        return cls(
            events=pl.DataFrame(
                [series(name, values, schema[name]) for name, values in zip(schema, columns, strict=True)]
            ),
            quarantined=pl.DataFrame(list(_refusals(counts)), schema=polars_schema(Quarantined), orient="row"),
            read=counts.read,
            by_content=dict(counts.by_content),
            ignored=dict(sorted(counts.ignored.items())),
            redacted=dict(sorted(redacted.items())),
            lost=lost,
        )


def _refusals(counts: Counts) -> Iterator[tuple[Any, ...]]:
    for segment, bad in counts.bad:
        source_format = None if segment.format == "unknown" else segment.format
        yield (segment.path, bad.line, source_format, bad.reason, bad.detail, bad.size_bytes, bad.content_hash)
