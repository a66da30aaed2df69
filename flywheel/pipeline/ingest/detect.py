"""Which formats can be read, and which one a file has: the detection of ingest, for display."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from flywheel.config import IngestConfig
from flywheel.contracts import polars_schema
from flywheel.errors import IngestError
from flywheel.extensions import Reader, Sample, list_extensions, load_extension
from flywheel.pipeline.ingest.run import load_readers, own_readers
from flywheel.pipeline.ingest.sketch import sketch
from flywheel.pipeline.ingest.verdicts import MEMBER, Tally
from flywheel.records import LogEvent
from flywheel.results.data import ReaderRow, ReadersAnswer
from flywheel.stages.ingest.detect import SAMPLE_RECORDS, Detection, confidences
from flywheel.stages.ingest.discovery import special_kind
from flywheel.stages.ingest.envelopes import Opener, recognised
from flywheel.stages.ingest.events import ingest
from flywheel.stages.ingest.framing.archives import archive_kind
from flywheel.stages.ingest.framing.framed import Bad, Raw, Record
from flywheel.stages.ingest.framing.framer import Framing, Limits
from flywheel.stages.ingest.framing.opening import file_content

_OWN = "this project"
_LOOKED_AT = 2_000  # records that are read to see whether a file can be


class Look(NamedTuple):
    """What ingest would make of a file's first records: events, and a sentence about what is unreadable."""

    events: pl.DataFrame
    unreadable: str


def readers(config: IngestConfig, project: Path, file: Path | None) -> ReadersAnswer:
    """Return the installed readers; with a file, by confidence.

    Raises:
        IngestError: the file cannot be read.
    """
    installed = {e.name: e.distribution for e in list_extensions("readers")}
    loaded: dict[str, Reader] = {name: load_extension("readers", name, search=project) for name in sorted(installed)}
    loaded |= own_readers(config, project)
    rows = [
        ReaderRow(
            name=name, reader_version=reader.version, reads=_reads(reader), distribution=installed.get(name, _OWN)
        )
        for name, reader in loaded.items()
    ]
    if file is None:
        return ReadersAnswer(readers=rows)
    kind, head = _head(file, config)
    records = [record for record in head if isinstance(record, Record)]
    found = recognised(file.name, head, loaded)
    inner = Opener(found.envelope, loaded[found.detection.format]).opened(records) if found.envelope else records
    confidence = confidences(Sample(file.name, [r.fields for r in inner if isinstance(r, Record)]), loaded)
    ranked = sorted(rows, key=lambda row: (-confidence[row.name], row.name))
    within = _MEMBERS.get(kind, f"{kind} archive, read member by member")
    verdict = within if kind else _verdict(found.detection, loaded, head)
    return ReadersAnswer(
        readers=[row.model_copy(update={"confidence": confidence[row.name]}) for row in ranked],
        verdict=f"{file.name}: {verdict}",
    )


def sketched(config: IngestConfig, file: Path) -> str:
    """Return the code of a reader for a file's records, to be mended.

    Raises:
        IngestError: the file cannot be read, or holds no objects with words.
    """
    kind, head = _head(file, config)
    if kind:
        raise IngestError(f"`{file.name}` is a {kind} archive", hint="take one of its files out, and name that")
    return sketch(file, [record.value for record in head if isinstance(record, Record)])


def look(config: IngestConfig, project: Path, file: Path, key: bytes) -> Look:
    """Return what ingest would make of a file's first records, redacted.

    Raises:
        ConfigError: the redaction is misconfigured.
    """
    loaded = load_readers(config, project)
    tally, frames = Tally(), [pl.DataFrame(schema=polars_schema(LogEvent))]
    for batch in ingest([file], root=project, known={}, cfg=config, key=key, readers=loaded):
        frames.append(batch.events)
        tally.add(batch)
        if tally.read.total() >= _LOOKED_AT:
            break
    members = [(name.rpartition(MEMBER)[2], why) for name, why in sorted(tally.whole.items()) if MEMBER in name]
    aside = [f"{name} is set aside: {why}" for name, why in members]
    bad, read = tally.bad.total(), tally.read.total()
    if bad:
        first = next(iter(tally.first.values())).partition(":")[2]
        over = ", more than ingest.max_quarantine allows" if bad > config.max_quarantine * read else ""
        aside.append(f"{bad:,} of its first {read:,} records are unreadable{over}; the first: line {first}")
    return Look(pl.concat(frames), "; ".join(aside))


def first_events(seen: Look, most: int) -> list[LogEvent]:
    """Return the first events that ingest would make of a file."""
    return [LogEvent(**row) for row in seen.events.head(most).iter_rows(named=True)]


def _verdict(detection: Detection, loaded: Mapping[str, Reader], head: Sequence[Record | Bad]) -> str:
    if detection.format in loaded:
        return f"read as {detection.format}"
    bad = next((record for record in head if isinstance(record, Bad)), None)
    if bad is not None and all(isinstance(record, Bad) for record in head):
        return f"{detection.format}, ingest sets it aside: {bad.reason}: {bad.detail}"
    aside = ", ingest sets it aside" if detection.format == "unknown" else ""
    return f"{detection.format}{aside}: {detection.reason}" if detection.reason else detection.format


_MEMBERS = {"sqlite": "SQLite database, read table by table"}


def _reads(reader: Any) -> str:
    """Return a reader's own description, of a class its first sentence."""
    described = getattr(reader, "reads", "") or inspect.getdoc(type(reader)) or ""
    first = described.partition("\n")[0].strip().rstrip(".")
    return first.removeprefix("Reads ")


def _head(file: Path, config: IngestConfig) -> tuple[str, list[Record | Bad]]:
    """Return the kind of archive that a file is, '' for none, and its first records."""
    limits = Limits(config.max_record_mb * 1_000_000, config.max_expand_ratio)
    try:
        if kind := special_kind(file):
            raise IngestError(f"`{file}` is {kind}, not a file", hint="name one file")
        size = file.stat().st_size
        if kind := archive_kind(file, size, limits.expand_ratio):
            return kind, []
        framing = Framing(file_content(file, size), limits)
        return "", [_parsed(record) for record in islice(framing, SAMPLE_RECORDS)]
    except OSError as error:
        raise IngestError(f"`{file}` cannot be read: {error.strerror}", hint="name one file") from None


def _parsed(record: Any) -> Record | Bad:
    parsed: Record | Bad = record.parse() if isinstance(record, Raw) else record
    return parsed
