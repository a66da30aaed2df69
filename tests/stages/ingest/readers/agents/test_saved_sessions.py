"""Sessions and runs as programs save them: command lines, editors, tests, data of trainers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.stages.ingest.conftest import calls, values

Write = Callable[..., Path]
Take = Callable[..., Any]

ASKED, TOLD = "Where is order 7?", "On its way."


def acts_of(taken: Any) -> list[dict[str, Any]]:
    """Return what the agent did, in order."""
    _, steps = taken.built()
    return [json.loads(action) for action in steps.sort("episode_id", "index")["action"]]


def test_amazon_q_saves_what_was_asked_and_answered_in_pairs(write: Write, take: Take) -> None:
    made = {"id": "t1", "name": "get_order", "orig_name": "get_order", "args": {"id": 7}}
    came = {"tool_use_id": "t1", "content": [{"Text": "on its way"}], "status": "Success"}
    history = [
        [{"content": {"Prompt": {"prompt": ASKED}}, "images": None}, {"ToolUse": {"content": "", "tool_uses": [made]}}],
        [{"content": {"ToolUseResults": {"tool_use_results": [came]}}}, {"Response": {"content": TOLD}}],
    ]
    taken = take(write("q.json", [{"conversation_id": "q-1", "history": history, "transcript": [f"> {ASKED}", TOLD]}]))
    assert calls(taken) == [("get_order", {"id": 7})]
    assert acts_of(taken)[-1]["content"] == TOLD
    assert taken.built()[0]["conversation_id"].to_list() == ["q-1"]


def test_kiros_entries_have_their_fields_in_data(write: Write, take: Take) -> None:
    def entry(kind: str, *parts: tuple[str, Any]) -> dict[str, Any]:
        content = [{"kind": name, "data": held} for name, held in parts]
        return {"version": "v1", "kind": kind, "data": {"message_id": "m", "content": content}}

    use = {"toolUseId": "t1", "name": "get_order", "input": {"id": 7}}
    result = {"toolUseId": "t1", "content": [{"kind": "json", "data": {"state": "lost"}}], "status": "error"}
    entries = [
        entry("Prompt", ("text", ASKED)),
        entry("AssistantMessage", ("text", "I look."), ("toolUse", use)),
        entry("ToolResults", ("toolResult", result)),
        entry("AssistantMessage", ("text", TOLD)),
    ]
    taken = take(write("chat.json", [{"format": "v1", "metadata": {"session_id": "k-1"}, "log_entries": entries}]))
    episodes, steps = taken.built()
    assert (episodes["conversation_id"].to_list(), episodes["n_tool_errors"].to_list()) == (["k-1"], [1])
    assert [act.get("content") for act in acts_of(taken)] == ["I look.", TOLD]
    assert json.loads(steps.sort("index")["observation"][1])[0]["content"] == '{"state":"lost"}'


def test_thoughts_of_copilot_are_of_its_first_act(write: Write, take: Take) -> None:
    parts = [{"kind": "thinking", "value": "It is "}, {"kind": "thinking", "value": "an order."}, {"value": TOLD}]
    request = {"requestId": "r1", "message": {"text": ASKED}, "response": parts, "timestamp": 1790850000000}
    with_rounds = {**request, "result": {"metadata": {"toolCallRounds": [{"response": TOLD, "toolCalls": []}]}}}
    for one in (request, with_rounds):
        taken = take(write("chat.json", [{"responderUsername": "GitHub Copilot", "requests": [one]}]))
        (act,) = acts_of(taken)
        assert (act["content"], act["reasoning"]) == (TOLD, "It is an order.")


@pytest.mark.parametrize("names", [("actualOutput", "toolsCalled", "inputParameters"),
                                   ("actual_output", "tools_called", "input_parameters")])  # fmt: skip
def test_a_test_of_an_agent_has_its_calls(names: tuple[str, str, str], write: Write, take: Take) -> None:
    """DeepEval's cases, alone or in a run: a call may have no arguments."""
    output, called, given = names
    made = [{"name": "get_order", given: {"id": 7}, "output": "on its way"}, {"name": "now", "output": "noon"}]
    case = {"name": "c", "input": ASKED, output: TOLD, called: made, "expected_output": TOLD, "success": True}
    for records in ([{**case, "id": "c1", "type": "A"}], [{"testRunData": {"testCases": [{**case, "order": 0}]}}]):
        taken = take(write("cases.json", records))
        assert calls(taken) == [("get_order", {"id": 7}), ("now", {})]
        assert values(taken) == [1.0]
        assert taken.events["kind"].to_list().count("tool_result") == 2


def test_a_rollout_of_all_states_so_far_counts_the_last(write: Write, take: Take) -> None:
    said = {"type": "message", "role": "user", "content": ASKED}
    call = {"type": "function_call", "call_id": "c1", "name": "get_order", "arguments": '{"id":7}'}
    came = {"type": "function_call_output", "call_id": "c1", "output": "on its way"}
    told = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": TOLD}]}
    output = [[said, call, came], [said, call, came, told]]
    rows = [
        {"responses_create_params": {"input": []}, "reward": n / 2,
         "response": {"id": f"resp_{n}", "object": "response", "model": "m", "output": output}}
        for n in range(2)
    ]  # fmt: skip
    taken = take(write("rollouts.jsonl", rows))
    episodes, _ = taken.built()
    assert (episodes["request"].to_list(), values(taken)) == ([ASKED] * 2, [0.0, 0.5])
    assert [act.get("content") for act in acts_of(taken)] == [None, TOLD] * 2


def test_functions_in_tags_are_calls_also_where_a_command_gave_nothing(write: Write, take: Take) -> None:
    """As SWE-smith's data have them."""

    def run(command: str) -> dict[str, Any]:
        words = f"I run it.\n\n<function=bash>\n<parameter=command>{command}</parameter>\n</function>"
        return {"role": "assistant", "content": words}

    silent = "Your command ran successfully and did not produce any output."
    told = [
        {"role": "user", "content": words} for words in ("Fix it.", "OBSERVATION:\na.py", silent, "OBSERVATION:\nb")
    ]
    acts = [run("ls"), run("touch b"), run("ls"), {"role": "assistant", "content": "It is fixed."}]
    chat = [message for pair in zip(told, acts, strict=True) for message in pair]
    taken = take(write("data.jsonl", [{"messages": chat}]))
    assert calls(taken) == [("bash", {"command": "ls"}), ("bash", {"command": "touch b"}), ("bash", {"command": "ls"})]
    assert taken.events["kind"].to_list().count("tool_result") == 3


def test_a_call_that_is_a_part_and_next_to_the_parts_is_one(write: Write, take: Take) -> None:
    made = {"name": "get_order", "arguments": {"id": 7}}
    acted = {"role": "assistant", "content": [{"type": "tool_call", **made}], "tool_calls": [{"function": made}]}
    taken = take(write("chat.jsonl", [{"messages": [{"role": "user", "content": ASKED}, acted]}]))
    assert calls(taken) == [("get_order", {"id": 7})]


def test_a_talk_of_a_map_that_another_one_holds_too_is_kept(write: Write, take: Take) -> None:
    """Of a map by id each is a talk, whatever the others have; two lists of one object may be the same talk."""
    talk = [{"role": "user", "content": ASKED}, {"role": "assistant", "content": TOLD}]
    longer = [*talk, {"role": "user", "content": "Thanks."}, {"role": "assistant", "content": "You are welcome."}]
    chats = {name: {"messages": items} for name, items in (("rome", talk), ("oslo", longer), ("bern", talk[:2]))}
    chats["bern"] = {"messages": [{"role": "user", "content": "Is it here?"}, talk[1]]}
    assert len(take(write("chats.json", [chats])).built()[0]) == 3


OLDER = """
# aider chat started at 2024-08-20 14:08:19

> Aider v0.50.1
> Models: acme with diff edit format, weak model small
> Git repo: .git with 116 files

#### /add a.py

> Added a.py to the chat

#### Sort the orders.

I sort them.

#### A heading of the answer

> a quote in it

> Tokens: 10,332 sent, 439 received. Cost: $0.04 message.
> Applied edit to a.py

#### Thanks.

You are welcome.
"""


def test_a_history_of_an_older_aider_has_no_blanks_behind_its_lines(tmp_path: Path, take: Take) -> None:
    (tmp_path / ".aider.chat.history.md").write_text(OLDER)
    taken = take(tmp_path)
    _, steps = taken.built()
    asked = [json.loads(seen)[-1]["content"] for seen in steps.sort("index")["observation"]]
    assert asked == ["Sort the orders.", "Thanks."]
    first, last = acts_of(taken)
    assert first["content"].splitlines() == ["I sort them.", "", "#### A heading of the answer", "", "> a quote in it"]
    assert last["content"] == "You are welcome."


def test_other_lines_of_kimi_code_are_none_of_the_talk(write: Write, take: Take) -> None:
    at = {"time": 1785613809972}
    lines = [
        {"type": "metadata", "protocol_version": "1.4", "created_at": 1785612803281},
        {"type": "context.append_message", "message": {"role": "user", "content": ASKED}, **at},
        {"type": "permission.record_approval_result", "toolName": "Bash", "result": {"decision": "approved"}, **at},
        {"type": "context.append_message", "message": {"role": "assistant", "content": TOLD}, **at},
    ]
    taken = take(write("wire.jsonl", lines))
    assert taken.quarantined.is_empty()
    assert acts_of(taken)[0]["content"] == TOLD


def test_what_an_editor_puts_in_front_of_a_request_is_seen_by_the_agent(write: Write, take: Take) -> None:
    rule = "Use tabs in every file of this project."
    given = [{"kind": "promptText", "value": rule}, {"kind": "file", "value": {}}]
    about = {"slashCommands": [{"name": "test", "sampleRequest": "write tests for all of the methods here"}]}
    request = {"requestId": "r1", "message": {"text": ASKED}, "response": [{"value": TOLD}], "agent": about}
    taken = take(write("chat.json", [{"requests": [{**request, "variableData": {"variables": given}}]}]))
    _, steps = taken.built()
    seen = json.loads(steps["observation"][0])
    assert [(one["role"], one["content"]) for one in seen] == [("system", rule), ("user", ASKED)]
