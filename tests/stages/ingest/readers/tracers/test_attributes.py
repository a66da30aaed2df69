"""OpenInference's three encodings, numbered names and MLflow's quotes give one form."""

from __future__ import annotations

from typing import Any

import pytest
from flywheel.stages.ingest.readers.tracers._otel.attributes import folded, value_of

MESSAGES = [
    {"message": {"role": "user", "content": "hi"}},
    {"message": {"role": "assistant", "tool_calls": [{"tool_call": {"id": "c1", "function": {"name": "f"}}}]}},
]


@pytest.mark.parametrize(
    "given",
    [
        {
            "llm.input_messages.0.message.role": "user",
            "llm.input_messages.0.message.content": "hi",
            "llm.input_messages.1.message.role": "assistant",
            "llm.input_messages.1.message.tool_calls.0.tool_call.id": "c1",
            "llm.input_messages.1.message.tool_calls.0.tool_call.function.name": "f",
        },
        {
            "llm.input_messages": [
                {"message.role": "user", "message.content": "hi", "message.tool_calls": None},
                {
                    "message.role": "assistant",
                    "message.tool_calls": [{"tool_call.id": "c1", "tool_call.function.name": "f"}],
                },
            ]
        },
        {"llm": {"input_messages": MESSAGES}},
        {"llm.input_messages": MESSAGES},
    ],
    ids=["numbered", "dotted inside", "nested", "nested under a dotted name"],
)
def test_three_encodings_of_the_same_messages(given: dict[str, Any]) -> None:
    assert folded(given)["llm.input_messages"] == MESSAGES


def test_numbers_are_numbers_and_gaps_are_nothing() -> None:
    given = {f"gen_ai.prompt.{n}.role": str(n) for n in (10, 2, 0)} | {"gen_ai.prompt.name": "x"}
    assert folded(given)["gen_ai.prompt"] == [{"role": "0"}, {"role": "2"}, {"role": "10"}]
    assert folded({"a.0": "x", "a.1": "y"})["a"] == ["x", "y"]


def test_a_value_that_is_whole_wins_over_its_numbered_parts() -> None:
    assert folded({"gen_ai.prompt": "[]", "gen_ai.prompt.0.role": "user"})["gen_ai.prompt"] == "[]"
    assert folded({"a.0": "x", "a.0.b": "y", "a.0.b.c": "z"})["a"]


def test_structured_values_of_other_conventions_stay() -> None:
    given = {"gen_ai.input.messages": [{"role": "user", "parts": [{"type": "text", "content": "u"}]}]}
    assert folded(given) == given
    assert folded({"tag.tags": ["a", "b"], "llm.tokens": [1, 2]}) == {"tag.tags": ["a", "b"], "llm.tokens": [1, 2]}


def test_mlflows_quotes() -> None:
    given = {"mlflow.spanType": '"TOOL"', "mlflow.spanInputs": '{"id": 7}', "mlflow.x": '"cut', "mlflow.y": '"a" "b"'}
    assert folded(given) == given | {"mlflow.spanType": "TOOL"}


def test_what_says_nothing_is_passed_over() -> None:
    assert value_of({"a": "{}", "b": "", "c": [], "d": "x"}, ("a", "b", "c", "d")) == "x"
    assert value_of({"a": 0}, ("a",)) == 0
    assert value_of({}, ("a",)) is None
