"""What attempts at one task say of each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
import pytest
from flywheel.stages.signals.peers import agreement, effort, questions, share_as_vote
from hypothesis import given
from hypothesis import strategies as st
from tests.stages.talks import Talk, made

if TYPE_CHECKING:
    from flywheel.extensions import Signal


def votes(signal: Signal, *talks: Talk) -> dict[str, float]:
    found = made(*talks)
    names = dict(found.episodes.select("episode_id", "conversation_id").iter_rows())
    return {names[e]: score for e, score in signal(*found).select("episode_id", "score").iter_rows()}


def wrote(name: str, *orders: int, status: str = "ok") -> Talk:
    talk = Talk(name, task="t").ask("Cancel what is late")
    for order in orders:
        talk.use("cancel_order", {"id": order}, status)
    return talk.act(f"Done, {name}.")


def test_attempts_that_changed_the_same_agree() -> None:
    found = votes(agreement, wrote("a", 7, 9), wrote("b", 9, 7), wrote("c", 7, 9), wrote("d", 8))
    assert found == pytest.approx({"a": 0.5, "b": 0.5, "c": 0.5, "d": -1.0})


def test_requests_for_other_orders_are_not_compared() -> None:
    """Where the log names no tasks, requests that differ in a number are one task, with other right results."""
    talks = [
        Talk(f"{number}{name}", task=None).ask(f"Please cancel order {number}").use("cancel_order", {"id": number})
        for number, names in ((7001, "abc"), (7002, "de"), (7003, "f"))
        for name in names
    ]
    assert votes(agreement, *talks) == {"7001a": 1.0, "7001b": 1.0, "7001c": 1.0}


def test_a_failed_call_changed_nothing() -> None:
    assert votes(agreement, wrote("a", 7), wrote("b", 7), wrote("c", 7, status="failed"))["c"] == -1.0


def test_conversations_that_only_looked_things_up_agree_on_doing_nothing() -> None:
    talks = [
        Talk(n, task="t").ask("Cancel 7").use("get_order", {"id": 7}).act(f"No. {n}").ask("Why?").act("Rules.")
        for n in "abc"
    ]
    assert votes(agreement, *talks) == {"a": 1.0, "b": 1.0, "c": 1.0}


def test_answers_agree_by_their_words_beyond_the_question() -> None:
    answers = {"a": "It is Fox Studios", "b": "It is Fox Studios", "c": "Paramount Pictures, surely"}
    found = votes(agreement, *(Talk(n, task="t").ask("Which is it?").act(text) for n, text in answers.items()))
    assert found["a"] == found["b"] > found["c"] == -1.0


def test_two_attempts_are_too_few_to_agree() -> None:
    assert votes(agreement, wrote("a", 7), wrote("b", 7)) == {}


def test_agreement_of_many_weighs_more() -> None:
    found = [agreement(*made(*(wrote(str(n), 7) for n in range(many))))["weight"].max() for many in (3, 9)]
    assert found == pytest.approx([2 / 3, 8 / 9])


@given(st.floats(0, 1), st.floats(0, 1))
def test_more_agreement_is_never_a_lower_vote(one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert -1 <= share_as_vote(low) <= share_as_vote(high) <= 1


def test_effort_never_prefers_one_attempt_to_another() -> None:
    talks = [Talk(n, task="t").ask("x") for n in "abc"]
    for talk, many in zip(talks, (1, 64, 64), strict=True):
        for _ in range(many):
            talk.act("y")
    assert votes(effort, *talks) == {"a": -1.0, "b": -1.0, "c": -1.0}
    assert votes(effort, *talks[:2]) == {}


def test_questions_beyond_three_of_four_attempts() -> None:
    talks = [Talk(str(n), task="t").ask("x") for n in range(5)]
    for talk, many in zip(talks, (0, 1, 1, 1, 4), strict=True):
        for _ in range(many):
            talk.act("Which one?").ask("this")
    assert votes(questions, *talks) == {"4": 3.0}
    assert votes(questions, *talks[1:]) == {}


def test_the_order_of_rows_does_not_matter() -> None:
    found = made(*(wrote(str(n), n % 3) for n in range(30)))
    turned = agreement(found.episodes.reverse(), found.steps.reverse(), found.events, found.cfg)
    assert turned.sort("episode_id").equals(agreement(*found).sort("episode_id"))
    assert agreement(*found).filter(pl.col("score") > 1).is_empty()
