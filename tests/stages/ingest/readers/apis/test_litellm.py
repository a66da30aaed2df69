"""LiteLLM's logs: its standard payload and its spend logs, in the words of every API that it speaks."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from flywheel.extensions import BadRecordError, Sample
from flywheel.stages.ingest.readers.apis.litellm import READER

UUID = "0b4e7d1e-0000-4000-8000-00000000000{}".format
TOOLS = [{"type": "function", "function": {"name": "get_order", "parameters": {"type": "object"}}}]
ASK = [{"role": "user", "content": "Where is order 7?"}]
MADE = {"id": "call_7", "type": "function", "function": {"name": "get_order", "arguments": '{"id":7}'}}
CHOICE = {
    "index": 0,
    "finish_reason": "tool_calls",
    "message": {"role": "assistant", "content": None, "tool_calls": [MADE]},
}
RECORD: dict[str, Any] = {
    "id": "chatcmpl-1",
    "litellm_call_id": UUID(1),
    "trace_id": UUID(2),
    "session_id": "",
    "call_type": "acompletion",
    "status": "success",
    "response_cost": 0.01,
    "prompt_tokens": 10,
    "completion_tokens": 4,
    "startTime": 1790850000.0,
    "endTime": 1790850000.9,
    "response_time": 0.9,
    "model": "qwen3-8b",
    "end_user": "u1",
    "messages": ASK,
    "response": {"id": "chatcmpl-1", "object": "chat.completion", "model": "qwen3-8b", "choices": [CHOICE]},
    "error_str": None,
    "model_parameters": {"temperature": 0.5, "tools": TOOLS},
    "metadata": {"requester_metadata": {"task_id": "order-eta", "release": "r3"}, "user_api_key_end_user_id": "u1"},
    "model_map_information": {},
}


def read(record: Any, line: int = 1) -> list[dict[str, Any]]:
    return list(READER.read(record, line))


def test_a_call_with_all_that_is_said_of_it() -> None:
    (call,) = read(RECORD)
    assert (call["kind"], call["model"], call["user"], call["task_key"], call["policy"]) == (
        "model_call",
        "qwen3-8b",
        "u1",
        "order-eta",
        "r3",
    )
    assert call["ts"].isoformat() == "2026-10-01T10:20:00+00:00"
    assert call["payload"] == {
        "message": {
            "role": "assistant",
            "tool_calls": [{"id": "call_7", "name": "get_order", "arguments": {"id": 7}}],
        },
        "input": ASK,
        "tools": TOOLS,
        "response_id": "chatcmpl-1",
        "finish_reason": "tool_calls",
        "input_tokens": 10,
        "output_tokens": 4,
        "cost_usd": 0.01,
        "latency_s": 0.9,
        "sampling": {"temperature": 0.5},
    }
    assert call["ids"] == [f"request:{UUID(1)}", f"trace:{UUID(2)}", f"session:{UUID(2)}", "response:chatcmpl-1"]


@pytest.mark.parametrize(
    ("changed", "conversation"),
    [
        ({"session_id": "conv-42"}, "conv-42"),
        ({"session_id": UUID(3)}, UUID(3)),
        ({"metadata": {"requester_metadata": {"session_id": "conv-43"}}}, "conv-43"),
        ({"metadata": json.dumps({"spend_logs_metadata": {"thread_id": "conv-44"}})}, "conv-44"),
        ({"trace_id": "conv-45"}, "conv-45"),
        ({"trace_id": None}, None),
        ({}, None),
    ],
)
def test_whose_conversation_it_is(changed: dict[str, Any], conversation: str | None) -> None:
    """A trace that is a UUID may be made up for the call: the conversation is named by how it begins."""
    (call,) = read({**RECORD, **changed})
    if conversation is None:
        later = [*ASK, {"role": "assistant", "content": "Wait."}, {"role": "user", "content": "Well?"}]
        (other,) = read({**RECORD, "trace_id": UUID(9), "messages": later})
        assert call["conversation_id"] == other["conversation_id"]
        assert call["conversation_id"].startswith("chat-")
    else:
        assert call["conversation_id"] == conversation


@pytest.mark.parametrize("messages", [ASK, json.dumps(ASK), "Where is order 7?", {"messages": ASK}, ASK[0]])
def test_messages_in_every_shape(messages: Any) -> None:
    (call,) = read({**RECORD, "messages": messages, "response": json.dumps(RECORD["response"])})
    assert call["payload"]["input"] == ASK


@pytest.mark.parametrize(
    "start", ["2026-10-01 10:20:00.000000", "2026-10-01 10:20:00+00:00", 1790850000, "1790850000.0"]
)
def test_times_as_every_sink_writes_them(start: Any) -> None:
    assert read({**RECORD, "startTime": start})[0]["ts"].isoformat() == "2026-10-01T10:20:00+00:00"


def test_a_failed_call() -> None:
    responses: list[Any] = [{}, None, ""]
    for response in responses:
        (event,) = read({**RECORD, "status": "failure", "response": response, "error_str": "RateLimitError"})
        assert (event["kind"], event["payload"]["tags"]) == ("request", ["call_failed"])
        assert event["payload"]["messages"] == ASK


REDACTED = "redacted-by-litellm"


@pytest.mark.parametrize(
    ("changed", "tag"),
    [
        ({"messages": REDACTED, "response": REDACTED}, "redacted"),
        ({"messages": [{"role": "user", "content": REDACTED}], "response": {"text": REDACTED}}, "redacted"),
        ({"messages": ASK, "response": {"choices": [{"message": {"content": REDACTED}}]}}, "redacted"),
        ({"messages": None, "response": None}, "content_missing"),
        ({"messages": "{}", "response": "{}"}, "content_missing"),
    ],
)
def test_content_that_is_not_there_is_not_made_up(changed: dict[str, Any], tag: str) -> None:
    (event,) = read({**RECORD, **changed, "session_id": "s1"})
    assert (event["kind"], event["conversation_id"]) == ("request", "s1")
    assert event["payload"] == {"messages": [], "tags": [tag]}
    assert f"request:{UUID(1)}" in event["ids"]
    assert f"trace:{UUID(2)}" in event["ids"]
    (event,) = read({**RECORD, **changed})
    assert event["conversation_id"] == UUID(2)


def test_a_record_that_was_cut_says_so() -> None:
    cut = [{"role": "user", "content": "begin... (litellm_truncated skipped 900 chars) ...end"}]
    (call,) = read({**RECORD, "messages": cut})
    assert call["payload"]["tags"] == ["truncated"]


def wrapped(response_id: str) -> str:
    """A response id together with its deployment, in base64."""
    import base64

    told = f"litellm:custom_llm_provider:openai;model_id:d1;response_id:{response_id}"
    return "resp_" + base64.b64encode(told.encode()).decode()


def test_a_chain_of_responses_whose_ids_are_wrapped(write: Callable[..., Path], take: Callable[..., Any]) -> None:
    """LiteLLM wraps the id that it gives out, and unwraps the one that comes back."""
    item = {"type": "function_call", "call_id": "call_7", "name": "get_order", "arguments": "{}"}
    said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Monday."}]}
    output = {"type": "function_call_output", "call_id": "call_7", "output": "{}"}
    base = {**RECORD, "call_type": "aresponses", "model_parameters": {"instructions": "Be kind."}}

    def response(name: str, *items: Any, **more: Any) -> dict[str, Any]:
        return {"id": wrapped(name), "object": "response", "status": "completed", "output": list(items), **more}

    first = {**base, "id": wrapped("resp_1"), "response": response("resp_1", item)}
    later = {
        **base,
        "id": wrapped("resp_2"),
        "litellm_call_id": UUID(3),
        "trace_id": UUID(4),
        "startTime": 1790850003.0,
        "messages": [output],
        "model_parameters": {"previous_response_id": wrapped("resp_1")},
        "response": response("resp_2", said, previous_response_id="resp_1"),
    }
    events = read(later, 2)
    assert {e["conversation_id"] for e in events} == {"response:resp_1"}
    assert {f"response:{wrapped('resp_2')}", "response:resp_2"} <= set(events[1]["ids"])
    taken = take(write("log.jsonl", [later, first]))
    episodes, steps = taken.built()
    assert (episodes.height, steps.height, episodes["stop_reason"][0]) == (1, 2, "answered")


def test_the_words_of_anthropic() -> None:
    """Newer versions write such an answer like OpenAI's, older ones as it came."""
    use = {"type": "tool_use", "id": "t1", "name": "get_order", "input": {"id": 7}}
    asked = [*ASK, {"role": "assistant", "content": [use]}, {"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": "t1", "is_error": True, "content": "db"}]}]  # fmt: skip
    message = {"id": "msg_1", "type": "message", "role": "assistant", "content": [{"type": "text", "text": "x"}]}
    choice = {"message": {"role": "assistant", "content": "x"}, "finish_reason": "stop"}
    for response in (message, {"id": "msg_1", "choices": [choice]}):
        record = {**RECORD, "call_type": "anthropic_messages", "messages": asked, "response": response}
        (call,) = read(record | {"model_parameters": {"system": "Be kind."}})
        assert [m["role"] for m in call["payload"]["input"]] == ["system", "user", "assistant", "tool"]
        assert call["payload"]["input"][3]["status"] == "failed"
        assert call["payload"]["message"] == {"role": "assistant", "content": "x"}


@pytest.mark.parametrize(
    ("result", "status", "ended"),
    [
        ({"content": [{"type": "text", "text": "Monday"}], "isError": False}, "success", "ok"),
        ({"content": [{"type": "text", "text": "TimeoutError"}], "isError": True}, "success", "failed"),
        ({"content": [{"type": "text", "text": "Monday"}]}, "success", "unknown"),
        (None, "failure", "failed"),
    ],
)
def test_a_tool_call_through_the_gateway(result: Any, status: str, ended: str) -> None:
    told = {"name": "get_order", "arguments": {"id": 7}, "result": result, "mcp_server_name": "shop"}
    record = {**RECORD, "call_type": "call_mcp_tool", "metadata": {"mcp_tool_call_metadata": told}, "response": None}
    call, answer = read({**record, "status": status, "session_id": "s1"})
    assert (call["kind"], call["tool_name"], call["payload"]) == ("tool_call", "get_order", {"arguments": {"id": 7}})
    assert (answer["kind"], answer["tool_name"], answer["payload"]["status"]) == ("tool_result", "get_order", ended)
    assert {call["conversation_id"], answer["conversation_id"]} == {"s1"}


def test_what_is_no_talk_gives_nothing_and_what_is_no_call_is_refused() -> None:
    assert read({**RECORD, "call_type": "aembedding", "response": {"object": "list", "data": []}}) == []
    assert read({**RECORD, "call_type": "call_mcp_tool"}) == []
    others: list[Any] = [[], {}, {"messages": ASK}]
    for record in others:
        with pytest.raises(BadRecordError):
            read(record)


def test_detection() -> None:
    row = {"request_id": "r", "call_type": "acompletion", "api_key": "", "startTime": "2026-10-01"}
    assert READER.sniff(Sample("x", [RECORD, row])) == 1
    assert READER.sniff(Sample("x", [{"call_type": "x"}, {"messages": ASK}])) == 0


def test_what_litellm_itself_writes(fixtures: Path, take: Callable[..., Any]) -> None:
    """A tool loop of a session, a streamed call, a failure, a chain of responses, Anthropic's API, a redacted call."""
    taken = take(fixtures / "litellm" / "standard_logging.jsonl", root=fixtures)
    assert (taken.read, set(taken.events["source_format"])) == (8, {"litellm"})
    assert taken.adds_up()
    assert taken.quarantined.is_empty()
    episodes, steps = taken.built()
    by_name = {e["conversation_id"]: e for e in episodes.to_dicts()}
    session = by_name["conv-42"]
    told = steps.filter(steps["episode_id"] == session["episode_id"])
    assert [list(s) for s in told["tool_status"]] == [["failed"], []]
    assert (session["input_tokens"], session["stop_reason"]) == (20, "answered")
    chain = steps.filter(steps["tool_names"].list.contains("web_search"))
    own = steps.filter(steps["episode_id"] == chain["episode_id"][0])
    assert [list(n) for n in own["tool_names"]] == [["get_order"], ["web_search"], []]
    assert "conv-43" not in by_name


def test_the_rows_that_litellm_stores(fixtures: Path, take: Callable[..., Any]) -> None:
    """The prompt stands in the request as the proxy got it; a row without one is a call without input."""
    taken = take(fixtures / "litellm" / "spend_logs.jsonl", root=fixtures)
    assert (taken.read, set(taken.events["source_format"])) == (4, {"litellm"})
    assert taken.quarantined.is_empty()
    episodes, steps = taken.built()
    session = episodes.filter(episodes["conversation_id"] == "conv-42")
    assert (session["n_steps"][0], session["task_rule"][0], session["input_tokens"][0]) == (2, "task_key", 20)
    bare = episodes.filter(episodes["conversation_id"] == "response:chatcmpl-3")
    assert (bare.height, steps.height) == (1, 3)
