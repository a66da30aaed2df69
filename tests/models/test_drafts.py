"""What a policy likely writes next, and how much of it is read at once."""

from __future__ import annotations

import pytest
from flywheel.models import drafts
from flywheel.models.drafts import MOST_GUESSED, MOST_READ, Drafts, Guess, guessed
from hypothesis import given
from hypothesis import strategies as st

END = 0
CHANCES = st.lists(st.floats(0, 1), max_size=MOST_GUESSED)


def tokens(found: list[Guess]) -> list[int]:
    return [guess.token for guess in found]


def test_what_followed_is_guessed_by_the_longest_beginning_that_is_known() -> None:
    known = Drafts()
    known.learn([1, 2], [3, 4, 5])
    known.learn([9, 2], [3, 6, 7])
    known.learn([9, 2], [3, 6, 8])

    assert tokens(known.guess([1, 2], 9, END)) == [3, 4, 5]
    assert tokens(known.guess([9, 2], 9, END)) == [3, 6, 7], "of two that are as frequent the first that was seen"
    assert tokens(known.guess([7, 2, 3], 9, END)) == [6, 7], "as two of three went on after the last two"
    assert known.guess([5, 1], 9, END) == known.guess([2], 9, END) == []


def test_chances_are_shares_of_what_followed_and_fall_with_every_token() -> None:
    known = Drafts()
    for written in ([3, 4], [3, 4], [3, 5]):
        known.learn([1, 2], written)

    assert [guess.chance for guess in known.guess([1, 2], 9, END)] == pytest.approx([3.5 / 4, 3.5 / 4 * 2.5 / 4])


def test_no_guess_goes_beyond_an_end_or_what_may_be_written() -> None:
    known = Drafts()
    known.learn([1, 2], [3, 4, END])
    known.learn([5, 5], [5] * 20)

    assert tokens(known.guess([1, 2], 9, END)) == [3, 4]
    assert tokens(known.guess([1, 2], 1, END)) == [3]
    assert known.guess([1, 2], 0, END) == []
    assert tokens(known.guess([5, 5], 99, END)) == [5] * MOST_GUESSED


def test_what_is_kept_is_bounded_and_what_is_known_is_still_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drafts, "_MOST_KEPT", 3)
    known = Drafts()
    known.learn([1, 2], [3, 4])
    known.learn([7, 8], [9])
    for _ in range(2):
        known.learn([1, 2], [6])

    assert known.guess([7, 8], 9, END) == []
    assert tokens(known.guess([1, 2], 1, END)) == [6]


@given(st.lists(CHANCES, min_size=1, max_size=100))
def test_a_pass_reads_what_is_worth_its_time(rows: list[list[float]]) -> None:
    given_rows = [[Guess(1, chance) for chance in sorted(row, reverse=True)] for row in rows]
    width = guessed(given_rows, "cpu")

    def rate(width: int) -> float:
        right = len(rows) + sum(guess.chance for row in given_rows for guess in row[:width])
        return right / (drafts.PASS_TOKENS["cpu"] + len(rows) * (1 + width))

    assert 0 <= width <= max(map(len, rows))
    assert len(rows) * (1 + width) <= max(MOST_READ, len(rows))
    allowed = range(1 + min(max(map(len, rows)), MOST_READ // len(rows) - 1))
    assert rate(width) == pytest.approx(max(map(rate, allowed)))


def test_sure_guesses_are_read_and_doubtful_ones_are_not() -> None:
    sure, doubtful = ([[Guess(1, chance)] * 4 for _ in range(20)] for chance in (0.98, 0.1))
    assert guessed(sure, "cpu") == 4
    assert guessed(doubtful, "cpu") == 0
    assert guessed(doubtful[:1], "cuda") == 4, "a pass takes as long there, however few tokens it reads"
    assert guessed([], "cpu") == 0
