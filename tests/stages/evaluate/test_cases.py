"""Cases from held-out attempts: what is good, what is shown, and what stays the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from flywheel.contracts import polars_schema
from flywheel.extensions import Holdout
from flywheel.records import PreferencePair
from flywheel.stages.evaluate.cases import capped, holdout_sha256, state_cases
from hypothesis import given
from hypothesis import strategies as st

Frames = Callable[[Sequence[dict[str, Any]]], tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]]

FIND, WRONG, BOOK = ("find", {"q": "x"}), ("find", {"q": "y"}), ("book", {"id": "A1"})


@pytest.fixture
def holdout(frames: Frames) -> Callable[..., Holdout]:
    """Give a function from attempts to a holdout; `support` is the number of episodes through every credited step."""

    def make(attempts: Sequence[dict[str, Any]], support: int = 2) -> Holdout:
        episodes, steps, returns = frames([{"split": "holdout", **a} for a in attempts])
        returns = returns.with_columns(n_support=pl.when(pl.col("step").is_null()).then(1).otherwise(support))
        pairs = pl.DataFrame(schema=polars_schema(PreferencePair))
        return Holdout(episodes, steps, returns, pairs, Path())

    return make


def _names(case: Any) -> tuple[list[Any], list[Any]]:
    return tuple(  # type: ignore[return-value]
        [[(c["name"], c["arguments"]) for c in way] for ways in side.values() for way in ways]
        for side in (case.good, case.bad)
    )


def test_credit_decides_what_is_good(holdout: Callable[..., Holdout]) -> None:
    given_to = holdout(
        [
            {"id": "a", "p": 0.9, "steps": [{"user": "hi", "call": FIND, "credit": -0.3}]},
            {"id": "b", "p": 0.2, "steps": [{"user": "hi", "call": BOOK, "credit": 0.4}]},
            {"id": "c", "p": 0.9, "steps": [{"user": "hi", "call": BOOK, "credit": 0.2}]},
        ]
    )

    (case,) = state_cases(given_to, 10)

    assert _names(case) == ([[BOOK]], [[FIND]])
    assert case.tool == "book"
    assert case.task_id == "t"
    assert [m["role"] for m in case.prompt] == ["system", "user"]


def test_without_credit_success_decides(holdout: Callable[..., Holdout]) -> None:
    given_to = holdout(
        [
            {"id": "a", "p": 0.1, "steps": [{"call": WRONG}]},
            {"id": "b", "p": 0.8, "steps": [{"call": FIND}]},
            {"id": "c", "p": 0.5, "steps": [{"call": BOOK}]},
            {"id": "d", "steps": [{"call": ("guess", {})}]},
        ]
    )

    (case,) = state_cases(given_to, 10)

    assert _names(case) == ([[FIND]], [[WRONG]])


def test_credit_of_a_single_episode_is_not_believed(holdout: Callable[..., Holdout]) -> None:
    attempts = [
        {"id": "a", "p": 0.5, "steps": [{"call": FIND, "credit": 0.5}]},
        {"id": "b", "p": 0.8, "steps": [{"call": BOOK}]},
    ]

    (alone,), (supported,) = (state_cases(holdout(attempts, support), 10) for support in (1, 2))

    assert _names(alone)[0] == [[BOOK]]
    assert _names(supported)[0] == [[FIND]]


@pytest.mark.parametrize("turn", [{"call": FIND, "status": "failed"}, {"call": ("find", None)}])
def test_a_failed_or_broken_call_is_never_good(holdout: Callable[..., Holdout], turn: dict[str, Any]) -> None:
    attempts = [{"id": "a", "p": 0.9, "steps": [turn | {"credit": 0.5}]}]

    assert state_cases(holdout(attempts), 10) == []


def test_plain_text_makes_no_case(holdout: Callable[..., Holdout]) -> None:
    assert state_cases(holdout([{"id": "a", "p": 0.9, "steps": [{"user": "hi", "say": "hello"}]}]), 10) == []


def test_the_context_shown_is_one_in_which_the_good_action_was_taken(holdout: Callable[..., Holdout]) -> None:
    attempts = [
        {"id": "a", "p": 0.1, "steps": [{"user": "from a", "call": WRONG}]},
        {"id": "b", "p": 0.9, "steps": [{"user": "from b", "call": ("find", {"q": "X "})}]},
        {"id": "c", "p": 0.9, "steps": [{"user": "from c", "call": FIND}]},
    ]

    (case,) = state_cases(holdout(attempts), 10)

    assert case.prompt[-1]["content"] == "from b"


def test_each_state_is_one_case_and_more_tasks_change_few(holdout: Callable[..., Holdout]) -> None:
    def attempts(tasks: int) -> list[dict[str, Any]]:
        steps = [{"user": "go", "call": FIND}, {"call": BOOK}]
        return [{"id": f"{t}-{k}", "task": f"t{t}", "p": 0.9, "steps": steps} for t in range(tasks) for k in range(2)]

    few, more = state_cases(holdout(attempts(20)), 1_000), state_cases(holdout(attempts(21)), 1_000)
    assert (len(few), len(more)) == (40, 42)
    assert [c.case_id for c in few] == sorted({c.case_id for c in few})

    capped_few, capped_more = ({c.case_id for c in state_cases(holdout(attempts(n)), 10)} for n in (20, 21))
    assert len(capped_few) == len(capped_more) == 10
    assert len(capped_few & capped_more) >= 8


def test_the_order_of_rows_does_not_matter(holdout: Callable[..., Holdout]) -> None:
    attempts = [
        {"id": f"{t}-{k}", "task": f"t{t}", "p": 0.9 - 0.8 * (k == 1), "steps": [{"call": FIND if k else BOOK}]}
        for t in range(6)
        for k in range(3)
    ]
    plain = holdout(attempts)
    mixed = Holdout(
        plain.episodes.sample(fraction=1, shuffle=True, seed=1),
        plain.steps.sample(fraction=1, shuffle=True, seed=2),
        plain.returns.sample(fraction=1, shuffle=True, seed=3),
        plain.pairs,
        Path(),
    )

    assert state_cases(mixed, 4) == state_cases(plain, 4)


@given(st.sets(st.text(max_size=5), max_size=30), st.integers(1, 10))
def test_the_cap_depends_on_the_ids_alone(ids: set[str], most: int) -> None:
    found = capped(ids, most)

    assert found == capped(sorted(ids, reverse=True), most)
    assert len(found) == min(most, len(ids))
    assert set(found) <= ids


def test_the_identity_of_the_held_out_tables(holdout: Callable[..., Holdout]) -> None:
    one, again, other = (holdout([{"id": "a", "p": p, "steps": [{"call": FIND}]}]) for p in (0.9, 0.9, 0.8))
    assert holdout_sha256(one) == holdout_sha256(again) != holdout_sha256(other)


def test_what_is_right_for_another_number_is_not_good(holdout: Callable[..., Holdout]) -> None:
    """Where the log names no tasks, "refund order 7" and "refund order 9" are one state."""
    attempts = [
        {
            "id": f"e{n}",
            "p": 0.9,
            "rule": "first_request",
            "steps": [{"user": f"Refund {n}", "call": ("refund", {"id": n})}],
        }
        for n in (7, 9)
    ]
    (case,) = state_cases(holdout(attempts), 10)
    assert _names(case) == ([[("refund", {"id": 7})]], [])
    assert "Refund 7" in str(case.prompt)
