"""Sessions of Claude's Managed Agents: pieces of replies, results, tokens, confirmations, outcomes, threads, pages."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from flywheel.extensions import Sample
from flywheel.stages.ingest.readers.agents.managed_agents import READER


def event(kind: str, number: int, **more: Any) -> dict[str, Any]:
    return {"id": f"sevt_{number}", "type": kind, "processed_at": f"2026-10-01T09:00:{number:02}Z", **more}


def words(text: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": text}]


ASKED = event("user.message", 1, content=words("Where is order 7?"))
LOOKING = event("agent.message", 4, content=words("I look it up."))
CALL = event("agent.tool_use", 5, name="bash", input={"command": "orders 7"}, evaluated_permission="allow")
MCP = event("agent.mcp_tool_use", 6, name="find", mcp_server_name="shop", input={"order": 7})
USED = {"input_tokens": 20, "output_tokens": 30, "cache_read_input_tokens": 5, "cache_creation_input_tokens": 1}
COUNTED = event("span.model_request_end", 7, model_request_start_id="sevt_3", is_error=False, model_usage=USED)
FAILED = event("agent.tool_result", 8, tool_use_id="sevt_5", content=words("no such command"), is_error=True)
FOUND = event("agent.mcp_tool_result", 9, mcp_tool_use_id="sevt_6", content=words("Lima"), is_error=False)
ANSWER = event("agent.message", 11, content=words("In Lima."))
SESSION = [
    ASKED, event("session.status_running", 2), event("agent.thinking", 3), LOOKING, CALL, MCP, COUNTED, FAILED, FOUND,
    ANSWER, event("session.status_idle", 12, stop_reason={"type": "end_turn"}),
]  # fmt: skip


def read(record: Any) -> list[dict[str, Any]]:
    return list(READER.read(record, 3))


@pytest.mark.parametrize(
    "records", [SESSION, [{"data": SESSION[:6], "next_page": "p"}, {"data": SESSION[6:], "next_page": None}]]
)
def test_a_session_is_an_episode(take: Callable[..., Any], write: Callable[..., Path], records: list[Any]) -> None:
    assert READER.sniff(Sample("x.jsonl", records)) == 1
    write("session.jsonl", records)
    taken = take()
    assert (taken.read, taken.quarantined.height, taken.adds_up()) == (len(records), 0, True)
    episodes, steps = taken.built()
    assert (episodes.height, episodes["stop_reason"].item(), episodes["n_tool_calls"].item()) == (1, "answered", 2)
    assert (episodes["input_tokens"].item(), episodes["output_tokens"].item()) == (26, 30)
    assert steps["tool_status"].to_list() == [["failed", "ok"], []]


def test_a_reply_is_told_an_event_a_piece() -> None:
    (said,), (called,), (asked,) = read(LOOKING), read(CALL), read(MCP)
    assert said["payload"] == {"message": {"role": "assistant", "content": "I look it up."}, "fragment": "block"}
    assert called["payload"]["message"]["tool_calls"] == [
        {"id": "sevt_5", "name": "bash", "arguments": {"command": "orders 7"}}
    ]
    assert asked["payload"]["message"]["tool_calls"][0]["name"] == "find"
    assert read(event("agent.thinking", 3)) == []
    (thought,) = read(event("agent.thinking", 3, content=words("Hm.")))
    assert thought["payload"]["message"] == {"role": "assistant", "reasoning": "Hm."}


def test_how_a_call_ended_and_what_it_took() -> None:
    (failed,), (found,), (counted,) = read(FAILED), read(FOUND), read(COUNTED)
    assert (failed["tool_call_id"], failed["payload"]["status"]) == ("sevt_5", "failed")
    assert (found["tool_call_id"], found["payload"]["content"], found["payload"]["status"]) == ("sevt_6", "Lima", "ok")
    assert counted["payload"] == {"messages": [], "input_tokens": 26, "output_tokens": 30}


def test_what_people_did_without_words() -> None:
    (denied,) = read(event("user.tool_confirmation", 9, tool_use_id="sevt_5", result="deny", deny_message="Not this."))
    assert denied["payload"] == {
        "name": "reject", "annotator": "human", "target": "call", "target_id": "sevt_5", "comment": "Not this.",
    }  # fmt: skip
    assert read(event("user.tool_confirmation", 9, tool_use_id="sevt_5", result="allow")) == []
    (stopped,) = read(event("user.interrupt", 9))
    assert stopped["payload"]["name"] == "interrupt"


@pytest.mark.parametrize(
    ("result", "value"),
    [("satisfied", 1.0), ("needs_revision", 0.0), ("max_iterations_reached", 0.0), ("failed", None),
     ("interrupted", None)],
)  # fmt: skip
def test_what_a_grader_found_is_the_outcome(result: str, value: float | None) -> None:
    ended = event("span.outcome_evaluation_end", 9, outcome_id="outc_1", result=result, usage=USED)
    *found, told = read(ended | {"explanation": "The order is not named."})
    assert [e["payload"]["value"] for e in found] == ([] if value is None else [value])
    assert told["payload"]["messages"] == [{"role": "system", "content": "The order is not named."}]


def test_what_is_between_agents_is_context_and_an_outcome_a_request() -> None:
    (told,) = read(event("agent.thread_message_received", 9, content=words("Done."), from_agent="helper"))
    assert told["payload"]["messages"] == [{"role": "system", "content": "Done."}]
    (asked,) = read(event("user.define_outcome", 9, description="Find order 7.", rubric={"type": "text"}))
    assert asked["payload"]["messages"] == [{"role": "user", "content": "Find order 7."}]
    (thread,) = read(LOOKING | {"session_thread_id": "sthr_2"})
    assert thread["conversation_id"] == "session/sthr_2"
    (short,) = read(event("agent.thread_context_compacted", 9))
    assert short["payload"]["replaces_context"] is True


def test_the_sessions_own_object_names_policy_and_tools() -> None:
    tool = {"type": "custom", "name": "find", "description": "Finds.", "input_schema": {"type": "object"}}
    agent = {"id": "agent_1", "name": "shop", "version": 3, "model": {"id": "claude-x"}, "system": "Be brief."}
    (opened,) = read({"id": "sesn_1", "type": "session", "agent": agent | {"tools": [tool]}, "status": "idle"})
    assert (opened["policy"], opened["model"], opened["ids"]) == ("shop-3/claude-x", "claude-x", ["session:sesn_1"])
    assert opened["payload"]["messages"] == [{"role": "system", "content": "Be brief."}]
    assert [t["function"]["name"] for t in opened["payload"]["tools"]] == ["find"]


def test_a_programs_own_lines_around_events_are_opened() -> None:
    wrapped = {"role": "agent", "kind": "tool_use", "tool": "bash", "content": "{}", "raw": CALL}
    assert READER.sniff(Sample("x.jsonl", [wrapped])) == 1.0
    assert [e["kind"] for e in read(wrapped)] == ["model_call"]


@pytest.mark.parametrize(
    "record",
    [
        {"v": 1, "type": "agent.tool_use", "runId": "r", "payload": {"tool": "read_file", "toolUseId": "t"}},
        {"type": "agent.started", "payload": {"model": "m"}},
        {"type": "user.message", "text": "hello"},
        {"data": [{"type": "agent.message"}]},
        {"data": []},
        None,
        "agent.message",
    ],
)
def test_events_of_other_programs_are_not_taken(record: Any) -> None:
    assert READER.sniff(Sample("x.jsonl", [record])) == 0.0
