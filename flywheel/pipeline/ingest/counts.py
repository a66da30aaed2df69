"""What one ingest counted: records, files and sources, for the command's result and for the stage's funnel.

Counts are of records (lines, array elements, Parquet rows): read = kept + duplicate + forgotten + ignored +
quarantined. A file of which nothing is stored counts with all its records.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from flywheel.pipeline.ingest.verdicts import Verdicts
from flywheel.results.data import IngestAnswer, LostFields, NotRead, OlderReader, PolicyRow, RefusedSource, SetAside
from flywheel.stages.ingest.batches import BAD_FILE, Batch
from flywheel.stages.ingest.lost import LostCounts

BAD_SOURCE = "bad_source"
_SHOWN = 3


class ReadSoFar(NamedTuple):
    """How far ingest is; bytes are those of the files as they are."""

    records: int
    files: int
    all_files: int
    bytes: int
    all_bytes: int


@dataclass
class Counts:
    """Counts of one ingest run."""

    files: int = 0
    untouched: int = 0  # files that were found and not read, although they are new
    read: int = 0
    kept: int = 0
    duplicate: int = 0
    forgotten: int = 0
    events: int = 0
    replaced: int = 0  # events of files that are read again
    ignored: Counter[str] = field(default_factory=Counter)
    quarantined: Counter[str] = field(default_factory=Counter)
    redacted: Counter[str] = field(default_factory=Counter)
    formats: Counter[str] = field(default_factory=Counter)
    lost: dict[str, LostCounts] = field(default_factory=dict)
    first_quarantined: list[str] = field(default_factory=list)

    def add(self, batch: Batch) -> None:
        """Count what the store has no say in."""
        self.read += batch.read
        self.ignored.update(batch.ignored)
        self.redacted.update(batch.redacted)
        self.quarantined.update(batch.quarantined["reason"].to_list())
        for source_format, fields in batch.lost.items():
            if source_format in self.lost:
                self.lost[source_format].add(fields)
            else:
                self.lost[source_format] = fields
        room = max(0, _SHOWN - len(self.first_quarantined))
        for row in batch.quarantined.head(room).iter_rows(named=True):
            self.first_quarantined.append(
                f"{row['source_file']}:{row['source_line']}: {row['reason']}: {row['detail']}"
            )

    def add_refused(self, verdicts: Verdicts, counted: Container[str]) -> None:
        """Count the records of what was refused as a whole; a file in `counted` is one refusal so far."""
        for name, records in verdicts.records.items():
            more = records - 1 if name in counted else records
            self.read += more
            self.quarantined[BAD_FILE] += more
        for source in verdicts.sources:
            self.read += sum(source.left_out.values())
            self.quarantined[BAD_SOURCE] += sum(source.left_out.values())
        self.quarantined += Counter()  # without zeros

    def answer(
        self,
        *,
        dry_run: bool,
        set_aside: Iterable[SetAside],
        refused: Iterable[RefusedSource],
        not_read: Iterable[NotRead],
        policies: Iterable[PolicyRow],
        older: Iterable[OlderReader],
    ) -> IngestAnswer:
        """Return the counts as the command's result."""
        lost = sorted(self.lost.items())
        return IngestAnswer(
            files=self.files,
            unchanged=max(0, self.files - self.untouched - sum(self.formats.values())),
            formats=dict(sorted(self.formats.items())),
            read=self.read,
            kept=self.kept,
            duplicate=self.duplicate,
            forgotten=self.forgotten,
            ignored=dict(sorted(self.ignored.items())),
            quarantined=dict(sorted(self.quarantined.items())),
            first_quarantined=self.first_quarantined,
            set_aside=list(set_aside),
            refused=list(refused),
            not_read=list(not_read),
            policies=list(policies),
            events=self.events,
            replaced=self.replaced,
            older=list(older),
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
