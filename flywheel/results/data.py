"""Results of data: logs read, tables built, queries and datasets."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import Field

from flywheel.records import Document, LogEvent, Quarantined, Record


class LostFields(Record):
    """Fields of a format whose values are in no event, from a sample of its records."""

    format: str
    sampled: int = Field(description="Records looked at.")
    fields: dict[str, int] = Field(description="Number of these records in which each field was lost.")


class PolicyRow(Record):
    """A policy that acted in what was read."""

    policy: str
    rule: str = Field(description="What names it: log (or --policy), model, settings, file, folder, or none.")
    conversations: int
    files: int


class SetAside(Record):
    """A file, or an archive's member, of which nothing is stored."""

    file: str = Field(description="Its path; of an archive's member ARCHIVE!/MEMBER.")
    reason: str = Field(description="unknown_format, bad_file, unreadable_file, truncated or a record's reason.")
    detail: str = Field(description="What is wrong, without log text.")


class RefusedSource(Record):
    """A source of which nothing new is stored, because too much of it is unreadable."""

    source: str = Field(description="The path as it was named.")
    files: int = Field(description="Its files with records.")
    reason: str


class NotRead(Record):
    """What lies below a named folder and is not read."""

    path: str
    why: str = Field(description="A folder that cannot be read, a link that leads out, a FIFO, ...")


class OlderReader(Record):
    """Files that were read by a reader of an older version than the installed one."""

    reader: str
    read_with: int = Field(description="Version that read them.")
    now: int = Field(description="Version that is installed.")
    files: int


class IngestAnswer(Document):
    """`flywheel ingest`: read = kept + duplicate + forgotten + ignored + quarantined."""

    document: ClassVar[str] = "cli/ingest"

    files: int = Field(description="Files found.")
    unchanged: int = Field(description="Files without new records.")
    formats: dict[str, int] = Field(description="Files read, by format.")
    read: int = Field(description="Records read: lines, array elements or rows.")
    kept: int = Field(description="Records that gave at least one new event.")
    duplicate: int = Field(description="Records whose events were all known.")
    forgotten: int = Field(default=0, description="Records refused because their user was forgotten.")
    ignored: dict[str, int] = Field(description="Valid records without an event, by reason.")
    quarantined: dict[str, int] = Field(description="Unreadable records, by reason.")
    first_quarantined: list[str] = Field(description="file:line: reason of the first few.")
    set_aside: list[SetAside] = Field(
        default=[], description="Files of which nothing is stored; tried again when they or the readers change."
    )
    refused: list[RefusedSource] = Field(default=[], description="Sources of which nothing new is stored.")
    policies: list[PolicyRow] = Field(default=[], description="Policies of the conversations that were read.")
    not_read: list[NotRead] = Field(default=[], description="Folders, links and special files that were passed over.")
    events: int = Field(description="New events.")
    replaced: int = Field(default=0, description="Stored events that gave way to what was read again (--reread).")
    older: list[OlderReader] = Field(
        default=[], description="Files that older readers read; --reread reads them again."
    )
    redacted: dict[str, int] = Field(description="Replaced values, by kind.")
    lost: list[LostFields] = Field(default=[], description="Fields of the sources that no event has, by format.")
    dry_run: bool = Field(description="True if no record was stored.")


class QuarantineReason(Record):
    """Quarantined records of one reason."""

    reason: str
    records: int
    meaning: str = Field(description="Meaning of the reason, and a remedy.")


class QuarantineAnswer(Document):
    """`flywheel quarantine`."""

    document: ClassVar[str] = "cli/quarantine"

    records: int = Field(description="Quarantined records that match the filters; the other counts are of these.")
    files: int
    size_bytes: int
    reasons: list[QuarantineReason]
    rows: list[Quarantined] = Field(description="The first of them; their text is never stored.")


class QuarantineRetry(Document):
    """`flywheel quarantine --retry`."""

    document: ClassVar[str] = "cli/quarantine_retry"

    files: int = Field(description="Files read again.")
    gone: list[str] = Field(
        description="Files that no longer exist, or lie in a bucket that ingest.sources does not name; their rows stay."
    )
    before: int = Field(description="Quarantined records before.")
    after: int = Field(description="Quarantined records now.")
    read: int
    kept: int = Field(description="Records that gave new events.")


class ReaderRow(Record):
    """An installed reader."""

    name: str
    reader_version: int
    reads: str = Field(description="The logs it reads, in a few words.")
    distribution: str
    confidence: float | None = Field(default=None, description="Confidence that it can read the given file.")


class ReadersAnswer(Document):
    """`flywheel readers`."""

    document: ClassVar[str] = "cli/readers"

    readers: list[ReaderRow]
    verdict: str = Field(default="", description="The file's detected format, or the shape of its records.")
    policies: list[PolicyRow] = Field(default=[], description="Policies in the file's first records, by themselves.")
    events: list[LogEvent] = Field(default=[], description="The file's first events, redacted, with --events.")
    sketch: str = Field(default="", description="Python code: the beginning of a reader for the file, with --sketch.")


class StageAnswer(Record):
    """One stage in `build` and `status`."""

    stage: str
    state: str = Field(description="fresh, stale, built or never.")
    why: list[str] = Field(description="What changed since the last build.")
    rows: dict[str, int] = Field(description="Rows by table.")
    funnel: dict[str, int] = Field(description="considered = kept + dropped by reason; errors and notes besides.")
    seconds: float = 0.0


class BuildAnswer(Document):
    """`flywheel build`."""

    document: ClassVar[str] = "cli/build"

    stages: list[StageAnswer]


class StatusAnswer(Document):
    """`flywheel status`."""

    document: ClassVar[str] = "cli/status"

    project: str
    store: str
    store_bytes: int
    champion: int | None = Field(description="null while the base model serves.")
    challenger: int | None
    previous: int | None
    next_round: int
    source_files: int = Field(description="Files that ingest has read, also those set aside.")
    set_aside: int = Field(default=0, description="Of these, files with content that is not stored.")
    new_files: int = Field(description="Files under ingest.sources that are new or have grown.")
    stages: list[StageAnswer]
    looks: dict[str, int] = Field(
        default={}, description="Improvement in points → looks that the next decision needs for it, at the last pace."
    )
    left_elsewhere: list[str] = Field(
        default=[], description="Copies outside of the project that hold what was forgotten: served, pushed or merged."
    )
    next: str = Field(description="The command to type next.")


class QueryAnswer(Document):
    """`flywheel query`."""

    document: ClassVar[str] = "cli/query"

    columns: list[str]
    rows: list[list[Any]] = Field(description="Values by column; times as ISO text.")
    total: int = Field(description="Rows of the whole result.")


class ExportFile(Record):
    """One file of an exported dataset."""

    path: str = Field(description="Relative to the folder.")
    form: str = Field(description="preference, unpaired, sft or groups.")
    trainers: str = Field(description="What trains on it; '' of a file that describes others.")
    rows: int
    longest: int = Field(default=0, description="Characters of the longest mined row, as JSON; rows are never cut.")
    sha256: str = Field(description="Hash of its bytes.")
    counts: dict[str, int] = Field(description="Funnel: considered, kept, dropped by reason.")


class ExportLoss(Record):
    """Something that a system has no place for."""

    field: str = Field(description="Of the mined rows.")
    rows: int = Field(description="Mined rows that have it.")
    why: str


class ExportAnswer(Document):
    """`flywheel export`."""

    document: ClassVar[str] = "cli/export"

    folder: str = Field(description="Where the dataset is.")
    split: str = Field(description="train or holdout.")
    to: str = Field(default="", description="The system whose files these are; none: TRL's dataset forms.")
    files: list[ExportFile]
    launch: list[str] = Field(default=[], description="Launch files and scripts of the system.")
    command: list[str] = Field(default=[], description="What to run in the folder, a line each.")
    lost: list[ExportLoss] = Field(default=[], description="What the system has no place for.")
    warnings: list[str] = Field(default=[], description="What to know before anything trains on it.")
    inputs: dict[str, str] = Field(description="Hash of each table that it was made from.")

    @property
    def row_files(self) -> list[ExportFile]:
        """Its files of rows, without those that describe them."""
        return [file for file in self.files if file.trainers]


class PublishedTable(Record):
    """A table that other programs can open."""

    table: str
    folder: str = Field(description="What to open: a Delta table.")
    version: int = Field(description="Its newest version; grows by one where the table has changed.")
    rows: int


class PublishAnswer(Document):
    """`flywheel publish`."""

    document: ClassVar[str] = "cli/publish"

    tables: list[PublishedTable]
