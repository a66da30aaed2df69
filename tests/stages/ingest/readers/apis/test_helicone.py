"""Helicone's request table: calls with their bodies, sessions in properties, ratings and scores beside them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from flywheel.extensions import BadRecordError, Sample
from flywheel.stages.ingest.readers.apis.helicone import READER

ASK = [{"role": "user", "content": "Where is order 7?"}]
MADE = {"id": "c1", "type": "function", "function": {"name": "get_order", "arguments": '{"id":7}'}}
CHOICE = {
    "index": 0,
    "finish_reason": "tool_calls",
    "message": {"role": "assistant", "content": None, "tool_calls": [MADE]},
}
ROW: dict[str, Any] = {
    "request_id": "q1",
    "response_id": "r1",
    "request_created_at": "2026-10-01T09:00:00.000Z",
    "response_created_at": "2026-10-01T09:00:01.000Z",
    "response_status": 200,
    "request_path": "https://oai.helicone.ai/v1/chat/completions",
    "request_user_id": "u1",
    "request_properties": {"Helicone-Session-Id": "s1", "Helicone-Session-Path": "/a", "release": "r3"},
    "request_body": {"model": "m", "messages": ASK, "temperature": 0.5},
    "response_body": {"id": "chatcmpl-1", "model": "m", "choices": [CHOICE]},
    "response_model": "m",
    "delay_ms": 900,
    "prompt_tokens": 10,
    "completion_tokens": 4,
    "costUSD": 0.01,
    "feedback_rating": None,
    "scores": None,
    "signed_body_url": "https://bodies/q1",
}


def read(record: Any) -> list[dict[str, Any]]:
    return list(READER.read(record, 1))


def test_a_row_is_a_call() -> None:
    (call,) = read(ROW)
    assert (call["kind"], call["conversation_id"], call["user"], call["policy"], call["model"]) == (
        "model_call",
        "s1",
        "u1",
        "r3",
        "m",
    )
    assert (call["ts"].isoformat(), call["ids"]) == ("2026-10-01T09:00:00+00:00", ["response:chatcmpl-1", "request:q1"])
    assert call["payload"] == {
        "message": {"role": "assistant", "tool_calls": [{"id": "c1", "name": "get_order", "arguments": {"id": 7}}]},
        "input": ASK,
        "response_id": "chatcmpl-1",
        "finish_reason": "tool_calls",
        "input_tokens": 10,
        "output_tokens": 4,
        "cost_usd": 0.01,
        "latency_s": 0.9,
        "sampling": {"temperature": 0.5},
    }


def test_bodies_where_other_tools_put_them() -> None:
    bare = {k: v for k, v in ROW.items() if k not in {"request_body", "response_body"}}
    bodies = {"request": ROW["request_body"], "response": ROW["response_body"]}
    assert read({**bare, "request_body": {}, "signed_body_content": bodies}) == read(ROW)
    texts = {name: json.dumps(ROW[name]) for name in ("request_body", "response_body")}
    assert read({**ROW, **texts}) == read(ROW)


def test_the_words_of_anthropic_and_of_responses() -> None:
    message = {"type": "message", "role": "assistant", "content": [{"type": "text", "text": "x"}]}
    asked = {"system": "Be kind.", "messages": ASK}
    (call,) = read({**ROW, "request_body": asked, "response_body": message})
    assert [m["role"] for m in call["payload"]["input"]] == ["system", "user"]
    item = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "x"}]}
    (call,) = read({**ROW, "request_body": {"input": "u"}, "response_body": {"object": "response", "output": [item]}})
    assert call["payload"]["message"]["content"] == "x"


def test_ratings_and_scores() -> None:
    events = read(
        {**ROW, "feedback_rating": False, "scores": {"quality": 80, "safe": {"value": 1, "valueType": "boolean"}}}
    )
    told = [e["payload"] for e in events[1:]]
    assert [(p["name"], p["value"], p["annotator"]) for p in told] == [
        ("thumbs", 0.0, "human"),
        ("quality", 80, "code"),
        ("safe", 1, "code"),
    ]
    assert {(p["target"], p["target_id"]) for p in told} == {("response", "q1")}
    assert {e["conversation_id"] for e in events} == {"s1"}


def test_a_failed_call_and_one_without_bodies() -> None:
    (event,) = read({**ROW, "response_status": 429, "response_body": {"error": {"message": "slow down"}}})
    assert (event["kind"], event["payload"]["tags"]) == ("request", ["call_failed"])
    (event,) = read({**ROW, "request_body": "", "response_body": None})
    assert (event["payload"], event["conversation_id"]) == ({"messages": [], "tags": ["content_missing"]}, "s1")
    assert event["ids"] == ["request:q1"]


@pytest.mark.parametrize(("code", "status"), [(200, "unknown"), (500, "failed")])
def test_a_tool_that_was_logged_by_hand(code: int, status: str) -> None:
    body = {"_type": "tool", "toolName": "get_order", "input": {"id": 7}}
    answer = {"_type": "tool", "toolName": "get_order", "eta": "Monday"}
    call, result = read({**ROW, "request_body": body, "response_body": answer, "response_status": code})
    assert (call["kind"], call["tool_name"], call["payload"]) == ("tool_call", "get_order", {"arguments": {"id": 7}})
    assert (result["kind"], result["payload"]) == ("tool_result", {"content": '{"eta":"Monday"}', "status": status})


def test_detection_and_refusal(write: Callable[..., Path], take: Callable[..., Any]) -> None:
    assert READER.sniff(Sample("x", [{"request_id": "q", "request_body": {}, "response_body": {}}])) == 0
    taken = take(write("export.jsonl", [ROW, {**ROW, "request_id": "q2", "request_body": None}]))
    assert taken.adds_up()
    assert (set(taken.events["source_format"]), taken.quarantined.height) == ({"helicone"}, 0)
    episodes, steps = taken.built()
    assert (episodes.height, steps.height) == (1, 1)
    with pytest.raises(BadRecordError):
        read([])
