"""A window keeps the system prompt, what was asked last and the newest whole turns, and says what it leaves out."""

from __future__ import annotations

import re
from typing import Any

import pytest
from flywheel.config import ModelConfig
from flywheel.models.chat import ChatFormat
from flywheel.models.lint import lint_row
from flywheel.models.load import load_tokenizer
from flywheel.models.windows import Window, open_window, tokens_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.projects import make_tiny_model

SYSTEM = {"role": "system", "content": "Look things up in a shop."}
ANSWER = {"role": "assistant", "content": "It is on its way."}
OTHER = {"role": "assistant", "content": "I do not know where your order is, please ask somebody else about it."}


@pytest.fixture(scope="module")
def chat(tmp_path_factory: pytest.TempPathFactory) -> ChatFormat:
    return ChatFormat(load_tokenizer(ModelConfig(base=str(make_tiny_model(tmp_path_factory.mktemp("m") / "model")))))


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def turn(number: int, *results: str) -> list[dict[str, Any]]:
    calls = [{"id": f"c{number}{n}", "name": "look", "arguments": {"n": number}} for n, _ in enumerate(results)]
    told = [{"role": "tool", "tool_call_id": c["id"], "content": r} for c, r in zip(calls, results, strict=True)]
    return [{"role": "assistant", "tool_calls": calls}, *told]


def opened(chat: ChatFormat, prompt: list[dict[str, Any]], most: int, *actions: dict[str, Any]) -> Window:
    found = open_window(chat, prompt, None, actions or (ANSWER,), most)
    assert found is not None
    assert tokens_of(chat, found.prompt, None, actions or (ANSWER,)) <= most
    assert lint_row(chat, {"id": "r", "prompt": found.prompt, "tools": None, "completion": [ANSWER]}, ("completion",))
    return found


def test_the_newest_whole_turns_and_what_was_asked_stay(chat: ChatFormat) -> None:
    prompt = [SYSTEM, user("hello"), ANSWER, user("where is my order?"), *turn(1, "red", "blue"), *turn(2, "green")]
    whole = tokens_of(chat, prompt, None, [ANSWER])
    assert opened(chat, prompt, whole) == Window(prompt, 0, 0)
    found = opened(chat, prompt, whole - 20)
    assert found.prompt[1:] == [user("where is my order?"), *turn(2, "green")]
    assert found.prompt[0]["content"] == f"{SYSTEM['content']}\n\n[5 earlier messages of this conversation left out]"
    assert (found.left_out, found.cut) == (5, 0)
    assert found.told() == "5 earlier messages left out to fit train.max_length"


def test_without_a_system_prompt_the_note_is_one(chat: ChatFormat) -> None:
    prompt = [user("hello there, how are you today?"), ANSWER, user("where is my order?")]
    found = opened(chat, prompt, tokens_of(chat, prompt, None, [ANSWER]) - 1)
    note = {"role": "system", "content": "[1 earlier message of this conversation left out]"}
    assert found.prompt[0] == note or found.prompt == [
        {**note, "content": note["content"].replace("1 earlier message", "2 earlier messages")},
        prompt[-1],
    ]


def test_only_the_middle_of_a_result_that_is_too_long_by_itself_is_cut(chat: ChatFormat) -> None:
    text = " ".join(f"line {n}" for n in range(2000))
    prompt = [SYSTEM, user("where is my order?"), *turn(1, "red"), *turn(2, "short", text)]
    most = 900
    found = opened(chat, prompt, most)
    assert [m["role"] for m in found.prompt] == ["system", "user", "assistant", "tool", "tool"]
    assert found.prompt[-2]["content"] == "short"
    cut = found.prompt[-1]["content"]
    told = re.search(r"\n\[\.\.\. ([\d,]+) characters left out \.\.\.\]\n", cut)
    assert told is not None
    assert int(told[1].replace(",", "")) == found.cut == len(text) - (len(cut) - len(told[0]))
    assert text.startswith(cut[: told.start()])
    assert text.endswith(cut[told.end() :])
    assert "characters of a tool's result left out" in found.told()
    assert tokens_of(chat, found.prompt, None, [ANSWER]) > most - 20  # as little as will do


def test_what_cannot_be_left_out_has_no_window(chat: ChatFormat) -> None:
    long = "please " * 400
    for prompt in (
        [SYSTEM, user(long)],
        [{**SYSTEM, "content": long}, user("hi")],
        [SYSTEM, user(long), *turn(1, "x")],
    ):
        assert open_window(chat, prompt, None, [ANSWER], 200) is None
    assert open_window(chat, [SYSTEM, user("hi")], None, [{"role": "assistant", "content": long}], 200) is None


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.sampled_from(["user", "turn", "say"]), max_size=8),
    st.lists(st.text("ab c", max_size=30), min_size=8, max_size=8),
    st.integers(20, 300),
)
def test_a_window_is_a_part_of_its_prompt_that_fits(
    chat: ChatFormat, kinds: list[str], texts: list[str], most: int
) -> None:
    prompt: list[dict[str, Any]] = [SYSTEM, user("where?")]
    for number, (kind, text) in enumerate(zip(kinds, texts, strict=False)):
        said = f"{text} {number}"
        prompt += (
            turn(number, said) if kind == "turn" else [user(said) if kind == "user" else {**ANSWER, "content": said}]
        )
    found = open_window(chat, prompt, None, [ANSWER, OTHER], most)
    if found is None:
        newest = [SYSTEM, user("where?")] if not kinds else prompt
        assert tokens_of(chat, newest, None, [ANSWER, OTHER]) > most
        return
    assert tokens_of(chat, found.prompt, None, [ANSWER, OTHER]) <= most
    kept = found.prompt[1:]
    assert found.left_out == len(prompt) - 1 - len(kept)
    assert all(message in prompt for message in kept)
    assert kept[-1] == prompt[-1]
    asked = [message for message in prompt if message["role"] == "user"][-1]
    assert asked in kept
    answered = {call["id"] for message in kept for call in message.get("tool_calls") or []}
    assert {message["tool_call_id"] for message in kept if message["role"] == "tool"} <= answered
