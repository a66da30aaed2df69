"""Labelled actions: what becomes a demonstration, what an undesirable row, and what neither."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import polars as pl
import pytest
from flywheel.config import RewardsConfig
from flywheel.contracts import conform
from flywheel.funnel import Funnel
from flywheel.records import Example
from flywheel.stages.datasets.examples import build_examples

Frames = tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]
Make = Callable[[list[dict[str, Any]]], Frames]


def run(made: Frames) -> tuple[list[dict[str, Any]], dict[str, int]]:
    funnel = Funnel()
    rows = build_examples(*made, RewardsConfig(), funnel)
    funnel.check("examples")
    conform(rows, Example).collect()
    return rows.to_dicts(), {k.removeprefix("dropped: "): v for k, v in funnel.as_dict().items() if v}


def one(p: float | None, **turn: Any) -> dict[str, Any]:
    known = {} if p is None else {"p": p}
    return {"id": "e", "steps": [{"user": "go", "call": ("f", {"x": 1})} | turn], **known}


@pytest.mark.parametrize(
    ("attempt", "label", "weight"),
    [
        (one(0.95), True, 0.9),
        (one(0.7), True, 0.4),
        (one(0.05), False, 0.9),
        (one(0.95, status="failed"), False, 0.9),
        (one(0.95, call=("f", None), status="unknown"), False, 0.9),
        (one(0.95, p_better=0.25, p_worse=0.25), True, 0.675),
        (one(0.05, p_better=0.25, p_worse=0.7), False, 0.675),
        (one(0.95, p_better=0.1, p_worse=0.2, level=2), True, 0.72),
        (one(0.05, p_better=0.2, p_worse=0.1, level=2), False, 0.72),
        (one(0.95, credit=-0.2), True, 0.9),
        (one(0.95, risk=0.5), True, 0.4),
        (one(0.05, risk=1.0), False, 0.9),
        (one(0.6, status="failed"), False, 0.2),
    ],
)
def test_labels_and_weights(frames: Make, attempt: dict[str, Any], label: bool, weight: float) -> None:  # noqa: FBT001
    (row,), _ = run(frames([attempt]))
    assert row["label"] is label
    assert row["weight"] == pytest.approx(weight)


@pytest.mark.parametrize(
    ("attempt", "reason"),
    [
        (one(None), "unknown outcome"),
        (one(0.6), "unclear outcome"),
        (one(0.95, p_better=0.1, p_worse=0.2), "credit against outcome"),
        (one(0.95, p_better=0.002, p_worse=0.005), "credit against outcome"),
        (one(0.95, p_better=0.1, p_worse=0.2, level=1), "credit against outcome"),
        (one(0.95, p_better=0.1, p_worse=0.7, level=2), "credit against outcome"),
        (one(0.05, p_better=0.2, p_worse=0.1), "credit against outcome"),
        (one(0.5, status="failed"), "no confidence"),
        (one(0.73, risk=0.5), "risk"),
        ({"id": "e", "p": 0.95, "steps": [{"user": "go", "say": " "}]}, "empty action"),
    ],
)
def test_what_teaches_nothing_is_dropped_and_counted(frames: Make, attempt: dict[str, Any], reason: str) -> None:
    assert run(frames([attempt])) == ([], {"considered": 1, reason: 1})


def test_a_row_holds_the_context_the_action_and_where_they_come_from(frames: Make) -> None:
    steps = [{"user": "go", "call": ("f", {"x": 1})}, {"say": "there"}]
    rows, counts = run(frames([{"id": "e", "p": 0.95, "split": "holdout", "tools": '[{"name":"f"}]', "steps": steps}]))
    last = next(row for row in rows if row["step"] == 1)
    assert [m["role"] for m in json.loads(last["prompt"])] == ["system", "user", "assistant", "tool"]
    assert json.loads(last["completion"]) == [{"content": "there", "role": "assistant"}]
    assert (last["split"], last["tools"], last["episode_id"]) == ("holdout", '[{"name":"f"}]', "e")
    assert counts == {"considered": 2, "kept": 2, "note: desirable": 2}


def test_the_same_text_counts_once_with_its_highest_weight(frames: Make) -> None:
    rows, counts = run(frames([one(0.8) | {"id": "a"}, one(0.95) | {"id": "b"}]))
    assert [row["episode_id"] for row in rows] == ["b"]
    assert counts["duplicate"] == 1


def test_labels_that_disagree_are_weighed_against_each_other(frames: Make) -> None:
    rows, counts = run(frames([one(0.95) | {"id": "a"}, one(0.9) | {"id": "b"}, one(0.05) | {"id": "c"}]))
    assert [(row["episode_id"], row["label"]) for row in rows] == [("a", True)]
    assert (counts["outvoted label"], counts["duplicate"]) == (1, 1)
    rows, counts = run(frames([one(0.95) | {"id": "a"}, one(0.05) | {"id": "c"}]))
    assert (rows, counts["conflicting labels"]) == ([], 2)


def test_another_set_of_tools_is_another_question(frames: Make) -> None:
    rows, _ = run(frames([one(0.95) | {"id": "a", "tools": "[]"}, one(0.95) | {"id": "b", "tools": None}]))
    assert len(rows) == 2


def test_no_rows_give_no_rows(frames: Make) -> None:
    assert run(frames([])) == ([], {})


def test_the_order_of_rows_does_not_matter(frames: Make) -> None:
    made = frames([one(p) | {"id": f"e{n}"} for n, p in enumerate((0.95, 0.05, 0.8, 0.9, 0.3))])
    assert run(made) == run((made[0].reverse(), made[1].reverse(), made[2].reverse()))


def test_a_call_that_a_user_had_repeated_is_no_demonstration_of_it(frames: Make) -> None:
    words = 'As you wish: <tool_call>{"name": "f", "arguments": {"x": 1}}</tool_call>'
    echoed = {"id": "e", "p": 0.95, "steps": [{"user": "repeat it", "say": words}]}
    rows, dropped = run(frames([echoed | {"tools": "[]"}]))
    assert (rows, dropped["not as written"]) == ([], 1)
    (row,), _ = run(frames([echoed]))
    assert row["label"]
