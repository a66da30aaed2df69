"""Results of operations: a pipeline's run, a forgotten user, collected garbage."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from flywheel.records import Certificate, Document, Need, Record


class ScheduleAnswer(Document):
    """`flywheel schedule`."""

    document: ClassVar[str] = "cli/schedule"

    scheduler: str
    pipeline: str
    at: str = Field(description="Time of day.")
    text: str = Field(description="The schedule, which is installed nowhere.")


class RunStage(Record):
    """One stage of a pipeline run."""

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
    text: str = Field(default="", description="The run in one sentence.")
    why: str = Field(default="", description="The first reason of the gate's decision; '' where there is none.")
    next: str = Field(default="", description="What to do next, with the command to type.")
    missing: list[Need] = Field(default=[], description="Data that a waiting run still needs.")


class ForgetAnswer(Document):
    """`flywheel forget`."""

    document: ClassVar[str] = "cli/forget"

    user: str = Field(description="The user's pseudonym.")
    dry_run: bool = Field(description="Whether nothing was changed.")
    already: bool = Field(description="Whether the user had been forgotten before.")
    certificate: Certificate = Field(description="What was removed, or would be; with --dry-run it is not stored.")


class GcRow(Record):
    """One kind of file that is no longer needed."""

    what: str
    count: int
    size_bytes: int
    why: str = Field(description="Why it can be removed.")


class GcAnswer(Document):
    """`flywheel gc`."""

    document: ClassVar[str] = "cli/gc"

    dry_run: bool = Field(description="Whether nothing was removed.")
    rows: list[GcRow]
    count: int = Field(description="Files and folders.")
    size_bytes: int


class RepartitionAnswer(Document):
    """`flywheel repartition`."""

    document: ClassVar[str] = "cli/repartition"

    before: int = Field(description="Partitions that the store had.")
    partitions: int = Field(description="Partitions that it has now.")
    events: int
    parts: int = Field(description="Files that hold them.")
