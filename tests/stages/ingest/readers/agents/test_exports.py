"""Exports of systems without a reader of their own are read exactly, or refused: never with something wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from benchmarks.exports import EXPORTS
from benchmarks.shapes import counted
from benchmarks.shapes import write as written
from flywheel.funnel import Funnel
from flywheel.pipeline.build.registry import LINK_COLUMNS
from flywheel.stages.conversations.link import build_links, follow_links, told_once
from tests.stages.ingest.conftest import COUNTING

REFUSED = {
    "Bedrock Agents, traces of invocations",
    "CrewAI, a log of tasks",
    "ADK, an evaluation set",
    "OpenAI evals, a log of a run",
    "ToolBench, a search that found nothing",
    "A home-made log, with blocks as Python shows them",
    "NeMo Agent Toolkit, scopes that begin and end",
    "Claude's agent SDK, both sides of its stream",
    "Callbacks of LangChain without ids",
}


@pytest.mark.parametrize("key", EXPORTS, ids=lambda key: key[1])
def test_an_export_is_read_exactly_or_refused(key: tuple[int, str], tmp_path: Path, take: Callable[..., Any]) -> None:
    export = EXPORTS[key]()
    taken = take(written(tmp_path, export), cfg=COUNTING)
    assert taken.adds_up()
    if key[1] in REFUSED:
        assert not taken.quarantined.is_empty()
        return
    links = build_links(taken.events.select(LINK_COLUMNS), Funnel())
    events = told_once(follow_links(taken.events.lazy(), links)).collect()
    assert counted(events, *taken.built()) == sorted(export.told)


MONITORED = [{"event": "user_login", "message": "in", "ts": 1}, {"event": "agent_started", "message": "up", "ts": 2}]
CONTROLLED = [{"observation": [0.1], "action": [0.5, 1.0], "reward": 1.0, "done": n == 3} for n in range(4)]
PARTS = [{"id": "t", "log": [{"step": [{"role": "assistant", "content": "a"}]}] * 3}]
WEBHOOKS = [{"type": "user.created", "data": {"text": "x"}}, {"type": "agent.updated", "data": {"text": "y"}}]


@pytest.mark.parametrize("records", [MONITORED, CONTROLLED, PARTS, WEBHOOKS])
def test_what_is_no_chat_is_refused(records: list[Any], write: Callable[..., Path], take: Callable[..., Any]) -> None:
    taken = take(write("log.jsonl", records), cfg=COUNTING)
    assert (taken.events.height, taken.quarantined.is_empty()) == (0, False)


def test_a_record_with_a_readable_and_an_unreadable_chat_is_refused(
    write: Callable[..., Path], take: Callable[..., Any]
) -> None:
    """Half a record is worse than none: what one of its chats says would be missing without a word."""
    said = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]
    whole = {"id": "t1", "runs": [{"log": said}, {"log": [*said, {"role": "user", "content": "and?"}]}]}
    half = {"id": "t2", "runs": [{"log": said}, {"log": [*said * 4, {"role": "planner", "content": "p"}]}]}
    taken = take(write("log.jsonl", [*[whole] * 3, half]), cfg=COUNTING)
    assert taken.events["source_line"].unique().to_list() == [1, 2, 3]
    assert taken.quarantined["detail"].to_list() == ["runs[].log: a message has no known role"]


TALK = [{"role": "user", "content": "Where is it?"}, {"role": "assistant", "content": "On its way to the depot."}]
ROWS = [
    {
        "id": n,
        "customer_request": f"Where is my parcel {n}, please?",
        "response": f"Parcel {n} is late.",
        "action": "Looked up",
    }
    for n in range(3)
]
BESIDE = {"conversation": TALK, "final_answer": "The parcel has been at the depot since noon."}
WITHIN = {
    "dialog": [
        *TALK,
        {"role": "user", "content": "Since when?", "tool_output": {"observation": "since noon, it says there"}},
    ]
}
COPIED = {
    "conversation": TALK,
    "result": {"final_answer": " On its way\nto the depot."},
    "expected_answer": "At the depot, since noon.",
}


@pytest.mark.parametrize(
    ("records", "place"),
    [
        (ROWS, "customer_request"),
        ([BESIDE], "final_answer"),
        ([WITHIN], "dialog[].tool_output.observation"),
        ([COPIED], ""),
    ],
)
def test_what_is_said_beside_what_is_read_refuses_the_record(
    records: list[Any], place: str, write: Callable[..., Path], take: Callable[..., Any]
) -> None:
    taken = take(write("log.jsonl", records), cfg=COUNTING)
    refused = [f"{place} has words of the talk that would not be read with the rest"] if place else []
    assert taken.quarantined["detail"].unique().to_list() == refused if refused else taken.quarantined.is_empty()
    assert (taken.events.height > 0, taken.adds_up()) == (not refused, True)


def test_a_number_alone_is_the_score_of_what_is_in_its_folder(tmp_path: Path, take: Callable[..., Any]) -> None:
    for task in ("a", "b"):
        (tmp_path / task).mkdir()
        (tmp_path / task / "reward.txt").write_text("1.0\n")  # the same in both
        steps = [{"action": f"click({task})", "response": "I click.", "screenshot_file": "1.png"}]
        (tmp_path / task / "traj.jsonl").write_text("".join(json.dumps(step) + "\n" for step in steps))
    taken = take(cfg=COUNTING)
    links = build_links(taken.events.select(LINK_COLUMNS), Funnel())
    events = told_once(follow_links(taken.events.lazy(), links)).collect()
    outcomes = [told.outcomes for told in counted(events, *taken.built())]
    assert outcomes == [(1.0,), (1.0,)]


ASKED = {"role": "user", "content": "Where is it?"}
CALLED = {"tool": "track", "arguments": {"parcel": 7}}


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ({"note": {"api": "track", "params": {"parcel": 7}}}, "note has a call that would not be read with the rest"),
        ({"by": "planner", "message": "First we look at the depot."}, "message has words of the talk"),
    ],
)
def test_a_line_between_messages_that_holds_a_call_or_words_is_refused(
    line: dict[str, Any], reason: str, write: Callable[..., Path], take: Callable[..., Any]
) -> None:
    """It was passed over as "nothing of an agent" before, and the chat around it was stored without it."""
    taken = take(write("log.jsonl", [*[ASKED, TALK[1]] * 8, line]), cfg=COUNTING)
    assert taken.quarantined["detail"].to_list() == [reason] or reason in taken.quarantined["detail"].to_list()[0]


def test_a_call_in_another_place_than_where_calls_are_read_refuses_the_record(
    write: Callable[..., Path], take: Callable[..., Any]
) -> None:
    """Whatever reads a chat: half of it, without its calls, would pass for the whole."""
    beside = {"messages": TALK, "tool_trace": [CALLED]}
    taken = take(write("log.jsonl", [beside]), cfg=COUNTING)
    assert taken.quarantined["detail"].to_list() == ["tool_trace[] has a call that would not be read with the rest"]


def test_rewards_of_steps_in_a_file_add_up(write: Callable[..., Path], take: Callable[..., Any]) -> None:
    """They were refused before, and the file with them: records are read one by one."""
    steps = [{"action": f"go({n})", "observation": "a room", "reward": float(n > 0), "done": n == 2} for n in range(3)]
    taken = take(write("log.json", steps), cfg=COUNTING)
    assert [(row["value"], row["adds"]) for row in taken.payloads() if "value" in row] == [(1.0, True), (1.0, True)]
    assert taken.quarantined.is_empty()


WRITTEN = {
    "Thought: look.\nAction: track\nAction Input: parcel 7": ("track", {"input": "parcel 7"}),
    "Action: track[7]": ("track", {"input": "7"}),
    "Thought: look.\nAction: track(parcel=7, fast=True)": ("track", {"parcel": 7, "fast": True}),
    "Action: track | parcel=7 | where=depot": ("track", {"parcel": "7", "where": "depot"}),
    'I look.\n```json\n{"tool": "track", "args": {"parcel": 7}}\n```': ("track", {"parcel": 7}),
    '{"thought": "look", "action": "track", "action_input": {"parcel": 7}}': ("track", {"parcel": 7}),
    "<track>parcel 7</track>": ("track", {"input": "parcel 7"}),
    "Action: Click [7]; twice": ("action", {"action": "Click [7]; twice"}),
}  # fmt: skip


@pytest.mark.parametrize("words", WRITTEN, ids=lambda words: words.splitlines()[-1][:20])
def test_a_call_in_words_that_an_observation_answers_is_a_call(
    words: str, write: Callable[..., Path], take: Callable[..., Any]
) -> None:
    seen = {"role": "user", "content": "Observation: at the depot"}
    chat = [ASKED, *[{"role": "assistant", "content": words}, seen] * 2, TALK[1]]
    taken = take(write("log.jsonl", [{"dialog": chat, "id": "t"}]), cfg=COUNTING)
    calls = [call for row in taken.payloads() for call in row.get("message", {}).get("tool_calls", ())]
    assert [(call["name"], call["arguments"]) for call in calls] == [WRITTEN[words]] * 2
    assert [row["content"] for row in taken.payloads() if "content" in row] == ["at the depot"] * 2


@pytest.mark.parametrize(
    "other",
    [
        {"role": "assistant", "content": "Action: track[7] or wait"},
        {"role": "assistant", "content": "I wait."},
        {"role": "assistant", "content": "Action: track\nAction Input: 7"},
    ],
)
def test_calls_in_words_stay_words_where_their_form_is_not_the_same_throughout(
    other: dict[str, Any], write: Callable[..., Path], take: Callable[..., Any]
) -> None:
    seen = {"role": "user", "content": "Observation: at the depot"}
    chat = [ASKED, {"role": "assistant", "content": "Action: track[7]"}, seen, other, seen, TALK[1]]
    taken = take(write("log.jsonl", [{"dialog": chat, "id": "t"}]), cfg=COUNTING)
    made = [row["message"] for row in taken.payloads() if "message" in row]
    assert [message.get("content") for message in made if not message.get("tool_calls")]
    assert len({bool(message.get("tool_calls")) for message in made[:2]}) == 1
