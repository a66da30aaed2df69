"""How alike texts are, on known answers."""

from __future__ import annotations

import pytest
from flywheel.stages.signals.likeness import edit_share, levenshtein, trigram_cosine
from hypothesis import given
from hypothesis import strategies as st

WORDS = st.text("abc d\u5bf9", max_size=12)


def table(one: str, other: str) -> int:
    """The textbook table."""
    row = list(range(len(other) + 1))
    for i, a in enumerate(one, 1):
        before, row[0] = row[0], i
        for j, b in enumerate(other, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (a != b))
    return row[-1]


@pytest.mark.parametrize(
    ("one", "other", "distance"), [("kitten", "sitting", 3), ("", "abc", 3), ("abc", "", 3), ("flaw", "lawn", 2)]
)
def test_known_distances(one: str, other: str, distance: int) -> None:
    assert levenshtein(one, other) == distance


@given(WORDS, WORDS)
def test_equal_to_the_textbook(one: str, other: str) -> None:
    assert levenshtein(one, other) == table(one, other)


def test_edit_share() -> None:
    assert edit_share("a  b", "a b") == 0
    assert edit_share("abcd", "wxyz") == 1
    assert edit_share("", "") == 0
    assert edit_share("ten letter", "ten letters") == pytest.approx(1 / 11)


@given(WORDS, WORDS)
def test_cosine_is_symmetric_and_bounded(one: str, other: str) -> None:
    assert trigram_cosine(one, other) == trigram_cosine(other, one)
    assert 0 <= trigram_cosine(one, other) <= 1 + 1e-12
    assert trigram_cosine(one, one) == pytest.approx(1 if one.strip() else 0)


def test_a_known_cosine() -> None:
    # " ab ", " abc ": 3-grams {" ab", "ab "} and {" ab", "abc", "bc "} share one: 1 / sqrt(2 * 3)
    assert trigram_cosine("ab", "abc") == pytest.approx(1 / 6**0.5)
