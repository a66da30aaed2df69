"""Names of attributes, current and legacy."""

from __future__ import annotations

import json
from typing import Any

import pytest
from flywheel.extensions import BadRecordError
from flywheel.stages.ingest.readers.tracers._otel.attributes import folded
from flywheel.stages.ingest.readers.tracers._otel.genai import call_payload, history_of, output_of, tools_of

SAID = [{"role": "user", "content": "u"}]


@pytest.mark.parametrize(
    "attributes",
    [
        {"gen_ai.input.messages": json.dumps([{"role": "user", "parts": [{"type": "text", "content": "u"}]}])},
        {"gen_ai.input.messages": [{"role": "user", "parts": [{"type": "text", "content": "u"}]}]},
        {"gen_ai.prompt": json.dumps(SAID)},
        {"gen_ai.prompt": "u"},
        {"gen_ai.prompt.0.role": "user", "gen_ai.prompt.0.content": "u"},
        {"gen_ai.prompt.3.role": "user", "gen_ai.prompt.3.content": "u"},
        {"ai.prompt.messages": json.dumps(SAID)},
    ],
)
def test_one_input_under_all_its_names(attributes: dict[str, Any]) -> None:
    assert history_of(folded(attributes)) == SAID


def test_flattened_calls_of_old_instrumentations() -> None:
    numbered = {
        "gen_ai.prompt.name": "a template's name",
        "gen_ai.prompt.0.role": "system",
        "gen_ai.prompt.0.content": "s",
        "gen_ai.prompt.1.role": "assistant",
        "gen_ai.prompt.1.tool_calls.0.id": "c1",
        "gen_ai.prompt.1.tool_calls.0.name": "f",
        "gen_ai.prompt.1.tool_calls.0.arguments": '{"a":1}',
        "gen_ai.prompt.2.role": "tool",
        "gen_ai.prompt.2.content": "Error: x",
        "gen_ai.prompt.2.tool_call_id": "c1",
        "gen_ai.prompt.10.role": "user",
        "gen_ai.prompt.10.content": "last",
        "gen_ai.completion.0.role": "assistant",
        "gen_ai.completion.0.content": "a",
        "gen_ai.completion.0.finish_reason": "stop",
        "llm.request.functions.0.name": "f",
        "llm.request.functions.0.parameters": '{"type":"object"}',
    }
    attributes = folded(numbered)
    history = history_of(attributes)
    assert history is not None
    assert [m["role"] for m in history] == ["system", "assistant", "tool", "user"]
    assert history[1]["tool_calls"] == [{"id": "c1", "name": "f", "arguments": {"a": 1}}]
    assert (history[2]["name"], history[2]["status"]) == ("f", "failed")
    assert output_of(attributes) == [{"role": "assistant", "content": "a"}]
    assert tools_of(attributes) == [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
    assert call_payload(attributes)["finish_reason"] == "stop"


@pytest.mark.parametrize(
    "said",
    [
        {"gen_ai.output.messages": json.dumps([{"role": "assistant", "parts": [{"type": "text", "content": "a"}]}])},
        {"gen_ai.completion.0.role": "assistant", "gen_ai.completion.0.content": "a"},
    ],
    ids=["LiteLLM 1.106", "LiteLLM before"],
)
def test_calls_that_are_numbered_like_choices(said: dict[str, Any]) -> None:
    calls = {
        "gen_ai.completion.0.function_call.name": "f",
        "gen_ai.completion.0.function_call.arguments": '{"a":1}',
        "gen_ai.completion.1.function_call.name": "g",
    }
    made = [{"id": "", "name": "f", "arguments": {"a": 1}}, {"id": "", "name": "g", "arguments": {}}]
    assert output_of(folded(said | calls)) == [{"role": "assistant", "content": "a", "tool_calls": made}]
    assert output_of(folded(calls)) == [{"role": "assistant", "tool_calls": made}]
    assert call_payload({"gen_ai.response.finish_reasons": '["tool_calls"]'})["finish_reason"] == "tool_calls"


def test_choices_that_each_made_a_call() -> None:
    attributes = {
        f"gen_ai.completion.{n}.{name}": value
        for n in (0, 1)
        for name, value in (("role", "assistant"), ("function_call.name", f"f{n}"))
    }
    assert [[c["name"] for c in m["tool_calls"]] for m in output_of(folded(attributes))] == [["f0"], ["f1"]]


def test_system_instructions_come_first_and_once() -> None:
    system = '[{"type":"text","content":"be kind"}]'
    assert history_of({"gen_ai.system_instructions": system, "gen_ai.prompt": "u"}) == [
        {"role": "system", "content": "be kind"},
        {"role": "user", "content": "u"},
    ]


@pytest.mark.parametrize("cut", ['[{"role":"us', "[{", "[", '{"messages":[{"role"'])
def test_what_was_cut_off_is_refused(cut: str) -> None:
    with pytest.raises(BadRecordError, match="truncated"):
        history_of({"gen_ai.prompt": cut})
    assert history_of({"gen_ai.prompt": "{order} is late"}) == [{"role": "user", "content": "{order} is late"}]


def test_no_content_is_none_and_not_an_empty_history() -> None:
    assert history_of({}) is None
    assert output_of({}) == []


def test_usage_under_old_names() -> None:
    found = call_payload(
        {"gen_ai.usage.prompt_tokens": 3, "gen_ai.usage.completion_tokens": "4", "gen_ai.usage.cost": 0.1}
    )
    assert found == {"input_tokens": 3, "output_tokens": 4, "cost_usd": 0.1}
