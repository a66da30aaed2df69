"""SWE-agent runs: commands as text or as calls, demonstrations, a last step that only the trajectory tells."""

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
from flywheel.stages.ingest.readers.agents.swe_agent import READER

CALL = {"id": "c1", "type": "function", "function": {"name": "find_file", "arguments": '{"file_name": "a.py"}'}}
SYSTEM = {"role": "system", "content": "Use the shell.", "agent": "main", "message_type": "system_prompt"}
TASK = {"role": "user", "content": "Fix it.", "agent": "main", "message_type": "observation"}
NATIVE: list[dict[str, Any]] = [
    SYSTEM,
    TASK,
    {
        "role": "assistant", "content": "I look.", "thought": "I look.", "action": "find_file a.py", "agent": "main",
        "message_type": "action", "tool_calls": [CALL], "thinking_blocks": [{"type": "thinking", "thinking": "Hm."}],
    },
    {"role": "tool", "content": "Found 1", "agent": "main", "message_type": "observation", "tool_call_ids": ["c1"]},
]  # fmt: skip
STEPS = [
    {"action": "find_file a.py", "observation": "Found 1", "response": "I look.", "thought": "I look."},
    {"action": "submit\n", "observation": "diff --git a/a.py", "response": "Done.", "thought": "Done."},
]
REPLAY = json.dumps({"agent": {"model": {"name": "m-1"}}, "problem_statement": {"id": "acme__a-1"}})


def run(history: list[dict[str, Any]], steps: Any = (), **more: Any) -> dict[str, Any]:
    info = {"exit_status": "submitted", "swe_agent_version": "1.1.0"}
    return {"environment": "main", "trajectory": list(steps), "history": history, "info": info, **more}


def read(record: Any) -> list[dict[str, Any]]:
    return list(READER.read(record, 1))


def test_calls_results_and_the_step_that_only_the_trajectory_tells() -> None:
    events = read(run(NATIVE, STEPS, replay_config=REPLAY))
    assert [e["kind"] for e in events] == ["request", "model_call", "tool_result", "model_call", "tool_result"]
    assert events[1]["payload"]["message"] == {
        "role": "assistant", "content": "I look.", "reasoning": "Hm.",
        "tool_calls": [{"id": "c1", "name": "find_file", "arguments": {"file_name": "a.py"}}],
    }  # fmt: skip
    assert events[3]["payload"]["message"]["tool_calls"][0] | {"id": ""} == {
        "id": "",
        "name": "submit",
        "arguments": {},
    }
    assert [(e["tool_name"], e["payload"]["status"]) for e in events if e["kind"] == "tool_result"] == [
        ("find_file", "unknown"),
        ("submit", "ok"),
    ]
    assert {(e["conversation_id"], e["task_key"], e["model"], e["policy"]) for e in events} == {
        ("acme__a-1", "acme__a-1", "m-1", "swe-agent-1.1.0/m-1")
    }


def text_run() -> list[dict[str, Any]]:
    return [
        {"role": "system", "content": "Use the shell."},
        {"role": "user", "content": "One shot.", "is_demo": True},
        {"role": "assistant", "content": "shown ```\nls\n```", "action": "ls", "is_demo": True},
        {"role": "user", "content": "Fix it."},
        {"role": "assistant", "content": "I look.\n```\nopen a.py\n```", "action": "open a.py\n", "thought": "I look."},
        {"role": "user", "content": "Traceback (most recent call last)"},
        {"role": "assistant", "content": "Done.\n```\nsubmit\n```", "action": "submit", "thought": "Done."},
    ]


def test_a_demonstration_was_seen_and_a_command_in_text_is_a_call() -> None:
    steps = [{"action": "open a.py\n"}, {"action": "submit", "observation": "diff", "response": "Done."}]
    events = read(run(text_run(), steps))
    assert [e["kind"] for e in events] == ["request", "model_call", "tool_result", "model_call", "tool_result"]
    assert [m["role"] for m in events[0]["payload"]["messages"]] == ["system", "user", "assistant", "user"]
    message = events[1]["payload"]["message"]
    assert (message["content"], message["tool_calls"][0]["name"]) == ("I look.\n```\nopen a.py\n```", "bash")
    assert message["tool_calls"][0]["arguments"] == {"command": "open a.py"}
    assert [e["payload"]["status"] for e in events if e["kind"] == "tool_result"] == ["failed", "ok"]
    assert events[0]["conversation_id"].startswith("swe-agent/")


def test_a_run_that_was_not_submitted_says_so() -> None:
    record = run(NATIVE)
    record["info"]["exit_status"] = "exit_cost"
    assert read(record)[0]["payload"]["tags"] == ["not_submitted"]
    record["info"]["exit_status"] = "submitted (exit_cost)"
    assert "tags" not in read(record)[0]["payload"]


def test_only_a_history_is_enough_and_an_empty_one_gives_nothing() -> None:
    assert [e["kind"] for e in read({"history": NATIVE})] == ["request", "model_call", "tool_result"]
    assert read(run([])) == []
    (begun,) = read(run([], replay_config=REPLAY))
    assert (begun["task_key"], begun["payload"]) == ("acme__a-1", {"messages": []})
    broken: list[Any] = [[], {"trajectory": []}, {"history": "none"}]
    for record in broken:
        with pytest.raises(BadRecordError):
            read(record)


def test_detection_and_steps(tmp_path: Path, take: Callable[..., Any]) -> None:
    assert READER.sniff(Sample("a.traj", [{"history": [TASK]}])) == 1
    assert READER.sniff(Sample("a.json", [{"history": [{"role": "user", "content": "x"}]}])) == 0
    folder = tmp_path / "run-7" / "acme__a-1"
    folder.mkdir(parents=True)
    (folder / "acme__a-1.traj").write_text(json.dumps(run(NATIVE, STEPS, replay_config=REPLAY), indent=1), "utf-8")
    taken = take()
    assert (taken.read, taken.quarantined.height, taken.adds_up()) == (1, 0, True)
    episodes, steps = build_episodes(taken.events, EpisodesConfig(), Funnel())
    assert episodes["conversation_id"].to_list() == ["run-7/acme__a-1"]
    assert steps["tool_status"].to_list() == [["unknown"], ["ok"]]


def test_what_a_run_cost_is_told_at_its_end() -> None:
    record = run(NATIVE, STEPS, replay_config=REPLAY)
    stats = {"instance_cost": 0.25, "total_cost": 9.0, "tokens_sent": 40, "tokens_received": 8}
    record["info"]["model_stats"] = stats
    used = {"input_tokens": 40, "output_tokens": 8, "cost_usd": 0.25}
    assert read(record)[-1]["payload"]["usage_so_far"] == used
