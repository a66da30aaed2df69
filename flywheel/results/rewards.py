"""Results of rewards: signals, calibration, audits."""

from __future__ import annotations

import math
from typing import ClassVar

from pydantic import Field, field_validator

from flywheel.records import Document, Record


class SignalRow(Record):
    """One sign of one signal in `rewards`."""

    signal: str
    sign: int = Field(description="1 for success, -1 against it.")
    family: str
    votes: int = Field(description="Episodes on which it votes.")
    coverage: float = Field(description="Share of all episodes.")
    checked: int = Field(description="Votes on episodes whose outcome a reviewer or a verifier knows.")
    agreement: float | None = Field(description="Share of them that agree with the outcome.")
    odds: float = Field(description="Factor on the odds of success of one vote; 1 is neutral.")
    source: str = Field(description="prior, fitted, fitted with gold; a verifier decides alone.")
    mature_after_s: float | None = Field(
        description="Seconds after the end until 80 % of its evidence has arrived; null where none arrives late."
    )


class CalibrationRow(Record):
    """Calibration of the probabilities."""

    what: str
    n: int
    ece: float = Field(description="Expected calibration error over ten bins.")
    brier: float = Field(description="Mean squared error.")


class TransportRow(Record):
    """Whether calibration holds for one policy or intent."""

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


class RatingsRow(Record):
    """What users' ratings imply for all episodes."""

    ratings: int = Field(description="Rated episodes.")
    response: float = Field(description="Their share.")
    mean: float = Field(description="Share of good ratings.")
    weighted_mean: float | None = Field(
        description="The same, each weighted by 1 / P(rated) within policy, intent and month."
    )
    low: float = Field(description="Worst-case bounds of the satisfaction over all episodes.")
    high: float
    sentence: str


class GroupRow(Record):
    """Episodes of one policy, intent or month."""

    by: str
    name: str
    episodes: int
    known: int = Field(description="Episodes with any vote.")
    p_mean: float | None = Field(description="Mean P(success) of them.")
    drift: float | None = Field(description="Its difference from all known episodes.")
    notable: bool = Field(description="Whether the difference exceeds three standard errors.")


class AccountsRow(Record):
    """Whose deeds a log has, and how far they count."""

    accounts: int = Field(description="Accounts that the log names.")
    established: int = Field(description="Those with enough earlier tasks for their full weight.")
    counted: bool = Field(description="Whether histories count: false where hardly any account comes back.")
    discounted: int = Field(description="Votes of new accounts that count less.")
    bursts: int = Field(description="Crowds of accounts that did the same: each counts as one.")
    in_bursts: int = Field(description="Episodes of theirs.")
    crowds: int = Field(description="Crowds that like an action as those before and after do not: votes set aside.")
    in_crowds: int = Field(description="Episodes of theirs.")
    doubted: int = Field(
        description="Accounts that count less: known outcomes contradict them, or they do the same always."
    )


class SourceRow(Record):
    """One source of the log: a reader's episodes."""

    source: str
    episodes: int
    outcomes: int = Field(description="Episodes with an outcome that decides.")
    claims: int = Field(description="Episodes with an outcome that `[trust]` takes as a claim.")
    prior: float = Field(description="P(success) before any vote.")
    odds: dict[str, float] = Field(description="Odds ratio of a vote, by signal and sign, where it was learned here.")


class PatternRow(Record):
    """Episodes with one pattern of signals."""

    pattern: str = Field(description="Families that vote, with the side they take.")
    n: int
    verified: int
    good: float | None = Field(description="Share of successes among the verified.")


class VerificationRow(Record):
    """Which episodes have a recorded outcome, and what that shows of the others."""

    verified: int
    share: float
    good: float = Field(description="Share of successes among them.")
    low: float = Field(description="Least share of successes among all episodes, whoever chose whom to verify.")
    high: float
    taken: str = Field(
        description="How P(success) before any vote was found: audit, verdicts, by outcome, by pattern, "
        "unknown; '' where it was not."
    )
    patterns: list[PatternRow] = Field(description="The most frequent patterns.")


class RewardsAnswer(Document):
    """`flywheel rewards`."""

    document: ClassVar[str] = "cli/rewards"

    episodes: int
    known: int = Field(description="Episodes on which any signal votes.")
    provisional: int = Field(description="Not mature enough to learn from.")
    audited: int
    verified: int = Field(description="Episodes with a recorded outcome.")
    graded: int = Field(default=0, description="Episodes whose recorded outcome is a score between worst and best.")
    suspect: int = Field(description="Implausible rewards, which get no weight.")
    prior: float = Field(description="P(success) before any vote.")
    warnings: list[str]
    signals: list[SignalRow]
    calibration: list[CalibrationRow]
    transport: list[TransportRow]
    ratings: RatingsRow | None = Field(description="null without ratings.")
    accounts: AccountsRow
    sources: list[SourceRow]
    verification: VerificationRow | None = Field(description="null without recorded outcomes.")
    groups: list[GroupRow]


class AuditTurn(Record):
    """One message of a conversation under review."""

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

    draw: int = Field(description="Number of the sample.")
    eligible: int = Field(description="Episodes that could be sampled.")
    strata: int = Field(description="By score, intent and pattern of signals.")
    drawn: int
    answered: int = Field(description="Of the sample, so far.")
    recorded: int = Field(description="Answers recorded by this command.")
    left_out: dict[str, int] = Field(description="Lines of the file that were not recorded, by reason.")
    file: str = Field(description="File with the questions; '' if none was written.")
