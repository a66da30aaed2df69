"""No single user decides: known answers."""

from __future__ import annotations

import math

import pytest
from flywheel.stages.selection.user_caps import direction, majority, rows_allowed, tally, user_weights
from hypothesis import given
from hypothesis import strategies as st

FRIENDS = [(f"friend{n}", "A") for n in range(6)]
FOES = [(f"foe{n}", "B") for n in range(3)]
ATTACK = [("loud", "B")] * 40


def test_forty_votes_of_one_user_do_not_turn_a_preference() -> None:
    votes = FRIENDS + FOES + ATTACK
    assert majority(votes, cap=None) == "B"
    assert tally(votes) == {"A": 6, "B": 6}
    assert majority(votes) is None
    found = direction(votes)
    assert (found.choice, found.reason) == (None, "one user flips it")
    assert direction(FRIENDS + FOES).choice == "A"


@pytest.mark.parametrize(
    ("votes", "reason"),
    [
        ([], "few users"),
        ([("a", "A"), ("b", "A")], "few users"),
        ([("a", "A"), ("b", "A"), ("c", "A")], "supported"),
        ([("a", "A"), ("b", "A"), ("c", "B"), ("d", "B")], "tie"),
        ([("a", "A"), ("b", "A"), ("c", "A"), ("d", "B"), ("e", "B")], "one user flips it"),
        ([("a", "A")] * 9, "few users"),
    ],
)
def test_what_a_preference_needs(votes: list[tuple[str, str]], reason: str) -> None:
    assert direction(votes).reason == reason


@given(st.lists(st.tuples(st.sampled_from("abcdefg"), st.sampled_from("AB")), max_size=40), st.sampled_from("abcdefg"))
def test_no_user_alone_turns_a_supported_preference_around(votes: list[tuple[str, str]], attacker: str) -> None:
    found = direction(votes).choice
    if found is None:
        return
    other = "B" if found == "A" else "A"
    honest = [vote for vote in votes if vote[0] != attacker]
    assert direction(honest + [(attacker, other)] * 50).choice in {None, found}
    assert majority(honest) == found


def test_how_many_rows_a_user_may_have() -> None:
    assert rows_allowed({f"u{n}": 10 for n in range(100)}, 20, 0.02) == 20
    assert rows_allowed({f"u{n}": 3 for n in range(100)}, 20, 0.02) == 6
    assert rows_allowed({"a": 100, "b": 5, "c": 5, "d": 10}, 100, 0.02) == 60  # nobody could stay under 2 %
    assert rows_allowed({"a": 500}, 20, 0.02) == 500  # a project of one user has nobody to protect
    assert rows_allowed({}, 20, 0.02) == 0


def test_a_users_weight_grows_with_the_root_of_the_rows() -> None:
    weights = user_weights(["a"] * 4 + ["b"] + [None])
    assert weights[0] / weights[4] == pytest.approx(1 / 2)
    assert math.fsum(weights[:5]) == pytest.approx(5)
    assert weights[5] == 1.0
    assert user_weights([None, None]) == [1.0, 1.0]
