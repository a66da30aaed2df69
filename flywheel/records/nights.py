"""The outcome of a night: the document that the nightly job keeps and sends to its hooks.

In: nothing. Out: `Night`. It holds names of stages, counts, numbers and our own sentences; no text of a log.
"""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar, Literal

from pydantic import Field

from flywheel.records.base import Document, Record
from flywheel.records.rounds import MetricRow, Verdict


class Need(Record):
    """Evidence that is not enough yet."""

    what: str = Field(description="What is counted.")
    have: int = Field(ge=0, description="How much there is.")
    need: int = Field(ge=0, description="How much there must be.")

    def __str__(self) -> str:
        return f"{self.have:,} of {self.need:,} {self.what}"


class NightStage(Record):
    """One stage of a night."""

    stage: str
    state: Literal["running", "done", "skipped", "failed"]
    outcome: str = Field(default="", description="A few words with numbers.")
    seconds: float = Field(default=0.0, ge=0)


class Night(Document):
    """One run of a pipeline, from its first stage to its notification; kept in the store, sent to every hook."""

    document: ClassVar[str] = "night"

    schema_version: int = 1
    night: str = Field(description="Id. A night that was killed resumes under its id, and may be sent twice.")
    project: str = Field(description="Name of the project.")
    pipeline: str
    began_at: datetime
    ended_at: datetime | None = Field(default=None, description="null while it runs.")
    outcome: Literal["running", "promoted", "held", "waiting", "done", "failed"] = Field(
        default="running",
        description="waiting: too little new evidence; done: a pipeline without a decision; failed: a stage failed.",
    )
    exit_code: int | None = Field(
        default=None, description="Of the whole night: 0, 1, 3 held, 99 waiting; null so far."
    )
    text: str = Field(default="", description="One sentence for people.")
    stages: list[NightStage] = Field(default=[], description="In the order in which they ran.")
    missing: list[Need] = Field(default=[], description="What a waiting night waits for.")
    round: int | None = Field(default=None, description="The round that was trained or evaluated.")
    champion: int | None = Field(default=None, description="The champion at the end; null while the base model serves.")
    verdict: Verdict | None = Field(default=None, description="The gate's verdict on the round.")
    rules: dict[str, bool] = Field(default={}, description="Each rule of the gate, and whether it passed.")
    metric: MetricRow | None = Field(default=None, description="The primary metric, compared with the champion's.")
    refused: str = Field(default="", description="Records in quarantine and files set aside tonight, in words.")
    failed_stage: str = Field(default="", description="The stage that failed.")
    error: str = Field(default="", description="Why, in the words of the command line.")
    hint: str = Field(default="", description="What to do about it.")
    page: str = Field(default="", description="Path of the round's report page.")
    next: str = Field(default="", description="What to do next, with the command to type.")

    def stage(self, name: str) -> NightStage | None:
        """Return the entry of a stage, or None if it was not begun."""
        return next((s for s in self.stages if s.stage == name), None)
