"""The native format: what is right passes, what is wrong is told field by field."""

from __future__ import annotations

from typing import Any

import pytest
from flywheel.extensions import BadRecordError
from flywheel.stages.ingest.readers.native import READER

CALL = {"role": "assistant", "content": None, "tool_calls": [{"id": "c1", "name": "f", "arguments": '{"a":1}'}]}
BASE = {"conversation_id": "c", "ts": "2026-10-01T09:00:00Z"}


def read(record: Any) -> dict[str, Any]:
    (event,) = READER.read(record, 1)
    return event


@pytest.mark.parametrize(
    ("kind", "payload", "normal"),
    [
        ("request", {"messages": [{"role": "user", "content": "u"}]}, {"messages": [{"role": "user", "content": "u"}]}),
        (
            "model_call",
            {"message": CALL, "input": [{"role": "developer", "content": "s"}], "response_id": "r"},
            {
                "message": {"role": "assistant", "tool_calls": [{"id": "c1", "name": "f", "arguments": {"a": 1}}]},
                "input": [{"role": "system", "content": "s"}],
                "response_id": "r",
            },
        ),
        ("model_call", {"message": {"content": "a"}}, {"message": {"role": "assistant", "content": "a"}}),
        ("tool_call", {"arguments": '{"a":1}'}, {"arguments": {"a": 1}}),
        ("tool_call", {"arguments": None, "arguments_raw": "{"}, {"arguments": None, "arguments_raw": "{"}),
        ("tool_result", {"content": "Error: x"}, {"content": "Error: x", "status": "failed"}),
        ("tool_result", {"content": "Error: x", "status": "ok"}, {"content": "Error: x", "status": "ok"}),
        ("feedback", {"name": "thumbs", "value": -1}, {"name": "thumbs", "value": -1.0}),
        ("outcome", {"name": "check", "value": True}, {"name": "check", "value": 1.0}),
    ],
)
def test_every_kind_in_normal_form(kind: str, payload: dict[str, Any], normal: dict[str, Any]) -> None:
    event = read({**BASE, "kind": kind, "payload": payload})
    assert (event["kind"], event["payload"], event["conversation_id"]) == (kind, normal, "c")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("tags", "x"), ("tags", [1]), ("tools", {}), ("tools", ["f"]), ("input_tokens", "7"), ("latency_s", True),
        ("response_id", 7), ("finish_reason", ["stop"]),
    ],
)  # fmt: skip
def test_what_comes_after_may_trust_a_payload(field: str, value: Any) -> None:
    with pytest.raises(BadRecordError, match=f"payload.{field}: a"):
        read({**BASE, "kind": "model_call", "payload": {"message": CALL, field: value}})


def test_a_target_that_is_no_text_is_refused() -> None:
    with pytest.raises(BadRecordError, match="target: one of"):
        read({"target": ["trace"], "target_id": "t", "name": "thumbs", "value": 1})


def test_all_columns_and_a_stored_event_read_back() -> None:
    columns = {
        "span_id": "s",
        "parent_id": "p",
        "model": "m",
        "policy": "r1",
        "task_key": "t",
        "user": "u",
        "tool_name": "f",
        "tool_call_id": "c1",
    }
    stored = {"event_id": "x", "source_format": "openai", "source_file": "f", "source_line": 3, "seq": 4}
    event = read({**BASE, **columns, **stored, "kind": "tool_result", "payload": '{"content": "1", "status": "ok"}'})
    assert {name: event[name] for name in columns} == columns
    assert event["seq"] == 4
    assert event["payload"] == {"content": "1", "status": "ok"}
    assert not {"event_id", "source_file"} & set(event)


def test_flat_feedback_of_a_side_file() -> None:
    event = read(
        {"conversation_id": "c", "name": "thumbs", "value": 0, "target_id": "r1", "comment": "no", "ts": 1790845200}
    )
    assert event["kind"] == "feedback"
    assert event["payload"] == {"name": "thumbs", "value": 0.0, "target_id": "r1", "comment": "no"}
    assert event["ts"] is not None


OK = {**BASE, "kind": "request", "payload": {"messages": [{"role": "user", "content": "u"}]}}


@pytest.mark.parametrize(
    ("record", "detail"),
    [
        ([], "no JSON object"),
        ({**OK, "mesage": 1}, "mesage: unknown field"),
        ({**OK, "joe@example.com": 1}, r"\(not an identifier\): unknown field"),
        ({**OK, "conversation_id": ""}, "conversation_id: required"),
        ({**OK, "kind": "chat"}, "kind: one of feedback, model_call"),
        ({**OK, "ts": "yesterday"}, "ts: no ISO 8601"),
        ({**OK, "ts": None}, "ts, seq or span_id"),
        ({**OK, "seq": -1}, "seq: a whole number"),
        ({**OK, "model": ["m"]}, "model: a text"),
        ({**OK, "payload": "no object"}, "payload: an object"),
        ({**OK, "payload": {}}, "payload.messages: messages are not a list"),
        ({**OK, "payload": {"messages": []}}, "payload.messages: at least one"),
        ({**OK, "payload": {"messages": [{"role": "x"}]}}, "payload.messages: message 0 has no known role"),
        ({**OK, "kind": "model_call"}, "payload.message: an object"),
        (
            {**OK, "kind": "model_call", "payload": {"message": {"role": "user"}}},
            "payload.message: the role is not assistant",
        ),
        ({**OK, "kind": "tool_result", "payload": {"status": "maybe"}}, "payload.status: one of ok, failed, unknown"),
        ({**OK, "kind": "feedback", "payload": {}}, "payload.name: a text"),
        ({**OK, "kind": "feedback", "payload": {"name": "x", "value": "geheim"}}, "payload.value: a finite number"),
        ({**OK, "kind": "outcome", "payload": {"name": "x"}}, "payload.value: required"),
    ],
)
def test_what_is_wrong_is_named_without_its_value(record: Any, detail: str) -> None:
    with pytest.raises(BadRecordError, match=detail) as caught:
        list(READER.read(record, 1))
    assert caught.value.reason == "bad_record"
    assert "geheim" not in caught.value.detail
