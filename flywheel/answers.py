"""What each command answers: the documents that `--json` prints, with their published schemas (`cli/<command>`).

The terminal's tables are drawn from the same values, so a script never has to parse them.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

from pydantic import Field, field_validator

from flywheel.records import Document, EvalReport, Promotion, Quarantined, RuleResult, Verdict

__all__ = [
    "ANSWERS",
    "AuditAnswer",
    "AuditQuestion",
    "AuditTurn",
    "BuildAnswer",
    "CalibrationRow",
    "CanaryAnswer",
    "ChampionAnswer",
    "ConfigAnswer",
    "ConfigValue",
    "CoverageGap",
    "DiffAnswer",
    "DiffMetric",
    "DoctorAnswer",
    "DoctorCheck",
    "EvalAnswer",
    "ExplainAnswer",
    "ExportAnswer",
    "ExportFile",
    "GroupRow",
    "IngestAnswer",
    "InitAnswer",
    "LogAnswer",
    "LogRow",
    "LogsEvalAnswer",
    "LostFields",
    "OffPolicyEstimate",
    "PluginsAnswer",
    "Preview",
    "PreviewSegment",
    "QuarantineAnswer",
    "QuarantineReason",
    "QuarantineRetry",
    "QueryAnswer",
    "RatingsRow",
    "ReaderRow",
    "ReadersAnswer",
    "RewardsAnswer",
    "RunAnswer",
    "RunStage",
    "ShowAnswer",
    "SignalRow",
    "StageAnswer",
    "StatusAnswer",
    "TransportRow",
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


class CoverageGap(Document):
    """Cases that the old policy's log has and the new one's lacks."""

    document: ClassVar[str] = "cli/coverage_gap"

    slice: str = Field(description="'all', or name=value of a slice that lost more than half of its cases.")
    lacking: int
    of: int = Field(description="Cases that the old policy has.")
    names: list[str] = Field(description="The first of them: the source's names of the tasks, or task ids.")


class OffPolicyEstimate(Document):
    """One off-policy estimate of the new policy's value from the old one's log, with its overlap certificate."""

    document: ClassVar[str] = "cli/off_policy_estimate"

    name: str = Field(description="IPS, SNIPS, DM, DR, PDIS or MIPS.")
    state: str = Field(description="good, warn, or REFUSED, in which case there is no number.")
    reasons: list[str] = Field(description="Why it is refused, or what to beware of.")
    value: float | None = None
    low: float | None = Field(default=None, description="Lower end of the 95 % interval, users drawn as a whole.")
    high: float | None = None
    n: int
    certificate: dict[str, float] = Field(description="ess, ess_share, mean_weight, max_share, tail_index, typicality.")


class LogsEvalAnswer(Document):
    """`flywheel eval --logs`: two policies compared from what they served."""

    document: ClassVar[str] = "cli/eval_logs"

    verdict: Verdict
    reasons: list[str] = Field(description="Why, one sentence a rule; first those that decided.")
    needed_n: int | None = Field(description="Cases still needed in all, where more of them could decide.")
    old: str = Field(description="The policy or the files that are compared with.")
    new: str = Field(description="The policy or the files that are judged.")
    outcome: str = Field(description="recorded: the log's own outcomes; p_success: what the reward signals make of it.")
    unit: str = Field(description="What is drawn as a whole: task, or user where every case has one.")
    cases: int = Field(description="Paired cases.")
    paired_by: dict[str, int] = Field(description="Cases paired by task id and by the text of the request.")
    numbers: dict[str, float] = Field(
        description="n, old, new, wins, losses, delta, low, high, p, alpha_t, power, mde."
    )
    report: EvalReport = Field(description="Every metric and slice with n, interval and p-values.")
    rules: list[RuleResult]
    worse: list[str] = Field(description="Metrics and slices that are surely worse.")
    suspect: list[str] = Field(description="Metrics and slices that look worse, without proof.")
    gaps: list[CoverageGap]
    only_new: int = Field(description="Cases that only the new policy has; they say nothing.")
    colliding: list[str] = Field(description="Task ids that both logs use for different requests; not paired.")
    pass_k: dict[str, dict[str, float]] = Field(description="k → old, new, tasks: all of k attempts succeed.")
    amounts: dict[str, dict[str, float]] = Field(description="Cost, latency, tokens, steps: old, new, n; not judged.")
    off_policy: list[OffPolicyEstimate] = Field(description="They inform and may veto; they never promote.")
    notes: list[str]


class CanaryAnswer(Document):
    """`flywheel canary`: what to do with a canary tonight."""

    document: ClassVar[str] = "cli/canary"

    decision: str = Field(description="continue (exit 3), promote (exit 0) or roll_back (exit 5).")
    reasons: list[str]
    night: int = Field(description="Looks so far, this one included.")
    looked: bool = Field(description="Whether anything was fresh; if not, this is the last look's answer.")
    old: str
    new: str
    n_old: int = Field(description="Judged attempts of the old policy, over all looks.")
    n_new: int
    pairs: int = Field(description="Differences between blocks of users, in the order they were looked at.")
    mean_old: float
    mean_new: float
    delta: float
    low: float = Field(description="Lower end of the 95 % confidence sequence of delta, true at every look.")
    high: float
    log_e_harm: float = Field(description="Largest log E of 'worse by the margin' so far.")
    log_e_better: float = Field(description="Largest log E of 'better' so far.")
    sample_ratio_p: float | None = Field(description="p-value of the canary's share of users; null when not checked.")
    notes: list[str]


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


class SignalRow(Document):
    """One sign of one signal in `rewards`."""

    document: ClassVar[str] = "cli/signal_row"

    signal: str
    sign: int = Field(description="1 speaks for success, -1 against it.")
    family: str
    votes: int = Field(description="Episodes on which it votes.")
    coverage: float = Field(description="Share of all episodes.")
    checked: int = Field(description="Votes on episodes whose outcome a reviewer or a verifier knows.")
    agreement: float | None = Field(description="Share of them that the outcome agrees with.")
    odds: float = Field(description="By what a vote multiplies the odds of success; 1 says nothing.")
    source: str = Field(description="prior, fitted, fitted with gold; a verifier decides alone.")
    mature_after_s: float | None = Field(
        description="Seconds after the end until 80 % of its evidence has come; null when it never comes late."
    )


class CalibrationRow(Document):
    """How far probabilities are off."""

    document: ClassVar[str] = "cli/calibration_row"

    what: str
    n: int
    ece: float = Field(description="Expected calibration error over ten bins.")
    brier: float = Field(description="Mean squared error.")


class TransportRow(Document):
    """Whether calibration holds for one policy or intent."""

    document: ClassVar[str] = "cli/transport_row"

    by: str = Field(description="policy or intent.")
    group: str
    n: int = Field(description="Audited episodes.")
    clusters: int = Field(description="Users among them.")
    residual: float = Field(description="Mean of truth minus probability.")
    low: float | None = Field(description="Lower end of its interval, corrected for the number of groups.")
    high: float | None
    verdict: str = Field(description="PASS, FAIL or INCONCLUSIVE.")

    @field_validator("low", "high", mode="before")
    @classmethod
    def _finite(cls, value: float | None) -> float | None:
        return value if value is not None and math.isfinite(value) else None


class RatingsRow(Document):
    """What users' ratings say of all episodes."""

    document: ClassVar[str] = "cli/ratings_row"

    ratings: int = Field(description="Rated episodes.")
    response: float = Field(description="Their share.")
    mean: float = Field(description="Share of good ratings.")
    weighted_mean: float | None = Field(
        description="The same, each weighted by 1 / P(rated) within policy, intent and month."
    )
    low: float = Field(description="Worst-case bounds of everybody's satisfaction.")
    high: float
    sentence: str


class GroupRow(Document):
    """Episodes of one policy, intent or month."""

    document: ClassVar[str] = "cli/group_row"

    by: str
    name: str
    episodes: int
    known: int = Field(description="Episodes with any vote.")
    p_mean: float | None = Field(description="Mean P(success) of them.")
    drift: float | None = Field(description="Its difference from all known episodes.")
    notable: bool = Field(description="Whether the difference exceeds three standard errors.")


class RewardsAnswer(Document):
    """`flywheel rewards`."""

    document: ClassVar[str] = "cli/rewards"

    episodes: int
    known: int = Field(description="Episodes on which any signal votes.")
    provisional: int = Field(description="Too young to learn from.")
    audited: int
    verified: int = Field(description="Episodes with a recorded outcome.")
    suspect: int = Field(description="Implausible rewards, which count for nothing.")
    prior: float = Field(description="P(success) before any vote.")
    warnings: list[str]
    signals: list[SignalRow]
    calibration: list[CalibrationRow]
    transport: list[TransportRow]
    ratings: RatingsRow | None = Field(description="null when nobody rated.")
    groups: list[GroupRow]


class AuditTurn(Document):
    """One message of a conversation under review."""

    document: ClassVar[str] = "cli/audit_turn"

    role: str
    text: str


class AuditQuestion(Document):
    """A line of `flywheel audit --out`: fill in `success` and give the file to `--answers`."""

    document: ClassVar[str] = "cli/audit_question"

    draw: int
    episode_id: str
    success: bool | float | None = Field(
        default=None, description="Did it do what was asked? true, false, a share from 0 to 1, or null to leave it."
    )
    comment: str = Field(default="", description="Why, if you like.")
    conversation: list[AuditTurn]


class AuditAnswer(Document):
    """`flywheel audit`."""

    document: ClassVar[str] = "cli/audit"

    draw: int = Field(description="Number of the draw.")
    eligible: int = Field(description="Episodes it was drawn from.")
    strata: int = Field(description="By score, intent and pattern of signals.")
    drawn: int
    answered: int = Field(description="Of the draw, so far.")
    recorded: int = Field(description="Answers recorded by this command.")
    left_out: dict[str, int] = Field(description="Lines of the answers' file that were not recorded, by reason.")
    file: str = Field(description="Questions written, '' if none were.")


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
        LogAnswer, EvalAnswer, LogsEvalAnswer, CanaryAnswer, ShowAnswer, ExplainAnswer, ExportAnswer, PluginsAnswer,
        RunAnswer, DoctorAnswer, ConfigAnswer, QueryAnswer, DiffAnswer, ChampionAnswer, RewardsAnswer, AuditAnswer,
        AuditQuestion,
    )
}  # fmt: skip
