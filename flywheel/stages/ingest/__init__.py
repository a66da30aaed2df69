"""From log files to events: found, decompressed, framed, detected, read, redacted, in bounded batches.

In: files in any format for which a reader is installed. Out: `Batch`es of events that hold nothing that the redaction
should have removed, refusals with their reasons, and what is needed to go on with a growing file. Nothing is written
here, and nothing that a file contains can stop the others from being read.

The way of a record: sources → opening → framing (documents, jsontext) → detect → readers → redact → batches.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from flywheel.extensions import Reader, Sample
from flywheel.stages.ingest.batches import Batch, BatchBuilder
from flywheel.stages.ingest.dedup import dedup
from flywheel.stages.ingest.detect import (
    SAMPLE_RECORDS,
    TEXT_FILE,
    UNKNOWN,
    Detection,
    detect,
    is_text_document,
)
from flywheel.stages.ingest.framing import Bad, Framing, Limits, Record
from flywheel.stages.ingest.normalize import Normalizer
from flywheel.stages.ingest.redact import Redactor
from flywheel.stages.ingest.sidecar import columns_beside
from flywheel.stages.ingest.sources import SourceState, Start, discover, prefix_hash, shown_path, start_of

if TYPE_CHECKING:
    from flywheel.config import IngestConfig

__all__ = ["Batch", "SourceState", "dedup", "discover", "ingest"]

_SAMPLE_BYTES = 8_000_000


def ingest(
    files: Sequence[Path],
    *,
    root: Path,
    known: Mapping[str, SourceState],
    cfg: IngestConfig,
    key: bytes,
    readers: Mapping[str, Reader],
) -> Iterator[Batch]:
    """Yield the events of files, in batches of one file each; the last one of a file carries its state.

    A file whose content is known yields nothing; one that only grew yields what is new.

    Args:
        files: from `discover`.
        root: the project; paths inside it are recorded relative to it.
        known: state of each file read before, by its recorded path.
        cfg: format, limits and redaction.
        key: the project's redaction key.
        readers: candidates by name.

    Raises:
        IngestError: a file cannot be opened.
        ConfigError: the redaction is misconfigured.
    """
    redactor = Redactor(cfg.redact, key)
    for file in files:
        name = shown_path(file, root)
        start = start_of(file, name, known)
        if not start.unchanged:
            yield from _File(file, name, start, cfg).batches(readers, redactor)


class _File:
    """One file being read."""

    def __init__(self, file: Path, name: str, start: Start, cfg: IngestConfig) -> None:
        self._file, self._name, self._start, self._cfg = file, name, start, cfg
        limits = Limits(cfg.max_record_mb * 1_000_000, cfg.max_expand_ratio)
        before = start.before
        place = (before.offset_bytes, before.offset_lines) if before is not None else (0, 0)
        self._framing = Framing(file, start.size_bytes, limits, start=place)

    def batches(self, readers: Mapping[str, Reader], redactor: Redactor) -> Iterator[Batch]:
        """Yield the file's batches."""
        if is_text_document(self._file):
            builder = BatchBuilder(self._name, TEXT_FILE)
            builder.ignore("text document")
            yield builder.take(Counter(), self._state(TEXT_FILE, 1))
            return
        records = iter(self._framing)
        head = list(_head(records))
        found = self._detect(head, readers)
        if found.format == UNKNOWN:
            builder = BatchBuilder(self._name, UNKNOWN)
            builder.refuse(_refusal(head, found, self._start))
            yield builder.take(Counter(), self._state(UNKNOWN, 1))
            return
        reader = readers.get(found.format)
        normalizer = (
            Normalizer(reader, self._name, redactor, columns_beside(self._file, reader, self._name))
            if reader is not None
            else None
        )
        builder = BatchBuilder(self._name, found.format, normalizer.finish if normalizer is not None else None)
        total = 0
        for record in chain(head, records):
            total += 1
            _take(record, builder, normalizer, found.reason)
            if builder.full:
                yield builder.take(redactor.counts)
        yield builder.take(redactor.counts, self._state(found.format, total))

    def _detect(self, head: Sequence[Record | Bad], readers: Mapping[str, Reader]) -> Detection:
        before = self._start.before
        if before is not None and before.format in readers:
            return Detection(before.format, 1.0)
        if not head:
            return Detection(TEXT_FILE, 1.0, "empty file")
        values = [record.value for record in head if isinstance(record, Record)]
        return detect(Sample(self._file.name, values), readers, chosen=self._cfg.format)

    def _state(self, source_format: str, records: int) -> SourceState:
        before = self._start.before
        offset = self._framing.offset if source_format != UNKNOWN else 0  # was only looked at, not read
        return SourceState(
            path=self._name,
            format=source_format,
            size_bytes=self._start.size_bytes,
            sha256=self._start.sha256,
            records=records + (before.records if before is not None else 0),
            offset_bytes=offset,
            offset_lines=self._framing.lines if offset else 0,
            prefix_sha256=prefix_hash(self._file, offset) if offset else "",
        )


def _head(records: Iterator[Record | Bad]) -> Iterator[Record | Bad]:
    """Take the records that detection looks at."""
    size = 0
    for count, record in enumerate(records, 1):
        yield record
        size += len(record.raw or b"") if isinstance(record, Record) else 0
        if count >= SAMPLE_RECORDS or size > _SAMPLE_BYTES:
            return


def _refusal(head: Sequence[Record | Bad], found: Detection, start: Start) -> Bad:
    """A file that no reader knows is one refusal, however many records it has."""
    bad = next((record for record in head if isinstance(record, Bad)), None)
    only_bad = all(isinstance(record, Bad) for record in head)
    detail = bad.detail if bad is not None and only_bad else found.reason
    reason = bad.reason if bad is not None and only_bad and bad.reason == "truncated" else "unknown_format"
    return Bad(0, reason, detail, start.size_bytes, start.sha256)


def _take(record: Record | Bad, builder: BatchBuilder, normalizer: Normalizer | None, reason: str) -> None:
    if isinstance(record, Bad):
        builder.refuse(record)
    elif normalizer is None:
        builder.ignore(reason)
    else:
        normalizer.take(record, builder)
