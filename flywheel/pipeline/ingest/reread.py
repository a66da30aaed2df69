"""Files that an older version of their reader read: which they are, and what replaces what is stored of them.

A reader that was raised makes other events of the same records. Reading such files as if they were new would count
them twice, so ingest only names them; `ingest --reread` reads them from their beginning, and what it makes of a file
takes the place of all that is stored of it, in the one write that commits an ingest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from pathlib import Path

import polars as pl

from flywheel.config import IngestConfig
from flywheel.errors import UsageError
from flywheel.extensions import Reader
from flywheel.io.bucket_path import BucketPath, source_path
from flywheel.results.data import OlderReader
from flywheel.stages.ingest.sources import Known, SourceState, placed, start_of
from flywheel.store import Snapshot, Store


def stored_sources(before: Snapshot | None) -> dict[str, SourceState]:
    """Return the state of each file that was read; where it has no version, the readers of the last ingest read it."""
    if before is None:
        return {}
    versions: Mapping[str, int] = before.fingerprint.get("readers", {})
    stored: dict[str, SourceState] = {}
    for path, state in before.extra["sources"].items():
        version = versions.get(reader_of(state["format"]), 0)
        stored[path] = SourceState.from_dict({"version": version, **state})
    return stored


def reader_of(source_format: str) -> str:
    """Return the name of the reader in a file's format; an archive's is `tar of NAME`."""
    return source_format.rpartition(" of ")[2]


def _is_older(state: SourceState, readers: Mapping[str, Reader]) -> bool:
    reader = readers.get(reader_of(state.format))
    return reader is not None and 0 < state.version < reader.version and state.path not in state.set_aside


def older_readers(states: Collection[SourceState], readers: Mapping[str, Reader]) -> list[OlderReader]:
    """Return by how many files each older version of a reader is still in use."""
    older = Counter((reader_of(state.format), state.version) for state in states if _is_older(state, readers))
    return [
        OlderReader(reader=name, read_with=version, now=readers[name].version, files=files)
        for (name, version), files in sorted(older.items())
    ]


def is_there(path: Path, config: IngestConfig) -> bool:
    """Whether a file that the store names is there; no bucket is asked that `ingest.sources` does not name."""
    if not isinstance(path, BucketPath):
        return path.is_file()
    sources = (source_path(source) for source in config.sources)
    return any(isinstance(source, BucketPath) and source.covers(path) for source in sources) and path.is_file()


def older_files(
    states: Mapping[str, SourceState], readers: Mapping[str, Reader], project: Path, config: IngestConfig
) -> list[Path]:
    """Return the files that an older reader read and that are still there.

    Raises:
        UsageError: there is none.
    """
    older = [placed(name, project) for name, state in sorted(states.items()) if _is_older(state, readers)]
    there = [path for path in older if is_there(path, config)]
    if not there:
        problem = f"none of the {len(older):,} files that older readers read is there" if older else ""
        raise UsageError(
            problem or "no file was read by an older reader", hint="flywheel ingest --reread PATH reads any again"
        )
    return there


def not_replaceable(
    files: Mapping[str, Path], stored: Mapping[str, SourceState], store: Store, root: Path, max_ratio: int
) -> dict[str, str]:
    """Return the known files that do not hold all that is stored of them, with the reason.

    Args:
        files: those to be read again, by recorded name.
        stored: from `stored_sources`.
        store: where the events are.
        root: the project.
        max_ratio: `ingest.max_expand_ratio`.
    """
    events = store.table("events", "ingest").group_by("source_file").agg(pl.col("source_line").min()).collect()
    first = dict(events.iter_rows())
    reasons: dict[str, str] = {}
    for name, file in files.items():
        state = stored.get(name)
        if state is None or state.set_aside:
            continue
        start = start_of(file, name, Known([state], root), max_ratio)
        if start.same is None and start.before is None:
            reasons[name] = "it no longer begins with what was read of it"
        elif state.from_line and first.get(name, 0) > state.from_line:
            reasons[name] = "its beginning was read under another name"
    return reasons
