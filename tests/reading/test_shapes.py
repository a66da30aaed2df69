"""Inputs and outputs of model calls as frameworks log them: whatever the shape, the same conversation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from flywheel.extensions import BadRecordError
from flywheel.reading.messages import messages
from flywheel.reading.shapes import (
    about_answer,
    answered,
    asked,
    exchange,
    fields_of_repr,
    instructions_around,
    schemas,
    transcript,
)
from flywheel.reading.shapes.chats import chat
from flywheel.reading.shapes.items import item_messages
from flywheel.reading.shapes.places import chats_within
from flywheel.reading.shapes.whole import all_called, whole
from flywheel.reading.shapes.written import as_written, with_written_calls

SYSTEM = {"role": "system", "content": "Be brief."}
USER = {"role": "user", "content": "where is order 7?"}
CALLING = {"role": "assistant", "tool_calls": [{"id": "c1", "name": "get_order", "arguments": {"id": 7}}]}
RESULT: dict[str, Any] = {
    "role": "tool",
    "content": "shipped",
    "tool_call_id": "c1",
    "status": "unknown",
    "name": "get_order",
}
HISTORY: list[dict[str, Any]] = [SYSTEM, USER, CALLING, RESULT]
ARGS = '{"id": 7}'
OPENAI_CALL = {"id": "c1", "type": "function", "function": {"name": "get_order", "arguments": ARGS}}
LC = {"id": "c1", "name": "get_order", "args": {"id": 7}, "type": "tool_call"}


def constructor(name: str, **kwargs: Any) -> dict[str, Any]:
    return {"lc": 1, "type": "constructor", "id": ["langchain_core", "messages", name], "kwargs": kwargs}


OPENAI = [SYSTEM, USER, {"role": "assistant", "content": None, "tool_calls": [OPENAI_CALL]},
          {"role": "tool", "tool_call_id": "c1", "content": "shipped"}]  # fmt: skip
SHAPES: dict[str, Any] = {
    "openai list": OPENAI,
    "openai JSON text": json.dumps(OPENAI),
    "JSON text in JSON text": json.dumps(json.dumps(OPENAI)),
    "openai body": {"model": "m", "messages": OPENAI},
    "a list of JSON texts": [json.dumps(m) for m in OPENAI],
    "a batch of one": [OPENAI],
    "decorator": {"args": [], "kwargs": {"model": "m", "messages": OPENAI}},
    "anthropic": {
        "system": "Be brief.",
        "messages": [
            USER,
            {"role": "assistant", "content": [
                {"type": "tool_use", "id": "c1", "name": "get_order", "input": {"id": 7}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "shipped"}]},
        ],
    },
    "bedrock": {
        "system": [{"text": "Be brief."}],
        "messages": [
            {"role": "user", "content": [{"text": "where is order 7?"}]},
            {"role": "assistant", "content": [
                {"toolUse": {"toolUseId": "c1", "name": "get_order", "input": {"id": 7}}}]},
            {"role": "user", "content": [{"toolResult": {"toolUseId": "c1", "content": [{"text": "shipped"}]}}]},
        ],
    },
    "responses": {
        "instructions": "Be brief.",
        "input": [
            USER,
            {"type": "function_call", "call_id": "c1", "id": "fc_1", "name": "get_order", "arguments": ARGS},
            {"type": "function_call_output", "call_id": "c1", "output": "shipped", "status": "completed"},
        ],
    },
    "genai parts": [
        {"role": "system", "parts": [{"type": "text", "content": "Be brief."}]},
        {"role": "user", "parts": [{"type": "text", "content": "where is order 7?"}]},
        {"role": "assistant", "parts": [
            {"type": "tool_call", "id": "c1", "name": "get_order", "arguments": {"id": 7}}]},
        {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "response": "shipped"}]},
    ],
    "microsoft agent framework": [
        SYSTEM, USER,
        {"role": "assistant", "parts": [
            {"type": "tool_call", "id": ["run_1", "c1"], "name": "get_order", "arguments": {"id": 7}}]},
        {"role": "tool", "parts": [{"type": "tool_call_response", "id": ["run_1", "c1"], "response": "shipped"}]},
    ],
    "gemini": {
        "contents": [
            {"role": "user", "parts": [{"text": "where is order 7?"}]},
            {"role": "model", "parts": [{"functionCall": {"id": "c1", "name": "get_order", "args": {"id": 7}}}]},
            {"role": "user", "parts": [
                {"functionResponse": {"id": "c1", "name": "get_order", "response": "shipped"}}]},
        ],
        "config": {"system_instruction": {"parts": [{"text": "Be brief."}]}},
    },
    "langchain dumped": [[
        constructor("SystemMessage", content="Be brief."), constructor("HumanMessage", content="where is order 7?"),
        constructor("AIMessage", content="", tool_calls=[LC], additional_kwargs={"tool_calls": [OPENAI_CALL]}),
        constructor("ToolMessage", content="shipped", tool_call_id="c1"),
    ]],
    "langchain dicts": {"messages": [
        {"type": "system", "content": "Be brief."}, {"type": "human", "content": "where is order 7?"},
        {"type": "ai", "content": [{"type": "tool_use", "id": "c1", "name": "get_order", "input": {"id": 7}}],
         "tool_calls": [LC], "invalid_tool_calls": []},
        {"type": "tool", "content": "shipped", "tool_call_id": "c1", "name": "get_order"},
    ]},
    "langchain messages_to_dict": [
        {"type": "system", "data": {"content": "Be brief."}}, {"type": "human", "data": {"content": USER["content"]}},
        {"type": "AIMessageChunk", "data": {"content": "", "tool_calls": [LC]}},
        {"type": "tool", "data": {"content": "shipped", "tool_call_id": "c1"}},
    ],
    "langfuse's langchain handler": [
        SYSTEM, USER, {"role": "assistant", "content": "", "additional_kwargs": {"tool_calls": [OPENAI_CALL]}},
        {"role": "get_order", "content": "shipped", "additional_kwargs": {}},
    ],
    "pydantic ai": [
        {"kind": "request", "parts": [{"part_kind": "system-prompt", "content": "Be brief."},
                                      {"part_kind": "user-prompt", "content": "where is order 7?"}]},
        {"kind": "response", "parts": [
            {"part_kind": "tool-call", "tool_name": "get_order", "args": {"id": 7}, "tool_call_id": "c1"}]},
        {"kind": "request", "parts": [
            {"part_kind": "tool-return", "tool_name": "get_order", "content": "shipped", "tool_call_id": "c1"}]},
    ],
    "vercel ai sdk": {"messages": [
        SYSTEM, {"role": "user", "content": [{"type": "text", "text": "where is order 7?"}]},
        {"role": "assistant", "content": [
            {"type": "tool-call", "toolCallId": "c1", "toolName": "get_order", "input": {"id": 7}}]},
        {"role": "tool", "content": [
            {"type": "tool-result", "toolCallId": "c1", "toolName": "get_order",
             "result": "shipped"}]},
    ]},
    "openinference": [
        {"message": {"role": "system", "content": "Be brief."}},
        {"message": {"role": "user", "contents": [{"message_content": {"type": "text", "text": USER["content"]}}]}},
        {"message": {"role": "assistant", "contents": [{"message_content": {"type": "tool_use", "id": "c1"}}],
                     "tool_calls": [{"tool_call": OPENAI_CALL}]}},
        {"message": {"role": "tool", "content": "shipped", "tool_call_id": "c1"}},
    ],
    "livekit": {"items": [
        {"type": "message", "role": "system", "content": ["Be brief."]},
        {"type": "message", "role": "user", "content": ["where is order 7?"]},
        {"type": "function_call", "id": "item_1", "call_id": "c1", "name": "get_order", "arguments": ARGS},
        {"type": "function_call_output", "call_id": "c1", "name": "get_order", "output": "shipped"},
    ]},
    "llama index": {"messages": [
        {"role": "MessageRole.SYSTEM", "blocks": [{"block_type": "text", "text": "Be brief."}]},
        {"role": "user", "blocks": [{"block_type": "text", "text": "where is order 7?"}]},
        {"role": "assistant", "blocks": [], "additional_kwargs": {"tool_calls": [OPENAI_CALL]}},
        {"role": "tool", "blocks": [{"block_type": "text", "text": "shipped"}],
         "additional_kwargs": {"tool_call_id": "c1", "name": "get_order"}},
    ]},
    "autogen": [
        {"type": "SystemMessage", "content": "Be brief."},
        {"type": "UserMessage", "content": "where is order 7?", "source": "user"},
        {"type": "AssistantMessage", "content": [{"id": "c1", "arguments": ARGS, "name": "get_order"}], "source": "a"},
        {"type": "FunctionExecutionResultMessage", "content": [
            {"content": "shipped", "name": "get_order", "call_id": "c1"}]},
    ],
    "semantic kernel": {"messages": [
        SYSTEM, {"role": "user", "items": [{"content_type": "text", "text": "where is order 7?"}]},
        {"role": "assistant", "items": [
            {"content_type": "function_call", "id": "c1", "name": "get_order", "arguments": ARGS}]},
        {"role": "tool", "items": [
            {"content_type": "function_result", "id": "c1", "name": "get_order", "result": "shipped"}]},
    ]},
    "koog, opened by a tracer": [
        SYSTEM, USER, {"role": "tool", "content": [OPENAI_CALL]}, {"role": "tool", "content": "shipped"},
    ],
    "koog": [
        SYSTEM, USER, {"role": "tool", "content": json.dumps([OPENAI_CALL])}, {"role": "tool", "content": "shipped"},
    ],
    "agno, as repr": {"messages": [
        "role='system' content='Be brief.' name=None metrics=MessageMetrics(input_tokens=0, time=None) created_at=1",
        "role='user' content='where is order 7?' tool_calls=None",
        f"role='assistant' content=None tool_calls=[{OPENAI_CALL}] created_at=1",
        "role='tool' content=\"shipped\" name=None tool_call_id='c1' tool_name='get_order' tool_call_error=None",
    ]},
}  # fmt: skip


@pytest.mark.parametrize("name", SHAPES)
def test_every_frameworks_history_is_the_same_history(name: str) -> None:
    found = asked(SHAPES[name])
    assert found is not None
    assert found.messages == HISTORY


@pytest.mark.parametrize(
    "value",
    [
        "where is order 7?",
        {"args": ["where is order 7?"]},
        {"model": "m", "contents": "where is order 7?"},
        {"input": "where is order 7?", "chat_history": []},
        {"question": "where is order 7?"},
        ["where is order 7?"],
        [["human", "where is order 7?"]],
        [{"type": "text", "text": "where is order 7?"}],
        {"text": "where is order 7?", "role": "user"},
    ],
)
def test_a_plain_question_is_what_the_user_said(value: Any) -> None:
    assert asked(value) == ([USER], None)


BEFORE = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]


@pytest.mark.parametrize(
    "value",
    [
        {"input": "where is order 7?", "chat_history": BEFORE},
        {"question": "where is order 7?", "history": [["hi", "hello"]]},
        {"query": "where is order 7?", "conversation_history": json.dumps(BEFORE)},
        {"input": "where is order 7?", "chat_history": [*BEFORE, USER]},
        {"input": "where is order 7?", "chat_history": [*BEFORE, USER, {"role": "assistant", "content": "There."}]},
        {"input": {"query": "where is order 7?"}, "chat_history": BEFORE},
    ],
)
def test_a_question_comes_behind_the_talk_before_it(value: Any) -> None:
    found = asked(value)
    assert found is not None
    assert found.messages == [*BEFORE, USER]


@pytest.mark.parametrize("value", [None, "", {}, []])
def test_nothing_logged_is_nothing(value: Any) -> None:
    assert asked(value) is None
    assert answered(value) == []
    assert exchange(value, value) == {"message": {"role": "assistant"}, "tags": ["content_missing"]}


def test_a_history_joined_as_lines_is_taken_apart() -> None:
    found = asked("developer: Be brief.\n- always\nuser: where is order 7?\n")
    assert found is not None
    assert found.messages == [{"role": "system", "content": "Be brief.\n- always"}, USER]


ANSWERS: dict[str, Any] = {
    "text": "It arrives on Monday.",
    "message": {"role": "assistant", "content": "It arrives on Monday."},
    "chat completion": {"id": "r", "choices": [{"message": {"role": "assistant", "content": "It arrives on Monday."}}]},
    "completion": {"id": "r", "choices": [{"text": "It arrives on Monday."}]},
    "responses": {"object": "response", "output": [
        {"type": "message", "content": [{"type": "output_text", "text": "It arrives on Monday."}]}]},
    "anthropic": {"stop_reason": "end_turn", "content": [{"type": "text", "text": "It arrives on Monday."}]},
    "anthropic blocks": [{"type": "text", "text": "It arrives on Monday."}],
    "bedrock": {"output": {"message": {"role": "assistant", "content": [{"text": "It arrives on Monday."}]}}},
    "gemini": {"candidates": [{"content": {"role": "model", "parts": [{"text": "It arrives on Monday."}]}}]},
    "adk": {"content": {"role": "model", "parts": [{"text": "It arrives on Monday."}]}, "finish_reason": "STOP"},
    "legacy choice event": {"index": 0, "event.name": "gen_ai.choice",
                            "message": {"role": "assistant", "content": "It arrives on Monday."}},
    "genai": [{"role": "assistant", "parts": [{"type": "text", "content": "It arrives on Monday."}]}],
    "langchain": constructor("AIMessage", content="It arrives on Monday."),
    "langchain result": {"generations": [[{
        "text": "x", "message": constructor("AIMessage", content="It arrives on Monday.")}]], "llm_output": {}},
    "langgraph state": {"messages": [USER, {"type": "ai", "content": "It arrives on Monday."}], "steps": 2},
    "vercel": {"text": "It arrives on Monday.", "toolCalls": [], "finishReason": "stop"},
    "ollama": {"model": "m", "message": {"role": "assistant", "content": "It arrives on Monday."}, "done": True},
    "dspy": ["It arrives on Monday."],
    "repr": "role='assistant' content='It arrives on Monday.' tool_calls=None",
}  # fmt: skip


@pytest.mark.parametrize("name", ANSWERS)
@pytest.mark.parametrize("as_text", [False, True])
def test_every_frameworks_answer_is_the_same_answer(name: str, as_text: bool) -> None:  # noqa: FBT001 - a parameter
    given = ANSWERS[name]
    value = json.dumps(given) if as_text and not isinstance(given, str) else given
    assert answered(value) == [{"role": "assistant", "content": "It arrives on Monday."}]


CALLS: dict[str, Any] = {
    "openai": {"choices": [{"message": {"role": "assistant", "content": None, "tool_calls": [OPENAI_CALL]}}]},
    "responses": {"output": [{"type": "function_call", "call_id": "c1", "name": "get_order", "arguments": ARGS}]},
    "anthropic": {"role": "assistant", "content": [
        {"type": "tool_use", "id": "c1", "name": "get_order", "input": {"id": 7}}]},
    "gemini": {"candidates": [{"content": {"parts": [
        {"function_call": {"id": "c1", "name": "get_order", "args": {"id": 7}}}]}}]},
    "vercel": {"toolCalls": [{"toolCallId": "c1", "toolName": "get_order", "args": {"id": 7}}], "text": ""},
    "vercel 5, its tool calls alone": [{"toolCallId": "c1", "toolName": "get_order", "input": ARGS}],
    "vercel 4, its tool calls alone": [
        {"toolCallType": "function", "toolCallId": "c1", "toolName": "get_order", "args": ARGS}],
    "vercel, one tool call": {"toolCallId": "c1", "toolName": "get_order", "input": {"id": 7}},
    "vercel, parts": [{"type": "tool-call", "toolCallId": "c1", "toolName": "get_order", "input": {"id": 7}}],
    "extensions ai": [{"role": "assistant", "parts": [
        {"$type": "functionCall", "callId": "c1", "name": "get_order", "arguments": {"id": 7}}]}],
    "extensions ai, with an encrypted thought": [{"role": "assistant", "finish_reason": "stop", "parts": [
        {"type": "tool_call", "id": "c1", "name": "get_order", "arguments": {"id": 7}},
        {"type": "Microsoft.Extensions.AI.TextReasoningContent",
         "content": {"text": "", "protectedData": "CooKAY89a1+CDPFO/TMZiXeenaPLkZSQA1LTxbQ7KmbinWe/uwbM"}}]}],
    "koog, opened by a tracer": [{"role": "assistant", "content": [OPENAI_CALL], "finish_reason": "tool_calls"}],
    "koog": [{"role": "assistant", "content": json.dumps([OPENAI_CALL]), "finish_reason": "tool_calls"}],
    "langchain": {"kwargs": {"content": "", "tool_calls": [LC]}, "lc": 1, "id": ["x", "AIMessage"]},
    "home assistant": [{"role": "assistant", "content": None, "thinking_content": None, "tool_calls": [
        {"tool_name": "get_order", "tool_args": {"id": 7}, "id": "c1", "external": False}]}],
    "the ai sdk's developer tools": {"textParts": [], "reasoningParts": [], "toolCalls": [
        {"type": "tool-call", "toolCallId": "c1", "toolName": "get_order", "input": ARGS}]},
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_every_frameworks_call_is_the_same_call(name: str) -> None:
    (said,) = answered(CALLS[name])
    assert said["tool_calls"] == CALLING["tool_calls"]
    assert not said.get("content")


def test_of_encrypted_reasoning_only_what_can_be_read_is_a_thought() -> None:
    blob = {"protectedData": "CooKAY89a1+CDPFO", "text": "Look it up."}
    kinds: list[dict[str, Any]] = [
        {"type": "Microsoft.Extensions.AI.TextReasoningContent", "content": blob},
        {"$type": "reasoning", **blob},
        {"type": "reasoning", "content": blob},
    ]
    for part in kinds:
        (said,) = answered([{"role": "assistant", "parts": [part, {"type": "text", "content": "It is there."}]}])
        assert said == {"role": "assistant", "content": "It is there.", "reasoning": "Look it up."}


def test_a_result_that_is_a_frameworks_own_object_is_its_result() -> None:
    logged = json.dumps({"type": "function_result", "call_id": "c1", "result": "Monday"})
    parts = [{"type": "tool_call_response", "id": "c1", "response": logged}]
    begun = asked([{"role": "tool", "parts": parts}])
    assert begun is not None
    assert (begun.messages[0]["content"], begun.messages[0]["tool_call_id"]) == ("Monday", "c1")
    begun = asked([{"role": "tool", "parts": [{"$type": "functionResult", "callId": "c1", "result": "Monday"}]}])
    assert begun is not None
    assert (begun.messages[0]["content"], begun.messages[0]["tool_call_id"]) == ("Monday", "c1")


def test_mcp_results_are_their_parts() -> None:
    logged = {"content": [{"type": "text", "text": "Monday"}], "isError": False}
    begun = asked([{"role": "tool", "tool_call_id": "c1", "content": logged}])
    assert begun is not None
    assert begun.messages[0]["content"] == "Monday"


def test_a_fields_name_in_the_place_of_its_value_is_nothing() -> None:
    assert asked('{"content": "role"}') is None
    assert asked({"content": "role", "role": "user"}) is not None


def test_a_system_prompt_around_a_call_is_that_calls_where_both_begin_alike() -> None:
    history = [{"role": "user", "content": "Where is order 7?"}]
    outer = {"prompt": "Where is order 7?", "system": "Be kind."}
    assert instructions_around(outer, history) == "Be kind."
    assert instructions_around(json.dumps([{"role": "system", "content": "Be kind."}, *history]), history) == "Be kind."
    assert instructions_around({**outer, "prompt": "Another question?"}, history) is None
    assert instructions_around({"prompt": "Where is order 7?"}, history) is None
    assert instructions_around(None, history) is None


def test_cached_tokens_count_once() -> None:
    apart = {"input_tokens": 5, "cache_creation_input_tokens": 200, "cache_read_input_tokens": 30, "output_tokens": 7}
    assert about_answer({"type": "message", "content": [], "usage": apart})["input_tokens"] == 235
    summed = {"prompt_tokens": 235, "cache_read_input_tokens": 30, "completion_tokens": 7}
    assert about_answer({"choices": [], "usage": summed})["input_tokens"] == 235
    totals = {"input_tokens": 235, "output_tokens": 7, "total_tokens": 242, "cache_read_input_tokens": 30}
    assert about_answer({"content": [], "usage": totals})["input_tokens"] == 235


def test_json_that_the_model_wrote_stays_its_text() -> None:
    wrote = '{"quality": "good", "score": 3}'
    assert answered(wrote) == [{"role": "assistant", "content": wrote}]
    wrapped = {"response": "It arrives on Monday."}
    assert answered(wrapped) == [{"role": "assistant", "content": "It arrives on Monday."}]
    assert answered(json.dumps(wrapped)) == [{"role": "assistant", "content": json.dumps(wrapped)}]


def test_items_of_one_response_are_one_message() -> None:
    output = [
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I look."}]},
        {"type": "function_call", "call_id": "c1", "name": "a", "arguments": "{}"},
        {"type": "function_call", "call_id": "c2", "name": "b", "arguments": "{bad"},
    ]
    (said,) = answered({"object": "response", "output": output})
    assert (said["content"], [c["id"] for c in said["tool_calls"]]) == ("I look.", ["c1", "c2"])
    assert said["reasoning"] == "hm"
    assert said["tool_calls"][1] == {"id": "c2", "name": "b", "arguments": None, "arguments_raw": "{bad"}


def test_choices_stay_choices_and_pieces_become_one() -> None:
    texts = [{"role": "assistant", "content": "a"}, {"role": "assistant", "content": "b"}]
    assert answered(texts) == texts
    both = [{"role": "assistant", "content": None, "tool_calls": [OPENAI_CALL]}, texts[0]]
    assert answered(both) == [CALLING, texts[0]]  # Langfuse's OpenAI wrapper lists choices so
    calls = [{"role": "assistant", "content": json.dumps([OPENAI_CALL | {"id": i}])} for i in ("c1", "c2")]
    (said,) = answered(calls)
    assert [c["id"] for c in said["tool_calls"]] == ["c1", "c2"]


@pytest.mark.parametrize(
    "failed",
    [
        {"type": "tool", "content": "no", "tool_call_id": "c1", "status": "error"},
        constructor("ToolMessage", content="no", tool_call_id="c1", status="error"),
        {"role": "user", "content": [
            {"toolResult": {"toolUseId": "c1", "content": [{"text": "no"}], "status": "error"}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "no", "is_error": True}]},
        {"role": "tool", "content": [{"type": "tool-result", "toolCallId": "c1", "toolName": "t",
                                      "output": {"type": "error-text", "value": "no"}}]},
        {"kind": "request", "parts": [
            {"part_kind": "retry-prompt", "tool_name": "t", "content": "no", "tool_call_id": "c1"}]},
        {"type": "FunctionExecutionResultMessage", "content": [
            {"content": "no", "name": "t", "call_id": "c1", "is_error": True}]},
        "role='tool' content='no' tool_call_id='c1' tool_call_error=True",
    ],
)  # fmt: skip
def test_a_framework_that_says_that_a_call_failed_is_believed(failed: Any) -> None:
    found = transcript([failed])
    assert found is not None
    assert [(m["role"], m["content"], m["status"]) for m in found] == [("tool", "no", "failed")]


def test_tools_are_found_where_each_api_has_them() -> None:
    parameters = {"type": "object", "properties": {"id": {"type": "integer"}}}
    wanted = [{"type": "function", "function": {"name": "get_order", "description": "d", "parameters": parameters}}]
    plain = {"name": "get_order", "description": "d"}
    offers: list[Any] = [
        {"messages": [USER], "tools": wanted},
        {"messages": [USER], "tools": [plain | {"input_schema": parameters}]},
        {"contents": "x", "config": {"tools": [{"functionDeclarations": [plain | {"parameters": parameters}]}]}},
        {"messages": [USER], "toolConfig": {"tools": [{"toolSpec": plain | {"inputSchema": {"json": parameters}}}]}},
        {"messages": [USER], "tools": {"get_order": {"description": "d", "inputSchema": {"jsonSchema": parameters}}}},
        [USER, {"role": "tool", "content": wanted[0]}],
        [USER | {"tools": wanted}],
    ]
    for offer in offers:
        found = asked(offer)
        assert found is not None
        assert found.tools == wanted
        assert "tool" not in {m["role"] for m in found.messages}
    anthropic = {"role": "tool", "content": plain | {"input_schema": parameters}}
    product = {"role": "tool", "content": json.dumps(plain)}  # a result that looks a little like an offer
    found = asked([USER, anthropic, product])
    assert found is not None
    assert (found.tools, [m["role"] for m in found.messages]) == (wanted, ["user", "tool"])
    assert schemas([{"function_tools": []}, plain | {"parameters_json_schema": parameters}]) == wanted
    assert schemas({"get_order": json.dumps({"description": "d", "parameters": parameters})}) == wanted


def test_a_response_tells_of_its_call() -> None:
    body = {"id": "r1", "model": "m-1", "choices": [{"finish_reason": "stop", "message": {"content": "x"}}],
            "usage": {"prompt_tokens": 3, "completion_tokens": 2}}  # fmt: skip
    told = {"response_id": "r1", "model": "m-1", "finish_reason": "stop", "input_tokens": 3, "output_tokens": 2}
    assert about_answer(json.dumps(body)) == told
    echo = {"object": "response", "id": "r2", "instructions": "Be brief.", "output": [], "tools": []}
    assert exchange([USER], echo)["input"] == [SYSTEM, USER]
    assert "response_id" not in about_answer({"id": "not of a response"})


@pytest.mark.parametrize(
    "hostile",
    [
        7, True, [None], [[]], [[[[[[[[["x"]]]]]]]]], {"messages": None}, {"messages": {"messages": {"messages": 1}}},
        {"choices": [None]}, {"choices": [{}]}, {"candidates": "x"}, {"role": 3}, {"role": "user"}, {"type": []},
        {"type": "tool", "content": {"x": 1}}, [{"role": "x", "content": {}}], {"parts": [{"part_kind": []}]},
        {"output": {"output": {"output": {}}}}, {"tools": "x"}, "role='user' content='never closed", "[1, 2",
        {"tool_calls": ["x"], "content": 1}, {"role": "assistant", "tool_calls": "[{}]"}, {"content": [[[]]]},
        {"lc": 1, "id": [{}], "kwargs": {"content": "x"}}, {"args": None, "kwargs": []}, {"generations": [[[]]]},
        {"type": "function_call"}, {"type": "reasoning"}, {"parts": [{"functionResponse": "x"}], "role": "user"},
    ],
)  # fmt: skip
def test_no_shape_raises(hostile: Any) -> None:
    asked(hostile)
    answered(hostile)
    about_answer(hostile)
    transcript(hostile)
    schemas(hostile)


MADE = json.loads((Path(__file__).parents[1] / "fixtures" / "shapes" / "messages.json").read_bytes())
GEMINI_RESULT: dict[str, Any] = {**RESULT, "content": '{"output":"shipped"}'}  # a function's response is an object


@pytest.mark.parametrize("name", MADE["inputs"])
def test_a_librarys_own_history_is_read(name: str) -> None:
    found = asked(MADE["inputs"][name])
    assert found is not None
    told = [{k: v for k, v in m.items() if k != "status"} for m in found.messages]
    wanted = [*HISTORY[:3], GEMINI_RESULT if name.startswith("gemini") else RESULT]
    assert told == [{k: v for k, v in m.items() if k != "status"} for m in wanted]
    assert found.messages[3]["status"] == ("ok" if name.startswith(("langchain", "pydantic-ai")) else "unknown")


@pytest.mark.parametrize("name", MADE["answers"])
def test_a_librarys_own_answer_is_read(name: str) -> None:
    assert answered(MADE["answers"][name]) == [{"role": "assistant", "content": "It arrives on Monday."}]


def test_a_librarys_own_response_tells_of_its_call() -> None:
    told = {name: about_answer(MADE["answers"][name]) for name in ("openai chat", "openai response", "anthropic")}
    assert {(t["response_id"], t["model"], t["input_tokens"], t["output_tokens"]) for t in told.values()} == {
        ("r1", "m", 9, 5)
    }
    assert {name: t.get("finish_reason") for name, t in told.items()} == {
        "openai chat": "stop", "openai response": None, "anthropic": "end_turn",
    }  # fmt: skip
    for name in ("gemini wire", "gemini python"):
        assert about_answer(MADE["answers"][name]) == {
            "response_id": "r1", "model": "gemini-x", "finish_reason": "STOP", "input_tokens": 9, "output_tokens": 7,
        }  # fmt: skip


def test_a_tools_output_as_text_is_read() -> None:
    told = fields_of_repr(MADE["tool_outputs"]["langchain str"])
    assert (told["content"], told["tool_call_id"], told["name"]) == ("shipped", "c1", "get_order")


ITEMS: list[dict[str, Any]] = [
    {"type": "function_call", "call_id": "c1", "arguments": ARGS},
    {"type": "custom_tool_call", "call_id": "c2", "name": "patch", "input": "*** Begin"},
    {"type": "function_call_output", "call_id": "c1", "output": "shipped"},
    {"type": "custom_tool_call_output", "call_id": "c2", "output": "Error: no such file"},
    {"type": "mcp_call", "id": "m", "name": "get", "arguments": '{"a": 1}', "output": "x", "error": None},
    {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}]},
]


def test_items_of_a_response_are_the_same_in_a_tracers_history_and_in_the_apis_own_log() -> None:
    """A call whose name was lost stays without one, a free text is the field `input`, a result of the API is kept."""
    turns = item_messages(["where is order 7?", *ITEMS])

    assert transcript(["where is order 7?", *ITEMS]) == turns
    assert [(c["name"], c["arguments"]) for m in turns for c in m.get("tool_calls", ())] == [
        ("", {"id": 7}),
        ("patch", {"input": "*** Begin"}),
        ("get", {"a": 1}),
    ]
    assert [m["status"] for m in turns if m["role"] == "tool"] == ["unknown", "failed", "ok"]
    assert turns[-1] == {"role": "assistant", "reasoning": "Hm."}


def test_a_program_that_calls_tools_is_a_call_with_its_result() -> None:
    """Of programmatic tool calling: the program is given as code, and its output comes as an item of its own."""
    items = [{"type": "program", "call_id": "p1", "code": "get_order(id=7)"},
             {"type": "function_call", "call_id": "c1", "name": "get_order", "arguments": ARGS},
             {"type": "program_output", "call_id": "p1", "result": "shipped"}]  # fmt: skip
    acted, gave = item_messages(items)
    assert [call["name"] for call in acted["tool_calls"]] == ["program", "get_order"]
    assert (gave["tool_call_id"], gave["content"]) == ("p1", "shipped")


WRITTEN = 'Thought: I look.\nAction: get_order\nAction Input: {"id": 7}'
SEEN = "\nObservation: shipped"


@pytest.mark.parametrize(
    ("words", "calls"),
    [
        (["a", WRITTEN + SEEN, "Final Answer: shipped"], 1),  # by the program: the agent goes on behind it
        (["a", WRITTEN + SEEN], 0),  # by the model: nothing shows that anybody else wrote it
        (["a", WRITTEN + SEEN, "user:Observation: lost", "Final Answer: lost"], 0),
        (["a", WRITTEN, "Final Answer: shipped"], 0),
    ],
)
def test_a_result_behind_a_call_is_one_where_the_agent_goes_on(words: list[str], calls: int) -> None:
    by_user = [n == 0 or said.startswith("user:") for n, said in enumerate(words)]
    spoken = [{"role": "user" if asks else "assistant", "content": said.removeprefix("user:")}
              for asks, said in zip(by_user, words, strict=True)]  # fmt: skip
    history, _ = chat(spoken)
    assert sum(len(message.get("tool_calls", ())) for message in history) == calls
    assert sum(message["role"] == "tool" for message in history) == calls


FUNCTION = "I look.\n\n<function=shell>\n<parameter=command>\nls -la\n</parameter>\n</function>"
FENCED = "I look.\n\n```bash\nls -la\n```"


@pytest.mark.parametrize(
    ("written", "seen", "gave"),
    [
        (FUNCTION, "OBSERVATION:\nshop.py", "shop.py"),  # SWE-smith
        (FUNCTION, "EXECUTION RESULT of [shell]:\nshop.py", "EXECUTION RESULT of [shell]:\nshop.py"),  # OpenHands
        (FENCED, "Output:\n```\nshop.py\n```", "shop.py"),  # AppWorld
        (FENCED.replace("bash", ""), "shop.py\n(Current directory: /shop)\nbash-$", None),  # SWE-agent
        (FENCED, "The output of the OS:\nshop.py", None),  # AgentBench
    ],
)
def test_commands_in_words_are_calls_where_their_output_is_said_to_be_one(
    written: str, seen: str, gave: str | None
) -> None:
    history = messages([
        {"role": "user", "content": "What is there?"}, {"role": "assistant", "content": written},
        {"role": "user", "content": seen}, {"role": "assistant", "content": "A file."},
    ])  # fmt: skip
    _, act, result, answer = with_written_calls(history)
    assert act["content"] == "I look."
    assert act["tool_calls"][0]["arguments"] == {"command": "ls -la"}
    assert (result["role"], result["content"]) == ("tool", seen if gave is None else gave)
    assert answer == {"role": "assistant", "content": "A file."}


@pytest.mark.parametrize(
    ("written", "reply"),
    [
        (FENCED, "thanks, and now for the other folder"),  # a person answers
        ("```yaml\na: 1\n```", "Output:\n```\n1\n```"),  # nothing ran it
        (f"{FUNCTION}\n{FUNCTION}", "OBSERVATION:\nshop.py"),  # which of the two?
        (f"{FUNCTION}\nThat is all.", "OBSERVATION:\nshop.py"),  # words behind it
        (FUNCTION.partition("</parameter>")[0], "OBSERVATION:\nshop.py"),  # broken off
    ],
)
def test_code_in_words_that_nobody_ran_stays_words(written: str, reply: str) -> None:
    history = messages([{"role": "user", "content": "a"}, {"role": "assistant", "content": written},
                        {"role": "user", "content": reply}, {"role": "assistant", "content": "b"}])  # fmt: skip
    assert with_written_calls(history) is history


@pytest.mark.parametrize(
    ("written", "given"),
    [
        (
            "<path>a.py</path>\n<content>\n<p>1</p>\n<p>2</p>\n</content>",
            {"path": "a.py", "content": "<p>1</p>\n<p>2</p>"},
        ),
        ("\n<regex>a</b</regex>\n", {"regex": "a</b"}),
        ("ls <path>", {"input": "ls <path>"}),  # no argument of its own
        ("all of <path>b</path>", {"input": "all of <path>b</path>"}),
        ("<content>a</content>, b</content>", {"content": "a</content>, b"}),
        ("<file>a</file><file>b</file>", {"input": "<file>a</file><file>b</file>"}),  # which of the two?
    ],
)
def test_tags_within_a_calls_tag_are_its_arguments(written: str, given: dict[str, str]) -> None:
    said = {"role": "assistant", "content": f"I will.\n\n<write_file>\n{written}\n</write_file>"}  # Cline, Roo
    call = as_written(said, 1)["tool_calls"][0]
    assert (call["name"], call["arguments"]) == ("write_file", given)


def test_a_hostile_tag_costs_no_time() -> None:
    said = {"role": "assistant", "content": f"<write_file>{'<a>b</a>x<a' * 100_000}</write_file>"}
    assert as_written(said, 1)["tool_calls"][0]["arguments"].keys() == {"input"}


def test_thoughts_of_mastra_are_in_their_details() -> None:
    thought = {"type": "reasoning", "reasoning": "", "details": [{"type": "text", "text": "Two orders."}]}
    said = {"role": "assistant", "content": {"format": 2, "parts": [thought, {"type": "text", "text": "I look."}]}}
    (message,), _ = chat([said])
    assert message == {"role": "assistant", "content": "I look.", "reasoning": "Two orders."}


@pytest.mark.parametrize(
    ("output", "gave", "status"),
    [
        ({"type": "json", "value": {"status": "shipped"}}, '{"status":"shipped"}', "ok"),
        ({"type": "json", "value": {"error": True, "message": "no order 22"}},
         '{"error":true,"message":"no order 22"}', "failed"),
        ({"type": "error-text", "value": "no order 22"}, "no order 22", "failed"),
        ({"type": "json"}, '{"type":"json"}', "ok"),  # a tool's own object
    ],
)  # fmt: skip
def test_what_the_ai_sdk_wraps_for_a_model_is_unwrapped_on_the_screen(
    output: dict[str, Any], gave: str, status: str
) -> None:
    part = {"type": "tool-lookup", "toolCallId": "c1", "state": "output-available", "input": {}, "output": output}
    (_, result), _ = chat([{"role": "assistant", "parts": [part]}])
    assert (result["content"], result["status"]) == (gave, status)


def test_what_a_browsing_agent_tells_in_the_end_is_no_call() -> None:
    history = messages([
        {"role": "user", "content": "Where is order 7?"}, {"role": "assistant", "content": "Action: Click [3]"},
        {"role": "user", "content": "Observation: it has shipped"},
        {"role": "assistant", "content": "Thought: I know it.\n\nAction: ANSWER; It has shipped."},
    ])  # fmt: skip
    acts = [m for m in with_written_calls(history) if m["role"] == "assistant"]
    assert [len(act.get("tool_calls", ())) for act in acts] == [1, 0]
    assert "tool_calls" not in as_written(history[-1], 3)


def test_what_a_tool_gave_keeps_fences_that_are_its_own() -> None:
    gave = "```\na\n```\nand\n```\nb\n```"
    history = messages([
        {"role": "user", "content": "a"}, {"role": "assistant", "content": FENCED},
        {"role": "user", "content": f"Output:\n{gave}"}, {"role": "assistant", "content": "b"},
    ])  # fmt: skip
    assert with_written_calls(history)[2]["content"] == gave


def test_a_hostile_call_in_words_costs_no_time() -> None:
    words = "<function=f>" + "<parameter=a>" * 100_000
    assert as_written({"role": "assistant", "content": words}, 1)["content"] == words


@pytest.mark.parametrize(
    "words",
    [
        "<task-notification>\n<status>completed</status>\n</task-notification>",
        "<system-reminder>Be brief.</system-reminder>\n<local-command-stdout>done</local-command-stdout>",
        '<codex_internal_context source="goal">Go on.</codex_internal_context>',
        "<command-name>/clear</command-name>\n<command-message>clear</command-message>",
        "Base directory for this skill: /skills/orders\n\n# Orders",
    ],
)
def test_what_a_program_puts_into_a_users_place_is_not_the_users(words: str) -> None:
    history, _ = chat([{"role": "user", "content": words}, {"role": "assistant", "content": "Done."}])
    assert [message["role"] for message in history] == ["system", "assistant"]


@pytest.mark.parametrize(
    "words",
    [
        "<system-reminder>Be brief.</system-reminder>\nWhere is order 7?",
        "<task-notification> what is this?",
        "<b>Where</b> is order 7?",
        "<command-message>orders</command-message>\n<command-name>/orders</command-name>",
        "",
    ],
)
def test_what_holds_a_users_words_is_the_users(words: str) -> None:
    history, _ = chat([{"role": "user", "content": words}, {"role": "assistant", "content": "Done."}])
    assert [message["role"] for message in history] == ["user", "assistant"]


def test_a_message_of_nothing_is_no_step() -> None:
    asked, thought = {"role": "user", "content": "Where is it?"}, {"role": "assistant", "content": [], "model": "m"}
    assert chat([asked, thought, thought | {"content": "There."}])[0] == [
        asked,
        {"role": "assistant", "content": "There."},
    ]
    kept, _ = chat([asked, thought | {"usage": {"input_tokens": 3, "output_tokens": 2}}])
    assert len(kept) == 2  # its tokens count


def test_why_a_program_failed_is_no_word_of_the_talk() -> None:
    said = {
        "type": "message",
        "message": {"role": "assistant", "content": "Yes.", "errorMessage": "It broke off twice."},
    }
    events = [{"payload": {"message": {"role": "assistant", "content": "Yes."}}}]
    assert whole(said, events) == events
    assert whole({"type": "error", "data": {"message": "The key that was given is not valid."}}, []) == []
    with pytest.raises(BadRecordError):
        whole({"type": "error", "tool": "find", "message": "The order that was asked for is not there."}, [])


def test_of_the_samples_of_a_search_only_the_last_is_an_attempt() -> None:
    def sample(*acts: str) -> list[dict[str, Any]]:
        said = [
            {"role": "assistant", "content": act, "function_call": {"name": act, "arguments": "{}"}} for act in acts
        ]
        return [{"role": "user", "content": "Find it."}, *said]

    samples = [sample("look"), sample("look", "open"), sample("ask", "open", "finish")]
    found = chats_within({"win": True, "answer_generation": {"train_messages": samples}})
    assert [one.items for one in found] == [samples[-1]]


@pytest.mark.parametrize("kind", ["tool_use", "tool_call", "function_call", "toolCall"])
@pytest.mark.parametrize("place", ["type", "kind"])
def test_an_entry_that_is_a_call_by_its_kind_is_one_under_any_role(kind: str, place: str) -> None:
    history, _ = chat(
        [
            {"role": "user", "content": "Count the files."},
            {place: "thinking", "role": "assistant", "content": "I look."},
            {
                place: kind,
                "id": "entry-3",
                "toolUseId": "c1",
                "role": "assistant",
                "name": "ls",
                "arguments": {"path": "."},
            },
            {place: "tool_result", "role": "tool", "toolUseId": "c1", "isError": True, "content": "no such folder"},
            {"role": "assistant", "content": "None."},
        ]
    )
    calls = [call for message in history for call in message.get("tool_calls", ())]
    assert [(call["name"], call["arguments"]) for call in calls] == [("ls", {"path": "."})]
    results = [message for message in history if message["role"] == "tool"]
    assert [(m["tool_call_id"], m["content"], m["status"]) for m in results] == [("c1", "no such folder", "failed")]
    assert any(message.get("reasoning") == "I look." for message in history)


def test_what_a_call_was_given_may_look_like_calls() -> None:
    parsed = {"executableCommands": [{"name": "cd", "args": [{"type": "word", "value": "src"}], "fullText": "cd src"}]}
    record = {"messages": [{"role": "user", "content": "Go."}], "call": {"name": "shell", "args": parsed}}
    call = {"id": "c", "name": "shell", "arguments": parsed}
    made = [{"kind": "model_call", "payload": {"message": {"role": "assistant", "tool_calls": [call]}}}]
    assert all_called(record, made) == made
    with pytest.raises(BadRecordError):
        all_called({**record, "other": {"name": "rm", "args": {"path": "src"}}}, made)
