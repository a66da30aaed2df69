"""What counts as the same request, call, state and side of the holdout."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest
from flywheel.records import canonical_json, content_id
from flywheel.stages.common.canonical import (
    action_key,
    as_canonical,
    call_key,
    dump,
    first_state,
    in_holdout,
    next_state,
    parse,
    task_of_key,
    task_of_request,
)
from hypothesis import example, given
from hypothesis import strategies as st

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a": 1, "b": 2}, {"b": 2, "a": 1.0}),
        ({"city": " New York "}, {"city": "New York"}),
        ({"at": [{"n": 2.0}]}, {"at": [{"n": 2}]}),
    ],
)
def test_calls_that_are_the_same(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert call_key({"name": "f", "arguments": one}) == call_key({"name": "f", "arguments": other})


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a": 1}, {"a": "1"}),
        ({"a": True}, {"a": 1}),
        ({"a": [1, 2]}, {"a": [2, 1]}),
        ({"a": None}, {}),
        ({"cmd": "tar -c -f x.tar docs"}, {"cmd": "tar -C -f x.tar docs"}),
        ({"sql": 'select * from "Users"'}, {"sql": 'select * from "users"'}),
        ({"path": "docs/Readme"}, {"path": "docs/readme"}),
        ({"a": 2**63}, {"a": 2**63 + 1}),
    ],
)
def test_calls_that_are_not_the_same(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert call_key({"name": "f", "arguments": one}) != call_key({"name": "f", "arguments": other})


def test_a_broken_call_has_a_key_of_its_own() -> None:
    broken = call_key({"name": "f", "arguments": None, "arguments_raw": '{"a": '})
    assert broken != call_key({"name": "f", "arguments": {}})
    assert broken == call_key({"name": "f", "arguments": None, "arguments_raw": '{"a":  '})


def test_states_follow_the_calls_and_not_the_order_of_parallel_ones() -> None:
    start = first_state(task_of_key("7"))
    assert next_state(start, []) == start
    assert next_state(start, ["a", "b"]) == next_state(start, ["b", "a"]) == next_state(next_state(start, ["a"]), ["b"])
    assert next_state(next_state(start, ["b"]), ["a"]) != next_state(start, ["a", "b"])
    assert (action_key(["b", "a"]), action_key([])) == ("a\nb", None)


def test_tasks_by_request() -> None:
    assert task_of_request("Where  is\nORDER 7?", None) == task_of_request("where is order 7?", None)
    assert task_of_request("hi", ["b", "a"]) == task_of_request("hi", ["a", "b"]) != task_of_request("hi", None)


@given(JSON)
def test_dump_and_parse_are_inverse(value: Any) -> None:
    assert parse(dump(value), exact=True) == value


def test_holdout_by_the_published_rule() -> None:
    # sha256("flywheel-holdout:" + "a") begins with 30a21dcc: 0.18997...
    assert [in_holdout("a", share) for share in (0.0, 0.189, 0.19)] == [False, False, True]


@given(st.lists(st.text(min_size=1), unique=True), st.floats(0, 0.99), st.floats(0, 0.99))
def test_a_greater_holdout_only_adds_tasks(tasks: list[str], one: float, other: float) -> None:
    small, great = sorted([one, other])
    held = {task for task in map(task_of_key, tasks) if in_holdout(task, small)}
    assert held <= {task for task in map(task_of_key, tasks) if in_holdout(task, great)}


@given(value=JSON, ascii_only=st.booleans())
@example(
    value=[1e-5, 0.0001, 1e16, 1e300, -0.0, 2**64, "\ud800", "\u2028\x7f\x1b", {"b": 1, "a": [-1e-7]}],
    ascii_only=False,
)
def test_the_fast_way_writes_what_the_slow_one_does(value: Any, *, ascii_only: bool) -> None:
    text = json.dumps([value], ensure_ascii=ascii_only)
    assert as_canonical(text, lambda told: told) == canonical_json([value])


@given(st.lists(st.none() | st.text() | JSON))
@example(["\ud800"])
def test_an_id_is_that_of_the_canonical_text(parts: list[Any]) -> None:
    text = canonical_json(parts).encode("utf-8", "surrogatepass")
    assert content_id(*parts) == hashlib.sha256(text).hexdigest()[:32]
