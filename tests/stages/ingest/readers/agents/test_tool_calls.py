"""Logs of tools alone: what a call was given and gave, and the talk that another log has of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.stages.ingest.conftest import COUNTING

Write = Callable[..., Path]
Take = Callable[..., Any]
SESSION = {"session_id": "s1"}
ASKED = {**SESSION, "timestamp": "2026-10-01T09:00:00Z", "role": "user", "content": "Where is order 7?"}
ANSWERED = {**SESSION, "timestamp": "2026-10-01T09:00:05Z", "role": "assistant", "content": "It has shipped."}
CALLS = [{"id": "k1", "type": "function", "function": {"name": "get_order", "arguments": '{"id": 7}'}}]
CALLED = {**ASKED, "timestamp": "2026-10-01T09:00:01Z", "role": "assistant", "content": None, "tool_calls": CALLS}
RAN = {**SESSION, "timestamp": "2026-10-01T09:00:02Z", "tool": "get_order", "arguments": {"id": 7}, "result": "shipped"}


@pytest.mark.parametrize("talk", [[ASKED, ANSWERED], [ASKED, CALLED, ANSWERED]], ids=["words alone", "with the call"])
@pytest.mark.parametrize("own", [{}, {"request_id": "log-9"}], ids=["no id", "an id of its own"])
def test_a_log_of_tools_and_a_talk_that_name_their_session_alike_are_one(
    talk: list[Any], own: dict[str, Any], write: Write, take: Take
) -> None:
    write("chat.jsonl", talk)
    write("tools.jsonl", [{**RAN, **own}])
    episodes, steps = take(cfg=COUNTING).built()
    assert (episodes.height, episodes["n_tool_calls"].to_list()) == (1, [1]), "a call that both have counts once"
    first, second = steps.sort("index").iter_rows(named=True)
    assert json.loads(first["action"])["tool_calls"][0]["arguments"] == {"id": 7}
    assert [message["content"] for message in json.loads(second["observation"])] == ["shipped"]


def test_calls_that_name_no_session_are_of_their_day_and_file(write: Write, take: Take) -> None:
    rows = [
        {"ts": f"2026-10-0{day}T09:00:00Z", "tool": "track", "args": {"n": day}, "output": "x"} for day in (1, 1, 2)
    ]
    write("tool_calls.jsonl", rows)
    episodes, _ = take(cfg=COUNTING).built()
    assert sorted(episodes["n_tool_calls"].to_list()) == [1, 2], "equal calls are as many"
    assert all(name.endswith(("2026-10-01", "2026-10-02")) for name in episodes["conversation_id"])


def test_a_list_of_calls_next_to_an_answer_is_no_log_of_tools(write: Write, take: Take) -> None:
    run = {"meta": {"mode": "unit"}, "trace": [{"tool": "track", "args": {"n": 1}, "result": "at the depot"}]}
    assert take(write("a.jsonl", [run]), cfg=COUNTING).events["source_format"].unique().to_list() == ["tool_calls"]
    beside = take(write("b.jsonl", [{**run, "output": "Your parcel is at the depot."}]), cfg=COUNTING).events
    assert "tool_calls" not in beside["source_format"].to_list()


@pytest.mark.parametrize(
    "line",
    [{"ts": 1, "args": {"n": 1}, "output": "x"}, {"ts": 1, "tool": "track", "output": "x"}],
    ids=["no tool", "nothing given"],
)
def test_half_a_call_is_refused(line: dict[str, Any], write: Write, take: Take) -> None:
    rows = [{"ts": n, "tool": "track", "args": {"n": n}, "output": "x"} for n in range(4)]
    taken = take(write("tool_calls.jsonl", [*rows, line]), cfg=COUNTING)
    assert taken.quarantined["source_line"].to_list() == [5]
