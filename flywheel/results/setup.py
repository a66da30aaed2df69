"""Results of setup: a new project, its configuration, checks and extensions; and the error of any command."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import Field

from flywheel.records import Document, Record


class ErrorDetail(Record):
    """What failed, and what to do about it; never text of a log."""

    message: str = Field(description="What failed and where.")
    hint: str = Field(default="", description="A command to type or an edit to make; '' where there is none.")
    exit_code: int = Field(description="The command's exit code.")


class ErrorAnswer(Document):
    """Any command that fails."""

    document: ClassVar[str] = "cli/error"

    error: ErrorDetail


class InitAnswer(Document):
    """`flywheel init`."""

    document: ClassVar[str] = "cli/init"

    made: list[str] = Field(description="Files written.")


class TrustAnswer(Document):
    """`flywheel trust`: what a project may run on this machine."""

    document: ClassVar[str] = "cli/trust"

    folder: str = Field(description="The project's folder.")
    owner: int | None = Field(description="Who owns its files (uid), where that is somebody else; else null.")
    names: list[str] = Field(description="Functions, commands and addresses that its configuration names.")
    outside: list[str] = Field(description="Store or rounds outside of it; approved with --outside only.")
    sha256: str = Field(description="Hash of all that is listed here and of the code behind it.")
    record: str = Field(description="File with the approval: remove it to withdraw it. '' where nothing was approved.")


class ConfigValue(Record):
    """One value of the configuration."""

    key: str = Field(description="Dotted name.")
    value: Any
    origin: str = Field(description="'default', or file and line.")


class ConfigAnswer(Document):
    """`flywheel config`."""

    document: ClassVar[str] = "cli/config"

    values: list[ConfigValue]


class DoctorCheck(Record):
    """One check of `flywheel doctor`."""

    name: str
    state: str = Field(description="ok, warning or failed.")
    says: str
    fix: str = Field(default="", description="A command or an edit; '' when nothing is wrong.")


class DoctorAnswer(Document):
    """`flywheel doctor`."""

    document: ClassVar[str] = "cli/doctor"

    healthy: bool = Field(description="Whether no check failed.")
    checks: list[DoctorCheck]


class SchemasAnswer(Document):
    """`flywheel schema` without a name."""

    document: ClassVar[str] = "cli/schema"

    names: list[str] = Field(description="The published schemas: what `flywheel schema NAME` prints.")


class PluginsAnswer(Document):
    """`flywheel plugins`."""

    document: ClassVar[str] = "cli/plugins"

    extensions: list[dict[str, str]]
