"""Claude Code sessions: replies in pieces, results with flags, what users did, sub-agents, bookkeeping."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from flywheel.config import EpisodesConfig
from flywheel.extensions import BadRecordError, Sample
from flywheel.funnel import Funnel
from flywheel.stages.conversations.episodes import build_episodes
from flywheel.stages.ingest.readers.agents.claude_code import READER

SESSION = "0b4e7d1e-0000-4000-8000-00000000000c"
USAGE = {"input_tokens": 3, "cache_creation_input_tokens": 200, "cache_read_input_tokens": 10, "output_tokens": 5}


def line(kind: str, message: Any, uuid: str = "u-1", **more: Any) -> dict[str, Any]:
    return {
        "parentUuid": None, "isSidechain": False, "sessionId": SESSION, "version": "2.1.0", "type": kind, "uuid": uuid,
        "timestamp": "2026-10-01T09:00:00.000Z", "message": message, **more,
    }  # fmt: skip


def user(content: Any, **more: Any) -> dict[str, Any]:
    return line("user", {"role": "user", "content": content}, **more)


def piece(*blocks: dict[str, Any], message_id: str | None = "msg_1", **more: Any) -> dict[str, Any]:
    message = {"id": message_id, "role": "assistant", "model": "claude-x", "content": list(blocks), "usage": USAGE}
    return line("assistant", message | {"stop_reason": more.pop("stop", None)}, requestId="req_1", **more)


def waiting(prompt: Any, **more: Any) -> dict[str, Any]:
    """A line of the queue: what was sent while the agent worked."""
    queued = {"type": "queued_command", "prompt": prompt, **more}
    return {k: v for k, v in line("attachment", None, attachment=queued).items() if k != "message"}


SAY = {"type": "text", "text": "Checking."}
CALL = {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"command": "orders 7"}}


def result(content: Any = "exit 1", **more: Any) -> dict[str, Any]:
    block = {"type": "tool_result", "tool_use_id": "toolu_1", "content": content}
    flag = {"is_error": more.pop("is_error")} if "is_error" in more else {}
    return user([block | flag], **more)


def read(record: Any) -> list[dict[str, Any]]:
    """Events without the mark that each follows its parent, which all of a session's messages have."""
    found = list(READER.read(record, 4))
    for event in found:
        assert event["payload"].pop("threaded", False) == bool(event["span_id"])
    return found


def test_a_reply_is_told_a_block_a_line() -> None:
    (said,), (called,) = read(piece(SAY)), read(piece(CALL, uuid="u-2", stop="tool_use"))
    assert said["payload"] == {
        "message": {"role": "assistant", "content": "Checking."},
        "response_id": "msg_1", "fragment": "block", "input_tokens": 213, "output_tokens": 5,
    }  # fmt: skip
    assert called["payload"]["message"]["tool_calls"] == [
        {"id": "toolu_1", "name": "Bash", "arguments": {"command": "orders 7"}}
    ]
    assert (called["payload"]["finish_reason"], called["seq"], called["span_id"]) == ("tool_use", 4, "u-2")
    assert called["ids"] == ["message:u-2", "request:req_1", "response:msg_1"]
    assert (said["conversation_id"], said["model"], said["policy"]) == (
        SESSION,
        "claude-x",
        "claude-code-2.1.0/claude-x",
    )
    (thought,) = read(piece({"type": "thinking", "thinking": "Hm.", "signature": "s"}))
    assert thought["payload"]["message"] == {"role": "assistant", "reasoning": "Hm."}


@pytest.mark.parametrize(
    ("given", "status"),
    [
        (result(is_error=True), "failed"),
        (result(is_error=False), "ok"),
        (result(toolUseResult={"stdout": "a", "stderr": "", "interrupted": False}), "ok"),
        (result(toolUseResult={"stdout": "a", "interrupted": True}), "failed"),
        (result(toolUseResult={"stdout": "a", "exitCode": 2}), "failed"),
        (result("done"), "unknown"),
        (result("Error: no such file", toolUseResult="Error: no such file"), "failed"),
    ],
)
def test_how_a_call_ended(given: dict[str, Any], status: str) -> None:
    (event,) = read(given)
    assert (event["kind"], event["tool_call_id"], event["payload"]["status"]) == ("tool_result", "toolu_1", status)


def test_what_a_user_did_without_words() -> None:
    refused = result("The user doesn't want to proceed with this tool use.", is_error=True)
    told, feedback = read(refused)
    assert told["payload"]["status"] == "unknown"
    assert feedback["payload"] == {"name": "reject", "annotator": "human", "target": "call", "target_id": "toolu_1"}
    _, changed = read(result("ok", toolUseResult={"newString": "a", "userModified": True}))
    assert (changed["payload"]["name"], changed["payload"]["label"]) == ("edit", "modified")
    words, stopped = read(user([{"type": "text", "text": "[Request interrupted by user for tool use]"}]))
    assert (words["payload"]["messages"][0]["role"], stopped["payload"]["name"]) == ("system", "interrupt")


def test_words_beside_a_result_are_the_users() -> None:
    block = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "ok", "is_error": False}
    events = read(user([block, {"type": "text", "text": "Go on."}]))
    assert [e["kind"] for e in events] == ["tool_result", "request"]
    assert events[1]["payload"]["messages"] == [{"role": "user", "content": "Go on."}]


@pytest.mark.parametrize(
    "given",
    [
        user("Caveat: The messages below were made by the program."),
        user("<command-name>/clear</command-name>"),
        user("<task-notification>\n<status>completed</status>\n</task-notification>"),
        user("Base directory for this skill: /skills/orders\n\n# Orders"),
        user("anything", isMeta=True),
        user("anything", isSynthetic=True),
        user("anything", promptSource="system"),
        user("anything", origin={"kind": "task-notification"}),
        user("anything", origin={"kind": "peer", "from": "unknown"}),
        waiting("<task-notification>done</task-notification>", commandMode="task-notification"),
        waiting("anything", commandMode="prompt", origin={"kind": "task-notification"}),
        user("It went so.", isCompactSummary=True),
    ],
)
def test_what_the_program_says_is_not_the_users(given: dict[str, Any]) -> None:
    (event,) = read(given)
    assert event["payload"]["messages"][0]["role"] == "system"
    assert event["payload"].get("tags") == (["compacted"] if "isCompactSummary" in given else None)
    assert event["payload"].get("replaces_context", False) == ("isCompactSummary" in given)


@pytest.mark.parametrize(
    "given",
    [
        user("Go on.", origin={"kind": "human"}, promptSource="typed"),
        user("Go on.", origin={"kind": "channel"}),
        waiting("Go on.", commandMode="prompt", origin={"kind": "human"}),
        waiting([{"type": "text", "text": "Go on."}]),
    ],
)
def test_what_people_write_is_theirs_also_where_it_waited_for_the_agent(given: dict[str, Any]) -> None:
    (event,) = read(given)
    assert event["payload"]["messages"] == [{"role": "user", "content": "Go on."}]


def test_a_command_that_asks_the_agent_is_the_users() -> None:
    typed = "<command-message>orders</command-message>\n<command-name>/orders</command-name>"
    (event,) = read(user(typed))
    assert event["payload"]["messages"] == [{"role": "user", "content": typed}]


def test_sub_agents_are_conversations_of_their_own() -> None:
    assert {e["conversation_id"] for e in read(user("Look.", isSidechain=True, agentId="a1"))} == {
        f"{SESSION}/agent-a1"
    }
    assert read(user("Look.", isSidechain=True))[0]["conversation_id"] == f"{SESSION}/agent-sidechain"


def test_what_is_no_talk_gives_nothing() -> None:
    assert read({"type": "summary", "summary": "Orders", "leafUuid": "u-9"}) == []
    assert read({"type": "queue-operation", "operation": "enqueue", "sessionId": SESSION}) == []
    (link,) = read(line("system", None, subtype="api_metrics", uuid="u-8"))
    assert (link["span_id"], link["payload"]) == ("u-8", {"messages": []})
    (failed,) = read(line("assistant", {"id": "m", "role": "assistant", "model": "<synthetic>", "content": [SAY]}))
    assert (failed["kind"], failed["payload"]) == ("request", {"messages": [], "tags": ["api_error"]})


@pytest.mark.parametrize("boundary", [True, False])
def test_after_a_compaction_the_summary_is_all_that_was_said(
    boundary: bool,  # noqa: FBT001 - a table's column
    take: Callable[..., Any],
    write: Callable[..., Path],
) -> None:
    later = {"timestamp": "2026-10-01T09:05:00.000Z"}
    bound = [line("system", None, subtype="compact_boundary", uuid="u-4", logicalParentUuid="u-3", **later)]
    records = [
        user("where is order 7?"), piece(SAY, CALL, uuid="u-2"), result(is_error=True, uuid="u-3"),
        *(bound if boundary else []),
        user("They asked for order 7.", isCompactSummary=True, uuid="u-5", **later),
        user("Go on.", uuid="u-6", **later),
        piece({**SAY, "text": "Gone."}, message_id="msg_2", uuid="u-7", **later),
        user("Thanks.", uuid="u-8", **later), piece({**SAY, "text": "Bye."}, message_id="msg_3", uuid="u-9", **later),
    ]  # fmt: skip
    write(f"{SESSION}.jsonl", records)
    episodes, steps = take().built()
    assert steps["resets_context"].to_list() == [False, True, False]
    seen = [[m["content"] for m in json.loads(text)] for text in steps["observation"]]
    assert seen == [["where is order 7?"], ["They asked for order 7.", "Go on."], ["Thanks."]]
    assert {"compacted", "context_reset"} <= set(episodes["tags"][0])


def test_the_stream_tells_the_same() -> None:
    stream = {
        "type": "assistant",
        "session_id": "s",
        "parent_tool_use_id": None,
        "uuid": "u",
        "message": piece(SAY)["message"],
    }
    (event,) = read(stream)
    assert (event["conversation_id"], event["ts"], event["payload"]["response_id"]) == ("s", None, "msg_1")
    assert read({**stream, "parent_tool_use_id": "toolu_9"})[0]["conversation_id"] == "s/agent-toolu_9"
    assert read({"type": "result", "subtype": "success", "session_id": "s", "total_cost_usd": 0}) == []
    assert READER.sniff(Sample("x.jsonl", [{"type": "system", "subtype": "init", "session_id": "s"}, stream])) == 1


def test_what_a_run_took_in_all_counts_where_its_replies_show_less() -> None:
    usage = {"input_tokens": 40, "cache_read_input_tokens": 2000, "output_tokens": 9}
    (event,) = read({"type": "result", "session_id": "s", "usage": usage, "total_cost_usd": 0.1})
    totals = {"input_tokens": 2040, "output_tokens": 9, "cost_usd": 0.1}
    assert (event["kind"], event["payload"]["usage_so_far"]) == ("request", totals)


def test_detection_refusal_and_steps(take: Callable[..., Any], write: Callable[..., Path]) -> None:
    others: list[Any] = [{"type": "user", "text": "x"}, {"type": "system", "content": "x"}, []]
    assert READER.sniff(Sample("x.jsonl", others)) == 0
    broken: list[Any] = ["error", {"type": "user"}, line("user", "error")]
    for record in broken:
        with pytest.raises(BadRecordError):
            read(record)
    answer = {**SAY, "text": "It arrives on Monday."}
    records = [
        {"type": "summary", "summary": "Orders", "leafUuid": "u-9"},
        user("where is order 7?"), piece(SAY, CALL, uuid="u-2"), result(is_error=True, uuid="u-3"),
        piece(answer, message_id="msg_2", uuid="u-4"),
    ]  # fmt: skip
    write(f"{SESSION}.jsonl", records)
    taken = take()
    assert (taken.read, taken.quarantined.height, taken.adds_up()) == (5, 0, True)
    episodes, steps = build_episodes(taken.events, EpisodesConfig(), Funnel())
    assert (episodes["conversation_id"].to_list(), episodes["stop_reason"].to_list()) == ([SESSION], ["answered"])
    assert steps["tool_status"].to_list() == [["failed"], []]


def test_a_forks_first_lines_are_copies() -> None:
    (copied,) = read(piece(SAY, forkedFrom={"sessionId": "another", "messageUuid": "u-1"}))
    assert copied["payload"]["copied"] is True
    assert "copied" not in read(piece(SAY))[0]["payload"]
