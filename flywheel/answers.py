"""What each command answers: the documents that `--json` prints, with their published schemas (`cli/<command>`).

The terminal's tables are drawn from the same values, so a script never has to parse them.
"""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import Field

from flywheel.records import Document, EvalReport, Promotion, Quarantined

__all__ = [
    "ANSWERS",
    "BuildAnswer",
    "ChampionAnswer",
    "ConfigAnswer",
    "ConfigValue",
    "DiffAnswer",
    "DiffMetric",
    "DoctorAnswer",
    "DoctorCheck",
    "EvalAnswer",
    "ExplainAnswer",
    "ExportAnswer",
    "ExportFile",
    "IngestAnswer",
    "InitAnswer",
    "LogAnswer",
    "LogRow",
    "LostFields",
    "PluginsAnswer",
    "Preview",
    "PreviewSegment",
    "QuarantineAnswer",
    "QuarantineReason",
    "QuarantineRetry",
    "QueryAnswer",
    "ReaderRow",
    "ReadersAnswer",
    "RunAnswer",
    "RunStage",
    "ShowAnswer",
    "StageAnswer",
    "StatusAnswer",
]


class InitAnswer(Document):
    """`flywheel init`."""

    document: ClassVar[str] = "cli/init"

    made: list[str] = Field(description="Files written.")


class LostFields(Document):
    """Fields of a format whose values no event holds, as a sample of its records shows."""

    document: ClassVar[str] = "cli/lost_fields"

    format: str
    sampled: int = Field(description="Records looked at.")
    fields: dict[str, int] = Field(description="In how many of them each field was lost.")


class IngestAnswer(Document):
    """`flywheel ingest`: read = kept + duplicate + ignored + quarantined."""

    document: ClassVar[str] = "cli/ingest"

    files: int = Field(description="Files found.")
    unchanged: int = Field(description="Files that held nothing new.")
    formats: dict[str, int] = Field(description="Files read, by format.")
    read: int = Field(description="Records read: lines, array elements or rows.")
    kept: int = Field(description="Records that gave at least one new event.")
    duplicate: int = Field(description="Records whose events were all known.")
    ignored: dict[str, int] = Field(description="Understood records that hold no event, by reason.")
    quarantined: dict[str, int] = Field(description="Unreadable records, by reason.")
    first_quarantined: list[str] = Field(description="file:line: reason of the first few.")
    events: int = Field(description="New events.")
    redacted: dict[str, int] = Field(description="Replaced values, by kind.")
    lost: list[LostFields] = Field(default=[], description="What the sources have and no event holds, by format.")
    dry_run: bool = Field(description="Whether nothing was stored.")


class QuarantineReason(Document):
    """Quarantined records of one reason."""

    document: ClassVar[str] = "cli/quarantine_reason"

    reason: str
    records: int
    meaning: str = Field(description="What the reason means and what helps.")


class QuarantineAnswer(Document):
    """`flywheel quarantine`."""

    document: ClassVar[str] = "cli/quarantine"

    records: int = Field(description="Quarantined records; the following are of those that were asked for.")
    files: int
    size_bytes: int
    reasons: list[QuarantineReason]
    rows: list[Quarantined] = Field(description="The first of them; the text itself is never stored.")


class QuarantineRetry(Document):
    """`flywheel quarantine --retry`."""

    document: ClassVar[str] = "cli/quarantine_retry"

    files: int = Field(description="Files read once more.")
    gone: list[str] = Field(description="Files that are no longer there; their rows stay.")
    before: int = Field(description="Quarantined records before.")
    after: int = Field(description="Quarantined records now.")
    read: int
    kept: int = Field(description="Records that gave new events.")


class ReaderRow(Document):
    """An installed reader."""

    document: ClassVar[str] = "cli/reader"

    name: str
    reader_version: int
    reads: str = Field(description="What it reads, in a few words.")
    distribution: str
    confidence: float | None = Field(default=None, description="How sure it is of the file that was asked about.")


class ReadersAnswer(Document):
    """`flywheel readers`."""

    document: ClassVar[str] = "cli/readers"

    readers: list[ReaderRow]
    verdict: str = Field(default="", description="What the file is taken for, or what its records look like.")


class StageAnswer(Document):
    """One stage in `build` and `status`."""

    document: ClassVar[str] = "cli/stage"

    stage: str
    state: str = Field(description="fresh, stale, built or never.")
    why: list[str] = Field(description="What changed since the last build.")
    rows: dict[str, int] = Field(description="Rows by table.")
    funnel: dict[str, int] = Field(description="considered = kept + dropped by reason.")
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
    source_files: int = Field(description="Files ingested so far.")
    new_files: int = Field(description="Files under ingest.sources that are new or have grown.")
    stages: list[StageAnswer]
    next: str = Field(description="The command to type next.")


class LogRow(Document):
    """One round in `log`."""

    document: ClassVar[str] = "cli/log_row"

    round: int
    state: str
    method: str
    parent: int | None
    rows: int
    metric: str = Field(description="Primary metric with its interval, for people; '' when not evaluated.")
    aliases: list[str]


class LogAnswer(Document):
    """`flywheel log`."""

    document: ClassVar[str] = "cli/log"

    rounds: list[LogRow]
    decisions: list[Promotion]


class EvalAnswer(Document):
    """`flywheel eval` and `flywheel promote`."""

    document: ClassVar[str] = "cli/eval"

    report: EvalReport
    promotion: Promotion | None = Field(description="The gate's decision, with --promote.")
    page: str = Field(description="The report page.")


class PreviewSegment(Document):
    """Consecutive tokens of what the model reads."""

    document: ClassVar[str] = "cli/preview_segment"

    text: str
    trained: bool = Field(description="Whether they are in the loss.")
    tokens: int


class Preview(Document):
    """One side of a row as it would be trained, under the base model's tokenizer and template."""

    document: ClassVar[str] = "cli/preview"

    side: str = Field(description="chosen, rejected, completion, or the member of a group.")
    segments: list[PreviewSegment] = Field(description="Their texts, one after the other, are what the model reads.")


class ShowAnswer(Document):
    """`flywheel show`."""

    document: ClassVar[str] = "cli/show"

    kind: str = Field(description="round, episode, pair, example or group.")
    record: dict[str, Any]
    preview: list[Preview] = Field(default=[], description="Of a pair, example or group: which tokens are trained.")
    rendering: str = Field(default="", description="How messages and tools become text, or why there is no preview.")


class ExportFile(Document):
    """One file of an exported dataset."""

    document: ClassVar[str] = "cli/export_file"

    path: str = Field(description="Relative to the folder.")
    form: str = Field(description="preference, unpaired, sft or groups.")
    trainers: str = Field(description="What trains on it.")
    rows: int
    sha256: str = Field(description="Hash of its bytes.")
    counts: dict[str, int] = Field(description="Funnel: considered, kept, dropped by reason.")


class ExportAnswer(Document):
    """`flywheel export`."""

    document: ClassVar[str] = "cli/export"

    folder: str = Field(description="Where the dataset is.")
    split: str = Field(description="train or holdout.")
    files: list[ExportFile]
    inputs: dict[str, str] = Field(description="Hash of each table that it was made from.")


class ExplainAnswer(Document):
    """`flywheel explain`."""

    document: ClassVar[str] = "cli/explain"

    subject: str
    lines: list[str]


class PluginsAnswer(Document):
    """`flywheel plugins`."""

    document: ClassVar[str] = "cli/plugins"

    extensions: list[dict[str, str]]


class DoctorCheck(Document):
    """One check of `flywheel doctor`."""

    document: ClassVar[str] = "cli/doctor_check"

    name: str
    state: str = Field(description="ok, warning or failed.")
    says: str
    fix: str = Field(default="", description="A command or an edit; '' when nothing is wrong.")


class DoctorAnswer(Document):
    """`flywheel doctor`."""

    document: ClassVar[str] = "cli/doctor"

    healthy: bool = Field(description="Whether no check failed.")
    checks: list[DoctorCheck]


class ConfigValue(Document):
    """One value of the configuration."""

    document: ClassVar[str] = "cli/config_value"

    key: str = Field(description="Dotted name.")
    value: Any
    origin: str = Field(description="'default', or file and line.")


class ConfigAnswer(Document):
    """`flywheel config`."""

    document: ClassVar[str] = "cli/config"

    values: list[ConfigValue]


class QueryAnswer(Document):
    """`flywheel query`."""

    document: ClassVar[str] = "cli/query"

    columns: list[str]
    rows: list[list[Any]] = Field(description="Values by column; times as ISO text.")
    total: int = Field(description="Rows of the whole result.")


class DiffMetric(Document):
    """A metric of two rounds, each on the cases of its own evaluation."""

    document: ClassVar[str] = "cli/diff_metric"

    suite: str
    metric: str
    before: float | None = Field(description="The first round's value; null where it was not evaluated on it.")
    n_before: int
    now: float | None = Field(description="The second round's value.")
    n_now: int


class DiffAnswer(Document):
    """`flywheel diff`: what is between two rounds."""

    document: ClassVar[str] = "cli/diff"

    before: int
    now: int
    made: list[str] = Field(description="Method, start, reference, base model, seed, versions: 'key old → new'.")
    config: list[str] = Field(description="Settings: 'key old → new'.")
    inputs: list[str] = Field(description="Tables that differed when the rounds were made.")
    rows_added: int = Field(description="Rows that only the second round was trained on.")
    rows_dropped: int = Field(description="Rows that only the first round was trained on.")
    rows_kept: int = Field(description="Rows of both.")
    tasks_added: int
    tasks_dropped: int
    funnel: list[str] = Field(description="Counts of the rows' funnel: 'name old → new'.")
    metrics: list[DiffMetric]


class ChampionAnswer(Document):
    """`flywheel champion`: what to serve."""

    document: ClassVar[str] = "cli/champion"

    round: int | None = Field(description="Its number; null while the base model serves.")
    name: str = Field(description="What a server should call it, and what logs should say as the policy.")
    base_model: str = Field(description="Base model as configured.")
    base_model_sha256: str
    adapter: str = Field(description="Folder of the adapter; '' while the base model serves.")
    adapter_sha256: str = Field(description="Hash over the adapter's weight file.")
    method: str
    parent: int | None
    decision: str = Field(description="The decision that made it champion: promoted, forced, rolled_back, or ''.")
    decided_at: str = Field(description="When; ISO time, or ''.")
    reason: str = Field(description="The gate's verdict, or the reason that was given.")


class RunStage(Document):
    """One stage of a pipeline run."""

    document: ClassVar[str] = "cli/run_stage"

    stage: str
    outcome: str
    seconds: float


class RunAnswer(Document):
    """`flywheel run`."""

    document: ClassVar[str] = "cli/run"

    pipeline: str
    stages: list[RunStage]
    exit_code: int
    page: str = Field(description="The report page; '' when none was made.")


ANSWERS: dict[str, type[Document]] = {
    model.document: model
    for model in (
        InitAnswer, IngestAnswer, QuarantineAnswer, QuarantineRetry, ReadersAnswer, BuildAnswer, StatusAnswer,
        LogAnswer, EvalAnswer, ShowAnswer, ExplainAnswer, ExportAnswer, PluginsAnswer, RunAnswer,
        DoctorAnswer, ConfigAnswer, QueryAnswer, DiffAnswer, ChampionAnswer,
    )
}  # fmt: skip
