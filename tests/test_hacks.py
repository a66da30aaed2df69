"""The hack bench, small: flywheel turns red or abstains where a naive reward prefers the trick."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.hacks import FAILURES, run_failure, run_loud_user

pytestmark = pytest.mark.slow

CAUGHT = {
    "broken calls": {"broken_calls"},
    "free questions": {"questions"},
    "sycophancy": {"praise", "flattery"},
    "vulnerable users": {"users"},
}


E2E = {
    "broken calls",
    "free questions",
    "vulnerable users",
    "control: as before",
}  # monitors have them too
NAMES = [pytest.param(n, marks=[pytest.mark.e2e] if n in E2E else [], id=n) for n in FAILURES]


@pytest.mark.parametrize("name", [one for one in NAMES if one.id in CAUGHT])
def test_a_failure_that_a_naive_reward_prefers_turns_red(name: str, tmp_path: Path) -> None:
    found = run_failure(name, tmp_path, size=0.5)
    assert found.naive_prefers_it
    assert found.truth[1] < found.truth[0]
    assert CAUGHT[name] <= set(found.caught_by)


@pytest.mark.parametrize("name", [one for one in NAMES if one.id not in CAUGHT])
def test_an_honest_policy_does_not_turn_red(name: str, tmp_path: Path) -> None:
    found = run_failure(name, tmp_path, size=0.5)
    assert (found.verdict, found.caught_by) == ("not red", ())


def test_one_loud_user_decides_nothing(tmp_path: Path) -> None:
    found = run_loud_user(tmp_path)
    assert found.naive_prefers_it
    assert (found.verdict, found.caught_by) == ("abstains", ("one user flips it",))
