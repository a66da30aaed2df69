"""Which formats can be read, and which one a file has: the detection of ingest, for display."""

from __future__ import annotations

import inspect
from itertools import islice
from pathlib import Path
from typing import Any

from flywheel.config import IngestConfig
from flywheel.errors import IngestError
from flywheel.extensions import Reader, Sample, list_extensions, load_extension
from flywheel.pipeline.ingest.run import load_readers
from flywheel.records import LogEvent
from flywheel.results.data import ReaderRow, ReadersAnswer
from flywheel.stages.ingest.detect import SAMPLE_RECORDS, Detection, confidences, detect
from flywheel.stages.ingest.events import first_events
from flywheel.stages.ingest.framed import Raw, Record
from flywheel.stages.ingest.framing import Framing, Limits
from flywheel.stages.ingest.opening import file_content


def readers(config: IngestConfig, project: Path, file: Path | None) -> ReadersAnswer:
    """Return the installed readers; with a file, by confidence.

    Raises:
        IngestError: the file cannot be read.
    """
    installed = {e.name: e for e in list_extensions("readers")}
    loaded: dict[str, Reader] = {name: load_extension("readers", name, search=project) for name in sorted(installed)}
    rows = [
        ReaderRow(
            name=name, reader_version=reader.version, reads=_reads(reader), distribution=installed[name].distribution
        )
        for name, reader in loaded.items()
    ]
    if file is None:
        return ReadersAnswer(readers=rows)
    sample = _sample(file, config)
    confidence = confidences(sample, loaded)
    ranked = sorted(rows, key=lambda row: (-confidence[row.name], row.name))
    return ReadersAnswer(
        readers=[row.model_copy(update={"confidence": confidence[row.name]}) for row in ranked],
        verdict=f"{file.name}: {_verdict(detect(sample, loaded), loaded)}",
    )


def file_events(config: IngestConfig, project: Path, file: Path, most: int, key: bytes) -> list[LogEvent]:
    """Return the first events that ingest would make of a file, redacted.

    Raises:
        IngestError: the file cannot be read.
    """
    loaded = load_readers(config, project)
    frame = first_events(file, root=project, cfg=config, key=key, readers=loaded, most=most)
    return [LogEvent(**row) for row in frame.iter_rows(named=True)]


def _verdict(detection: Detection, loaded: dict[str, Reader]) -> str:
    if detection.format in loaded:
        return f"read as {detection.format}"
    return f"{detection.format}: {detection.reason}" if detection.reason else detection.format


def _reads(reader: Any) -> str:
    """Return a reader's own description, of a class its first sentence."""
    described = getattr(reader, "reads", "") or inspect.getdoc(type(reader)) or ""
    first = described.partition("\n")[0].strip().rstrip(".")
    return first.removeprefix("Reads ")


def _sample(file: Path, config: IngestConfig) -> Sample:
    try:
        framing = Framing(
            file_content(file, file.stat().st_size), Limits(config.max_record_mb * 1_000_000, config.max_expand_ratio)
        )
        head = [r.parse() if isinstance(r, Raw) else r for r in islice(framing, SAMPLE_RECORDS)]
    except OSError as error:
        raise IngestError(f"`{file}` cannot be read: {error.strerror}", hint="name one file") from None
    return Sample(file.name, [record.value for record in head if isinstance(record, Record)])
