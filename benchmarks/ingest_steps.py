"""Where the time of ingest goes, step by step, on one core.

`python benchmarks/ingest_steps.py [--mb 20] [--runs 3] [--formats native openai ...]`: the logs of `ingest.py`, worked
on by flywheel's own parts one after the other over the whole log, each timed alone: framing, parsing, reading (a
record's events), sampling (which fields are not kept), finishing (redaction, identities, columns), tables; and the
whole `Project.ingest` with one process, whose rest is detection, deduplication and writing Parquet. Microseconds a
record, medians of `--runs`. With `--against CHECKOUT` the ratio of whole ingest to that of another version.
"""

from __future__ import annotations

import argparse
import gc
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ingest import SOURCES, write

STEPS = ("framing", "parsing", "reading", "sampling", "finishing", "tables", "rest")
KEY = b"benchmark"
WHOLE = """
import os, sys, tempfile, time
sys.path.insert(0, os.getcwd())
from flywheel import Project
from flywheel.config import Config
config = Config.model_validate({"ingest": {"workers": 1}})
def seconds():
    with tempfile.TemporaryDirectory() as out:
        started = time.process_time()
        Project(out, config=config).ingest([sys.argv[1]])
        return time.process_time() - started
print(min(seconds() for _ in range(3)))
"""


class Log:
    """A log that flywheel's parts work on one after the other; each keeps what the next one needs."""

    def __init__(self, path: Path, config: Any) -> None:
        from flywheel.pipeline.ingest.run import load_readers
        from flywheel.stages.ingest.redaction.redact import Redactor

        self.path, self._cfg = path, config.ingest
        self._readers = load_readers(self._cfg, path.parent)
        self._redactor = Redactor(self._cfg.redact, KEY)

    def framing(self) -> None:
        """Read the file, in blocks of raw records."""
        from flywheel.stages.ingest.batches import BlockBuilder
        from flywheel.stages.ingest.files import FileReading
        from flywheel.stages.ingest.sources import Known, start_of

        builder, name = BlockBuilder(), self.path.name
        start = start_of(self.path, name, Known([], self.path.parent), self._cfg.max_expand_ratio)
        reading = FileReading(self.path, name, start, self._cfg, self._readers)
        self._segments = [s for block in (*reading.blocks(builder), builder.take()) for s in block.segments]

    def parsing(self) -> None:
        """Make values of JSON."""
        from flywheel.stages.ingest.framing.framed import Lines

        self._records: list[list[Any]] = [
            [
                r
                for given in segment.records
                for r in (given.records() if isinstance(given, Lines) else [_parsed(given)])
            ]
            for segment in self._segments
        ]

    def reading(self) -> None:
        """Make events of records."""
        from flywheel.stages.ingest.normalize import Normalizer

        ways = [Normalizer(self._readers[s.format], s.path, s.columns) for s in self._segments]
        self._events: list[list[Any]] = [
            [way.rows(r) for r in records] for way, records in zip(ways, self._records, strict=True)
        ]

    def sampling(self) -> None:
        """Look which fields the events of a sample of records do not hold."""
        from flywheel.stages.ingest.lost import LostFields

        lost = LostFields()
        for segment, records, events in zip(self._segments, self._records, self._events, strict=True):
            for record, found in zip(records, events, strict=True):
                lost.look(segment.format, record, found)

    def finishing(self) -> None:
        """Redact, name and check events, column by column."""
        from flywheel.stages.ingest.normalize import finished

        self._columns = [
            finished([row for found in events for row in found], self._redactor) for events in self._events
        ]

    def tables(self) -> None:
        """Make tables of columns."""
        from flywheel.stages.ingest.batches import Batch, Counts

        for columns in self._columns:
            Batch.of(columns, Counts(), {}, {})

    def __len__(self) -> int:
        return sum(map(len, self._records))


def _parsed(given: Any) -> Any:
    return given.parse() if hasattr(given, "parse") else given


def steps(path: Path) -> tuple[list[float], int]:
    """Return the seconds of each step over a log, and its records."""
    from flywheel import Project
    from flywheel.config import Config

    config = Config.model_validate({"ingest": {"workers": 1}})
    log = Log(path, config)
    seconds = [_seconds(getattr(log, name)) for name in STEPS[:-1]]
    number = len(log)
    del log
    gc.collect()
    with tempfile.TemporaryDirectory() as out:
        project = Project(out, config=config)
        whole = _seconds(lambda: project.ingest([path]))
    return [*seconds, whole - sum(seconds)], number


def _seconds(work: Callable[[], Any]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def ratio(log: Path, checkout: Path, runs: int) -> float:
    """Return the processor time of ingest as a multiple of another checkout's: both in turns, least of `runs` each."""
    least = dict.fromkeys((checkout, Path(__file__).resolve().parents[1]), float("inf"))
    for _ in range(runs):
        for tree in least:
            own = tree / ".venv" / "bin" / "python"  # whose entry points are that version's
            command = [str(own) if own.exists() else sys.executable, "-c", WHOLE, str(log)]
            done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=tree)
            least[tree] = min(least[tree], float(done.stdout))
    before, now = least.values()
    return now / before


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mb", type=float, default=20)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--formats", nargs="+", default=list(SOURCES), choices=list(SOURCES))
    parser.add_argument("--against", type=Path, help="another checkout: print the ratio of whole ingest instead")
    chosen = parser.parse_args()
    os.environ["FLYWHEEL_KEY"] = KEY.decode()
    gc.disable()  # as the worker does for a block
    print(f"µs a record, {chosen.mb:g} MB, one core, median of {chosen.runs}")
    print(f"{'format':12}{'bytes':>8}" + "".join(f"{name:>11}" for name in STEPS) + f"{'whole':>9}")
    with tempfile.TemporaryDirectory() as folder:
        for name in chosen.formats:
            log = write(name, chosen.mb, Path(folder))
            if chosen.against:
                print(f"{name:12}{ratio(log, chosen.against.resolve(), chosen.runs):8.2f} of {chosen.against}")
                continue
            runs = [steps(log) for _ in range(chosen.runs)]
            number = runs[0][1]
            medians = [statistics.median(run[place] for run, _ in runs) / number * 1e6 for place in range(len(STEPS))]
            row = "".join(f"{value:11.1f}" for value in medians)
            print(f"{name:12}{log.stat().st_size / number:8.0f}{row}{sum(medians):9.1f}", flush=True)
            log.unlink()


if __name__ == "__main__":
    main()
