"""Columns from a log's place: which model ran, under which policy, within which run ids are unique.

In: a log, its reader, and the file that the reader names as its `sidecar`. Out: columns for the events that lack them.
A sidecar is small, is JSON, and is not a conversation; where it is missing or is something else, there are no columns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from flywheel.extensions import Reader, Sample
from flywheel.stages.ingest.framing.jsontext import BadJsonError, loads

COLUMNS = ("model", "policy", "task_key", "scope", "series", "id", "ignored")
_TASKS = "tasks"  # the folder of which each folder is a task
_MOST_BYTES = 1_000_000


def columns_of(reader: Reader, path: str, next_to: Callable[[str], bytes | None]) -> dict[str, str]:
    """Return the columns that a log's place gives.

    Args:
        reader: the log's reader.
        path: the log's path as recorded.
        next_to: returns the content of a file next to the log, by its name; None where there is none.
    """
    from_path = getattr(reader, "from_path", None)
    columns = from_path(PurePosixPath(path)) if from_path is not None else {}
    fields = _task_of(PurePosixPath(path)) | {name: str(columns[name]) for name in COLUMNS if columns.get(name)}
    name = getattr(reader, "sidecar", None)
    content = next_to(name) if isinstance(name, str) else None
    if content is None:
        return fields
    try:
        return fields | _columns(reader, loads(content).value)
    except BadJsonError:
        return fields


def _task_of(path: PurePosixPath) -> dict[str, str]:
    """Return the task whose folder a log is in, as `tasks/ID/logs/calls.jsonl` names it, of paths in a project."""
    folders = path.parts[:-1]
    at = len(folders) - 1 - folders[::-1].index(_TASKS) if _TASKS in folders and not path.is_absolute() else None
    return {"task_key": folders[at + 1]} if at is not None and at + 1 < len(folders) else {}


def neighbour(file: Path, name: str) -> bytes | None:
    """Return the content of a file next to or above another one, unless it is too large for a sidecar."""
    for folder in (file.parent, file.parent.parent):
        beside = folder / name
        try:
            if beside.is_file() and beside.stat().st_size <= _MOST_BYTES:
                return beside.read_bytes()
        except OSError:
            continue
    return None


def is_sidecar(sample: Sample, readers: Mapping[str, Reader]) -> bool:
    """Whether a file is the sidecar of some reader's logs, by its name and its content."""
    return len(sample.records) == 1 and any(
        getattr(reader, "sidecar", None) == sample.file_name and bool(_columns(reader, sample.records[0]))
        for reader in readers.values()
    )


def _columns(reader: Any, document: Any) -> dict[str, str]:
    columns = reader.from_sidecar(document)
    return {name: str(columns[name]) for name in COLUMNS if columns.get(name)}
