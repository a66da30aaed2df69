"""Chats of a help desk: who speaks under its words, calls beside the words, and what customers thought."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from flywheel.extensions import Sample
from flywheel.stages.ingest.readers.agents.transcripts import READER as TRANSCRIPTS
from tests.stages.ingest.conftest import COUNTING, calls

Write = Callable[..., Path]
Take = Callable[..., Any]
ACTIONS = [{"tool": "lookup_order", "input": {"id": 7}, "output": {"state": "shipped"}}]


@pytest.mark.parametrize(
    ("who", "what", "agent"),
    [
        ("author", "body", "ai_agent"), ("author", "body", "assistant"), ("sender", "text", "bot"),
        ("role", "content", "assistant"), ("from", "message", "virtual_agent"),
    ],
)  # fmt: skip
def test_actions_beside_the_words_are_calls(who: str, what: str, agent: str, write: Write, take: Take) -> None:
    messages = [{who: "customer", what: "Where is my order 7?"}, {who: agent, what: "Let me see.", "actions": ACTIONS},
                {who: agent, what: "It has shipped."}]  # fmt: skip
    taken = take(write("a.jsonl", [{"ticket_id": "T1", "messages": messages}]), cfg=COUNTING)
    assert sorted(taken.events["kind"]) == ["model_call"] * 3 + ["request", "tool_result"]
    assert taken.ignored == {}


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("csat", 5, 5.0),
        ("userRating", 2, 2.0),
        ("customer_satisfaction", {"score": 4, "comment": "ok"}, 4.0),
        ("thumbs_up", True, 1.0),
        ("bleu_score", 0.4, None),  # a measure
        ("rate", 0.4, None),  # of whatever
        ("stars_of_repository", 900, None),
    ],
)
def test_what_a_customer_thought_of_a_chat_is_feedback(
    field: str, value: Any, expected: float | None, write: Write, take: Take
) -> None:
    talk = [{"role": "user", "content": "Where is my order 7?"}, {"role": "assistant", "content": "It has shipped."}]
    events = take(write("a.jsonl", [{"chat": "c1", "turns": talk, field: value}]), cfg=COUNTING).events
    given = [json.loads(payload)["value"] for payload in events.filter(kind="feedback")["payload"]]
    assert given == ([] if expected is None else [expected])


def test_calls_on_which_nobody_spoke_stop_no_page_of_calls(write: Write, take: Take) -> None:
    """Vapi's, of which some never connected."""
    said = [{"role": "bot", "message": "Hello?"}, {"role": "user", "message": "Where is order 7?"},
            {"role": "bot", "message": "It has shipped."}]  # fmt: skip
    costs = [
        {"type": "transcriber", "transcriber": {"model": "nova"}},
        {"type": "model", "model": {"model": "gpt-4o-mini"}},
    ]
    rows = [{"id": f"c{n}", "endedReason": "sip-failed"} | ({} if n % 3 else {"messages": said, "costs": costs})
            for n in range(9)]  # fmt: skip
    taken = take(write("a.jsonl", rows), cfg=COUNTING)
    assert (taken.quarantined.height, sum(taken.ignored.values())) == (0, 6)
    assert taken.events["conversation_id"].n_unique() == 3
    assert set(taken.events["model"]) == {"gpt-4o-mini"}


def test_the_name_of_an_agent_is_no_words_of_its_own(write: Write, take: Take) -> None:
    turn = {"timestamp": "2026-10-01T09:00:00", "message": "Where is order 7?", "response": "It has shipped."}
    named = [{**turn, "agent": "Ticket Query Specialist"}, {**turn, "agent": "Let me look that up for you."}]
    kept, refused = (take(write("a.jsonl", [row]), cfg=COUNTING) for row in named)
    assert kept.events.height > 0
    assert refused.events.is_empty()


N8N = (
    '[Used tools: Tool: find_order, Input: {"id":7}, Result: [{"state":"[shipped]"}]; '
    "Tool: notes, Input: {}, Result: none [of it] is late] It has shipped [today]."
)


@pytest.mark.parametrize(("words", "made", "gave", "said"), [
    (N8N, [("find_order", {"id": 7}), ("notes", {})], ['[{"state":"[shipped]"}]', "none [of it] is late"],
     "It has shipped [today]."),
    ("[Used tools: Tool: notes, Input: {}, Result: cut", [], [], "[Used tools: Tool: notes, Input: {}, Result: cut"),
    ("[Used tools: many] are mine.", [], [], "[Used tools: many] are mine."),
])  # fmt: skip
def test_tools_that_n8ns_memory_writes_before_an_answer_are_calls(
    words: str, made: list[Any], gave: list[str], said: str, write: Write, take: Take
) -> None:
    rows = [{"id": n, "session_id": "s1", "message": {"type": kind, "content": content, "tool_calls": []}}
            for n, (kind, content) in enumerate([("human", "Where is order 7?"), ("ai", words)])]  # fmt: skip
    taken = take(write("a.jsonl", rows), cfg=COUNTING)
    assert calls(taken) == made
    results = taken.events.filter(kind="tool_result")["payload"]
    assert [json.loads(result)["content"] for result in results] == gave
    assert [p["message"]["content"] for p in taken.payloads() if p.get("message", {}).get("content")] == [said]


def test_thoughts_next_to_calls_that_no_words_follow_are_theirs(write: Write, take: Take) -> None:
    called = [{"id": "c1", "name": "find_order", "arguments": {"id": 7}, "status": "success", "response": "shipped"}]
    thought = "**Looking it up**, as the user asked me to do."
    rows = [{"id": "m1", "thread_id": "t1", "role": "user", "content": "Where is order 7?"},
            {"id": "m2", "thread_id": "t1", "role": "assistant", "content": "", "thinking": thought,
             "tool_calls": called}]  # fmt: skip
    (said,) = [p["message"] for p in take(write("a.jsonl", rows), cfg=COUNTING).payloads() if "message" in p]
    assert (said["reasoning"], said["tool_calls"][0]["name"]) == (thought, "find_order")


def test_a_sessions_own_lines_have_ratings_and_tokens(write: Write, take: Take) -> None:
    base = {"session": "s1"}
    rows: list[dict[str, Any]] = [
        {**base, "event": "user_message", "text": "Where is order 7?"},
        {**base, "event": "llm_call", "model": "m", "prompt_tokens": 10, "completion_tokens": 5},
        {**base, "event": "llm_call", "model": "m", "prompt_tokens": 20, "completion_tokens": 6},
        {**base, "event": "assistant_message", "text": "It has shipped."},
        {**base, "event": "feedback", "rating": "up"},
        {**base, "event": "session_metrics", "input_tokens": 30, "output_tokens": 11, "total_cost_usd": 0.2},
    ]
    taken = take(write("a.jsonl", [{"ts": 1760000000 + n, **row} for n, row in enumerate(rows)]), cfg=COUNTING)
    (given,) = taken.events.filter(kind="feedback")["payload"]
    assert json.loads(given) == {"label": "up", "name": "rating"}
    episodes, _ = taken.built()
    assert episodes.select("input_tokens", "output_tokens", "cost_usd").row(0) == (30, 11, 0.2)


def test_a_listed_call_that_cannot_be_read_fails_no_detection() -> None:
    for role in (3, "", None):
        record = {
            "calls": [{"messages": [{"role": role, "content": "a"}], "response": {"role": "assistant", "content": "b"}}]
        }
        assert 0 <= TRANSCRIPTS.sniff(Sample("x.jsonl", [record])) <= 1
