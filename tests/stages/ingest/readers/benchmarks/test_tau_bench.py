"""tau-bench: small records, and the real files with their known counts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from flywheel.extensions import BadRecordError
from flywheel.stages.ingest.readers.benchmarks.tau_bench import READER

RUN: dict[str, Any] = {
    "task_id": 0,
    "trial": 1,
    "reward": 0.0,
    "info": {"task": {"user_id": "mia", "actions": [{"name": "get_order", "kwargs": {"id": 7}}]}},
    "traj": [
        {"role": "system", "content": "policy"},
        {"role": "user", "content": "where is order 7?"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c", "type": "function", "function": {"name": "get_order", "arguments": '{"id":7}'}}],
        },
        {"role": "tool", "tool_call_id": "c", "name": "get_order", "content": "Error: order not found"},
        {"role": "assistant", "content": "Try later."},
    ],
}


def read(record: Any) -> list[dict[str, Any]]:
    return list(READER.read(record, 1))


def test_an_attempt_and_its_outcome() -> None:
    events = read(RUN)
    assert [e["kind"] for e in events] == ["request", "model_call", "tool_result", "model_call", "outcome"]
    assert events[2]["payload"] == {"content": "Error: order not found", "status": "failed"}
    assert events[-1]["payload"] == {"name": "reward", "value": 0.0, "scale": [0, 1], "source": "recorded"}
    assert len({e["conversation_id"] for e in events}) == 1
    assert all(e["task_key"].startswith("tau-bench/") and e["ts"] is None for e in events)


def test_equal_numbers_do_not_make_equal_tasks() -> None:
    other_task = RUN | {"info": {"task": {"user_id": "joe"}}}
    other_trial = RUN | {"trial": 2}
    other_words = RUN | {"traj": [*RUN["traj"][:4], {"role": "assistant", "content": "No."}]}
    task, trial, words, same = (read(r)[0] for r in (other_task, other_trial, other_words, dict(RUN)))
    first = read(RUN)[0]
    assert task["task_key"] != first["task_key"] == trial["task_key"] == words["task_key"]
    assert len({e["conversation_id"] for e in (first, task, trial, words, same)}) == 4


def test_without_a_task_the_domain_tells_numbers_apart() -> None:
    airline = {k: v for k, v in RUN.items() if k != "info"}
    retail = airline | {"traj": [{"role": "system", "content": "retail"}, *RUN["traj"][1:]]}
    assert read(airline)[0]["task_key"] != read(retail)[0]["task_key"]


def test_a_reward_without_the_demanded_calls_is_suspect() -> None:
    idle = RUN | {"reward": 1.0, "traj": [*RUN["traj"][:2], RUN["traj"][-1]]}
    unearned = idle | {"info": {"task": {"actions": [{"name": "get_order"}, {"name": "cancel_order"}]}}}
    assert read(unearned)[0]["payload"]["tags"] == ["suspect"]
    assert "tags" not in read(unearned | {"reward": 0.0})[0]["payload"]
    assert "tags" not in read(idle | {"info": {"task": {"actions": []}}})[0]["payload"], "nothing was demanded"


def test_a_crashed_run_is_an_attempt_that_failed_and_what_is_no_run_is_refused() -> None:
    crashed = read(RUN | {"traj": [], "info": {"error": "RateLimitError", "traceback": "..."}})
    assert [(e["kind"], e["payload"].get("tags"), e["payload"].get("value")) for e in crashed] == [
        ("request", ["ended_by_error"], None), ("outcome", None, 0.0),
    ]  # fmt: skip
    with pytest.raises(BadRecordError):
        read({"task_id": 0})


def test_the_airline_file_has_its_known_counts(tau_airline: Path, take: Any) -> None:
    taken = take(tau_airline, root=tau_airline.parent)
    assert (taken.read, taken.quarantined.height, dict(taken.ignored)) == (200, 0, {})
    events = taken.events
    assert events["event_id"].n_unique() == events.height
    assert events["conversation_id"].n_unique() == 200
    assert events["task_key"].n_unique() == 50
    rows = list(zip(events["kind"], taken.payloads(), strict=True))
    assert sum(k == "model_call" and "tool_calls" in p["message"] for k, p in rows) == 1164
    assert sum(k == "tool_result" and p["content"].startswith("Error") for k, p in rows) == 73
    assert sum(k == "tool_result" and p["status"] == "failed" for k, p in rows) == 73
    assert sum(k == "outcome" and p["value"] == 1 for k, p in rows) == 84
    assert sum("suspect" in p.get("tags", ()) for _, p in rows) == 2, "two lookups were demanded and not made"
    assert "@" not in json.dumps([p for _, p in rows]), "every address in these logs is replaced"
    assert taken.redacted["email"] > 0
    assert set(taken.redacted) == {"email"}, "flight, reservation and payment numbers stay as they are"


def test_the_suspect_file_is_flagged(tau_airline: Path, take: Any) -> None:
    folder = tau_airline.parent / "suspect"
    taken = take(folder, root=folder)
    assert taken.read == 50
    rewards = [p["value"] for p in taken.payloads() if p.get("name") == "reward"]
    assert (len(rewards), sum(rewards)) == (50, 44)
    assert not any("tool_calls" in p.get("message", {}) for p in taken.payloads())
    assert sum("suspect" in p.get("tags", ()) for p in taken.payloads()) == 38


def test_schemas_beside_the_logs_are_no_logs(tau_airline: Path, take: Any) -> None:
    taken = take(tau_airline.parent / "tools.airline.json", root=tau_airline.parent)
    assert (taken.events.height, taken.quarantined.height) == (0, 0)
    assert list(taken.ignored) == ["tool schemas"]
