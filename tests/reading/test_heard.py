"""Chats of AutoGen's agents: who speaks is known by name where the roles are those of one who listens."""

from __future__ import annotations

from typing import Any

import pytest
from flywheel.reading.shapes.chats import chat
from flywheel.reading.shapes.heard import as_heard, by_speaker, people_in

RAN = "exitcode: 0 (execution succeeded)\nCode output: 7"
CODE = "I count.\n```python\nprint(7)\n```\nThen I tell you."


def said(*messages: tuple[str, str, str]) -> list[dict[str, Any]]:
    return [{"role": role, "content": content} | ({"name": name} if name else {}) for role, name, content in messages]


ASKED = said(("assistant", "user_proxy", "Count."), ("user", "coder", CODE), ("assistant", "user_proxy", RAN))
GROUP = said(
    ("user", "Admin", "Count."), ("user", "Engineer", CODE), ("user", "Executor", RAN), ("user", "Critic", "ok")
)
UNNAMED = said(("assistant", "", "Count."), ("user", "", CODE), ("assistant", "", RAN), ("user", "", "7. TERMINATE"))


@pytest.mark.parametrize(("items", "people"), [(ASKED, {"user_proxy"}), (GROUP, {"Admin"}), (UNNAMED, {""})])
def test_who_stands_for_the_user_is_known(items: list[dict[str, Any]], people: set[str]) -> None:
    assert people_in(items) == people
    roles = [message["role"] for message in chat(items)[0]]
    assert roles == ["user", "assistant", "tool", "assistant"][: len(items)]


@pytest.mark.parametrize(
    "items",
    [
        said(("user", "user_proxy", "Count."), ("assistant", "coder", CODE)),  # the agent's own memory
        said(("user", "anna", "Hello."), ("user", "admin", "Hello."), ("assistant", "helper", "Hello both.")),
        said(("user", "anna", "Hello."), ("user", "admin", "Who is there?")),  # people, no agent among them
        said(("assistant", "Ben", "I am Ben."), ("user", "Anna", "I am Anna.")),  # nothing shows who asks
        said(("assistant", "", "Good morning, user."), ("user", "", "Good morning.")),  # an agent that greets
        said(("assistant", "", RAN), ("user", "", RAN)),
        said(("assistant", "user_proxy", "Count."), ("assistant", "coder", CODE)),
        [],
    ],
)
def test_roles_that_say_who_speaks_stay(items: list[dict[str, Any]]) -> None:
    assert people_in(items) is None
    assert by_speaker(items) is items


def test_one_who_is_answered_by_a_caller_asks_under_any_name() -> None:
    call = {"role": "assistant", "name": "bot", "content": None, "tool_calls": [{"id": "c", "function": {"name": "f"}}]}
    items = [*said(("assistant", "Ben", "Count.")), call, *said(("user", "bot", "7"))]
    assert people_in(items) == {"Ben"}
    assert people_in(said(("assistant", "Ben", "Count."), ("user", "bot", "7")), is_heard=True) == {"Ben"}


def test_a_task_that_a_captain_gives_his_experts_is_asked_and_what_their_terminal_says_is_shown() -> None:
    items = said(
        ("assistant", "Excel_Expert", "The task: count."),
        ("user", "Logic_Expert", CODE),
        ("user", "Computer_terminal", RAN),
        ("assistant", "Excel_Expert", "Seven."),
        ("user", "Computer_terminal", "There is no code from the last message for me to execute."),
    )
    heard = by_speaker(items)
    assert [message["role"] for message in heard] == ["user", "assistant", "tool", "assistant", "system"]
    assert heard[1]["tool_calls"][0]["arguments"] == {"code": "print(7)"}


def test_code_is_a_call_with_the_words_around_it_and_its_exit_code_the_status() -> None:
    asked, act, gave = chat(ASKED)[0]
    assert asked == {"role": "user", "content": "Count."}
    assert act["content"] == "I count.\nThen I tell you."
    assert [(call["name"], call["arguments"]) for call in act["tool_calls"]] == [("python", {"code": "print(7)"})]
    assert (gave["content"], gave["status"]) == (RAN, "ok")
    failed = as_heard({"role": "assistant", "name": "user_proxy", "content": "exitcode: 1 (execution failed)"}, 0)
    assert failed["status"] == "failed"


def test_code_in_the_last_words_is_no_call() -> None:
    last = {"role": "user", "name": "coder", "content": CODE + "\nTERMINATE"}
    assert as_heard(last, 3) == {**last, "role": "assistant"}


def test_a_user_who_says_nothing_is_left_out() -> None:
    silent = said(("assistant", "user_proxy", ""), ("user", "coder", "TERMINATE"))
    assert [message["role"] for message in by_speaker([*ASKED, *silent])] == ["user", "assistant", "tool", "assistant"]
