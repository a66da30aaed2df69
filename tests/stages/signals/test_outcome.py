"""Outcomes, errors, loops, cost and risk."""

from __future__ import annotations

from typing import Any

import pytest
from flywheel.config import RewardsConfig
from flywheel.stages.signals.outcome import cost, latency, loop, outcome, recovery, tool_error
from tests.stages.talks import Talk, call, made


def test_outcome_takes_the_latest_of_each_name() -> None:
    talk = (
        Talk("a")
        .ask("x")
        .act("y")
        .outcome(0)
        .outcome(1)
        .event("outcome", {"name": "tests", "value": 5, "scale": [0, 10]})
    )
    row = outcome(*made(talk)).row(0, named=True)
    assert (row["score"], row["family"], row["kind"], row["step"]) == (0.5, "verifier", "outcome", None)
    assert row["evidence"] == sorted(talk.rows[n]["event_id"] for n in (3, 4))
    assert row["arrived"] == talk.rows[4]["ts"]


def test_verdicts_that_nothing_puts_in_order_are_one_grade() -> None:
    """Of three judges of one run, in a file each; the event's hash once decided which of them counted."""
    for verdicts in ((0, 1, 1), (1, 0, 1), (1, 1, 0)):
        talk = Talk("a").ask("x").act("y")
        for number, value in enumerate(verdicts):
            talk.event("outcome", {"name": "reward", "value": value, "judge": number})
        for row in talk.rows[2:]:
            row.update(ts=talk.rows[2]["ts"], seq=0)
        found = outcome(*made(talk)).row(0, named=True)
        assert found["score"] == pytest.approx(1 / 3)
        assert len(found["evidence"]) == 3


def test_what_steps_have_earned_adds_up() -> None:
    earned = ({"name": "reward", "value": value, "scale": [0, 4], "adds": True} for value in (1.0, -1.0, 3.0))
    talk = Talk("a").ask("x").act("y")
    for payload in earned:
        talk.event("outcome", payload)
    row = outcome(*made(talk)).row(0, named=True)
    assert row["score"] == pytest.approx(0.5), "three of four"
    assert row["evidence"] == sorted(talk.rows[n]["event_id"] for n in (2, 3, 4))


@pytest.mark.parametrize(
    ("value", "settings", "score"),
    [
        (5.49, {}, None),
        (-0.87, {}, -1.0),
        (1.0, {}, 1.0),
        (0.25, {}, -0.5),
        (40, {"score_names": {"reward": [0, 100]}}, -0.2),
        (5.49, {"success_at": {"reward": 5}}, 1.0),
        (3, {"success_at": {"reward": 5}}, -1.0),
    ],
)
def test_a_value_of_a_range_that_nobody_states_is_no_success(
    value: float, settings: dict[str, Any], score: float | None
) -> None:
    talk = Talk("a").ask("x").act("y").outcome(value)
    episodes, steps, events, cfg = made(talk)
    found = outcome(episodes, steps, events, cfg.model_copy(update=settings))
    assert found["score"].to_list() == ([] if score is None else [pytest.approx(score)])


@pytest.mark.parametrize(
    ("talk", "step"),
    [
        (Talk("a").ask("x").use("f", {}, "failed").act("sorry"), 0),
        (Talk("a").ask("x").use("f", {"n": 1}, "failed").use("f", {"n": 2}).act("done"), None),
        (Talk("a").ask("x").use("f", {}).use("g", {}, "failed").act("sorry"), 1),
        (Talk("a").ask("x").use("f", {}, "unknown").act("done"), None),
        (Talk("a").ask("x").use("f", {}, "failed").use("f", {}, "unknown").act("hm"), None),
        (Talk("a").ask("x").use("f", {}).act(calls=[call("f", None, "b", raw="{")]).act("hm"), 1),
        (Talk("a").ask("x").act("text only"), None),
    ],
)
def test_tool_error_is_the_last_word_of_the_tools(talk: Talk, step: int | None) -> None:
    rows = tool_error(*made(talk))
    assert rows.select("step", "score").rows() == ([] if step is None else [(step, -1.0)])


def test_parallel_calls_that_made_good_in_the_same_breath() -> None:
    both = [call("f", {"n": 1}, "1"), call("f", {"n": 2}, "2")]
    talk = Talk("a").ask("x").act(calls=both).result("no", "failed", call_id="1").result("yes", call_id="2")
    assert tool_error(*made(talk)).is_empty()


def test_loop() -> None:
    twice = Talk("a").ask("x").use("f", {"n": 1}).use("f", {"n": 1}).use("f", {"n": 2})
    thrice = Talk("b").ask("x").use("f", {"n": 1}).use("f", {"n": 1.0}).act("hm").use("f", {"n": 1})
    rows = loop(*made(twice, thrice))
    assert rows["evidence"].to_list() == [sorted(thrice.rows[n]["event_id"] for n in (1, 3, 6))]


def test_the_same_tests_after_each_change_are_no_loop() -> None:
    other_results, far_apart = Talk("a").ask("x"), Talk("b").ask("x")
    for n in range(3):
        other_results.act(calls=[call("test", {}, str(n))]).result(f"{n} failed", call_id=str(n))
        far_apart.use("test", {}).use("edit", {"n": n}).use("read", {"n": n})
    assert loop(*made(other_results, far_apart)).is_empty()


def test_recovery_is_good_for_the_step_that_did_it() -> None:
    talk = Talk("a").ask("x").use("f", {"n": 1}, "failed").use("g", {}).use("f", {"n": 2}).act("done")
    never = Talk("b").ask("x").use("f", {"n": 1}, "failed").use("g", {})
    broken = Talk("c").ask("x").act(calls=[call("f", None, "b", raw="{")]).use("f", {})
    rows = recovery(*made(talk, never, broken)).sort("step")
    assert rows.select("step", "score").rows() == [(1, 1.0), (2, 1.0)]


def test_an_outcome_where_less_is_better() -> None:
    talk = Talk("a").ask("x").act("y").event("outcome", {"name": "had_error", "value": 1.0, "scale": [0, 1]})
    found = made(talk)
    assert outcome(*found)["score"].to_list() == [1.0]
    assert outcome(*found[:3], RewardsConfig(score_names={"had_error": (1, 0)}))["score"].to_list() == [-1.0]


def test_latency_beside_another_unit() -> None:
    rows = latency(
        *made(Talk("a").ask("x").act("y", cost_usd=0.5, latency_s=3), Talk("b").ask("x").act("y", latency_s=3))
    )
    assert rows.select("family", "score", "kind").rows() == [("seconds", 3.0, "cost")]


def test_cost_in_the_best_unit_there_is() -> None:
    talks = [
        Talk("a").ask("x").act("y", cost_usd=0.5, input_tokens=9),
        Talk("b").ask("x").act("y", input_tokens=9, output_tokens=2),
        Talk("c").ask("x").act("y", latency_s=3),
        Talk("d").ask("x").act("y").act("z"),
    ]
    found = made(*talks)
    rows = cost(*found).join(found.episodes.select("episode_id", "conversation_id"), on="episode_id")
    rows = rows.sort("conversation_id")
    assert rows["family"].to_list() == ["usd", "tokens", "seconds", "steps"]
    assert rows["score"].to_list() == [0.5, 17.0, 3.0, 2.0]
    assert set(rows["kind"]) == {"cost"}
