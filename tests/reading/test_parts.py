"""Parts of messages: results that say how they ended, and what nobody said."""

from __future__ import annotations

import json
from typing import Any

import pytest
from flywheel.reading.shapes import asked, schemas

ASKED = {"role": "user", "content": "where is 7?"}
GONE = {"type": "text", "content": "gone", "visible": False}
SDK_RESULT = {"type": "tool-result", "toolCallId": "c1", "toolName": "get_order"}


def history(given: Any) -> list[dict[str, Any]]:
    found = asked(given)
    assert found is not None
    return found.messages


@pytest.mark.parametrize(
    ("part", "content", "status"),
    [
        ({"output": {"type": "text", "value": "Monday"}}, "Monday", "ok"),
        ({"output": {"type": "json", "value": {"eta": "Monday"}}}, '{"eta":"Monday"}', "ok"),
        ({"output": {"type": "error-text", "value": "no such order"}}, "no such order", "failed"),
        ({"output": {"type": "error-json", "value": {"code": 404}}}, '{"code":404}', "failed"),
        ({"output": {"type": "text", "value": "Error: no"}}, "Error: no", "failed"),
        ({"output": {"type": "execution-denied", "reason": "no"}}, '{"denied":true,"reason":"no"}', "unknown"),
        ({"result": "Monday", "isError": True}, "Monday", "failed"),
        ({"result": "Monday"}, "Monday", "unknown"),
    ],
)
def test_the_ai_sdk_says_in_a_results_type_whether_it_is_an_error(
    part: dict[str, Any], content: str, status: str
) -> None:
    (found,) = history([{"role": "tool", "content": [SDK_RESULT | part]}])
    assert (found["content"], found["status"], found["tool_call_id"], found["name"]) == (
        content, status, "c1", "get_order",
    )  # fmt: skip


def test_what_nobody_said_is_left_out() -> None:
    approved = {"type": "tool-approval-response", "approvalId": "a", "approved": True}
    found = history(
        [
            {"role": "user", "parts": [GONE, {"type": "text", "content": "u"}]},
            {"role": "tool", "content": [approved, SDK_RESULT | {"result": "x"}]},
            {"role": "model", "parts": [{"thought": True, "text": "hm"}, {"text": "a"}, {"thought_signature": "s"}]},
        ]
    )  # fmt: skip
    assert [m["content"] for m in found] == ["u", "x", "a"]
    assert found[2]["reasoning"] == "hm"


def test_a_request_keeps_its_system_prompt_beside_the_messages() -> None:
    for given in (
        {"system": "be kind", "messages": [ASKED]},
        {"instructions": "be kind", "input": [ASKED]},
        {"contents": [ASKED], "config": {"system_instruction": "be kind"}},
        {"contents": [ASKED], "config": {"system_instruction": {"parts": [{"text": "be kind"}]}}},
    ):
        assert history(given) == [{"role": "system", "content": "be kind"}, ASKED]


@pytest.mark.parametrize(
    "given",
    [
        [{"tool": {"json_schema": '{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}'}}],
        ['{"type":"function","name":"f","inputSchema":{"type":"object"}}'],
        {"function_tools": [{"name": "f", "parameters_json_schema": {"type": "object"}}], "output_tools": []},
        {"config": {"tools": [{"function_declarations": [{"name": "f", "parameters": {"type": "object"}}]}]}},
        {"model": "m", "messages": [], "tools": [{"name": "f", "input_schema": {"type": "object"}}]},
    ],
    ids=["openinference", "ai sdk", "pydantic ai", "gemini", "request"],
)
def test_tool_schemas_every_shape(given: Any) -> None:
    wanted = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
    assert schemas(given) == schemas(json.dumps(given)) == wanted


def test_no_schemas_are_none() -> None:
    nothing: list[Any] = [None, [], {}, "where?", {"messages": []}]
    for given in nothing:
        assert schemas(given) is None


PROMPTED = {"kind": "request", "instructions": "Be kind.", "parts": [{"part_kind": "user-prompt", "content": "hi"}]}


def test_instructions_that_each_request_of_pydantic_ai_repeats_are_there_once() -> None:
    answer = {"kind": "response", "parts": [{"part_kind": "text", "content": "hello"}]}
    told = history([PROMPTED, answer, PROMPTED])
    assert [message["role"] for message in told] == ["system", "user", "assistant", "user"]


@pytest.mark.parametrize(
    ("outcome", "status"), [("success", "ok"), ("failed", "failed"), ("retried", "failed"), ("interrupted", "failed")]
)
def test_a_result_of_pydantic_ai_says_how_its_call_ended(outcome: str, status: str) -> None:
    call = {"part_kind": "builtin-tool-call", "tool_name": "search", "args": {"q": "7"}, "tool_call_id": "c1"}
    result = {"part_kind": "builtin-tool-return", "tool_name": "search", "content": "found", "tool_call_id": "c1"}
    answer = {"kind": "response", "parts": [call, {**result, "outcome": outcome}]}
    _, made, gave = history([ASKED, answer])
    assert made["tool_calls"][0]["name"] == "search"
    assert (gave["role"], gave["content"], gave["status"]) == ("tool", "found", status)


def test_a_thought_of_haystack_is_no_word() -> None:
    (made,) = history([{"role": "assistant", "content": [{"reasoning": {"reasoning_text": "hm"}}, {"text": "Monday"}]}])
    assert (made["content"], made["reasoning"]) == ("Monday", "hm")
