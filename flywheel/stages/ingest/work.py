"""The work on a block: parse, read, redact, name. Nothing here knows of files, only of records.

In: segments of raw records. Out: a batch of finished events with the counts of what became of each record, and a sample
of which fields the events do not hold.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from flywheel.extensions import Reader
from flywheel.stages.ingest.batches import Batch, Counts, Segment
from flywheel.stages.ingest.framed import Bad, Framed, Lines, Raw, Record, Row
from flywheel.stages.ingest.lost import LostFields
from flywheel.stages.ingest.normalize import Normalizer, finished
from flywheel.stages.ingest.redact import Redactor

if TYPE_CHECKING:
    from flywheel.config import IngestConfig


class Worker:
    """Works on blocks, one at a time.

    Raises:
        ConfigError: the redaction is misconfigured.
    """

    def __init__(self, cfg: IngestConfig, key: bytes, readers: Mapping[str, Reader]) -> None:
        self._redactor = Redactor(cfg.redact, key)
        self._readers = readers

    def work(self, segments: Sequence[Segment]) -> Batch:
        """Return the events of a block."""
        with _uncollected():
            return self._work(segments)

    def _work(self, segments: Sequence[Segment]) -> Batch:
        rows: list[Row] = []
        counts, lost = Counts(), LostFields()
        for segment in segments:
            reader = self._readers.get(segment.format)
            normalizer = Normalizer(reader, segment.path, segment.columns) if reader is not None else None
            for record in _parsed(segment.records):
                counts.read += 1
                _take(record, segment, normalizer, rows, counts, lost)
        counts.bad = [(segment, self._redacted(bad)) for segment, bad in counts.bad]
        columns = finished(rows, self._redactor)
        redacted = dict(self._redactor.counts)
        self._redactor.counts.clear()
        return Batch.of(columns, counts, redacted, lost.counts(self._redactor))

    def _redacted(self, bad: Bad) -> Bad:
        """Return a refusal as it may be told: its words may name a field, and fields may be named after anything."""
        return bad._replace(detail=self._redactor.text(bad.detail))


@contextmanager
def _uncollected() -> Iterator[None]:
    """Keep the cycle collector away: parsed JSON has no cycles, and a block has a million objects."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def _parsed(framed: Iterable[Framed]) -> Iterator[Record | Bad]:
    for given in framed:
        if isinstance(given, Lines):
            yield from given.records()
        else:
            yield given.parse() if isinstance(given, Raw) else given


def _take(
    record: Record | Bad,
    segment: Segment,
    normalizer: Normalizer | None,
    rows: list[Row],
    counts: Counts,
    lost: LostFields,
) -> None:
    if isinstance(record, Bad):
        counts.bad.append((segment, record))
    elif normalizer is None or segment.ignored:
        counts.ignored[segment.ignored or "no reader"] += 1
    else:
        found = normalizer.rows(record)
        if isinstance(found, Bad):
            counts.bad.append((segment, found))
        elif found:
            lost.look(segment.format, record, found)
            rows += found
        else:
            counts.ignored["nothing of an agent in it"] += 1
