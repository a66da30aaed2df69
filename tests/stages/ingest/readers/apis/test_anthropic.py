"""Anthropic logs: blocks in normal form."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from flywheel.extensions import BadRecordError
from flywheel.stages.ingest.readers.apis.anthropic import READER

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


def test_a_message_without_its_request_is_known_by_its_id() -> None:
    (call,) = read(PAIR["response"])
    assert (call["conversation_id"], call["kind"]) == ("response:msg_1", "model_call")
    assert call["payload"]["message"]["content"] == "It failed."
    assert "input" not in call["payload"]
    (call,) = read({"session_id": "s1", "response": PAIR["response"]})
    assert (call["conversation_id"], call["ids"]) == ("s1", ["response:msg_1"])


def answered(content: list[dict[str, Any]]) -> list[dict[str, Any]]:
    request = {"messages": [{"role": "user", "content": "u"}]}
    return read({"request": request, "response": PAIR["response"] | {"content": content}})


SEARCH = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "holidays"}}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "s1", "content": [{"type": "web_search_result", "url": "u"}]}


def test_a_tool_that_the_provider_ran_is_an_action_with_its_result() -> None:
    said: list[dict[str, Any]] = [{"type": "text", "text": "I look."}, SEARCH, FOUND, {"type": "text", "text": "Mon"}]
    first, result, last = answered([*said, {"type": "text", "text": "day."}])
    assert [e["kind"] for e in (first, result, last)] == ["model_call", "tool_result", "model_call"]
    assert first["payload"]["message"]["content"] == "I look."
    assert first["payload"]["message"]["tool_calls"][0]["name"] == "web_search"
    assert "input" in first["payload"]
    assert (result["tool_name"], result["tool_call_id"], result["payload"]["status"]) == ("web_search", "s1", "ok")
    assert last["payload"]["message"]["content"] == "Monday."
    assert (last["payload"]["response_id"], last["payload"]["output_tokens"]) == ("msg_1", 12)
    assert [e["seq"] for e in (first, result, last)] == [1, 2, 3]


@pytest.mark.parametrize(
    ("kind", "content", "status"),
    [
        ("web_search_tool_result", {"type": "web_search_tool_result_error", "error_code": "unavailable"}, "failed"),
        ("code_execution_tool_result", {"type": "code_execution_result", "return_code": 1, "stdout": ""}, "failed"),
        ("code_execution_tool_result", {"type": "code_execution_result", "return_code": 0, "stdout": "1"}, "ok"),
        ("mcp_tool_result", [{"type": "text", "text": "x"}], "unknown"),
    ],
)
def test_how_a_providers_tool_ended(kind: str, content: Any, status: str) -> None:
    _, result = answered([SEARCH, {"type": kind, "tool_use_id": "s1", "content": content}])
    assert result["payload"]["status"] == status


def test_the_next_call_continues_what_the_provider_ran() -> None:
    """The answer and its copy in the next request's history are the same messages."""
    said: list[dict[str, Any]] = [SEARCH, FOUND, {"type": "text", "text": "Mon"}, {"type": "text", "text": "day."}]
    asked = [
        {"role": "user", "content": "u"},
        {"role": "assistant", "content": said},
        {"role": "user", "content": "ok"},
    ]
    (later,) = read({"request": {"messages": asked}, "response": PAIR["response"]})
    told = [e["payload"].get("message", e["payload"]) for e in answered(said)]
    assert [m["content"] for m in later["payload"]["input"][2:-1]] == [m["content"] for m in told[1:]]
    assert later["payload"]["input"][1]["tool_calls"] == told[0]["tool_calls"]


EVENTS: list[dict[str, Any]] = [
    {"type": "message_start", "message": PAIR["response"] | {"content": [], "stop_reason": None}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "hm"}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "x"}},
    {"type": "ping"},
    {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "It "}},
    {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "failed."}},
    {
        "type": "content_block_start",
        "index": 2,
        "content_block": {"type": "tool_use", "id": "t2", "name": "f", "input": {}},
    },
    {"type": "content_block_delta", "index": 2, "delta": {"type": "input_json_delta", "partial_json": '{"a"'}},
    {"type": "content_block_delta", "index": 2, "delta": {"type": "input_json_delta", "partial_json": ": 1}"}},
    {
        "type": "message_delta",
        "delta": {"stop_reason": "tool_use"},
        "usage": {"output_tokens": 20, "input_tokens": None},
    },
    {"type": "message_stop"},
]
SSE = "".join(f"event: {e['type']}\ndata: {json.dumps(e)}\n\n" for e in EVENTS)


@pytest.mark.parametrize("response", [SSE, EVENTS, {"events": EVENTS}, json.dumps(EVENTS)])
def test_a_streamed_answer_is_the_same_however_it_was_kept(response: Any) -> None:
    (call,) = read({"request": PAIR["request"], "response": response})
    assert call["payload"]["message"] == {
        "role": "assistant",
        "content": "It failed.",
        "reasoning": "hm",
        "tool_calls": [{"id": "t2", "name": "f", "arguments": {"a": 1}}],
    }
    told = call["payload"]
    assert (told["finish_reason"], told["input_tokens"], told["output_tokens"]) == ("tool_use", 37, 20)
    assert (call["model"], told["response_id"]) == ("served", "msg_1")


def test_a_stream_that_was_cut_off() -> None:
    (call,) = read({"request": PAIR["request"], "response": EVENTS[:10]})
    assert call["payload"]["tags"] == ["partial"]
    made = call["payload"]["message"]["tool_calls"][0]
    assert (made["arguments"], made["arguments_raw"]) == (None, '{"a"')
    (event,) = read({"request": PAIR["request"], "response": EVENTS[:1]})
    assert (event["kind"], event["payload"]["tags"]) == ("request", ["partial", "call_failed"])


def test_an_answer_that_was_logged_as_its_text() -> None:
    (call,) = read({**PAIR["request"], "response": "On Monday."})
    assert call["payload"]["message"] == {"role": "assistant", "content": "On Monday."}
    assert call["payload"]["input"][0] == {"role": "system", "content": "be kind"}


def test_what_the_anthropic_client_gives(fixtures: Path, take: Callable[..., Any]) -> None:
    """A tool loop; and its first call streamed: as events, as the client's helper gives them, as it came by wire."""
    taken = take(fixtures / "anthropic", root=fixtures)
    assert (taken.read, set(taken.events["source_format"])) == (5, {"anthropic"})
    assert taken.adds_up()
    assert taken.quarantined.is_empty()
    episodes, steps = taken.built()
    assert [list(s) for s in steps["tool_status"]] == [["failed"], []]
    assert json.loads(steps["action"][0])["tool_calls"][0]["arguments"] == {"id": 7}
    assert (episodes.height, episodes["input_tokens"][0], episodes["tags"][0].to_list()) == (1, 28, [])
    streamed = [p for p in taken.payloads() if p["message"].get("tool_calls")]
    assert len({json.dumps(p["message"]) for p in streamed}) == 1


def test_what_is_no_object_is_refused() -> None:
    with pytest.raises(BadRecordError):
        read([])
