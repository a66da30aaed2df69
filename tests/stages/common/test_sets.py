"""What is joined, directly or through others, is one set, known by its smallest member."""

from __future__ import annotations

from flywheel.stages.common.sets import DisjointSets
from hypothesis import given
from hypothesis import strategies as st

PAIRS = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)))


def reached(start: int, pairs: list[tuple[int, int]]) -> set[int]:
    found, left = {start}, [start]
    while left:
        member = left.pop()
        near = {other for pair in pairs if member in pair for other in pair} - found
        found |= near
        left += near
    return found


@given(PAIRS)
def test_a_set_is_what_can_be_reached(pairs: list[tuple[int, int]]) -> None:
    sets = DisjointSets[int]()
    for pair in pairs:
        sets.join(pair)
    assert [sets.root(member) for member in range(10)] == [min(reached(member, pairs)) for member in range(10)]


def test_several_at_once_and_none() -> None:
    sets = DisjointSets[str]()
    sets.join([])
    sets.join(["c", "b", "d"])
    sets.join(["a", "d"])
    assert {name: sets.root(name) for name in "abcde"} == {"a": "a", "b": "a", "c": "a", "d": "a", "e": "e"}
