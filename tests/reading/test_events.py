"""Transcripts, verdicts beside a call, and conversations without a name."""

from __future__ import annotations

from typing import Any

import pytest
from flywheel.reading.events import acted, conversation_of, source_of, spoken
from flywheel.reading.feedback import judgements


def test_a_transcript_becomes_requests_calls_and_results() -> None:
    history: list[dict[str, Any]] = [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "u"},
        {"role": "assistant", "tool_calls": [{"id": "c", "name": "f", "arguments": {}}]},
        {"role": "tool", "content": "KeyError: x", "tool_call_id": "c", "name": "f", "status": "failed"},
        {"role": "assistant", "content": "a"},
        {"role": "user", "content": "thanks"},
    ]
    events = list(spoken(history, {"conversation_id": "x"}, {"tools": ["t"]}))
    assert [(e["kind"], e["seq"]) for e in events] == [
        ("request", 0),
        ("model_call", 2),
        ("tool_result", 3),
        ("model_call", 4),
        ("request", 5),
    ]
    assert events[0]["payload"] == {"messages": history[:2], "tools": ["t"]}
    assert events[2]["payload"] == {"content": "KeyError: x", "status": "failed", "error_type": "KeyError"}
    assert (events[2]["tool_name"], events[2]["tool_call_id"]) == ("f", "c")
    assert events[4]["payload"] == {"messages": history[5:]}
    assert list(spoken([], {}, {})) == []


@pytest.mark.parametrize(
    ("record", "payload"),
    [
        (
            {"feedback": {"name": "thumbs", "value": -1, "comment": "no"}},
            {"name": "thumbs", "value": -1.0, "comment": "no"},
        ),
        ({"rating": 4}, {"name": "rating", "value": 4.0}),
        ({"thumbs": "up"}, {"name": "thumbs", "label": "up"}),
        ({"feedback": True}, {"name": "feedback", "value": 1.0, "scale": [0, 1]}),
        ({"feedback": {"rating": "bad", "comment": "wrong"}}, {"name": "feedback", "label": "bad", "comment": "wrong"}),
        ({"feedback": [{"type": "edit", "text": "better"}]}, {"name": "edit", "text": "better"}),
    ],
)
def test_verdicts_beside_a_call(record: dict[str, Any], payload: dict[str, Any]) -> None:
    (event,) = judgements(record, {}, "r1")
    assert (event["kind"], event["payload"]) == ("feedback", payload | {"target": "response", "target_id": "r1"})


def test_a_reward_is_an_outcome_and_nothing_is_nothing() -> None:
    (event,) = judgements({"reward": "0.5", "feedback": None, "score": {}}, {}, None)
    assert (event["kind"], event["payload"]) == ("outcome", {"name": "reward", "value": 0.5, "source": "field"})


SAID = [{"role": "user", "content": "u"}, {"role": "assistant", "content": "a"}]


@pytest.mark.parametrize(
    ("fields", "values"),
    [
        ({"resolved": False, "success": True}, {"resolved": 0.0}),
        ({"success": True}, {"success": 1.0}),
        ({"outcome": "success", "score": 87}, {"outcome": 1.0}),
        ({"rewards": {"acc": 1, "fmt": 0}}, {"acc": 1.0, "fmt": 0.0}),
        ({"reward": {"value": 1}}, {"reward": 1.0}),
        ({"metadata": {"reward": 0.5, "success": True}}, {"reward": 0.5}),
        ({"passed": True, "reward": 0.5}, {"passed": 1.0, "reward": 0.5}),
        ({"outcome": "shipped", "metadata": {"source": "web"}}, {}),
        ({"pass": True}, {"pass": 1.0}),
        ({"evaluation": {"pass": False}}, {"pass": 0.0}),
        ({"eval_result": "FAIL"}, {"eval_result": 0.0}),
        ({"metrics": {"success": 1, "f1": 0.3}}, {"success": 1.0}),
        ({"testsPassed": True, "n_passed": 3}, {"testsPassed": 1.0}),
        ({"episode_reward": -2.5}, {"episode_reward": -2.5}),
        ({"final_status": "resolved"}, {"final_status": 1.0}),
        ({"task_status": "completed", "test_status": 200}, {}),
        ({"request_success": True, "success_rate": 0.5, "tool_result": "success", "passed_steps": 1}, {}),
        ({"all_correct": 7, "status": "success"}, {}),
    ],
)
def test_how_an_attempt_ended_stands_beside_its_transcript(fields: dict[str, Any], values: dict[str, float]) -> None:
    events = [e for e in judgements({"messages": SAID, **fields}, {}, None) if e["kind"] == "outcome"]
    assert {e["payload"]["name"]: e["payload"]["value"] for e in events} == values
    assert all(e["payload"]["source"] == "field" for e in events)


@pytest.mark.parametrize(
    ("fields", "columns", "found"),
    [
        ({"reward": 1}, {"task_key": "t1"}, [("outcome", "reward", "recorded")]),
        ({"score": 0.5}, {"task_key": "t1"}, [("outcome", "score", "recorded")]),
        ({"score": 4}, {"task_key": "t1"}, [("feedback", "score", None)]),
        ({"score": 0.5, "passed": True}, {"task_key": "t1"}, [("outcome", "passed", "recorded")]),
        ({"reward": 1}, {"task_key": "t1", "user": "joe"}, [("outcome", "reward", "field")]),
        ({"reward": 1}, {"user": None, "task_key": None}, [("outcome", "reward", "field")]),
        ({"metadata": {"reward": 1}}, {"task_key": "t1"}, [("outcome", "reward", "recorded")]),
        ({"metadata": {"reward": 1}, "object": "chat"}, {"task_key": "t1"}, [("outcome", "reward", "field")]),
        ({"reward": 1, "response": "a", "messages": SAID[:1]}, {"task_key": "t1"}, [("outcome", "reward", "field")]),
    ],
)
def test_a_run_of_a_named_task_that_nobody_asked_for_was_recorded_by_its_program(
    fields: dict[str, Any], columns: dict[str, Any], found: list[tuple[str, str, str | None]]
) -> None:
    events = list(judgements({"messages": SAID, **fields}, columns, None))
    assert [(e["kind"], e["payload"]["name"], e["payload"].get("source")) for e in events] == found


def test_that_a_request_succeeded_is_no_outcome() -> None:
    record = {"messages": SAID[:1], "response": "a", "success": True, "reward": 1}
    assert [e["payload"]["name"] for e in judgements(record, {}, None)] == ["reward"]


def test_later_calls_join_their_conversation() -> None:
    opening: list[dict[str, Any]] = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
    later = [*opening, {"role": "assistant", "content": "a"}, {"role": "user", "content": "more"}]
    assert conversation_of(opening, "joe") == conversation_of(later, "joe") != conversation_of(opening, "mia")
    assert conversation_of([], None) != conversation_of([{"role": "system", "content": "s"}], None)


@pytest.mark.parametrize(
    ("record", "task"),
    [
        ({"user_task_id": "user_task_3", "suite_name": "banking"}, "banking/user_task_3"),
        ({"task_id": 7, "benchmark": "shop"}, "shop/7"),
        ({"task_id": "refund-after-return", "suite": "shop"}, "refund-after-return"),
        ({"task_id": "shop/12", "suite": "shop"}, "shop/12"),
        ({"task_id": 7}, "7"),
    ],
)
def test_a_number_names_a_task_within_its_suite(record: dict[str, Any], task: str) -> None:
    assert source_of(record)["task_key"] == task


def test_the_first_place_that_has_it_wins() -> None:
    found = source_of(
        {"session_id": "a"}, {"conversation_id": "b", "user": 7, "timestamp": 1790845200, "release": "r1"}
    )
    assert {k: found[k] for k in ("conversation_id", "user", "policy")} == {
        "conversation_id": "a",
        "user": "7",
        "policy": "r1",
    }
    assert str(found["ts"]) == "2026-10-01 09:00:00+00:00"


def test_only_some_answers_are_acts() -> None:
    history: list[dict[str, Any]] = [
        {"role": "user", "content": "u"},
        {"role": "assistant", "content": "an example"},
        {"role": "assistant", "content": "an act"},
        {"role": "assistant", "content": "written later"},
        {"role": "user", "content": "v"},
    ]
    events = list(acted(history, {2}, {"conversation_id": "x"}, {"tools": ["t"]}))
    assert [(e["kind"], e["seq"]) for e in events] == [("model_call", 2), ("request", 3)]
    assert events[0]["payload"] == {"message": history[2], "input": history[:2], "tools": ["t"]}
    assert events[1]["payload"] == {"messages": history[4:]}


def test_where_all_or_none_are_acts() -> None:
    history: list[dict[str, Any]] = [{"role": "user", "content": "u"}, {"role": "assistant", "content": "a"}]
    assert list(acted(history, {1}, {}, {})) == list(spoken(history, {}, {}))
    assert [e["payload"] for e in acted(history, {1}, {}, {}, apart=True)] == [
        {"message": history[1], "input": history[:1]}
    ]
    assert [e["payload"] for e in acted(history, set(), {}, {})] == [{"messages": history}]
    assert list(acted([], set(), {}, {})) == []


@pytest.mark.parametrize("name", ["task_id", "taskId", "scenario_id", "problemId", "question_id", "dataset_item_id"])
def test_an_id_that_a_log_calls_a_tasks_is_the_task(name: str) -> None:
    assert source_of({name: 7})["task_key"] == "7"
    assert source_of({"id": 7, "instance_id": "host-1"})["task_key"] is None
    assert source_of({"instance_id": "acme__block-1", "resolved": False})["task_key"] == "acme__block-1"
