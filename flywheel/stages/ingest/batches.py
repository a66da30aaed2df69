"""What ingest hands to the pipeline: bounded batches of events with the counts of the records they came from.

In: records and what became of each. Out: `Batch`es whose frames have the columns of `LogEvent` and `Quarantined`.
Within a batch read = accepted + ignored + quarantined, record by record; a record's events never stand in two batches.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from flywheel.contracts import polars_schema
from flywheel.records import LogEvent, Quarantined
from flywheel.stages.ingest.framing import Bad
from flywheel.stages.ingest.sources import SourceState

if TYPE_CHECKING:
    import polars as pl

__all__ = ["Batch", "BatchBuilder"]

Row = tuple[Any, ...]

_EVENTS = 20_000
_CHARACTERS = 64_000_000


@dataclass(frozen=True)
class Batch:
    """Some records of one file. `state` is set on the file's last batch."""

    path: str
    events: pl.DataFrame
    quarantined: pl.DataFrame
    read: int
    ignored: Mapping[str, int] = field(default_factory=dict)
    redacted: Mapping[str, int] = field(default_factory=dict)
    state: SourceState | None = None


class BatchBuilder:
    """Collects one file's events and refusals.

    Args:
        path: the file, as recorded.
        source_format: its reader.
        finish: redacts and names a batch's rows before they leave.
    """

    def __init__(self, path: str, source_format: str, finish: Callable[[list[Row]], list[Row]] | None = None) -> None:
        self._path, self._format, self._finish = path, source_format, finish
        self._reset()

    def _reset(self) -> None:
        self._rows: list[Row] = []
        self._bad: list[Bad] = []
        self._ignored: Counter[str] = Counter()
        self._read = self._characters = 0

    @property
    def full(self) -> bool:
        """Whether it is time to hand the batch on."""
        return len(self._rows) >= _EVENTS or self._characters >= _CHARACTERS or len(self._bad) >= _EVENTS

    def accept(self, rows: list[Row], characters: int) -> None:
        """Take in one record's raw events: values in the order of `LogEvent`'s fields."""
        self._read += 1
        self._rows += rows
        self._characters += characters

    def ignore(self, reason: str) -> None:
        """Count one record that is no part of any conversation."""
        self._read += 1
        self._ignored[reason] += 1

    def refuse(self, bad: Bad) -> None:
        """Take in one refusal."""
        self._read += 1
        self._bad.append(bad)

    def take(self, redacted: Counter[str], state: SourceState | None = None) -> Batch:
        """Return what was collected, and begin anew."""
        import polars as pl

        rows = self._finish(self._rows) if self._finish is not None else []
        batch = Batch(
            path=self._path,
            events=pl.DataFrame(rows, schema=polars_schema(LogEvent), orient="row"),
            quarantined=pl.DataFrame(list(self._refusals()), schema=polars_schema(Quarantined), orient="row"),
            read=self._read,
            ignored=dict(sorted(self._ignored.items())),
            redacted=dict(sorted(redacted.items())),
            state=state,
        )
        redacted.clear()
        self._reset()
        return batch

    def _refusals(self) -> Iterator[tuple[Any, ...]]:
        source_format = None if self._format == "unknown" else self._format
        for bad in self._bad:
            yield (self._path, bad.line, source_format, bad.reason, bad.detail, bad.size_bytes, bad.content_hash)
