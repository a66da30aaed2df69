"""Logs of programs of one's own: a call that is logged once it ran, runs that failed, steps without an action."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from flywheel.reading.shapes.entries import entry_of
from tests.stages.ingest.framing.test_texts import TALK

if TYPE_CHECKING:
    from tests.stages.ingest.conftest import Take

ASKED, SAID, GAVE = "What is in notes.txt?", "It holds notes about a trip.", "The file holds forty lines of notes."
GIVEN = {"path": "notes.txt"}
RAN: dict[str, dict[str, Any]] = {
    "type": {"type": "tool_call", "tool": "read_file", "args": GIVEN, "result": GAVE},
    "names of an API": {"type": "tool_call", "name": "read_file", "arguments": GIVEN, "output": GAVE},
    "event": {"event": "tool_call", "data": {"tool": "read_file", "args": GIVEN, "result": GAVE}},
    "arguments in fields": {"event": "tool_call", "data": {"tool": "read_file", **GIVEN, "result": GAVE}},
    "role": {"role": "tool", "tool": "read_file", "args": GIVEN, "result": GAVE},
    "role with names of an API": {"role": "tool", "name": "read_file", "input": GIVEN, "output": GAVE},
    "one word": {"type": "tool_call", "tool": "read_file", "args": GIVEN, "result": "hello"},
    "nothing": {"type": "tool_call", "tool": "read_file", "args": GIVEN, "result": []},
}


def around(line: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a question, the line, and an answer, written as the line is."""
    if "role" in line:
        return [{"role": "user", "content": ASKED}, line, {"role": "assistant", "content": SAID}]
    if "event" in line:
        said = {"event": "assistant_message", "data": {"text": SAID}}
        return [{"event": "user_message", "data": {"text": ASKED}}, line, said]
    return [{"type": "user", "content": ASKED}, line, {"type": "assistant", "content": SAID}]


def write(folder: Path, lines: list[dict[str, Any]]) -> None:
    (folder / "run.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.mark.parametrize("name", RAN)
def test_a_call_that_is_logged_once_it_ran_is_a_call_and_its_result(name: str, tmp_path: Path, take: Take) -> None:
    write(tmp_path, around(RAN[name]))
    taken = take()
    assert taken.quarantined.height == 0
    _, steps = taken.built()
    first, second = steps.sort("index").to_dicts()
    (call,) = json.loads(first["action"])["tool_calls"]
    assert (call["name"], call["arguments"]) == ("read_file", GIVEN)
    gave = {"one word": "hello", "nothing": ""}.get(name, GAVE)
    assert [(m["role"], m["content"]) for m in json.loads(second["observation"])] == [("tool", gave)]
    assert json.loads(second["action"])["content"] == SAID


def test_what_a_tool_gave_with_other_fields_is_no_call(tmp_path: Path, take: Take) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "read_file", "arguments": json.dumps(GIVEN)}}
    made = {"role": "assistant", "content": None, "tool_calls": [call]}
    gave = {"role": "tool", "name": "read_file", "result": GAVE, "tool_call_id": "c1", "source": "disk"}
    write(tmp_path, [{"role": "user", "content": ASKED}, made, gave, {"role": "assistant", "content": SAID}])
    episodes, _ = take().built()
    assert episodes["n_tool_calls"].to_list() == [1]


EVENTS: dict[str, list[dict[str, Any]]] = {
    "a run": [
        {"event": "AGENT_START", "data": {"input": ASKED, "model": "m"}},
        {"event": "TOOL_CALL", "data": {"step": 1, "tool": "read_file", "args": GIVEN, "observation": GAVE}},
        {"event": "AGENT_END", "data": {"steps": 1, "final_answer": SAID}},
    ],
    "a request": [
        {"event": "AGENT_REQUEST_RECEIVED", "data": {"input": ASKED}},
        {"event": "TOOL_CALL", "data": {"tool": "read_file", "arguments": json.dumps(GIVEN), "result": GAVE}},
        {"event": "FINAL_ANSWER_FOUND", "data": {"answer": SAID}},
    ],
    "a messenger": [
        {"type": "received_message", "chat_id": 7, "text": ASKED},
        {"type": "error", "message": "Error: 429 too many requests for this model"},
        {"type": "tool_call", "chat_id": 7, "tool": "read_file", "args": GIVEN, "result": GAVE},
        {"type": "final_answer", "chat_id": 7, "text": SAID},
    ],
}


@pytest.mark.parametrize("name", EVENTS)
def test_events_by_which_a_run_begins_and_ends_are_its_question_and_answer(
    name: str, tmp_path: Path, take: Take
) -> None:
    write(tmp_path, EVENTS[name])
    taken = take()
    assert taken.quarantined.height == 0
    episodes, steps = taken.built()
    assert (episodes["request"].to_list(), episodes["n_tool_calls"].to_list()) == ([ASKED], [1])
    assert json.loads(steps.sort("index")["action"][-1])["content"] == SAID


def test_an_event_with_words_that_no_reader_knows_is_not_passed_over(tmp_path: Path, take: Take) -> None:
    """Its tool's calls are read from the objects within; what was asked would be lost without a word."""
    lines = [
        {"event": "REQ", "data": {"trace": "t", "input": ASKED}},
        {"event": "RAN", "data": {"tool": "read_file", "args": GIVEN, "result": {"text": GAVE}}},
        {"event": "METRIC", "data": {"tokens": 7}},
    ]
    write(tmp_path, lines * 8)
    taken = take()
    assert taken.adds_up()
    assert taken.quarantined.height > 0 or taken.events.filter(taken.events["kind"] == "request").height == 8


STEP = {"step": 1, "thought": "I look.", "action": {"tool": "read_file", "args": GIVEN}, "observation": GAVE}


@pytest.mark.parametrize("action", [None, {}, ""])
def test_a_step_without_an_action_is_an_act_without_a_call(action: Any, tmp_path: Path, take: Take) -> None:
    idle = {"step": 2, "thought": "I have it all.", "action": action, "observation": "Nothing was done at this step."}
    write(tmp_path, [{"question": ASKED, "steps": [STEP, idle], "final_answer": SAID}])
    taken = take()
    assert taken.quarantined.height == 0
    _, steps = taken.built()
    acts = [json.loads(step["action"]) for step in steps.sort("index").to_dicts()]
    assert [len(act.get("tool_calls", ())) for act in acts] == [1, 0]
    assert (acts[1]["content"], acts[1]["reasoning"]) == (SAID, "I have it all.")


@pytest.mark.parametrize("nothing", [{"steps": [], "final_answer": None}, {"messages": []}])
def test_a_run_that_failed_before_its_first_act_is_a_question(
    nothing: dict[str, Any], tmp_path: Path, take: Take
) -> None:
    chat = [{"role": "user", "content": ASKED}, {"role": "assistant", "content": SAID}]
    done = {"question": ASKED, "messages": chat} if "messages" in nothing else {
        "question": ASKED, "steps": [STEP], "final_answer": SAID}  # fmt: skip
    failed = {"question": "What else is in the folder of notes?", "error": "RateLimitError: 429 too many requests"}
    write(tmp_path, [{**done, "error": None}, {**failed, **nothing}])
    taken = take()
    assert taken.quarantined.height == 0
    episodes, _ = taken.built()
    assert sorted(episodes["n_steps"].to_list()) == [0, 1 if "messages" in nothing else 2]


def test_an_answer_with_calls_as_anthropic_has_them(tmp_path: Path, take: Take) -> None:
    row = {"case_id": "k1", "prompt": ASKED, "tool_calls": [{"name": "read_file", "input": GIVEN}], "final_text": SAID}
    write(tmp_path, [row, {**row, "case_id": "k2", "prompt": f"{ASKED} And in it?"}])
    episodes, _ = take().built()
    assert episodes["n_tool_calls"].to_list() == [1, 1]


def test_files_that_programs_hide_under_names_of_their_own_are_found(tmp_path: Path, take: Take) -> None:
    (tmp_path / ".aider.chat.history.md").write_text(TALK)
    (tmp_path / ".deepeval").mkdir()
    case = {"input": ASKED, "actualOutput": SAID, "success": True}
    (tmp_path / ".deepeval" / ".latest_test_run.json").write_text(
        json.dumps({"testRunData": {"testCases": [case] * 2}})
    )
    (tmp_path / ".hidden.jsonl").write_text(json.dumps({"role": "user", "content": "no"}) + "\n")
    taken = take()
    assert {Path(name).name for name in taken.events["source_file"]} == {
        ".aider.chat.history.md", ".latest_test_run.json"}  # fmt: skip
    (tmp_path / ".aider.llm.history").write_text("")
    assert all(not name.endswith(".md") for name in take().events["source_file"]), "both have the same calls"


@pytest.mark.parametrize(
    ("event", "kind"),
    [
        ({"event": "llm_response_received", "data": {"content": SAID}}, "words"),
        ({"event": "LLM_RESPONSE", "data": {"content": SAID}}, "words"),
        ({"event": "message_sent", "data": {"text": SAID}}, "words"),
        ({"event": "message_received", "data": {"text": ASKED}}, "user"),
        ({"event": "AGENT_START", "data": {"input": ASKED}}, "user"),
        ({"event": "response_received", "data": {"content": SAID}}, None),
        ({"event": "api_response", "data": {"content": SAID}}, None),
        ({"event": "server_started", "data": {"input": ASKED}}, None),
    ],
)
def test_what_a_program_received_is_not_what_a_user_said(event: dict[str, Any], kind: str | None) -> None:
    entry = entry_of(event)
    assert (entry and entry.kind) == kind
