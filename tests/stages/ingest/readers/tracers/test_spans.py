"""Spans of one record: dialects, twins, double exports, judges, and who belongs to which conversation."""

from __future__ import annotations

import json
from typing import Any

import pytest
from flywheel.stages.ingest.readers.tracers.otel import READER
from tests.stages.ingest.otlp import START, TRACE, attributes, span, spans

ASKED = [{"role": "user", "content": "where is 7?"}]
SAID = [{"role": "assistant", "content": "Monday."}]
CHAT = {
    "gen_ai.operation.name": "chat",
    "gen_ai.input.messages": json.dumps(ASKED),
    "gen_ai.output.messages": json.dumps(SAID),
}
BARE = {"gen_ai.operation.name": "chat", "gen_ai.response.id": "r1", "gen_ai.usage.input_tokens": 9}
TOOL = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "f"}


def read(*items: dict[str, Any], **resource: Any) -> list[dict[str, Any]]:
    return list(READER.read(spans(*items, **resource), 1))


def under(number: int) -> dict[str, str]:
    return {"parentSpanId": f"{number:016x}"}


def kinds(events: list[dict[str, Any]]) -> list[str]:
    return [str(e["kind"]) for e in events]


@pytest.mark.parametrize(
    "plain",
    [
        {"gen_ai.operation.name": "text_completion", "gen_ai.prompt": "where is 7?", "gen_ai.completion": "Monday."},
        {"ai.operationId": "ai.streamText.doStream", "ai.prompt.messages": json.dumps(ASKED),
         "ai.response.text": "Monday."},
        {"ai.operationId": "ai.generateText.doGenerate", "ai.prompt": json.dumps({"messages": ASKED}),
         "ai.result.text": "Monday."},
        {"openinference.span.kind": "LLM", "input.value": json.dumps({"messages": ASKED}),
         "output.value": json.dumps({"choices": [{"message": SAID[0]}]})},
        {"openinference.span.kind": "LLM", "llm.input_messages.0.message.role": "user",
         "llm.input_messages.0.message.content": "where is 7?", "llm.output_messages.0.message.role": "assistant",
         "llm.output_messages.0.message.content": "Monday."},
        {"openinference.span.kind": "LLM", "llm.prompts.0.prompt.text": "where is 7?",
         "llm.choices.0.completion.text": "Monday."},
        {"llm.request.type": "chat", "gen_ai.prompt.0.role": "user", "gen_ai.prompt.0.content": "where is 7?",
         "gen_ai.completion.0.role": "assistant", "gen_ai.completion.0.content": "Monday."},
        {"langfuse.observation.type": "generation", "langfuse.observation.input": json.dumps(ASKED),
         "langfuse.observation.output": json.dumps(SAID[0])},
        {"mlflow.spanType": '"CHAT_MODEL"', "mlflow.spanInputs": json.dumps({"messages": ASKED}),
         "mlflow.spanOutputs": json.dumps({"choices": [{"message": SAID[0]}]})},
        {"langsmith.span.kind": "llm", "gen_ai.prompt": json.dumps({"messages": [ASKED]}),
         "gen_ai.completion": json.dumps({"generations": [[{"message": SAID[0]}]]})},
        {"name": "call_llm", "gen_ai.system": "gcp.vertex.agent",
         "gcp.vertex.agent.llm_request": json.dumps({"contents": ASKED}),
         "gcp.vertex.agent.llm_response": json.dumps({"content": {"role": "model", "parts": [{"text": "Monday."}]}})},
        {"name": "llm_node", "lk.pii.chat_ctx": json.dumps({"items": [{"type": "message", **ASKED[0]}]}),
         "lk.pii.response.text": "Monday."},
        {"gen_ai.operation.name": "chat", "events": json.dumps([
            {"event.name": "gen_ai.user.message", **ASKED[0]}, {"event.name": "gen_ai.choice", "message": SAID[0]}])},
    ],
    ids=["completion", "ai sdk stream", "ai sdk 3", "openinference body", "openinference", "openinference completion",
         "openllmetry", "langfuse",
         "mlflow", "langsmith", "adk", "livekit", "pydantic ai 1"],
)  # fmt: skip
def test_one_call_in_every_dialect(plain: dict[str, Any]) -> None:
    name = plain.get("name", "anything")
    (call,) = read(span(1, {k: v for k, v in plain.items() if k != "name"}, name=name))
    assert call["payload"]["message"] == SAID[0]
    assert call["payload"]["input"] == ASKED


@pytest.mark.parametrize(
    ("plain", "call_id", "status"),
    [
        ({"tool_arguments": '{"id":7}', "tool_response": "Monday", "gen_ai.operation.name": "execute_tool",
          "gen_ai.tool.name": "f", "gen_ai.tool.call.id": "c1"}, "c1", "ok"),
        ({"ai.operationId": "ai.toolCall", "ai.toolCall.name": "f", "ai.toolCall.id": "c1",
          "ai.toolCall.args": '{"id":7}', "ai.toolCall.result": "Monday"}, "c1", "ok"),
        ({"openinference.span.kind": "TOOL", "tool.name": "f", "input.value": '{"id":7}', "output.value": "Monday",
          "tool.parameters": '{"type":"object","properties":{"id":{}}}'}, None, "ok"),
        ({"openinference.span.kind": "TOOL", "tool.name": "f", "tool.parameters": '{"id":7}', "output.value": "Monday"},
         None, "ok"),
        ({"traceloop.span.kind": "tool", "traceloop.entity.name": "f", "traceloop.entity.output": '"Monday"',
          "traceloop.entity.input": '{"args":[],"kwargs":{"id":7}}'}, None, "ok"),
        ({"langfuse.observation.type": "tool", "gen_ai.tool.name": "f", "langfuse.observation.input": '{"id":7}',
          "langfuse.observation.output": "Monday", "langfuse.observation.level": "ERROR"}, None, "failed"),
        ({"mlflow.spanType": '"TOOL"', "mlflow.spanFunctionName": '"f"', "mlflow.spanInputs": '{"id": 7}',
          "mlflow.spanOutputs": '"Monday"'}, None, "ok"),
        ({"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "f", "gen_ai.tool.call.id": "<not specified>",
          "gcp.vertex.agent.tool_call_args": '{"id":7}', "gcp.vertex.agent.tool_response": "Monday",
          "gcp.vertex.agent.llm_request": "{}"}, None, "ok"),
        ({"gen_ai.operation.name": "execute_tool", "lk.function_tool.name": "f", "lk.function_tool.id": "c1",
          "lk.function_tool.arguments": '{"id":7}', "lk.function_tool.output": "Monday",
          "lk.function_tool.is_error": False}, "c1", "ok"),
        ({"gen_ai.operation.name": "execute_tool", "lk.function_tool.name": "f",
          "lk.pii.function_tool.output": "Monday",
          "lk.pii.function_tool.arguments": '{"id":7}', "lk.function_tool.is_error": True}, None, "failed"),
        ({"mcp.method.name": "tools/call", "gen_ai.tool.name": "f", "gen_ai.tool.call.arguments": '{"id":7}',
          "gen_ai.tool.call.result": "Monday"}, None, "ok"),
        ({"openinference.span.kind": "TOOL", "tool.name": "f", "input.value": '{"id":7}', "output.value": json.dumps(
            {"type": "tool", "data": {"content": "Monday", "tool_call_id": "c1", "status": "success"}})}, "c1", "ok"),
        ({"langfuse.observation.type": "tool", "gen_ai.tool.name": "f", "langfuse.observation.input": '{"id":7}',
          "langfuse.observation.metadata.tool_call_id": '"c1"', "langfuse.observation.output": json.dumps(
              {"content": "Monday", "type": "tool", "tool_call_id": "c1", "status": "success"})}, "c1", "ok"),
        ({"traceloop.span.kind": "tool", "gen_ai.tool.name": "f",
          "traceloop.entity.input": '{"inputs":{"id":7},"input_str":"","kwargs":{"tool_call_id":"c1"}}',
          "traceloop.entity.output": json.dumps({"kwargs": {"tags": []}, "output": {"lc": 1, "type": "constructor",
              "id": ["langchain", "schema", "messages", "ToolMessage"], "kwargs": {
                  "content": "Monday", "tool_call_id": "c1", "status": "error"}}})}, "c1", "failed"),
        ({"langsmith.span.kind": "tool", "gen_ai.tool.name": "f", "gen_ai.prompt": '{"id":7}',
          "gen_ai.completion": '{"output":"Monday"}'}, None, "ok"),
        ({"openinference.span.kind": "TOOL", "tool.name": "f", "input.value": '{"kwargs":{"id":7}}',
          "output.value": '{"blocks":[{"text":"Monday"}],"raw_output":"Monday","is_error":true}'}, None, "failed"),
        ({"openinference.span.kind": "TOOL", "tool.name": "f.__call__", "output.value": "Monday",
          "input.value": '{"args":[],"kwargs":{"id":7},"sanitize_inputs_outputs":true}'}, None, "ok"),
        ({"traceloop.span.kind": "tool", "gen_ai.tool.name": "f", "traceloop.entity.input": '{"id":7}',
          "traceloop.entity.output": "status='failure' result=None error='Monday' updated_session_state=None"},
         None, "failed"),
        ({"haystack.tool.name": "f", "haystack.agent.step.tool.input": '{"id":7}', "name": "haystack.agent.step.tool",
          "haystack.agent.step.tool.output": "Monday", "haystack.tool.error": True}, None, "failed"),
    ],
    ids=["pydantic ai", "ai sdk", "schema in parameters", "arguments in parameters", "openllmetry", "langfuse",
         "mlflow", "adk", "livekit", "livekit error", "mcp", "langchain by openinference", "langchain by langfuse",
         "langchain by openllmetry", "langsmith", "llamaindex", "dspy, smolagents", "agno", "haystack"],
)  # fmt: skip
def test_one_tool_in_every_dialect(plain: dict[str, Any], call_id: str | None, status: str) -> None:
    call, result = read(span(1, plain, name=plain.get("name", "anything")))
    assert (call["tool_name"], call["payload"], call["tool_call_id"]) == ("f", {"arguments": {"id": 7}}, call_id)
    assert result["payload"]["content"] == "Monday"
    assert result["payload"]["status"] == status


@pytest.mark.parametrize(
    "plain",
    [
        {"ai.operationId": "ai.generateText", "ai.response.text": "Monday."},
        {"gen_ai.operation.name": "agent_step", "gen_ai.output.messages": json.dumps(SAID)},
        {"gen_ai.operation.name": "invoke_agent", "pydantic_ai.all_messages": json.dumps(ASKED)},
        {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "(merged tools)"},
        {"openinference.span.kind": "CHAIN", "input.value": "x"},
        {"mcp.method.name": "tools/list", "gen_ai.operation.name": "execute_tool"},
        {"lk.chat_ctx": json.dumps({"items": []}), "lk.eou.probability": 0.5},
        {"http.method": "POST"},
    ],
)
def test_spans_around_calls_tell_nothing_twice(plain: dict[str, Any]) -> None:
    events = read(span(1, plain, name="eou_detection" if "lk.chat_ctx" in plain else "chat room"))
    assert [e["payload"] for e in events] in ([], [{"messages": []}])


def test_one_reply_in_several_messages_is_one_act() -> None:
    """Logfire writes a reply of the Responses API as a message for its words and one for each call."""
    parts = [{"type": "text", "content": "I look."}, {"type": "tool_call", "id": "c1", "name": "f", "arguments": {}}]
    output = [{"role": "assistant", "parts": [part]} for part in parts]
    chat = {"gen_ai.operation.name": "chat", "gen_ai.output.messages": json.dumps(output)}
    (act,) = read(span(1, chat))
    assert (act["payload"]["message"]["content"], len(act["payload"]["message"]["tool_calls"])) == ("I look.", 1)
    assert "other_choices" not in act["payload"]


def test_messages_that_end_in_the_reply_are_what_was_asked_and_the_reply() -> None:
    events = [{"event.name": "gen_ai.user.message", **ASKED[0]}, {"event.name": "gen_ai.assistant.message", **SAID[0]}]
    (act,) = read(span(1, {"gen_ai.operation.name": "chat", "events": json.dumps(events)}))
    assert (act["payload"]["input"], act["payload"]["message"]) == (ASKED, SAID[0])


def test_a_step_that_prepares_a_call_is_none() -> None:
    prepared = {"openinference.span.kind": "LLM", "output.value": json.dumps({"messages": ["ChatMessage(...)"]})}
    assert read(span(1, prepared, name="OpenAI._prepare_chat_with_tools")) == []


def test_parts_that_langfuse_counts_apart_are_tokens_too() -> None:
    details = {"input": 136, "input_cache_read": 64, "output": 23, "output_reasoning": 8, "total": 231}
    call = {"langfuse.observation.type": "generation", "langfuse.observation.output": "Monday.",
            "langfuse.observation.usage_details": json.dumps(details)}  # fmt: skip
    (act,) = read(span(1, call))
    assert (act["payload"]["input_tokens"], act["payload"]["output_tokens"]) == (200, 31)


def test_tools_next_to_the_messages_were_offered() -> None:
    offered = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    for asked in ({"tools": [offered], "messages": ASKED}, [{"role": "tool", "content": offered}, *ASKED]):
        call = {"langfuse.observation.type": "generation", "langfuse.observation.input": json.dumps(asked),
                "langfuse.observation.output": "Monday."}  # fmt: skip
        (act,) = read(span(1, call))
        assert [tool["function"]["name"] for tool in act["payload"]["tools"]] == ["f"]
        assert act["payload"]["input"] == ASKED


def test_the_run_within_a_run_is_told_where_the_outer_one_has_no_words() -> None:
    talk = {"messages": [*ASKED, {"role": "assistant", "tool_calls": [{"id": "c1", "name": "f", "arguments": {}}]},
                         {"role": "tool", "tool_call_id": "c1", "content": "Monday"}, *SAID]}  # fmt: skip
    outer = span(1, {"openinference.span.kind": "CHAIN", "output.value": json.dumps({"raw": "Monday."})})
    inner = span(2, {"openinference.span.kind": "AGENT", "output.value": json.dumps(talk)}, **under(1))
    kinds = [e["kind"] for e in read(outer, inner) if e["payload"].get("summary")]
    assert kinds == ["model_call", "tool_result", "model_call"]


def test_a_servers_side_of_a_tool_call_is_its_clients_twin() -> None:
    mcp = {"mcp.method.name": "tools/call", "gen_ai.tool.name": "f"}
    outer = span(1, TOOL | {"gen_ai.tool.call.id": "c1"}, **under(9))
    client = span(2, mcp | {"error.type": "tool_error"}, kind=3, name="tools/call f", **under(1))
    server = span(3, mcp, kind="SPAN_KIND_SERVER", name="tools/call f", **under(2))
    call, result = read(server, client, outer)
    assert (call["span_id"], result["tool_call_id"], result["payload"]["status"]) == (f"{1:016x}", "c1", "failed")


def test_a_frameworks_span_and_its_sdks_span_are_one_call() -> None:
    (call,) = read(span(2, BARE, **under(1)), span(1, CHAT, **under(9)))
    assert call["payload"]["message"] == SAID[0]
    assert (call["payload"]["response_id"], call["payload"]["input_tokens"]) == ("r1", 9)
    assert call["ids"] == [f"trace:{TRACE}", f"span:{1:016x}", f"span:{2:016x}", "response:r1"]
    assert "tags" not in call["payload"]
    (call,) = read(span(2, CHAT, **under(1)), span(1, BARE, **under(9)))
    assert (call["payload"]["message"], call["payload"]["input"]) == (SAID[0], ASKED)
    assert "tags" not in call["payload"]


def test_a_nested_call_with_another_answer_is_another_call() -> None:
    other = CHAT | {"gen_ai.output.messages": json.dumps([{"role": "assistant", "content": "safe"}])}
    assert kinds(read(span(1, CHAT), span(2, other, **under(1)))) == ["model_call", "model_call"]


def test_failed_tries_under_a_call_are_not_counted() -> None:
    failed = span(2, {"gen_ai.operation.name": "chat"}, status={"code": 2}, **under(1))
    (call,) = read(failed, span(3, CHAT | BARE, **under(1)), span(1, CHAT))
    assert call["payload"]["response_id"] == "r1"
    assert "error_type" not in call["payload"]


def test_a_span_that_repeats_the_last_of_several_calls_is_their_sum() -> None:
    first = CHAT | {"gen_ai.output.messages": json.dumps([{"role": "assistant", "content": "let me look"}])}
    events = read(span(1, CHAT), span(2, first, **under(1)), span(3, CHAT, **under(1)))
    assert [e["span_id"] for e in events] == [f"{2:016x}", f"{3:016x}"]


def test_a_call_that_failed_is_only_what_was_asked() -> None:
    asked = {k: v for k, v in CHAT.items() if "output" not in k}
    raised = {"name": "exception", "attributes": attributes({"exception.type": "RateLimitError"})}
    (event,) = read(span(1, asked, status={"code": "STATUS_CODE_ERROR"}, events=[raised]))
    assert event["kind"] == "request"
    assert event["payload"] == {"messages": ASKED, "tags": ["call_failed"], "error_type": "RateLimitError"}


def test_a_span_exported_twice_counts_once_and_the_richer_is_kept() -> None:
    poor = span(1, {"gen_ai.operation.name": "chat"})
    for order in ((poor, span(1, CHAT)), (span(1, CHAT), poor), (span(1, CHAT), span(1, CHAT))):
        (call,) = read(*order)
        assert call["payload"]["message"] == SAID[0]


def test_what_runs_under_a_judge_is_not_the_agents() -> None:
    judge = span(5, {"openinference.span.kind": "EVALUATOR"})
    chain = span(6, {"openinference.span.kind": "CHAIN"}, **under(5))
    (told,) = read(judge, chain, span(7, CHAT, **under(6)), span(8, TOOL, **under(5)))
    assert told["payload"] == {"messages": [], "judge": True}, "for records that were exported apart from it"


def test_a_span_that_only_names_the_conversation_maps_its_trace() -> None:
    (event,) = read(span(1, {"session.id": "conv"}))
    assert (event["kind"], event["payload"], event["conversation_id"]) == ("request", {"messages": []}, "conv")
    assert event["ids"] == [f"trace:{TRACE}", f"span:{1:016x}"]
    assert kinds(read(span(1, {"session.id": "conv"}), span(2, CHAT, **under(1)))) == ["model_call"]


def test_a_run_as_a_whole_can_be_named_by_its_span() -> None:
    agent = {"gen_ai.operation.name": "invoke_agent"}
    call, run = read(span(2, CHAT, **under(1)), span(1, agent, **under(9)))
    assert (run["kind"], run["payload"], run["ids"][1]) == ("request", {"messages": []}, f"span:{1:016x}")
    assert call["conversation_id"] == run["conversation_id"] == TRACE
    (root,) = read(span(3, {"openinference.span.kind": "CHAIN"}, parentSpanId=""))
    assert root["ids"] == [f"trace:{TRACE}", f"span:{3:016x}"]
    assert read(span(3, {"openinference.span.kind": "CHAIN"}), span(4, {"http.method": "GET"}, parentSpanId="")) == []


def test_spans_that_stand_under_themselves_are_told() -> None:
    assert kinds(read(span(1, CHAT, **under(1)))) == ["model_call"]
    assert kinds(read(span(1, CHAT, **under(2)), span(2, CHAT, **under(1)))) == ["model_call", "model_call"]
    assert kinds(read(span(1, TOOL, **under(1)))) == ["tool_call", "tool_result"]


def test_a_span_out_of_its_envelope() -> None:
    (call,) = READER.read(span(1, CHAT), 1)
    assert call["payload"]["message"] == SAID[0]


def test_users_and_policies_come_from_the_nearest_span_that_names_them() -> None:
    root = span(1, {"user.id": "u1", "langfuse.release": "r2", "flywheel.task_key": "t"})
    (call,) = read(span(2, CHAT, **under(1)), root, **{"service.version": "r1"})
    assert (call["user"], call["policy"], call["task_key"]) == ("u1", "r2", "t")


def test_times_in_halves_and_empty_values() -> None:
    nanos = START + 10**9
    halves = {"low": (nanos & 0xFFFFFFFF) - (1 << 32), "high": nanos >> 32}
    empty = {"key": "gen_ai.response.id", "value": {}}
    record = span(1, CHAT, startTimeUnixNano=halves)
    record["attributes"].append(empty)
    (call,) = read(record)
    assert str(call["ts"]) == "2026-10-01 09:00:01+00:00"
    assert "response_id" not in call["payload"]


def test_several_choices_and_one_answer_told_in_blocks() -> None:
    two = {"choices": [{"message": SAID[0]}, {"message": {"role": "assistant", "content": "Tuesday."}}]}
    flat = {
        "openinference.span.kind": "LLM",
        "llm.output_messages.0.message.role": "assistant",
        "llm.output_messages.0.message.content": "Monday.",
        "llm.output_messages.1.message.role": "assistant",
        "llm.output_messages.1.message.tool_calls.0.tool_call.function.name": "f",
    }
    (one,) = read(span(1, flat))
    assert one["payload"]["message"]["content"] == "Monday."
    assert one["payload"]["message"]["tool_calls"][0]["name"] == "f"
    (choices,) = read(span(1, flat | {"output.value": json.dumps(two)}))
    assert len(choices["payload"]["other_choices"]) == 1


def test_what_the_producer_hid_is_said() -> None:
    hidden = {"openinference.span.kind": "LLM", "input.value": "__REDACTED__", "output.value": "__REDACTED__"}
    (call,) = read(span(1, hidden))
    assert call["payload"]["tags"] == ["redacted"]


def test_usage_and_cost_in_objects() -> None:
    langfuse = {
        "langfuse.observation.type": "generation",
        "langfuse.observation.usage_details": '{"input": 9, "output": 4}',
        "langfuse.observation.cost_details": '{"total": 0.25}',
        "langfuse.observation.model.parameters": '{"temperature": 0.5, "max_completion_tokens": 9, "x": 1}',
        "prompt_token_ids": [1, 2],
        "response_token_ids": [3],
    }
    (call,) = read(span(1, langfuse))
    found = {k: v for k, v in call["payload"].items() if k not in {"message", "tags", "latency_s"}}
    assert found == {
        "input_tokens": 9, "output_tokens": 4, "cost_usd": 0.25, "sampling": {"temperature": 0.5, "max_tokens": 9},
        "prompt_token_ids": [1, 2], "completion_token_ids": [3],
    }  # fmt: skip


def test_a_run_of_a_part_of_a_graph_is_no_task_and_an_unknown_model_is_none() -> None:
    """As OpenLLMetry writes LangGraph's nodes, each with an id of its own, and models that it cannot name."""
    named = {"traceloop.association.properties.ls_model_name": "claude-x"}
    call = span(1, CHAT | named | {"gen_ai.request.model": "unknown"}, **under(2))
    node = span(2, {"gen_ai.operation.name": "execute_task", "gen_ai.task.id": "019e-a"}, parentSpanId="")
    event, *_ = read(call, node)
    assert (event["task_key"], event["model"]) == (None, "claude-x")


def test_a_handoff_is_who_speaks_on_and_no_call() -> None:
    plain = {"openinference.span.kind": "TOOL", "input.value": "triage", "output.value": "orders"}
    assert [e["kind"] for e in read(span(1, plain, name="handoff to orders"))] in ([], ["request"])


def test_the_id_of_a_response_may_be_within_a_frameworks_message() -> None:
    message = {"kwargs": {"content": "Monday.", "response_metadata": {"id": "msg_1", "model": "m"}}}
    output = {"generations": [[{"text": "Monday.", "message": message}]]}
    (act,) = read(span(1, {"openinference.span.kind": "LLM", "output.value": json.dumps(output),
                           "llm.output_messages.0.message.role": "assistant",
                           "llm.output_messages.0.message.content": "Monday."}))  # fmt: skip
    assert "response:msg_1" in act["ids"]


def test_a_users_message_with_a_calls_id_is_its_result() -> None:
    numbered = {f"llm.input_messages.0.message.{k}": v for k, v in
                {"role": "user", "content": "Monday", "tool_call_id": "c1"}.items()}  # fmt: skip
    (act,) = read(span(1, {"openinference.span.kind": "LLM", "output.value": "Fine."} | numbered))
    assert act["payload"]["input"] == [{"role": "tool", "content": "Monday", "tool_call_id": "c1", "status": "unknown"}]


def test_texts_next_to_a_history_are_a_question_where_none_is_asked() -> None:
    """Decorators log a function's arguments: a question and the talk before it, or a model's name and the talk."""
    before = [*ASKED, *SAID]
    for args, last in ((["And then?", before], "And then?"), (["gpt-4.1", ASKED], ASKED[0]["content"])):
        plain = {"traceloop.span.kind": "llm", "traceloop.entity.input": json.dumps({"args": args, "kwargs": {}}),
                 "gen_ai.operation.name": "chat", "traceloop.entity.output": "Fine."}  # fmt: skip
        (act,) = read(span(1, plain))
        assert act["payload"]["input"][-1] == {"role": "user", "content": last}


def test_an_output_without_an_answer_has_none() -> None:
    output = [{"role": "tool", "parts": [], "finish_reason": "stop"}] * 2
    (act,) = read(span(1, {"gen_ai.operation.name": "chat", "gen_ai.output.messages": json.dumps(output)}))
    assert act["payload"]["tags"] == ["content_missing"]


def test_a_span_around_a_call_may_lack_the_words_next_to_its_calls() -> None:
    """As AutoGen's client does, and the results in its input: one call, with the words and the results."""
    made = {"message.role": "assistant", "message.tool_calls.0.tool_call.function.name": "f",
            "message.tool_calls.0.tool_call.function.arguments": "{}"}  # fmt: skip
    outer = {"openinference.span.kind": "LLM"} | {f"llm.output_messages.0.{k}": v for k, v in made.items()}
    inner = outer | {"llm.output_messages.0.message.content": "I look."}
    asked = {"llm.input_messages.0.message.role": "user", "llm.input_messages.0.message.content": "where is 7?"}
    seen = {"llm.input_messages.1.message.role": "tool", "llm.input_messages.1.message.tool_call_id": "c0"}
    outer, inner = outer | asked | seen, inner | asked | seen | {"llm.input_messages.1.message.content": "Monday"}
    (call,) = read(span(1, outer), span(2, inner, **under(1)))
    assert call["payload"]["message"]["content"] == "I look."
    assert call["payload"]["input"][1]["content"] == "Monday"


@pytest.mark.parametrize(("words", "said"), [("I look.", "I look."), (None, None)])
def test_thoughts_behind_the_words_of_an_answer_are_no_words(words: str | None, said: str | None) -> None:
    """OpenInference puts a model's thoughts in smolagents there; the output has the words alone."""
    parts = [words, "Two orders."] if words else ["Two orders."]
    numbered = {f"llm.output_messages.0.message.contents.{n}.message_content.{k}": v
                for n, part in enumerate(parts) for k, v in (("type", "text"), ("text", part))}  # fmt: skip
    plain = {"openinference.span.kind": "LLM", "llm.output_messages.0.message.role": "assistant",
             "output.value": json.dumps({"role": "assistant", "content": words, "tool_calls": None})}  # fmt: skip
    (call,) = read(span(1, plain | numbered))
    assert (call["payload"]["message"].get("content"), call["payload"]["message"]["reasoning"]) == (said, "Two orders.")


def test_ids_made_of_a_tool_and_a_position_name_no_call() -> None:
    """Google's instrumentation makes them up, otherwise for a call than for its result."""
    called = {"type": "tool_call", "id": "f_1", "name": "f", "arguments": {}}
    gave = {"type": "tool_call_response", "id": "f_0", "response": {"result": "Monday"}}
    kept = {"type": "tool_call", "id": "g_7", "name": "g", "arguments": {}}
    history = [
        {"role": "user", "parts": [{"type": "text", "content": "where is 7?"}]},
        {"role": "assistant", "parts": [{"type": "text", "content": "I look."}, called, kept]},
        {"role": "user", "parts": [gave]},
    ]
    (call,) = read(span(1, CHAT | {"gen_ai.input.messages": json.dumps(history)}))
    _, act, result = call["payload"]["input"]
    assert [made.get("id", "") for made in act["tool_calls"]] == ["", "g_7"]
    assert (result["role"], result.get("tool_call_id")) == ("tool", None)


def test_a_responses_id_and_model_are_no_answer() -> None:
    """Phoenix makes such an output for a client's own span, which has no content."""
    plain = BARE | {"openinference.span.kind": "LLM", "output.value": '{"id": "r1", "model": "m"}'}
    (call,) = read(span(1, plain))
    assert call["payload"]["tags"] == ["content_missing"]
    (other,) = read(span(1, plain | {"output.value": '{"id": "7", "model": "Tesla"}'}))
    assert "tags" not in other["payload"], "what a model writes in JSON"


def test_an_object_that_a_stream_is_shown_as_is_no_answer() -> None:
    for shown in ("<async_generator object f.<locals>.g at 0x7fb2a48f2e90>", "<openai.Stream object at 0x7fb2a48f2e>"):
        (call,) = read(span(1, {"openinference.span.kind": "LLM", "output.value": shown}))
        assert call["payload"]["tags"] == ["content_missing"]
    (call,) = read(span(1, {"openinference.span.kind": "LLM", "output.value": "<b> at 0x7f is a pointer"}))
    assert "tags" not in call["payload"]
