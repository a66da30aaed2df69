"""What frameworks write as input and output: the same question, call and result in every shape."""

from __future__ import annotations

import json
from typing import Any

import pytest
from flywheel.extensions import BadRecordError
from flywheel.stages.ingest.readers._dialects import messages_in, schemas_in

ASKED = {"role": "user", "content": "where is 7?"}
CALLED = {"role": "assistant", "tool_calls": [{"id": "c1", "name": "get_order", "arguments": {"id": 7}}]}
TOLD = {"role": "tool", "content": "Monday", "tool_call_id": "c1", "name": "get_order", "status": "unknown"}
HISTORY = [ASKED, CALLED, TOLD]
FUNCTION = {"name": "get_order", "arguments": '{"id": 7}'}
OPENAI: list[dict[str, Any]] = [
    ASKED,
    {"role": "assistant", "content": None, "tool_calls": [{"id": "c1", "type": "function", "function": FUNCTION}]},
    {"role": "tool", "tool_call_id": "c1", "content": "Monday"},
]
GEMINI = [
    {"role": "user", "parts": [{"text": "where is 7?"}]},
    {"role": "model", "parts": [{"function_call": {"id": "c1", "name": "get_order", "args": {"id": 7}}}]},
    {"role": "user", "parts": [{"function_response": {"id": "c1", "name": "get_order", "response": "Monday"}}]},
]
GONE = {"type": "text", "content": "gone", "visible": False}
SDK_RESULT = {"type": "tool-result", "toolCallId": "c1", "toolName": "get_order"}


def lc(kind: str, **kwargs: Any) -> dict[str, Any]:
    return {"lc": 1, "type": "constructor", "id": ["langchain", "schema", "messages", kind], "kwargs": kwargs}


@pytest.mark.parametrize(
    "given",
    [
        OPENAI,
        json.dumps(OPENAI),
        json.dumps(json.dumps(OPENAI)),
        {"model": "m", "messages": OPENAI},
        [[lc("HumanMessage", content="where is 7?"),
          lc("AIMessage", content="", tool_calls=[{"id": "c1", "name": "get_order", "args": {"id": 7}}]),
          lc("ToolMessage", content="Monday", tool_call_id="c1")]],
        {"messages": [[{"type": "human", "data": {"content": "where is 7?"}},
                       {"type": "ai", "content": "", "additional_kwargs": {"tool_calls": OPENAI[1]["tool_calls"]}},
                       {"type": "tool", "content": "Monday", "tool_call_id": "c1"}]]},
        {"contents": GEMINI, "model": "m", "config": {}},
        [{"message": {"role": "user", "contents": [
            {"message_content": {"type": "text", "text": "where is 7?"}}]}},
         {"message": {"role": "assistant", "contents": [{"message_content": {"type": "tool_use", "id": "c1"}}],
                      "tool_calls": [{"tool_call": {"id": "c1", "function": FUNCTION}}]}},
         {"message": {"role": "tool", "content": "Monday", "tool_call_id": "c1"}}],
        [{"role": "user", "content": [{"type": "text", "text": "where is 7?"}]},
         {"role": "assistant", "content": [
             {"type": "tool-call", "toolCallId": "c1", "toolName": "get_order", "input": '{"id": 7}'}]},
         {"role": "tool", "content": [SDK_RESULT | {"result": "Monday"}]}],
        {"items": [{"type": "message", "role": "user", "content": ["where is 7?"]},
                   {"type": "function_call", "id": "item_1", "call_id": "c1", **FUNCTION},
                   {"type": "function_call_output", "call_id": "c1", "name": "get_order", "output": "Monday"}]},
        {"input": [ASKED, {"type": "function_call", "id": "fc_1", "call_id": "c1", **FUNCTION},
                   {"type": "function_call_output", "call_id": "c1", "output": "Monday"}]},
    ],
    ids=["openai", "text", "text in text", "request", "langchain", "langchain data", "gemini", "openinference",
         "ai sdk", "livekit", "responses"],
)  # fmt: skip
def test_one_history_in_every_shape(given: Any) -> None:
    found = messages_in(given, "user")
    assert [{k: v for k, v in m.items() if k != "content" or v} for m in found] == HISTORY


@pytest.mark.parametrize(
    "given",
    [
        "Monday.",
        {"choices": [{"index": 0, "message": {"role": "assistant", "content": "Monday."}}]},
        {"candidates": [{"content": {"role": "model", "parts": [{"text": "Monday."}]}}]},
        {"content": {"role": "model", "parts": [{"text": "Monday."}]}, "usage_metadata": {}},
        {"generations": [[{"text": "Monday.", "message": lc("AIMessage", content="Monday.")}]]},
        {"role": "assistant", "content": [{"type": "text", "text": "Monday."}]},
        {"output": [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Monday."}]}]},
        {"content": [{"type": "text", "text": "Monday."}], "stop_reason": "end_turn"},
        {"text": "Monday."},
    ],
)  # fmt: skip
def test_one_answer_in_every_shape(given: Any) -> None:
    assert messages_in(given, "assistant") == [{"role": "assistant", "content": "Monday."}]


def test_what_is_no_message_is_told_as_it_is() -> None:
    assert messages_in({"question": "where?"}, "user") == [{"role": "user", "content": '{"question":"where?"}'}]
    assert messages_in("[INST] where? [/INST]", "user")[0]["content"] == "[INST] where? [/INST]"
    assert messages_in("{order} is late", "user")[0]["content"] == "{order} is late"


@pytest.mark.parametrize("cut", ['[{"role":"us', "[{", "[", '{"messages":[{"role"'])
def test_what_was_cut_off_is_refused(cut: str) -> None:
    with pytest.raises(BadRecordError, match="truncated"):
        messages_in(cut, "user")


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
    (found,) = messages_in([{"role": "tool", "content": [SDK_RESULT | part]}], "user")
    assert (found["content"], found["status"], found["tool_call_id"], found["name"]) == (
        content, status, "c1", "get_order",
    )  # fmt: skip


def test_what_nobody_said_is_left_out() -> None:
    approved = {"type": "tool-approval-response", "approvalId": "a", "approved": True}
    found = messages_in(
        [
            {"role": "user", "parts": [GONE, {"type": "text", "content": "u"}]},
            {"role": "tool", "content": [approved, SDK_RESULT | {"result": "x"}]},
            {"role": "model", "parts": [{"thought": True, "text": "hm"}, {"text": "a"}, {"thought_signature": "s"}]},
        ],
        "user",
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
        assert messages_in(given, "user") == [{"role": "system", "content": "be kind"}, ASKED]


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
def test_tool_schemas_in_every_shape(given: Any) -> None:
    wanted = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
    assert schemas_in(given) == schemas_in(json.dumps(given)) == wanted


def test_no_schemas_are_none() -> None:
    nothing: list[Any] = [None, [], {}, "where?", {"messages": []}]
    for given in nothing:
        assert schemas_in(given) is None
