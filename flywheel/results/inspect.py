"""Results of inspect: one thing in full, why it is so, and a report on a span of time."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import Field

from flywheel.records import Document, Record


class PreviewSegment(Record):
    """Consecutive tokens of what the model reads."""

    text: str
    trained: bool = Field(description="Whether they are in the loss.")
    tokens: int


class Preview(Record):
    """One side of a row as it would be trained, under the base model's tokenizer and template."""

    side: str = Field(description="chosen, rejected, completion, or the member of a group.")
    segments: list[PreviewSegment] = Field(description="Concatenated, their texts are what the model reads.")


class ShowAnswer(Document):
    """`flywheel show`."""

    document: ClassVar[str] = "cli/show"

    kind: str = Field(description="round, episode, step, pair, example, group, fixture, scenario, task, case, event.")
    record: dict[str, Any]
    preview: list[Preview] = Field(default=[], description="Of a pair, example or group: which tokens are trained.")
    rendering: str = Field(default="", description="How messages and tools become text, or why there is no preview.")


class ViewAnswer(Document):
    """`flywheel view`."""

    document: ClassVar[str] = "cli/view"

    page: str = Field(description="File to open in a browser; with a fragment where one episode was asked for.")
    round: int | None = Field(description="Round whose trained tokens are marked; null without one.")
    episodes: int
    pages: int = Field(description="Files that hold them.")


class ExplainAnswer(Document):
    """`flywheel explain`."""

    document: ClassVar[str] = "cli/explain"

    subject: str
    lines: list[str]
    details: list[str] = Field(default=[], description="What `-v` adds: of a round each rule with what it counts.")


class ReportRate(Record):
    """A success rate over the episodes with a known outcome."""

    n: int = Field(description="Episodes whose outcome is known or likely.")
    recorded: int = Field(default=0, description="Of these, episodes with a recorded or audited outcome.")
    rate: float | None = Field(description="Mean probability of success; null without any.")
    low: float | None = Field(description="95 % interval.")
    high: float | None
    graded: bool = Field(default=False, description="Whether outcomes are scores: a mean then, and not a rate.")


class ReportRound(Record):
    """A round with a decision in the span."""

    round: int
    decision: str
    at: str
    method: str
    rows: int
    metric: str = Field(description="The primary metric of baseline and round; '' where it was not evaluated.")
    wins: int
    regressions: int
    train_s: float | None


class ReportChange(Record):
    """An intent whose success changed significantly from the span before."""

    intent: str
    before: ReportRate
    now: ReportRate
    low: float = Field(description="95 % interval of the difference.")
    high: float


class ReportExample(Record):
    """A task that the agent failed."""

    episode: str = Field(description="The attempt that most probably failed.")
    request: str = Field(description="The request, shortened.")
    attempts: int
    p_success: float = Field(description="The recorded outcome where there is one, else P(success).")
    recorded: bool = Field(default=False, description="Whether it is a recorded outcome.")
    task: str = Field(default="", description="The log's own name of the task; '' where it has none.")
    against: list[str] = Field(description="Signals that voted against it.")


class ReportIntent(Record):
    """An intent with failures: episodes by the last tool that was called."""

    intent: str
    failures: float = Field(description="Expected failures: the sum of P(failure).")
    recorded: bool = Field(default=False, description="Whether every outcome is recorded: failures are a count then.")
    success: ReportRate
    examples: list[ReportExample]


class ReportCost(Record):
    """Cost; null where the logs do not have it."""

    usd: float | None
    input_tokens: int | None
    output_tokens: int | None
    latency_s: float | None
    logged: int = Field(description="Episodes whose cost in dollars is logged.")
    train_s: float = Field(description="Seconds of training of these rounds.")


class ReportAnswer(Document):
    """`flywheel report`."""

    document: ClassVar[str] = "cli/report"

    project: str
    since: str = Field(description="Start of the span; '' where most episodes have no time: all are counted.")
    until: str = Field(description="End of the span: the newest event, unless given; '' where all are counted.")
    episodes: int
    episodes_before: int = Field(description="In the span of the same length before.")
    without_time: int = Field(description="Episodes without a time, which no span counts.")
    success: ReportRate
    success_before: ReportRate
    champion: int | None
    rounds: list[ReportRound]
    better: list[ReportChange]
    worse: list[ReportChange]
    failing: list[ReportIntent]
    cost: ReportCost
    cost_before: ReportCost
