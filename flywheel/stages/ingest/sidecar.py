"""What a log's place says of all its records: which model ran, under which policy, within which run ids are unique.

In: a log, its reader, and the file that the reader names as its `sidecar`. Out: columns for the events that lack them.
A sidecar is small, is JSON, and is nobody's conversation: where it is missing or is something else, nothing is said.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from flywheel.extensions import Reader, Sample
from flywheel.stages.ingest.jsontext import BadJsonError, loads

__all__ = ["COLUMNS", "columns_beside", "is_sidecar"]

COLUMNS = ("model", "policy", "scope")
_MOST_BYTES = 1_000_000


def columns_beside(file: Path, reader: Reader, shown: str = "") -> dict[str, str]:
    """Return the columns that a log's place gives: its path as recorded, then the reader's sidecar beside it."""
    from_path = getattr(reader, "from_path", None)
    given = from_path(PurePosixPath(shown or file.as_posix())) if from_path is not None else {}
    return {name: str(given[name]) for name in COLUMNS if given.get(name)} | _beside(file, reader)


def _beside(file: Path, reader: Reader) -> dict[str, str]:
    name = getattr(reader, "sidecar", None)
    beside = file.with_name(name) if isinstance(name, str) else None
    if beside is None or not beside.is_file() or beside.stat().st_size > _MOST_BYTES:
        return {}
    try:
        document = loads(beside.read_bytes()).value
    except (BadJsonError, OSError):
        return {}
    return _columns(reader, document)


def is_sidecar(sample: Sample, readers: Mapping[str, Reader]) -> bool:
    """Whether a file is the sidecar of some reader's logs, by its name and by what stands in it."""
    return len(sample.records) == 1 and any(
        getattr(reader, "sidecar", None) == sample.file_name and bool(_columns(reader, sample.records[0]))
        for reader in readers.values()
    )


def _columns(reader: Any, document: Any) -> dict[str, str]:
    found = reader.from_sidecar(document)
    return {name: str(found[name]) for name in COLUMNS if found.get(name)}
