"""Sessions of pi and OpenClaw: replies with tokens, calls that failed, helpers, trees, what the program puts in."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from flywheel.extensions import BadRecordError, Sample
from flywheel.stages.conversations.thread import follow_threads
from flywheel.stages.ingest.readers.agents.pi import READER

SESSION = "0b4e7d1e-0000-4000-8000-00000000000e"
HEADER = {"type": "session", "version": 3, "id": SESSION, "timestamp": "2026-10-01T09:00:00.000Z", "cwd": "/app"}
USAGE = {"input": 10, "output": 4, "cacheRead": 2, "cacheWrite": 0, "totalTokens": 16, "cost": {"total": 0.01}}


def entry(kind: str, number: int, parent: int | None = None, **more: Any) -> dict[str, Any]:
    before = number - 1 if parent is None else parent
    return {
        "type": kind, "id": f"e{number}", "parentId": f"e{before}" if before else None,
        "timestamp": f"2026-10-01T09:00:{number:02}.000Z", **more,
    }  # fmt: skip


def said(number: int, role: str, content: Any, parent: int | None = None, **more: Any) -> dict[str, Any]:
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return entry("message", number, parent, message={"role": role, "content": blocks, **more})


def reply(number: int, *blocks: dict[str, Any], parent: int | None = None, **more: Any) -> dict[str, Any]:
    fields = {"provider": "p", "model": "m", "usage": USAGE, "stopReason": "stop", **more}
    return said(number, "assistant", list(blocks), parent, **fields)


SAY = {"type": "text", "text": "In Lima."}
CALL = {"type": "toolCall", "id": "c1", "name": "bash", "arguments": {"command": "orders 7"}}
GAVE = said(4, "toolResult", "Lima", toolCallId="c1", toolName="bash", isError=False)
FAILED = reply(3, stopReason="error", errorMessage="429 status code (no body) after some tries", usage={})
TALK = [
    HEADER, entry("model_change", 1, provider="p", modelId="m"), said(2, "user", "Where is order 7?"),
    FAILED, reply(4, CALL, stopReason="toolUse"), said(5, "toolResult", "Lima", toolCallId="c1", toolName="bash",
    isError=False), reply(6, {"type": "thinking", "thinking": "Found."}, SAY),
]  # fmt: skip


def read(record: Any) -> list[dict[str, Any]]:
    return list(READER.read(record, 3))


def test_a_session_is_an_episode(take: Callable[..., Any], write: Callable[..., Path]) -> None:
    assert READER.sniff(Sample("x.jsonl", TALK)) == 1
    write(f"2026-10-01_{SESSION}.jsonl", TALK)
    taken = take()
    assert (taken.read, taken.quarantined.height, taken.adds_up()) == (7, 0, True)
    episodes, steps = taken.built()
    assert (episodes["stop_reason"].to_list(), episodes["n_tool_calls"].item()) == (["answered"], 1)
    assert (episodes["input_tokens"].item(), episodes["output_tokens"].item()) == (24, 8)
    assert "api_error" in episodes["tags"].item()
    assert steps["tool_status"].to_list() == [["ok"], []]


def test_a_user_who_goes_back_gives_up_an_attempt(take: Callable[..., Any], write: Callable[..., Path]) -> None:
    write(f"{SESSION}.jsonl", [*TALK, said(7, "user", "Order 8, I mean.", 2), reply(8, SAY)])
    events = follow_threads(take().events)
    made = events.filter(pl.col("kind") == "model_call").group_by("conversation_id").len()
    assert sorted(made["len"]) == [1, 2]


def test_what_the_model_did_not_write_is_no_answer() -> None:
    (nothing,) = read(FAILED)
    assert (nothing["kind"], nothing["payload"]["tags"]) == ("request", ["api_error"])
    placed = reply(3, {"type": "text", "text": "[assistant turn failed before producing content]"}, stopReason="error")
    assert read(placed)[0]["kind"] == "request"
    (broken,) = read(reply(3, SAY, stopReason="error"))
    assert broken["payload"]["tags"] == ["api_error", "partial"]
    answer, stopped = read(reply(3, SAY, stopReason="aborted"))
    assert (answer["kind"], stopped["payload"]["name"]) == ("model_call", "interrupt")


@pytest.mark.parametrize(
    ("about", "status"),
    [
        ({"isError": False}, "ok"),
        ({"isError": True}, "failed"),
        ({"isError": False, "details": {"status": "error", "error": "ENOENT"}}, "failed"),
        ({"isError": False, "details": {"status": "completed", "exitCode": 1}}, "failed"),
        ({"isError": False, "details": {"status": "completed", "exitCode": 0}}, "ok"),
    ],
)
def test_how_a_call_ended(about: dict[str, Any], status: str) -> None:
    (result,) = read({**GAVE, "message": {**GAVE["message"], **about}})
    assert result["payload"]["status"] == status


def test_what_a_gateway_wrote_is_no_answer_and_what_it_passed_on_is_no_models() -> None:
    (told,) = read(reply(3, SAY, provider="openclaw", model="gateway-injected"))
    assert (told["kind"], told["payload"]["tags"]) == ("request", ["api_error"])
    (passed,) = read(reply(3, SAY, provider="openclaw", model="delivery-mirror"))
    assert (passed["kind"], passed["model"]) == ("model_call", None)


@pytest.mark.parametrize(
    ("written", "own"),
    [
        ("Where is it?", "Where is it?"),
        ('Conversation info (untrusted metadata):\n```json\n{"id": 1}\n```\n\nWhere is it?', "Where is it?"),
        ("System: [2026-10-01] WhatsApp gateway connected.\n\nWhere is it?", "Where is it?"),
        ("A new session was started via /new or /reset. Run your Session Startup sequence.", None),
        ("<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>\nIt is done.", None),
        ("Sender (untrusted metadata):\n```json\n{", None),
    ],
)
def test_what_a_person_wrote_is_apart_from_what_is_around_it(written: str, own: str | None) -> None:
    (event,) = read(said(2, "user", written))
    by_user = [m["content"] for m in event["payload"]["messages"] if m["role"] == "user"]
    assert by_user == ([] if own is None else [own])
    assert (len(event["payload"]["messages"]) == 1) == (own in (None, written))


def test_helpers_of_a_tool_are_conversations_of_their_own() -> None:
    messages = [{"role": "user", "content": "Look."}, {"role": "assistant", "content": [CALL]}]
    held = {**GAVE["message"], "details": {"results": [{"agent": "general", "messages": messages}]}}
    result, *helper = read({**GAVE, "message": held})
    assert (result["kind"], result["payload"]["content"], result["payload"]["threaded"]) == (
        "tool_result",
        "Lima",
        True,
    )
    assert {event["conversation_id"] for event in helper} == {"pi/agent/c1/0"}
    assert [event["kind"] for event in helper] == ["request", "model_call"]


@pytest.mark.parametrize(
    ("record", "told"),
    [
        (entry("custom_message", 5, customType="context", content="Be brief.", display=False), "Be brief."),
        (entry("branch_summary", 5, fromId="e1", summary="It failed."), "It failed."),
        (entry("message", 5, message={"role": "bashExecution", "command": "ls", "output": "a.py"}), "ls\na.py"),
        (entry("message", 5, message={"role": "bashExecution", "command": "ls", "excludeFromContext": True}), None),
        (entry("custom", 5, customType="state", data={}), None),
    ],
)
def test_what_a_program_puts_in_is_context(record: dict[str, Any], told: str | None) -> None:
    (event,) = read(record)
    messages = [] if told is None else [{"role": "system", "content": told}]
    assert (event["kind"], event["payload"]["messages"]) == ("request", messages)


def test_a_compaction_replaces_what_was_before_it() -> None:
    (event,) = read(entry("compaction", 5, summary="Order 7 was looked for.", firstKeptEntryId="e4", tokensBefore=9))
    assert event["payload"]["replaces_context"] is True
    assert event["payload"]["tags"] == ["compacted", "history_missing"]


def test_other_sessions_are_not_taken() -> None:
    droid = {
        "type": "message",
        "id": "1",
        "parentId": None,
        "timestamp": "t",
        "message": {"role": "user", "content": "x"},
    }
    assert READER.sniff(Sample("x.jsonl", [{"type": "session_start", "id": "s"}, droid])) == 0
    broken: list[Any] = [{"type": "message", "message": {}}, [], {"type": "session"}]
    for record in broken:
        with pytest.raises(BadRecordError):
            read(record)
