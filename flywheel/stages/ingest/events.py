"""Reads files into batches of events.

In: files, and what was read of them before. Out: `Batch`es, whose last for a file carries its new state.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from flywheel.config import IngestConfig
from flywheel.extensions import Reader
from flywheel.io.crew import Crew
from flywheel.io.files import hash_text
from flywheel.stages.ingest.batches import Batch, Block, BlockBuilder
from flywheel.stages.ingest.discovery import STDIN
from flywheel.stages.ingest.files import FileReading, filled
from flywheel.stages.ingest.framing.framed import Bad
from flywheel.stages.ingest.framing.opening import Content, Stream
from flywheel.stages.ingest.sources import UNKNOWN, Known, SourceState, Start, shown_path, start_of
from flywheel.stages.ingest.workers import batches_of

UNREADABLE_FILE = "unreadable_file"  # the reason of a file that cannot be opened


def ingest(  # noqa: PLR0913 - what is read, and how
    files: Sequence[Path],
    *,
    root: Path,
    known: Mapping[str, SourceState],
    cfg: IngestConfig,
    key: bytes,
    readers: Mapping[str, Reader],
    refused: Mapping[str, str] | None = None,
    crew: Crew | None = None,
) -> Iterator[Batch]:
    """Yield the events of files in batches; the one that holds a file's last records carries its state.

    A file whose content is known yields nothing; one that only grew yields what is new; one that cannot be opened
    yields its refusal.

    Args:
        files: from `discover`; `STDIN` is standard input.
        root: the project; paths inside it are recorded relative to it.
        known: state of each file read before, by its recorded path.
        cfg: format, limits, processes and redaction.
        key: the project's redaction key.
        readers: candidates by name.
        refused: why nothing of a file, or of an archive's member, is to be stored, by its recorded name.
        crew: who works, as long as the caller wants; None: processes of this machine, until the last batch.

    Raises:
        ConfigError: the redaction is misconfigured.
        ClusterError: the cluster cannot be reached, or lost a task.
    """
    total = sum(file.stat().st_size for file in files if file != STDIN and file.exists())
    blocks = _blocks(files, Known(known.values(), root), root, cfg, readers, refused or {})
    with ExitStack() as own:
        crew = crew or own.enter_context(Crew())
        yield from batches_of(blocks, None if STDIN in files else total, cfg, key, readers, crew)


def _blocks(
    files: Iterable[Path],
    known: Known,
    root: Path,
    cfg: IngestConfig,
    readers: Mapping[str, Reader],
    refused: Mapping[str, str],
) -> Iterator[Block]:
    builder = BlockBuilder()
    for file in files:
        if file == STDIN:
            content = Content("stdin", -1, lambda _: Stream(sys.stdin.buffer))
            start = Start(-1, hashlib.sha256().hexdigest(), "", None, None, None)
            yield from FileReading(file, "stdin", start, cfg, readers).of(content, builder)
            continue
        name = shown_path(file, root)
        try:
            start = start_of(file, name, known, cfg.max_expand_ratio)
        except OSError as error:
            builder.open(name, UNKNOWN, {})
            bad = Bad(0, UNREADABLE_FILE, f"it cannot be opened: {error.strerror}", 0, hash_text(name))
            yield from filled(builder.add(bad))
            continue
        reading = FileReading(file, name, start, cfg, readers, refused)
        if not reading.is_known():
            yield from reading.blocks(builder)
            if reading.state is not None:
                known.add(reading.state)
    last = builder.take()
    if last.segments or last.states:
        yield last
