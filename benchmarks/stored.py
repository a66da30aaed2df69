"""What an ingest of a short log costs, however much is stored: processor's seconds and memory, by events in the store.

`python benchmarks/stored.py [EVENTS ...]`: 2,000 records are ingested and repeated under other ids until the store has
so many events; then a log of 200 known and 200 new records comes. Memory is the rise of this process's peak.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
from flywheel.config import Config
from flywheel.pipeline.ingest.run import ingest_logs
from flywheel.store import Store

if TYPE_CHECKING:
    from flywheel.results.data import IngestAnswer

SIZES = (100_000, 1_000_000, 10_000_000)
BASE, NEW, CHUNK = 2_000, 200, 250


def line(number: int) -> str:
    """Return one record of a log."""
    message = {"role": "user", "content": f"question {number}"}
    event = {"conversation_id": f"talk-{number // 10}", "seq": number % 10, "kind": "request"}
    return json.dumps({**event, "payload": {"messages": [message]}}) + "\n"


def ingest(project: Path, first: int, last: int) -> IngestAnswer:
    """Ingest some records as a file of their own."""
    log = project / f"{first}.jsonl"
    log.write_text("".join(map(line, range(first, last))), encoding="utf-8")
    return ingest_logs(Store(project / ".flywheel"), Config(), project, [log], key=b"made")


def fill(project: Path, events: int) -> None:
    """Make a store of so many events."""
    store = Store(project / ".flywheel")
    store.create()
    ingest(project, 0, BASE)
    before = store.current("ingest")
    if before is None:
        raise RuntimeError("nothing was stored")
    parts = list(before.parts)
    for part in before.parts:
        rows = store.read([part], "events").collect()
        for first in range(1, events // BASE, CHUNK):
            copies = range(first, min(first + CHUNK, events // BASE))
            other = [rows.with_columns(event_id=f"{n:08x}" + pl.col("event_id").str.slice(8)) for n in copies]
            written = store.write("events", pl.concat(other), partition=part.partition)
            parts += [written] if written is not None else []
    store.commit("ingest", fingerprint=before.fingerprint, parts=parts, funnel=before.funnel, extra=before.extra)


def measure(project: Path, events: int) -> None:
    """Print what the short log costs."""
    peak, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    result = ingest(project, BASE - NEW, BASE + NEW)
    spent = time.process_time() - began
    rise = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak) / 1024
    print(f"{events:,} events: {spent:.2f} s, +{rise:.0f} MB; {result.kept} kept, {result.duplicate} known", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        measure(Path(sys.argv[2]), int(sys.argv[3]))
    else:
        for asked in map(int, sys.argv[1:] or SIZES):
            with tempfile.TemporaryDirectory() as folder:
                fill(Path(folder), asked)
                subprocess.run([sys.executable, __file__, "--one", folder, str(asked)], check=True)
