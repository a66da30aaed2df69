"""AI SDK spans: inner calls only, tool spans, message parts, and lines without trace or session."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from flywheel.config import EpisodesConfig
from flywheel.extensions import BadRecordError, Sample
from flywheel.funnel import Funnel
from flywheel.stages.conversations.episodes import build_episodes
from flywheel.stages.ingest.readers.tracers.otel import READER as OTEL
from flywheel.stages.ingest.readers.tracers.vercel import READER
from tests.stages.ingest.otlp import span, spans

SESSION = {"ai.telemetry.metadata.sessionId": "conv-42", "ai.telemetry.metadata.userId": "u1"}
CALL = {"type": "tool-call", "toolCallId": "c1", "toolName": "get_order", "input": {"id": 7}}
HISTORY: list[dict[str, Any]] = [
    {"role": "system", "content": "be kind"},
    {"role": "user", "content": [{"type": "text", "text": "where is order 7?"}]},
]
RESULT = {"type": "tool-result", "toolCallId": "c1", "toolName": "get_order",
          "output": {"type": "error-text", "value": "no such order"}}  # fmt: skip
LATER = [*HISTORY, {"role": "assistant", "content": [CALL]}, {"role": "tool", "content": [RESULT]}]


def call(history: list[dict[str, Any]], second: int, **more: Any) -> dict[str, Any]:
    attributes = {
        "operation.name": "ai.generateText.doGenerate support-agent", "ai.operationId": "ai.generateText.doGenerate",
        "ai.model.id": "asked", "ai.response.model": "served", "ai.prompt.messages": json.dumps(history),
        "ai.prompt.tools": ['{"type":"function","name":"get_order","inputSchema":{"type":"object"}}'],
        "ai.response.id": f"r{second}", "ai.response.timestamp": f"2026-10-01T09:00:0{second}Z",
        "ai.response.msToFinish": 250, "ai.usage.promptTokens": 10, "ai.usage.completionTokens": 4,
        "gen_ai.request.temperature": 0.5, **more,
    }  # fmt: skip
    return {"name": "ai.generateText.doGenerate", "attributes": attributes}


def lines(**context: Any) -> list[dict[str, Any]]:
    made = [{k: v for k, v in CALL.items() if k != "type"} | {"input": '{"id":7}'}]
    asked = {
        "ai.response.toolCalls": json.dumps(made),
        "ai.response.finishReason": "tool-calls",
        "ai.response.text": "",
    }
    tool = {"ai.operationId": "ai.toolCall", "ai.toolCall.name": "get_order", "ai.toolCall.id": "c1",
            "ai.toolCall.args": '{"id":7}'}  # fmt: skip
    told = {"ai.response.text": "There is none.", "ai.response.reasoning": "hm", "ai.response.finishReason": "stop"}
    outer = {"ai.operationId": "ai.generateText", "ai.response.text": "There is none.", "ai.usage.promptTokens": 20}
    return [
        call(HISTORY, 1, **asked, **context),
        {"name": "ai.toolCall", "attributes": tool | context, "status": {"code": 2, "message": "no such order"}},
        call(LATER, 3, **told, **context),
        {"name": "ai.generateText", "attributes": outer | context},
    ]


def test_spans_as_lines_are_an_episode(write: Callable[..., Path], take: Callable[..., Any]) -> None:
    write("spans.jsonl", lines(**SESSION))
    taken = take()
    assert (taken.adds_up(), taken.quarantined.height, sum(taken.ignored.values())) == (True, 0, 0)
    assert set(taken.events["source_format"]) == {"vercel"}
    assert set(taken.events["conversation_id"]) == {"conv-42"}
    episodes, steps = build_episodes(taken.events, EpisodesConfig(), Funnel())
    made = episodes.row(0, named=True)
    assert (made["n_steps"], made["n_tool_errors"], made["stop_reason"], made["model"]) == (2, 1, "answered", "served")
    assert (made["input_tokens"], made["output_tokens"], made["latency_s"]) == (20, 8, 0.5)
    first, second = steps.sort("index").to_dicts()
    assert (first["tool_names"], first["tool_status"]) == (["get_order"], ["failed"])
    assert json.loads(first["action"])["tool_calls"] == [{"id": "c1", "name": "get_order", "arguments": {"id": 7}}]
    assert json.loads(second["action"]) == {"role": "assistant", "content": "There is none.", "reasoning": "hm"}
    assert json.loads(made["tools"])[0]["function"]["parameters"] == {"type": "object"}


def test_calls_without_trace_and_session_are_joined_by_how_they_begin() -> None:
    asked, tool, told, outer = (list(READER.read(r, n)) for n, r in enumerate(lines(), 1))
    assert asked[0]["conversation_id"] == told[0]["conversation_id"]
    assert asked[0]["conversation_id"].startswith("chat-")
    assert (asked[0]["seq"], told[0]["seq"]) == (1, 3)
    assert (tool, outer) == ([], [])


def test_ids_and_times_as_javascript_writes_them() -> None:
    context = {"traceId": "ab" * 16, "spanId": "cd" * 8}
    at = {"startTime": [1790845200, 500_000_000], "endTime": [1790845201, 0], "parentSpanContext": {"spanId": "ef" * 8}}
    (event,) = READER.read({**call(HISTORY, 1, **{"ai.response.text": "x"}), "spanContext": context, **at}, 1)
    assert (event["conversation_id"], event["span_id"], event["parent_id"]) == ("ab" * 16, "cd" * 8, "ef" * 8)
    assert str(event["ts"]) == "2026-10-01 09:00:00.500000+00:00"
    assert event["payload"]["latency_s"] == 0.5


def test_the_same_spans_in_otlp_are_one_call_each() -> None:
    first, tool, second, outer = (line["attributes"] for line in lines(**SESSION))
    items = [span(9, outer), span(1, first), span(3, second), span(2, tool, status={"code": 2})]
    events = list(OTEL.read(spans(*items), 1))
    assert [str(e["kind"]) for e in events] == ["model_call", "model_call", "tool_call", "tool_result", "request"]
    assert events[4]["payload"] == {"messages": []}
    assert {e["conversation_id"] for e in events} == {"conv-42"}
    assert events[3]["payload"]["status"] == "failed"


def test_version_seven_writes_genai_spans() -> None:
    parts = [
        {"type": "tool_call_response", "id": "c1", "response": {"denied": True, "reason": "no"}},
        {"type": "tool_approval_response", "approval_id": "a", "approved": False},
        {"type": "custom", "kind": "x"},
    ]
    history = [{"role": "user", "parts": [{"type": "text", "content": "where?"}]}, {"role": "tool", "parts": parts}]
    chat = {"gen_ai.operation.name": "chat", "gen_ai.input.messages": json.dumps(history),
            "gen_ai.output.messages": '[{"role":"assistant","parts":[{"type":"text","content":"ok"}]}]',
            "ai.settings.context.sessionId": "conv-42"}  # fmt: skip
    step = chat | {"gen_ai.operation.name": "agent_step"}
    (event,) = OTEL.read(spans(span(1, step), span(2, chat)), 1)
    assert event["conversation_id"] == "conv-42"
    told = [m for m in event["payload"]["input"] if m["role"] == "tool"]
    assert [(m["content"], m["tool_call_id"]) for m in told] == [('{"denied":true,"reason":"no"}', "c1")]


def test_detection_and_refusals() -> None:
    assert READER.sniff(Sample("a.jsonl", lines())) == 1
    assert READER.sniff(Sample("a.jsonl", [{"name": "chat", "attributes": {"gen_ai.operation.name": "chat"}}])) == 0
    with pytest.raises(BadRecordError):
        list(READER.read({"name": "ai.toolCall"}, 1))


def test_the_developer_tools_keep_each_step_of_a_run() -> None:
    """As JSON in texts; what went over the wire is there once more."""
    made = {
        "textParts": [],
        "reasoningParts": [{"id": "0", "text": "hm"}],
        "toolCalls": [{**CALL, "input": '{"id":7}'}],
    }
    told = {"textParts": [{"id": "t", "text": "There is none."}], "reasoningParts": [], "toolCalls": []}
    steps = [
        {"id": f"s{n}", "run_id": "run-1", "step_number": n, "type": "stream", "model_id": "m", "provider": "openai",
         "started_at": f"2026-10-01T09:00:0{n}Z", "input": json.dumps({"sessionId": "conv-42", "prompt": prompt}),
         "output": json.dumps(output), "usage": '{"inputTokens":{},"outputTokens":{}}', "raw_chunks": "[]"}
        for n, (prompt, output) in enumerate([(HISTORY, made), (LATER, told)], 1)
    ]  # fmt: skip
    record = {"runs": [{"id": "run-1", "started_at": "2026-10-01T09:00:00Z"}], "steps": steps}
    assert READER.sniff(Sample("generations.json", [record])) == 1
    first, second = READER.read(record, 1)
    assert {first["conversation_id"], second["conversation_id"]} == {"conv-42"}
    (call_made,) = first["payload"]["message"]["tool_calls"]
    assert (call_made["name"], call_made["arguments"]) == ("get_order", {"id": 7})
    assert first["payload"]["message"]["reasoning"] == "hm"
    assert [message["role"] for message in second["payload"]["input"]] == ["system", "user", "assistant", "tool"]
    assert second["payload"]["message"]["content"] == "There is none."
