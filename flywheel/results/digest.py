"""What `flywheel report` answers: a span of time in numbers."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from flywheel.records import Document

__all__ = ["DigestAnswer", "DigestChange", "DigestCost", "DigestExample", "DigestIntent", "DigestRate", "DigestRound"]


class DigestRate(Document):
    """How often something succeeded, as far as is known."""

    document: ClassVar[str] = "cli/digest_rate"

    n: int = Field(description="Episodes whose outcome is known or likely.")
    rate: float | None = Field(description="Mean probability of success; null without any.")
    low: float | None = Field(description="95 % interval.")
    high: float | None


class DigestRound(Document):
    """A round that was decided on in this time."""

    document: ClassVar[str] = "cli/digest_round"

    round: int
    decision: str
    at: str
    method: str
    rows: int
    metric: str = Field(description="The primary metric beside the baseline; '' where it was not evaluated.")
    wins: int
    regressions: int
    train_s: float | None


class DigestChange(Document):
    """An intent that surely went better or worse than in the span before."""

    document: ClassVar[str] = "cli/digest_change"

    intent: str
    before: DigestRate
    now: DigestRate
    low: float = Field(description="95 % interval of the difference.")
    high: float


class DigestExample(Document):
    """A task at which the agent failed."""

    document: ClassVar[str] = "cli/digest_example"

    episode: str = Field(description="The attempt that most surely failed.")
    request: str = Field(description="What was asked, shortened.")
    attempts: int
    p_success: float
    against: list[str] = Field(description="Signals that voted against it.")


class DigestIntent(Document):
    """What users wanted and did not get: episodes by the last tool that was called."""

    document: ClassVar[str] = "cli/digest_intent"

    intent: str
    failures: float = Field(description="Expected failures: the sum of P(failure).")
    success: DigestRate
    examples: list[DigestExample]


class DigestCost(Document):
    """What it took; null where the logs do not say."""

    document: ClassVar[str] = "cli/digest_cost"

    usd: float | None
    input_tokens: int | None
    output_tokens: int | None
    latency_s: float | None
    logged: int = Field(description="Episodes whose cost in dollars is logged.")
    train_s: float = Field(description="Seconds of training of the rounds decided on.")


class DigestAnswer(Document):
    """`flywheel report`."""

    document: ClassVar[str] = "cli/report"

    project: str
    since: str = Field(description="Where the span begins.")
    until: str = Field(description="Where it ends: the newest event, unless given.")
    episodes: int
    episodes_before: int = Field(description="In the span of the same length before.")
    without_time: int = Field(description="Episodes that could not be placed, and are not counted.")
    success: DigestRate
    success_before: DigestRate
    champion: int | None
    rounds: list[DigestRound]
    better: list[DigestChange]
    worse: list[DigestChange]
    failing: list[DigestIntent]
    cost: DigestCost
    cost_before: DigestCost
