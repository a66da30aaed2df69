"""Exit codes and hints survive a process boundary."""

from __future__ import annotations

import pickle

from flywheel.errors import BusyError, ExitCode, FlywheelError


def test_an_error_keeps_its_hint_when_it_crosses_a_process() -> None:
    error = pickle.loads(pickle.dumps(BusyError("busy", hint="wait")))  # noqa: S301 - our own object

    assert isinstance(error, BusyError)
    assert (error.message, error.hint, error.exit_code) == ("busy", "wait", ExitCode.BUSY)


def test_the_exit_codes_are_those_of_the_reference() -> None:
    assert {c.name: int(c) for c in ExitCode} == {
        "DONE": 0, "FAILED": 1, "USAGE": 2, "HELD": 3, "BUSY": 4, "ROLL_BACK": 5, "NOTHING": 99, "INTERRUPTED": 130,
    }  # fmt: skip
    assert FlywheelError("x").exit_code == ExitCode.FAILED
