"""Ingesting log files as they grow."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from flywheel.io.bucket_path import BucketPath
from flywheel.results.data import IngestAnswer
from flywheel.stages.ingest.discovery import discover

_REST = 4.0  # pause after a pass, as a multiple of its duration


def follow(
    ingest: Callable[[list[Path]], IngestAnswer],
    sources: Sequence[Path],
    interval_s: float,
    sleep: Callable[[float], object],
) -> Iterator[IngestAnswer]:
    """Ingest files whose size or modification time changed; yield a result whenever there was a new record.

    A pass is followed by a pause of `interval_s` seconds, or of four times its duration where that is longer.

    Raises:
        IngestError: no file was found, or too many records are unreadable.
    """
    seen: dict[Path, tuple[int, int | str]] = {}
    while True:
        started = time.monotonic()
        states = {file: state for file in discover(sources) if (state := _state(file))}
        changed = [file for file, state in states.items() if seen.get(file) != state]
        seen = states
        if changed:
            answer = ingest(changed)
            if answer.read or answer.quarantined:
                yield answer
        sleep(max(interval_s, _REST * (time.monotonic() - started)))


def _state(file: Path) -> tuple[int, int | str] | None:
    """Return a file's size in bytes and time of change in ns, or an object's tag; None where it was rotated away."""
    try:
        stat = file.stat()
    except OSError:
        return None
    return stat.st_size, file.etag if isinstance(file, BucketPath) else stat.st_mtime_ns
