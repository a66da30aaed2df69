"""What ingest hands on: bounded blocks of raw records on the way in, batches of events with their counts after.

A block holds records of one or of many files, so that ten thousand small files cost no more than a large one. Within a
batch read = accepted + ignored + quarantined, record by record; a record's events never stand in two batches.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from flywheel.contracts import arrow_schema, polars_schema
from flywheel.records import LogEvent, Quarantined
from flywheel.stages.ingest.framing import Bad, Framed, Lines, Raw
from flywheel.stages.ingest.lost import LostCounts
from flywheel.stages.ingest.sources import SourceState

if TYPE_CHECKING:
    import polars as pl

__all__ = ["Batch", "Block", "BlockBuilder", "Counts", "Row", "Segment"]

Row = tuple[Any, ...]  # values in the order of LogEvent's fields

_BYTES = 4_000_000
_RECORDS = 20_000
_ROW_BYTES = 2_000  # what a record without a text (a Parquet row) is taken for


@dataclass(frozen=True)
class Segment:
    """Consecutive records of one file. `ignored` says why they are no log, where they are none."""

    path: str
    format: str
    columns: Mapping[str, str] = field(default_factory=dict)
    ignored: str = ""
    records: list[Framed] = field(default_factory=list)


@dataclass
class Block:
    """Segments to be worked on together, and the states of the files that end in them."""

    segments: list[Segment] = field(default_factory=list)
    states: list[SourceState] = field(default_factory=list)


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

    def add(self, record: Framed) -> Block | None:
        """Take in a record of the file that was opened last; return a block when it is full."""
        self._block.segments[-1].records.append(record)
        self._records += record.n_records if isinstance(record, Lines) else 1
        self._bytes += _size(record)
        if self._bytes < _BYTES and self._records < _RECORDS:
            return None
        last = self._block.segments[-1]
        full = self.take()
        self.open(last.path, last.format, last.columns, last.ignored)
        return full

    def close(self, state: SourceState | None) -> None:
        """Note that a file was read to its end."""
        if state is not None:
            self._block.states.append(state)

    def take(self) -> Block:
        """Return what was collected, and begin anew."""
        block = self._block
        self._begin()
        return block


def _size(record: Framed) -> int:
    if isinstance(record, Lines):
        return record.size
    return len(record.raw) if isinstance(record, Raw) else _ROW_BYTES


@dataclass
class Counts:
    """What became of records, beside those that gave events."""

    read: int = 0
    bad: list[tuple[Segment, Bad]] = field(default_factory=list)
    ignored: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True)
class Batch:
    """The events of a block. `states` are those of the files whose last records are in it."""

    events: pl.DataFrame
    quarantined: pl.DataFrame
    read: int
    ignored: Mapping[str, int] = field(default_factory=dict)
    redacted: Mapping[str, int] = field(default_factory=dict)
    lost: Mapping[str, LostCounts] = field(default_factory=dict)
    states: tuple[SourceState, ...] = ()

    @classmethod
    def of(cls, rows: list[Row], counts: Counts, redacted: Mapping[str, int], lost: Mapping[str, LostCounts]) -> Batch:
        """Return finished rows and counts as a batch."""
        import polars as pl

        return cls(
            events=_frame(rows),
            quarantined=pl.DataFrame(list(_refusals(counts)), schema=polars_schema(Quarantined), orient="row"),
            read=counts.read,
            ignored=dict(sorted(counts.ignored.items())),
            redacted=dict(sorted(redacted.items())),
            lost=lost,
        )


def _frame(rows: list[Row]) -> pl.DataFrame:
    """Return rows as a frame; column by column by way of Arrow, which is several times faster than row by row."""
    import polars as pl
    import pyarrow as pa

    schema = arrow_schema(LogEvent)
    columns = zip(*rows, strict=True) if rows else [()] * len(schema)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    table = pa.Table.from_arrays(arrays, names=schema.names)
    return cast(pl.DataFrame, pl.from_arrow(table)).cast(polars_schema(LogEvent))


def _refusals(counts: Counts) -> Iterator[tuple[Any, ...]]:
    for segment, bad in counts.bad:
        source_format = None if segment.format == "unknown" else segment.format
        yield (segment.path, bad.line, source_format, bad.reason, bad.detail, bad.size_bytes, bad.content_hash)
