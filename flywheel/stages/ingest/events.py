"""Reads files into batches of events.

In: files, and what was read of them before. Out: `Batch`es, whose last for a file carries its new state.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import polars as pl

from flywheel.config import IngestConfig
from flywheel.contracts import polars_schema
from flywheel.extensions import Reader
from flywheel.records import LogEvent
from flywheel.stages.ingest.batches import Batch, Block, BlockBuilder
from flywheel.stages.ingest.files import FileReading
from flywheel.stages.ingest.opening import Content, Stream
from flywheel.stages.ingest.sources import STDIN, Known, SourceState, Start, shown_path, start_of
from flywheel.stages.ingest.workers import batches_of


def ingest(
    files: Sequence[Path],
    *,
    root: Path,
    known: Mapping[str, SourceState],
    cfg: IngestConfig,
    key: bytes,
    readers: Mapping[str, Reader],
) -> Iterator[Batch]:
    """Yield the events of files in batches; the one that holds a file's last records carries its state.

    A file whose content is known yields nothing; one that only grew yields what is new.

    Args:
        files: from `discover`; `STDIN` is standard input.
        root: the project; paths inside it are recorded relative to it.
        known: state of each file read before, by its recorded path.
        cfg: format, limits, processes and redaction.
        key: the project's redaction key.
        readers: candidates by name.

    Raises:
        IngestError: a file cannot be opened.
        ConfigError: the redaction is misconfigured.
    """
    total = sum(file.stat().st_size for file in files if file != STDIN and file.exists())
    blocks = _blocks(files, Known(known.values(), root), root, cfg, readers)
    return batches_of(blocks, sys.maxsize if STDIN in files else total, cfg, key, readers)


def first_events(
    file: Path, *, root: Path, cfg: IngestConfig, key: bytes, readers: Mapping[str, Reader], most: int
) -> pl.DataFrame:
    """Return the first events of a file as ingest stores them, redacted, with the line that each comes from.

    Args:
        file: a log.
        root: the project; a path inside it is recorded relative to it.
        cfg: format, limits and redaction.
        key: the project's redaction key.
        readers: candidates by name.
        most: how many events to return.

    Raises:
        IngestError: the file cannot be opened.
        ConfigError: the redaction is misconfigured.
    """
    frames = [pl.DataFrame(schema=polars_schema(LogEvent))]
    for batch in ingest([file], root=root, known={}, cfg=cfg, key=key, readers=readers):
        frames.append(batch.events)
        if sum(frame.height for frame in frames) >= most:
            break
    return pl.concat(frames).head(most)


def _blocks(
    files: Iterable[Path], known: Known, root: Path, cfg: IngestConfig, readers: Mapping[str, Reader]
) -> Iterator[Block]:
    builder = BlockBuilder()
    for file in files:
        if file == STDIN:
            content = Content("stdin", -1, lambda _: Stream(sys.stdin.buffer))
            start = Start(-1, hashlib.sha256().hexdigest(), "", None, None, None)
            yield from FileReading(file, "stdin", start, cfg, readers).of(content, builder)
            continue
        name = shown_path(file, root)
        start = start_of(file, name, known, cfg.max_expand_ratio)
        reading = FileReading(file, name, start, cfg, readers)
        if not reading.is_known():
            yield from reading.blocks(builder)
            if reading.state is not None:
                known.add(reading.state)
    last = builder.take()
    if last.segments or last.states:
        yield last
