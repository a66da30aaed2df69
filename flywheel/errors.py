"""Every error that flywheel raises on purpose, and the exit codes of the command line.

FlywheelError                    anything a user can act on; carries `.hint`
├── ConfigError                  flywheel.toml or a pipeline file is wrong (names file and line)
├── UsageError                   the command's arguments do not fit the project's state
│   └── CommandLineError         it is mistyped, or lacks --yes without a terminal
├── ContractError                a table or a record does not fit its schema
├── IngestError                  the logs could not be read as asked (too much quarantine, nothing found)
├── StoreError                   the store is missing, read-only, damaged or out of space
├── BusyError                    another run holds the project's lock
├── BucketError                  a bucket cannot be reached, refuses, or cannot hold a store
├── ClusterError                 the cluster that build.engine names cannot be reached, or lost a task
├── ExtensionError               a plugin is missing or broken
├── TemplateError                the base model's chat template cannot render a conversation
│   └── PrefixError              it renders a prompt differently when something follows
├── StoppedError                 Ctrl-C stopped the command
├── TrainError                   a training round failed or was stopped
│   └── EvidenceError            there is too little to train on so far; ingest more logs
└── EvalError                    an evaluation failed

Messages name what and where (file:line or id) and never contain text from a log.
"""

from __future__ import annotations

from enum import IntEnum
from pathlib import Path


class ExitCode(IntEnum):
    """What a command's exit status means; the same table is in docs/reference/cli.md."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    HELD = 3
    BUSY = 4
    ROLL_BACK = 5
    NOTHING = 99
    INTERRUPTED = 130


class FlywheelError(Exception):
    """A failure the user can act on.

    Args:
        message: what failed and where, without log content.
        hint: a command to type or an edit to make.
    """

    exit_code = ExitCode.FAILED

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return _rebuild, (type(self), self.message, self.hint)


def _rebuild(kind: type[FlywheelError], message: str, hint: str) -> FlywheelError:
    return kind(message, hint=hint)


class ConfigError(FlywheelError):
    """flywheel.toml or a pipeline file is wrong."""


class StoppedError(FlywheelError):
    """Ctrl-C stopped the command."""

    exit_code = ExitCode.INTERRUPTED


class UsageError(FlywheelError):
    """The command's arguments do not fit the project's state."""


class CommandLineError(UsageError):
    """The command line is mistyped, or has no --yes where there is no terminal to ask on."""

    exit_code = ExitCode.USAGE


class ContractError(FlywheelError):
    """A table or record does not fit its schema."""


class IngestError(FlywheelError):
    """The logs could not be read as asked."""


class StoreError(FlywheelError):
    """The store is missing, read-only, damaged or out of space."""


class BusyError(FlywheelError):
    """Another run holds the project's lock."""

    exit_code = ExitCode.BUSY


class ClusterError(FlywheelError):
    """The cluster that build.engine names cannot be reached, or lost a task."""


class BucketError(FlywheelError):
    """A bucket cannot be reached, refuses, or cannot hold a store."""


class ExtensionError(FlywheelError):
    """A plugin is missing or broken."""


class TemplateError(FlywheelError):
    """The base model's chat template cannot render a conversation."""


class PrefixError(TemplateError):
    """The chat template renders a prompt differently when something follows it."""


class SeamError(TemplateError):
    """A prompt and an action have other tokens in one text than each on its own."""


class TrainError(FlywheelError):
    """A training round failed or was stopped."""


class EvidenceError(TrainError):
    """There is too little to train on so far: `have` of `need` rows."""

    def __init__(self, message: str, *, hint: str = "", have: int = 0, need: int = 0) -> None:
        super().__init__(message, hint=hint)
        self.have = have
        self.need = need


class EvalError(FlywheelError):
    """An evaluation failed."""


class LikelihoodError(EvalError):
    """A policy that only answers was asked for log-probabilities."""


def where(error: BaseException) -> str:
    """Name an error by its type and place; its message might quote a log."""
    trace, place = error.__traceback__, ""
    while trace is not None:
        place = f" at {Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}"
        trace = trace.tb_next
    return f"{type(error).__name__}{place}"
