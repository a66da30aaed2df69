"""Calls of a model whose request and response are lines of their own, without an id that joins them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.stages.ingest.conftest import Take, calls

AT = "2026-10-01T09:00:{:02d}"
SYSTEM = "System: Use the tools.\n\nA user writes behind `Human:`."
ASKED = f"{SYSTEM}\nHuman: What is 6+6?"
CALL = {"name": "add", "args": {"a": 6, "b": 6}, "id": "call_1", "type": "tool_call"}
LANGCHAIN: list[dict[str, Any]] = [
    {"event": "llm_start", "prompts": [ASKED]},
    {"event": "llm_end", "response": "", "tool_calls": [{"tool": "add", "args": {"a": 6, "b": 6}}]},
    {"event": "tool_start", "tool": "add", "input": "{'a': 6, 'b': 6}"},
    {"event": "tool_end", "output": "content='12' name='add' tool_call_id='call_1'"},
    {"event": "llm_start", "prompts": [f"{ASKED}\nAI: [{CALL!r}]\nTool: 12"]},
    {"event": "llm_end", "response": "It is 12.", "tool_calls": []},
]
USER = {"role": "user", "content": "Where is order 7?"}


def written(path: Path, lines: list[dict[str, Any]]) -> Path:
    timed = [{"time": AT.format(n), **line} for n, line in enumerate(lines)]
    path.write_text("".join(json.dumps(line) + "\n" for line in timed), encoding="utf-8")
    return path


def asks(messages: list[Any], **about: Any) -> dict[str, Any]:
    return {"direction": "request", "source": "llm", "payload": {"model": "m", "messages": messages}, **about}


def answers(words: str, **about: Any) -> dict[str, Any]:
    return {
        "direction": "response", "source": "llm", "payload": {"role": "assistant", "content": words}, **about,
    }  # fmt: skip


def test_callbacks_of_langchain_are_its_calls(tmp_path: Path, take: Take) -> None:
    """A tool's result is in the next prompt, whose roles are words at the beginning of a line."""
    taken = take(written(tmp_path / "traces.jsonl", LANGCHAIN))
    first, second = taken.payloads()
    assert calls(taken) == [("add", {"a": 6, "b": 6})]
    assert [message["role"] for message in first["input"]] == ["system", "user"]
    result = {"role": "tool", "content": "12", "name": "add", "tool_call_id": "call_1", "status": "unknown"}
    assert second["input"][-1] == result
    assert second["message"]["content"] == "It is 12."
    assert dict(taken.ignored) == {"lines of tools, whose results the next request to the model has": 2}
    episodes, steps = taken.built()
    assert episodes.height == 1
    assert steps.height == 2


def test_a_response_is_that_of_the_last_request_of_its_session(tmp_path: Path, take: Take) -> None:
    lines = [
        asks([USER], session_id="a"), asks([{"role": "user", "content": "Hello?"}], session_id="b"),
        answers("Hi.", session_id="b"), answers("In Turin.", session_id="a"),
    ]  # fmt: skip
    taken = take(written(tmp_path / "log.jsonl", lines))
    said = {
        (payload["input"][-1]["content"], payload["message"]["content"])
        for payload in taken.payloads()
        if "message" in payload
    }
    assert said == {("Where is order 7?", "In Turin."), ("Hello?", "Hi.")}
    assert set(taken.events["conversation_id"]) == {"a", "b"}


def test_a_request_that_none_answers_is_passed_over_and_counted(tmp_path: Path, take: Take) -> None:
    lines = [asks([USER]), asks([USER]), answers("In Turin."), asks([USER])]
    taken = take(written(tmp_path / "log.jsonl", lines))
    assert taken.events.height == 1
    assert taken.ignored["requests to a model without a response"] == 2
    assert taken.adds_up()


def test_a_response_without_its_request_is_refused(tmp_path: Path, take: Take) -> None:
    lines = [*([asks([USER]), answers("In Turin.")] * 30), answers("Twice.")]
    taken = take(written(tmp_path / "log.jsonl", lines))
    assert taken.quarantined["detail"].to_list() == ["a model's response without its request"]


def test_words_behind_the_first_lines_are_not_lost(tmp_path: Path, take: Take) -> None:
    """Whose reader was chosen by the lines before them."""
    rating = {"event": "feedback", "message": "That was wrong, it is order 8."}
    taken = take(written(tmp_path / "log.jsonl", [*([asks([USER]), answers("In Turin.")] * 30), rating]))
    assert taken.quarantined["detail"].to_list() == ["a line with words of its own among those of a model's calls"]
    assert taken.adds_up()


def test_tools_whose_results_no_request_has_are_not_passed_over(tmp_path: Path, take: Take) -> None:
    lines = [
        asks([USER]), answers("Let me see."), {"event": "tool_end", "tool": "find_order", "output": "in Turin"},
        asks([USER]), answers("In Turin."),
    ]  # fmt: skip
    assert not any("lines of tools" in reason for reason in take(written(tmp_path / "log.jsonl", lines)).ignored)


@pytest.mark.parametrize("other", [
    {"event": "user_message", "content": "Where is order 7?"},
    {"event": "feedback", "message": "That was wrong, it is order 8."},
])  # fmt: skip
def test_lines_that_say_something_by_themselves_stay_with_their_own_reader(
    tmp_path: Path, take: Take, other: dict[str, Any]
) -> None:
    with_it = take(written(tmp_path / "log.jsonl", [*LANGCHAIN, other]))
    assert not any("lines of tools" in reason for reason in with_it.ignored)
