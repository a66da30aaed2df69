"""From log files to the events table: reading, deduplicating against what is stored, one snapshot at the end.

The snapshot of the `ingest` stage carries the list of source files with what was read of each, so that events and
cursor can never disagree: both change in one write. Counts are of records (lines, array elements, Parquet rows):
read = kept + duplicate + ignored + quarantined.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from flywheel.config import Config, IngestConfig
from flywheel.errors import IngestError
from flywheel.extensions import Reader, list_extensions, load_extension
from flywheel.results.data import IngestAnswer, LostFields
from flywheel.stages.ingest.batches import Batch
from flywheel.stages.ingest.dedup import Ids, dedup
from flywheel.stages.ingest.events import ingest
from flywheel.stages.ingest.forgotten import Forgotten
from flywheel.stages.ingest.lost import LostCounts
from flywheel.stages.ingest.sources import STDIN, SourceState, discover
from flywheel.store import Part, Snapshot, Store

FORGOTTEN = "forgotten"  # in the snapshot: hashes of whom and what ingest refuses
AUDITS = "audits"  # folder of reviewers' answers, in the project
_FLUSH_BYTES = 128_000_000
_SMALL_ROWS, _MANY_PARTS = 20_000, 32
_SHOWN = 3


@dataclass
class _Counts:
    """Counts of one ingest run."""

    files: int = 0
    unchanged: int = 0
    read: int = 0
    kept: int = 0
    duplicate: int = 0
    forgotten: int = 0
    events: int = 0
    ignored: Counter[str] = field(default_factory=Counter)
    quarantined: Counter[str] = field(default_factory=Counter)
    redacted: Counter[str] = field(default_factory=Counter)
    formats: Counter[str] = field(default_factory=Counter)
    lost: dict[str, LostCounts] = field(default_factory=dict)
    first_quarantined: list[str] = field(default_factory=list)

    def answer(self, *, dry_run: bool) -> IngestAnswer:
        """Return the counts as the command's result."""
        lost = sorted(self.lost.items())
        return IngestAnswer(
            files=self.files,
            unchanged=self.unchanged,
            formats=dict(sorted(self.formats.items())),
            read=self.read,
            kept=self.kept,
            duplicate=self.duplicate,
            forgotten=self.forgotten,
            ignored=dict(sorted(self.ignored.items())),
            quarantined=dict(sorted(self.quarantined.items())),
            first_quarantined=self.first_quarantined,
            events=self.events,
            redacted=dict(sorted(self.redacted.items())),
            lost=[LostFields(format=f, sampled=c.total, fields=dict(sorted(c.by_path.items()))) for f, c in lost],
            dry_run=dry_run,
        )

    def funnel(self) -> dict[str, int]:
        """Return the counts in the form of `Funnel.as_dict`."""
        counts = {"considered": self.read, "kept": self.kept, "dropped: duplicate": self.duplicate}
        counts |= {"dropped: of a forgotten user": self.forgotten} if self.forgotten else {}
        counts |= {f"dropped: ignored, {k}": v for k, v in sorted(self.ignored.items())}
        counts |= {f"dropped: quarantined, {k}": v for k, v in sorted(self.quarantined.items())}
        counts |= {f"note: redacted {k}": v for k, v in sorted(self.redacted.items())}
        return counts | {"note: events": self.events}


def load_readers(config: IngestConfig, project: Path) -> dict[str, Reader]:
    """Return the readers that detection may choose from: all installed ones, or the one the configuration names."""
    names = [e.name for e in list_extensions("readers")] if config.format == "auto" else [config.format]
    return {name: load_extension("readers", name, search=project) for name in names}


class _Intake:
    """Collects deduplicated rows and writes them as parts when enough have come."""

    def __init__(self, store: Store, before: Snapshot | None) -> None:
        self._store = store
        self._before = before
        self._seen: dict[int, Ids] = {}  # by partition
        self._waiting: dict[int, list[pl.DataFrame]] = {}
        self._bytes = 0
        self._bad: list[pl.DataFrame] = []
        self._again: dict[str, int] = {}  # files read now, and behind which line
        self.forgotten = Forgotten(before.extra.get(FORGOTTEN, ()) if before else ())
        self.parts: list[Part] = list(before.parts) if before else []

    def add(self, batch: Batch, result: _Counts) -> None:
        """Take in one batch and count its records by outcome."""
        ours = batch.events.filter(~self.forgotten.refused(batch.events))
        refused = _records(batch.events) - _records(ours)
        fresh = self._unseen(ours)
        accepted = batch.read - sum(batch.ignored.values()) - batch.quarantined.height
        kept = _records(fresh)
        result.read += batch.read
        result.kept += kept
        result.forgotten += refused
        result.duplicate += accepted - kept - refused
        result.events += fresh.height
        result.ignored.update(batch.ignored)
        result.redacted.update(batch.redacted)
        result.quarantined.update(batch.quarantined["reason"].to_list())
        for source_format, fields in batch.lost.items():
            if source_format in result.lost:
                result.lost[source_format].add(fields)
            else:
                result.lost[source_format] = fields
        room = max(0, _SHOWN - len(result.first_quarantined))
        for row in batch.quarantined.head(room).iter_rows(named=True):
            result.first_quarantined.append(
                f"{row['source_file']}:{row['source_line']}: {row['reason']}: {row['detail']}"
            )
        if batch.quarantined.height:
            self._bad.append(batch.quarantined)
        self._again |= {state.path: state.from_line for state in batch.states}
        if self._bytes >= _FLUSH_BYTES:
            self.flush()

    def _unseen(self, events: pl.DataFrame) -> pl.DataFrame:
        if events.height == 0:
            return events
        conversations = events["conversation_id"].unique().to_list()
        where = {c: self._store.partition(c) for c in conversations}
        partition = events["conversation_id"].replace_strict(where, return_dtype=pl.Int64)
        fresh = []
        for number in sorted(set(where.values())):
            known = self._known(number)
            rows = dedup(events.filter(partition == number), known).frame
            known.add(rows["event_id"])
            self._waiting.setdefault(number, []).append(rows)
            self._bytes += int(rows.estimated_size())
            fresh.append(rows)
        return pl.concat(fresh)

    def _known(self, partition: int) -> Ids:
        if partition not in self._seen:
            self._seen[partition] = known = Ids()
            for part in self._before.parts if self._before else ():
                if part.table == "events" and part.partition == partition:
                    known.add(self._store.read([part], "events").select("event_id").collect()["event_id"])
        return self._seen[partition]

    def flush(self) -> None:
        """Write what waits as parts; they stay invisible until the snapshot names them."""
        for number, frames in sorted(self._waiting.items()):
            part = self._store.write("events", pl.concat(frames), partition=number)
            if part is not None and part not in self.parts:
                self.parts.append(part)
        self._waiting, self._bytes = {}, 0

    def _compact(self) -> None:
        """Put a partition's many small parts together, as following a log leaves them."""
        for number in range(self._store.partitions):
            small = [p for p in self.parts if (p.table, p.partition) == ("events", number) and p.rows < _SMALL_ROWS]
            if len(small) < _MANY_PARTS:
                continue
            part = self._store.write("events", self._store.read(small, "events").collect(), partition=number)
            gone = {p.path for p in small}
            self.parts = [p for p in self.parts if p.path not in gone] + ([part] if part is not None else [])

    def finish(self) -> None:
        """Write everything that is left, and a new quarantine: rows of lines that were read again are replaced."""
        self.flush()
        if self.forgotten.learnt:  # a conversation may have shown late whose it is
            gone = pl.col("conversation_id").is_in(sorted(self.forgotten.learnt))
            self.parts = without(self._store, self.parts, gone)
        self._compact()
        before = self._store.read(self._before.parts if self._before else (), "quarantine").collect()
        file = pl.col("source_file").str.split("!/").list.first()
        behind = file.replace_strict(self._again, default=None, return_dtype=pl.Int64)
        line = pl.col("source_line")
        again = behind.is_not_null() & ((line > behind) | (line == 0))
        rows = pl.concat([before.filter(~again), *self._bad])
        rows = rows.unique(["source_file", "source_line", "reason", "content_hash"], keep="first", maintain_order=True)
        part = self._store.write("quarantine", rows, partition=0)
        self.parts = [p for p in self.parts if p.table != "quarantine"] + ([part] if part is not None else [])


def _records(events: pl.DataFrame) -> int:
    return events.select("source_file", "source_line").n_unique() if events.height else 0


def without(store: Store, parts: Sequence[Part], gone: pl.Expr) -> list[Part]:
    """Return the parts without the events for which `gone` is true: a part that holds any is written again."""
    kept: list[Part] = []
    for part in parts:
        if part.table != "events" or store.read([part], "events").filter(gone).limit(1).collect().is_empty():
            kept.append(part)
            continue
        rest = store.read([part], "events").filter(~gone.fill_null(value=False)).collect()
        written = store.write("events", rest, partition=part.partition)
        kept += [written] if written is not None else []
    return kept


def _refuse_too_bad(result: _Counts, limit: float) -> None:
    bad = sum(result.quarantined.values())
    if result.read and bad / result.read > limit:
        shown = "\n  ".join(result.first_quarantined)
        raise IngestError(
            f"{bad:,} of {result.read:,} records are unreadable ({bad / result.read:.1%}, limit {limit:.1%}); "
            f"nothing was stored. The first:\n  {shown}",
            hint="mend the export, name its format with --format, or raise ingest.max_quarantine",
        )


def default_sources(config: Config, project: Path) -> list[Path]:
    """Return what is read when no path is given: the configured sources, and reviewers' answers where there are any."""
    answers = project / AUDITS
    has_answers = any(answers.glob("*.jsonl")) if answers.is_dir() else False
    return [project / source for source in config.ingest.sources] + ([answers] if has_answers else [])


def ingest_logs(  # noqa: PLR0913 - what is read, where to, and how
    store: Store,
    config: Config,
    project: Path,
    paths: Sequence[Path],
    *,
    key: bytes,
    dry_run: bool = False,
    again: frozenset[str] = frozenset(),
) -> IngestAnswer:
    """Read log files into the store; the same files twice change nothing.

    Args:
        store: where events go.
        config: ingest settings.
        project: folder that recorded paths are relative to.
        paths: files, folders or globs.
        key: the project's redaction key.
        dry_run: count everything, store nothing.
        again: recorded paths of files that are read from their beginning although they are known.

    Raises:
        IngestError: nothing was found, or more than `ingest.max_quarantine` of the records is unreadable.
        StoreError: the disk refuses.
    """
    files = discover(paths)
    before = store.current("ingest")
    sources: dict[str, Any] = dict(before.extra["sources"]) if before else {}
    known: Mapping[str, SourceState] = {
        path: SourceState.from_dict(state) for path, state in sources.items() if path not in again
    }
    result, intake = _Counts(files=len(files)), _Intake(store, before)
    readers = load_readers(config.ingest, project)
    for batch in ingest(files, root=project, known=known, cfg=config.ingest, key=key, readers=readers):
        intake.add(batch, result)
        for state in batch.states:
            result.formats[state.format] += 1
            sources[state.path] = state.to_dict()
    if STDIN in files:
        result.formats["standard input"] += 1
    result.unchanged = result.files - sum(result.formats.values())
    _refuse_too_bad(result, config.ingest.max_quarantine)
    if not dry_run:
        intake.finish()
        extra: dict[str, Any] = {"sources": sources}
        if intake.forgotten.marks:
            extra[FORGOTTEN] = sorted(intake.forgotten.marks)
        if before is None or extra != before.extra or set(before.parts) != set(intake.parts):
            versions = {r.name: r.version for r in readers.values()}
            store.commit(
                "ingest",
                fingerprint={"readers": versions},
                parts=intake.parts,
                funnel=result.funnel(),
                extra=extra,
            )
    return result.answer(dry_run=dry_run)
