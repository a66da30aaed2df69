"""Tool calls as every family writes them, as their templates and model cards document it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from flywheel.models.calls import families, split_calls, split_reasoning
from flywheel.models.chat import parse_completion
from hypothesis import given
from hypothesis import strategies as st

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"
TOOLS = [
    {"name": "weather", "parameters": {"properties": {"city": {}, "days": {}, "units": {}}, "required": ["city"]}},
    {"name": "stop", "parameters": {"properties": {}}},
]
HARMONY = "<|channel|>analysis<|message|>They want Paris.<|end|><|start|>assistant"
WRITTEN = [json.loads(line) for line in (FIXTURES / "tool_calls.jsonl").read_text(encoding="utf-8").splitlines()]


def clean(text: str) -> str:
    for token in ("<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|return|>", "<|call|>", "<|end|>"):
        text = text.replace(token, "")
    return text


@pytest.mark.parametrize("written", WRITTEN, ids=lambda w: w["text"][:30])
def test_a_call_is_found_whatever_the_family(written: dict[str, Any]) -> None:
    made = parse_completion(written["text"], TOOLS, clean)

    found = [[c["name"], c["arguments"]] for c in made.message.get("tool_calls", [])]
    assert found == written["calls"]
    assert made.message.get("content", "") == written["said"]
    assert made.well_formed is bool(written["calls"])


def test_every_family_of_the_table_has_an_example() -> None:
    texts = [split_reasoning(written["text"])[1] for written in WRITTEN]
    tried = {next((f.name for f in families() if f.mark.search(text)), "") for text in texts}
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


@pytest.mark.slow
@given(st.lists(st.sampled_from(PIECES) | st.text(max_size=5), max_size=12).map("".join))
def test_parsing_never_fails_and_gives_the_normal_form(text: str) -> None:
    made = parse_completion(text, TOOLS)
    json.dumps(made.message, allow_nan=False)
    for call in made.message.get("tool_calls", []):
        assert isinstance(call["arguments"], dict) or isinstance(call["arguments_raw"], str)
