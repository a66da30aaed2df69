"""Arguments that were written bare, for a tool that takes one."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.stages.talks import Talk, call, made


def tool(**properties: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": "find", "parameters": {"properties": properties}}}


def arguments_of(talk: Talk) -> tuple[Any, bool]:
    steps = made(talk).steps
    (one,) = json.loads(steps["action"][0])["tool_calls"]
    return one["arguments"], steps["malformed"][0]


@pytest.mark.parametrize(
    ("kind", "raw", "value"),
    [
        ("string", "order 7", "order 7"),
        ("string", '"order 7"', "order 7"),
        ("string", "7", "7"),
        ("integer", "7", 7),
        ("number", "7.5", 7.5),
        ("boolean", "true", True),
        ("array", "[7]", [7]),
    ],
)
def test_a_tool_with_one_argument_takes_it_bare(kind: str, raw: str, value: Any) -> None:
    found = call("find", None, "c1", raw=raw)
    talk = Talk("t").ask("where?", tools=[tool(q={"type": kind})]).act(calls=[found])
    assert arguments_of(talk) == ({"q": value}, False)


@pytest.mark.parametrize(
    ("offered", "raw"),
    [
        (tool(q={"type": "string"}, n={"type": "integer"}), "order 7"),
        (tool(), "order 7"),
        (tool(q={"type": "object"}), "order 7"),
        (tool(q={"type": "integer"}), "seven"),
        (tool(q={"type": "integer"}), "true"),
        (tool(q={"type": "string"}), '{"q": "7"'),
        (tool(q={"type": "string"}), " "),
    ],
)
def test_what_is_not_certain_stays_as_it_was_written(offered: dict[str, Any], raw: str) -> None:
    talk = Talk("t").ask("where?", tools=[offered]).act(calls=[call("find", None, "c1", raw=raw)])
    assert arguments_of(talk) == (None, True)


def test_the_text_is_kept_and_a_repeated_history_is_still_the_same() -> None:
    found = call("find", None, "c1", raw="order 7")
    seen = [{"role": "user", "content": "where?"}]
    later = [
        *seen,
        {"role": "assistant", "tool_calls": [found]},
        {"role": "tool", "content": "x", "tool_call_id": "c1"},
    ]
    talk = Talk("t").act(calls=[found], input=seen, tools=[tool(q={"type": "string"})]).act("It is there.", input=later)
    steps = made(talk).steps
    assert json.loads(steps["action"][0])["tool_calls"][0]["arguments_raw"] == "order 7"
    assert steps["resets_context"].to_list() == [False, False]


def test_a_span_with_a_bare_argument_is_the_call_of_the_message() -> None:
    talk = Talk("t").ask("where?", tools=[tool(q={"type": "string"})]).act(calls=[call("find", {"q": "order 7"})])
    talk.event("tool_call", {"arguments": None, "arguments_raw": "order 7"}, tool_name="find")
    assert made(talk).episodes["n_tool_calls"].to_list() == [1]
