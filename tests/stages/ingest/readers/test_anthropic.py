"""Anthropic logs: blocks in normal form."""

from __future__ import annotations

from typing import Any

import pytest
from flywheel.extensions import BadRecordError
from flywheel.stages.ingest.readers.anthropic import READER

PAIR: dict[str, Any] = {
    "session_id": "s1",
    "created_at": "2026-10-01T09:00:00Z",
    "request": {
        "model": "asked",
        "max_tokens": 512,
        "system": [{"type": "text", "text": "be kind"}],
        "metadata": {"user_id": "u1"},
        "tools": [{"name": "get_order", "input_schema": {"type": "object"}}],
        "messages": [
            {"role": "user", "content": "where are 7 and 8?"},
            {
                "role": "assistant",
                "content": [{"type": "tool_use", "id": "t1", "name": "get_order", "input": {"id": 7}}],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "t1", "is_error": True, "content": "TimeoutError: db"},
                    {"type": "text", "text": "hurry up"},
                ],
            },
        ],
    },
    "response": {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "served",
        "content": [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "It failed."}],
        "stop_reason": "end_turn",
        "usage": {
            "input_tokens": 30,
            "output_tokens": 12,
            "cache_creation_input_tokens": 2,
            "cache_read_input_tokens": 5,
        },
    },
}


def read(record: Any) -> list[dict[str, Any]]:
    return list(READER.read(record, 1))


def test_a_pair_is_one_model_call() -> None:
    (call,) = read(PAIR)
    assert (call["kind"], call["conversation_id"], call["user"], call["model"]) == ("model_call", "s1", "u1", "served")
    assert call["payload"] == {
        "message": {"role": "assistant", "content": "It failed.", "reasoning": "hm"},
        "input": [
            {"role": "system", "content": "be kind"},
            {"role": "user", "content": "where are 7 and 8?"},
            {"role": "assistant", "tool_calls": [{"id": "t1", "name": "get_order", "arguments": {"id": 7}}]},
            {
                "role": "tool",
                "content": "TimeoutError: db",
                "tool_call_id": "t1",
                "name": "get_order",
                "status": "failed",
            },
            {"role": "user", "content": "hurry up"},
        ],
        "tools": [{"type": "function", "function": {"name": "get_order", "parameters": {"type": "object"}}}],
        "response_id": "msg_1",
        "finish_reason": "end_turn",
        "input_tokens": 37,
        "output_tokens": 12,
        "sampling": {"max_tokens": 512},
    }


def test_a_prefill_is_the_beginning_of_the_answer() -> None:
    messages = [{"role": "user", "content": "u"}, {"role": "assistant", "content": "It "}]
    response = PAIR["response"] | {"content": [{"type": "text", "text": "failed."}]}
    (call,) = read({"request": {"messages": messages}, "response": response})
    assert call["payload"]["message"]["content"] == "It failed."
    assert call["payload"]["input"] == messages[:1]


def test_a_transcript_of_blocks() -> None:
    events = read({key: PAIR["request"][key] for key in ("system", "messages", "tools")})
    assert [e["kind"] for e in events] == ["request", "model_call", "tool_result", "request"]
    assert events[0]["payload"]["messages"][0] == {"role": "system", "content": "be kind"}
    assert events[2]["payload"] == {"content": "TimeoutError: db", "status": "failed", "error_type": "TimeoutError"}


def test_a_failed_call_leaves_what_was_asked() -> None:
    (event,) = read({"request": PAIR["request"], "response": {"type": "error", "error": {"type": "overloaded_error"}}})
    assert (event["kind"], event["payload"]["tags"]) == ("request", ["call_failed"])


def test_a_bare_answer_gives_nothing() -> None:
    assert read(PAIR["response"]) == []
    assert read({"custom_id": "a", "result": {"type": "succeeded", "message": PAIR["response"]}}) == []


def test_what_is_no_object_is_refused() -> None:
    with pytest.raises(BadRecordError):
        read([])
