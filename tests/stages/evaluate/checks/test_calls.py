"""When two calls are the same: strict for identifiers, typed for the rest, order of calls ignored."""

from __future__ import annotations

from typing import Any

import pytest
from flywheel.stages.evaluate.checks.calls import MatchRules, same_calls, same_text, same_value
from hypothesis import given
from hypothesis import strategies as st

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "search",
            "parameters": {
                "properties": {"q": {"type": "string"}, "limit": {"type": "integer", "default": 10}, "page": {}},
                "required": ["q"],
            },
        },
    }
]


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"id": "", "name": name, "arguments": arguments}


@pytest.mark.parametrize(
    ("made", "wanted"),
    [("tmp/a/b", "tmpab"), ("-5", "5"), ("1.5", "15"), ("user_1", "user1"), ("ABC", "abc"), ("a b", "ab")],
)
def test_identifiers_are_equal_only_to_themselves(made: str, wanted: str) -> None:
    assert not same_text(made, wanted)
    assert not same_calls([call("read", path=made)], [call("read", path=wanted)])


def test_text_is_compared_after_unicode_form_and_outer_blanks() -> None:
    assert same_text(" ﬁle.txt\n", "file.txt")
    assert same_text("\uff21", "A")


def test_free_text_is_compared_loosely_and_only_where_marked() -> None:
    made, wanted = [call("reply", text="Hello, world. ")], [call("reply", text="hello world")]

    assert not same_calls(made, wanted)
    assert same_calls(made, wanted, rules=MatchRules(free_text=frozenset({("reply", "text")})))
    assert not same_calls(made, wanted, rules=MatchRules(free_text=frozenset({("other", "text")})))


def test_ignored_arguments_may_differ_or_be_absent() -> None:
    rules = MatchRules(ignore=frozenset({("think", "thought")}))

    assert same_calls([call("think", thought="a", n=1)], [call("think", thought="b", n=1)], rules=rules)
    assert same_calls([call("think", n=1)], [call("think", thought="b", n=1)], rules=rules)
    assert not same_calls([call("think", n=2)], [call("think", thought="b", n=1)], rules=rules)


@pytest.mark.parametrize(
    ("made", "wanted", "same"),
    [
        (1, 1.0, True),
        (0.1 + 0.2, 0.3, True),
        (1.001, 1.0, False),
        (10**18, 10**18 + 1, False),
        (True, 1, False),
        (1, True, False),
        (True, True, True),
        ("1", 1, False),
        (None, None, True),
        (None, 0, False),
        ([1, 2], [2, 1], False),
        ([1, [2, {"a": 1}]], [1.0, [2, {"a": 1.0}]], True),
        ({"a": 1}, {"a": 1, "b": 2}, False),
        ({"a": 1}, [1], False),
    ],
)
def test_values_are_typed(made: Any, wanted: Any, *, same: bool) -> None:
    assert same_value(made, wanted) is same


def test_names_may_write_a_dot_as_an_underscore() -> None:
    assert same_calls([call("orders_get", id="7")], [call("orders.get", id="7")])
    assert not same_calls([call("orders_put", id="7")], [call("orders.get", id="7")])


def test_optional_arguments_may_say_their_default() -> None:
    assert same_calls([call("search", q="x", limit=10)], [call("search", q="x")], TOOLS)
    assert same_calls([call("search", q="x")], [call("search", q="x", page=None)], TOOLS)
    assert not same_calls([call("search", q="x", limit=5)], [call("search", q="x")], TOOLS)
    assert not same_calls([call("search", q="x", limit=10)], [call("search", q="x")])


def test_a_missing_or_invented_argument_is_another_call() -> None:
    assert not same_calls([call("search")], [call("search", q="x")], TOOLS)
    assert not same_calls([call("search", q="x", deep=True)], [call("search", q="x")], TOOLS)


def test_a_call_that_did_not_parse_equals_none() -> None:
    broken = {"id": "", "name": "search", "arguments": None, "arguments_raw": "{"}

    assert not same_calls([broken], [broken])


def test_parallel_calls_match_one_to_one_in_any_order() -> None:
    one, two = call("get", id=1), call("get", id=2)

    assert same_calls([one, two], [two, one])
    assert not same_calls([one, one], [one, two])
    assert not same_calls([one], [one, two])
    assert same_calls([], [])


def test_matching_moves_partners_where_it_must() -> None:
    near, far = call("at", x=1.0), call("at", x=1.0 + 8e-7)
    farther = call("at", x=1.0 + 1.6e-6)

    assert same_calls([far, near], [near, farther])  # `far` equals both, `near` only the first


ARGUMENTS = st.dictionaries(
    st.text(max_size=3),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
        max_leaves=5,
    ),
    max_size=4,
)


@given(st.lists(ARGUMENTS, max_size=4), st.randoms(use_true_random=False))
def test_every_action_equals_itself_in_any_order(arguments: list[dict[str, Any]], rng: Any) -> None:
    calls = [{"name": "t", "arguments": a} for a in arguments]
    shuffled = rng.sample(calls, len(calls))

    assert same_calls(shuffled, calls, TOOLS)
