"""Answers of the commands that look: one thing in full, why, and whether all is well."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import Field

from flywheel.records import Document

__all__ = [
    "ConfigAnswer",
    "ConfigValue",
    "DoctorAnswer",
    "DoctorCheck",
    "ExplainAnswer",
    "PluginsAnswer",
    "Preview",
    "PreviewSegment",
    "QueryAnswer",
    "ShowAnswer",
    "ViewAnswer",
]


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


class ViewAnswer(Document):
    """`flywheel view`."""

    document: ClassVar[str] = "cli/view"

    page: str = Field(description="File to open in a browser; with a fragment where one episode was asked for.")
    round: int | None = Field(description="Round whose trained tokens are marked; null without one.")
    episodes: int
    pages: int = Field(description="Files that hold them.")
