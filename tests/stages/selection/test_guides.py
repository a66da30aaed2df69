"""Actions of a demonstration carried over to another request of its kind."""

from __future__ import annotations

from typing import Any

import pytest
from flywheel.stages.selection.guides import carried_over
from flywheel.stages.selection.kinds import kinds_of
from hypothesis import given
from hypothesis import strategies as st

ASKED = "Which bought more lamp units, Oslo or Cairo?"
SQL = "SELECT city FROM orders WHERE city IN ('{}', '{}') AND product = '{}'"


def acts(*arguments: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"role": "assistant", "tool_calls": [{"id": f"c{n}", "name": "run", "arguments": one}]}
        for n, one in enumerate(arguments)
    ]


def given_to(made: list[dict[str, Any]]) -> list[Any]:
    return [call["arguments"] for act in made for call in act["tool_calls"]]


def test_what_a_request_names_takes_the_place_of_what_another_one_named() -> None:
    shown = acts({}, {"sql": SQL.format("Oslo", "Cairo", "lamp")}, {"sql": "SELECT 1"})
    made = carried_over(shown, ASKED, "Which bought more desk units, Lima or Oslo?")
    assert given_to(made) == [{}, {"sql": SQL.format("Lima", "Oslo", "desk")}]  # what follows names nothing
    assert [act["tool_calls"][0]["id"] for act in made] == ["c0", "c1"]


def test_numbers_stay_numbers_and_only_whole_words_are_replaced() -> None:
    shown = acts({"order": 12, "tags": ["late", "order 12"], "note": "x12 of 120", "exact": 1.5, "sure": True})
    made = carried_over(shown, "Refund order 12, 1.5 EUR.", "Refund order 7, 20 EUR.")
    assert given_to(made) == [
        {"order": 7, "tags": ["late", "order 7"], "note": "x12 of 120", "exact": 20, "sure": True}
    ]


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (ASKED, "there is nothing to carry over"),
        ("Which bought more lamp units in May, Oslo or Lima?", "their words do not line up"),
        ("Which sold more lamp units, Oslo or Cairo?", "the query does not name what differs"),
        ("Which bought more lamp units, Oslo or Oslo?", None),
    ],
)
def test_where_it_is_not_clear_nothing_is_carried_over(other: str, why: str | None) -> None:
    made = carried_over(acts({"sql": SQL.format("Oslo", "Cairo", "lamp")}), ASKED, other)
    assert bool(made) == (why is None)


def test_a_name_may_be_of_several_words() -> None:
    made = carried_over(
        acts({"city": "Oslo", "n": 3}), "How many orders came from Oslo?", "How many orders came from New York?"
    )
    assert given_to(made) == [{"city": "New York", "n": 3}]
    made = carried_over(acts({"city": "New York"}), "Orders of New York, please!", "Orders of Lima, please!")
    assert given_to(made) == [{"city": "Lima"}]


@pytest.mark.parametrize(("asked", "request_", "arguments"), [
    ("Refund order 12.", "Refund order nan.", {"order": 12}),  # JSON has no such number
    ("Refund order 12.", "Refund order 1_000.", {"order": 12}),
    ("Refund 12 EUR.", "Refund 7 EUR.", {"amount": 12.5}),  # another number, though it begins alike
    ("From Oslo?", "From Oslo!", {"query": "id = ?"}),
    ("a " * 400, "b " * 400, {"text": "a"}),  # too long to be compared
])  # fmt: skip
def test_what_is_no_name_is_not_carried_over(asked: str, request_: str, arguments: dict[str, Any]) -> None:
    assert carried_over(acts(arguments), asked, request_) == []


def test_a_word_within_another_stays() -> None:
    made = carried_over(acts({"text": "from Oslo-West to Oslo"}), "From Oslo?", "From Lima?")
    assert given_to(made) == [{"text": "from Oslo-West to Lima"}]


def test_a_word_that_stays_elsewhere_is_not_replaced() -> None:
    shown = acts({"from": "Oslo", "to": "Oslo"})
    assert carried_over(shown, "From Oslo to Oslo?", "From Lima to Oslo?") == []
    assert given_to(carried_over(shown, "From Oslo to Oslo?", "From Lima to Lima?")) == [{"from": "Lima", "to": "Lima"}]


NAMES = st.sampled_from(["Oslo", "Cairo", "Lima", "Quito", "Perth", "a.b", "x-1", "7", "2025-01-02"])


@given(st.lists(NAMES, min_size=2, max_size=2, unique=True), st.lists(NAMES, min_size=2, max_size=2, unique=True))
def test_carried_over_is_what_the_other_request_would_have_been_shown(one: list[str], other: list[str]) -> None:
    made = carried_over(
        acts({"q": "{} | {}".format(*one)}), "From {} to {}?".format(*one), "From {} to {}?".format(*other)
    )
    if made:
        assert given_to(made) == [{"q": "{} | {}".format(*other)}]
    elif not set(one) & set(other) and ("7" not in one or "7" in other):  # in place of an amount only another
        pytest.fail("two requests that differ in two names line up")


def test_requests_that_name_three_things_are_of_one_kind() -> None:
    towns = ["Oslo", "Cairo", "Lima", "Quito", "Perth"]
    same = [f"Which bought more {what} units, {a} or {b}?" for what, a, b in zip(
        ["lamp", "desk", "vase", "clock"], towns, towns[1:], strict=False)]  # fmt: skip
    others = ["How many units did Oslo order since May?", "Where is it?", "", None]
    assert kinds_of([*same, *others]) == [0, 0, 0, 0, 1, 2, 3, 3]
