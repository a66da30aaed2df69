"""Tool calls as every family writes them, as their templates and model cards document it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from flywheel.models.calls import families, split_calls, split_reasoning
from flywheel.models.chat import parse_completion
from hypothesis import given
from hypothesis import strategies as st

TOOLS = [
    {"name": "weather", "parameters": {"properties": {"city": {}, "days": {}, "units": {}}, "required": ["city"]}},
    {"name": "stop", "parameters": {"properties": {}}},
]
PARIS = ("weather", {"city": "Paris", "days": 2})
ROME = ("weather", {"city": "Rome"})
STOP: tuple[str, dict[str, Any]] = ("stop", {})
HARMONY = "<|channel|>analysis<|message|>They want Paris.<|end|><|start|>assistant"

WRITTEN: list[tuple[str, list[tuple[str, dict[str, Any]]], str]] = [
    ('<tool_call>\n{"name": "weather", "arguments": {"city": "Paris", "days": 2}}\n</tool_call>', [PARIS], ""),
    (
        'I look.\n<tool_call>{"name": "weather", "arguments": {"city": "Rome"}}</tool_call>\n<tool_call>{"name": "stop", '
        '"arguments": {}}</tool_call>',
        [ROME, STOP],
        "I look.",
    ),
    (
        "<think>\nWhich city?\n</think>\n\n<tool_call>\n"
        '{"name": "weather", "arguments": {"city": "Rome"}}\n</tool_call><|im_end|>',
        [ROME],
        "",
    ),
    (
        "<tool_call>\n<function=weather>\n<parameter=city>\nParis\n</parameter>\n<parameter=days>\n2\n</parameter>\n"
        "</function>\n</tool_call>",
        [PARIS],
        "",
    ),
    (
        "<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n<arg_key>days</arg_key>\n"
        "<arg_value>2</arg_value>\n</tool_call>",
        [PARIS],
        "",
    ),
    ('<|python_tag|>{"name": "weather", "parameters": {"city": "Paris", "days": 2}}<|eom_id|>', [PARIS], ""),
    (
        '<|python_tag|>{"name": "weather", "parameters": {"city": "Rome"}}; {"name": "stop", "parameters": {}}',
        [ROME, STOP],
        "",
    ),
    ('<|python_tag|>weather.call(city="Paris", days=2)<|eom_id|>', [PARIS], ""),
    ('{"name": "weather", "parameters": {"city": "Paris", "days": 2}}<|eot_id|>', [PARIS], ""),
    ('{"type": "function", "name": "weather", "parameters": {"city": "Rome"}}', [ROME], ""),
    ('[{"name": "weather", "arguments": {"city": "Rome"}}, {"name": "stop", "arguments": {}}]', [ROME, STOP], ""),
    ('[weather(city="Paris", days=2), stop()]', [PARIS, STOP], ""),
    ('<function=weather>{"city": "Paris", "days": 2}</function>', [PARIS], ""),
    ('[TOOL_CALLS] [{"name": "weather", "arguments": {"city": "Paris", "days": 2}, "id": "9Xk2LmQa1"}]', [PARIS], ""),
    ('Now.[TOOL_CALLS]weather[CALL_ID]9Xk2LmQa1[ARGS]{"city": "Rome"}[TOOL_CALLS]stop[ARGS]{}', [ROME, STOP], "Now."),
    (
        "<start_function_call>call:weather{city:<escape>Paris<escape>,days:2}<end_function_call>",
        [PARIS],
        "",
    ),
    ('```tool_code\nweather(city="Paris", days=2)\n```', [PARIS], ""),
    (
        HARMONY + '<|channel|>commentary to=functions.weather <|constrain|>json<|message|>{"city": "Rome"}<|call|>',
        [ROME],
        "",
    ),
    (HARMONY + ' to=functions.weather<|channel|>commentary json<|message|>{"city": "Rome"}<|call|>', [ROME], ""),
    (HARMONY + "<|channel|>final<|message|>It rains.<|return|>", [], "It rains."),
    (
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n```json\n"
        '{"city": "Rome"}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
        [ROME],
        "",
    ),
    (
        '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>weather<｜tool▁sep｜>{"city": "Rome"}<｜tool▁call▁end｜>'
        "<｜tool▁call▁begin｜>stop<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        [ROME, STOP],
        "",
    ),
    (
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.weather:0<|tool_call_argument_begin|>"
        '{"city": "Rome"}<|tool_call_end|><|tool_calls_section_end|>',
        [ROME],
        "",
    ),
    ('<|tool_call|>[{"name": "weather", "arguments": {"city": "Rome"}}]<|/tool_call|>', [ROME], ""),
    (
        '<|START_ACTION|>[{"tool_call_id": "0", "tool_name": "weather", "parameters": {"city": "Rome"}}]<|END_ACTION|>',
        [ROME],
        "",
    ),
    ("It will rain in Paris.", [], "It will rain in Paris."),
    ('{"name": "Ann", "age": 3}', [], '{"name": "Ann", "age": 3}'),  # an answer in JSON is an answer
    ("[1, 2, 3]", [], "[1, 2, 3]"),
]


def clean(text: str) -> str:
    for token in ("<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|return|>", "<|call|>", "<|end|>"):
        text = text.replace(token, "")
    return text


@pytest.mark.parametrize(("text", "calls", "said"), WRITTEN)
def test_a_call_is_found_whatever_the_family(text: str, calls: list[tuple[str, dict[str, Any]]], said: str) -> None:
    made = parse_completion(text, TOOLS, clean)

    found = [(c["name"], c["arguments"]) for c in made.message.get("tool_calls", [])]
    assert found == calls
    assert made.message.get("content", "") == said
    assert made.well_formed is bool(calls)


def test_every_family_of_the_table_has_an_example() -> None:
    tried = {
        next((f.name for f in families() if f.mark.search(split_reasoning(text)[1])), "") for text, _, _ in WRITTEN
    }
    assert tried - {""} == {f.name for f in families()}


def test_thinking_is_no_answer() -> None:
    for text, thought, rest in [
        ("<think>hm</think>Yes.", "hm", "Yes."),
        ("hm</think>Yes.", "hm", "Yes."),
        ("<think>cut off", "cut off", ""),
        (HARMONY + "<|channel|>final<|message|>Yes.", "They want Paris.", "Yes."),
        ("Yes.", "", "Yes."),
    ]:
        assert split_reasoning(text) == (thought, rest)
        made = parse_completion(text, None).message
        assert (made.get("reasoning", ""), made.get("content", "")) == (thought, rest)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ('<tool_call>{"name": "weather", "arguments": {"city": "Pa', "weather"),
        ('<tool_call>{"name": "weather", "arguments": {"city": NaN}}</tool_call>', "weather"),
        ("[TOOL_CALLS]weather[ARGS]{oops", "weather"),
        ('<|python_tag|>weather.call("Paris")', "weather"),
        ("<|python_tag|>weather(city=__import__('os').getcwd())", "weather"),
        ("<start_function_call>call:weather{city:<escape>Par", "weather"),
        ('<|tool_call|>["weather"]<|/tool_call|>', ""),
    ],
)
def test_what_does_not_parse_stays_a_call_with_its_text(text: str, name: str) -> None:
    (call,), _ = split_calls(text)
    assert (call["name"], call["arguments"]) == (name, None)
    assert call["arguments_raw"]
    assert not parse_completion(text, TOOLS).well_formed


PIECES = [
    "<tool_call>",
    "</tool_call>",
    "[TOOL_CALLS]",
    "[ARGS]",
    "<|python_tag|>",
    "f(a=1)",
    '{"name": "f"}',
    "{",
    "]",
]
PIECES += ["<|channel|>", " to=functions.f", "<|message|>", "```tool_code", "<function=f>", "<parameter=a>", "<escape>"]


@given(st.lists(st.sampled_from(PIECES) | st.text(max_size=5), max_size=12).map("".join))
def test_parsing_never_fails_and_gives_the_normal_form(text: str) -> None:
    made = parse_completion(text, TOOLS)
    json.dumps(made.message, allow_nan=False)
    for call in made.message.get("tool_calls", []):
        assert isinstance(call["arguments"], dict) or isinstance(call["arguments_raw"], str)
