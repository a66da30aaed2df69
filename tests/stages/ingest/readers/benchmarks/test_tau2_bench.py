"""tau2-bench runs: many simulations in one object, a greeting nobody generated, tools that the user calls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import polars as pl
import pytest
from flywheel.extensions import BadRecordError, Sample
from flywheel.stages.ingest.readers.benchmarks.tau2_bench import READER
from tests.stages.ingest.formats import samples

CALL = {"id": "c1", "name": "get_order", "arguments": {"id": 7}, "requestor": "assistant"}
USER_CALL = {"id": "u1", "name": "restart_phone", "arguments": {}, "requestor": "user"}
TURNS: list[dict[str, Any]] = [
    {"role": "assistant", "content": "Hi! How can I help?", "tool_calls": None, "usage": None, "cost": 0.0},
    {"role": "user", "content": "Where is order 7?", "timestamp": "2026-10-01T09:00:00"},
    {
        "role": "assistant", "content": None, "tool_calls": [CALL], "timestamp": "2026-10-01T09:00:01", "cost": 0.5,
        "usage": {"prompt_tokens": 10, "completion_tokens": 4},
    },
    {"role": "tool", "id": "c1", "content": "not found", "requestor": "assistant", "error": True},
    {"role": "user", "content": None, "tool_calls": [USER_CALL]},
    {"role": "tool", "id": "u1", "content": "restarted", "requestor": "user", "error": False},
    {"role": "assistant", "content": "Try later."},
]  # fmt: skip
SIMULATION: dict[str, Any] = {
    "id": "sim-1", "task_id": "12", "trial": 0, "termination_reason": "user_stop", "messages": TURNS,
    "reward_info": {"reward": 0.0}, "end_time": "2026-10-01T09:00:05",
}  # fmt: skip
RUN: dict[str, Any] = {
    "info": {
        "agent_info": {"implementation": "llm_agent", "llm": "qwen3-8b"},
        "environment_info": {"domain_name": "retail", "policy": "Be kind."},
    },
    "tasks": [{"id": "12"}],
    "simulations": [SIMULATION],
}


def read(record: Any) -> list[dict[str, Any]]:
    return list(READER.read(record, 1))


def run_of(**changed: Any) -> dict[str, Any]:
    return {**RUN, "simulations": [{**SIMULATION, **changed}]}


def test_a_simulation_is_a_conversation_of_the_agents_policy() -> None:
    events = read(RUN)
    assert {(e["policy"], e["model"], e["task_key"]) for e in events} == {
        ("llm_agent/qwen3-8b", "qwen3-8b", "tau2/retail/12")
    }
    assert [e["kind"] for e in events] == ["request", "model_call", "tool_result", "model_call", "outcome"]
    assert [e["seq"] for e in events] == sorted({e["seq"] for e in events})


def test_the_greeting_is_seen_not_made() -> None:
    seen = read(RUN)[0]["payload"]["messages"]
    assert [m["role"] for m in seen] == ["system", "assistant", "user"]


def test_what_a_turn_says_of_itself_stays_with_it() -> None:
    call = read(RUN)[1]
    assert call["ts"].isoformat() == "2026-10-01T09:00:01+00:00"
    assert {k: v for k, v in call["payload"].items() if k != "message"} == {
        "input_tokens": 10, "output_tokens": 4, "cost_usd": 0.5,
    }  # fmt: skip
    assert call["payload"]["message"]["tool_calls"][0]["arguments"] == {"id": 7}


def test_a_users_tools_are_not_the_agents() -> None:
    results = [e for e in read(RUN) if e["kind"] == "tool_result"]
    assert [(e["tool_call_id"], e["tool_name"], e["payload"]["status"]) for e in results] == [
        ("c1", "get_order", "failed")
    ]
    assert "restart" not in str(read(RUN))


def test_several_results_in_one_message() -> None:
    second = {**CALL, "id": "c2"}
    told = [{"role": "tool", "id": i, "content": "ok", "requestor": "assistant", "error": False} for i in ("c1", "c2")]
    turns = [TURNS[1], {**TURNS[2], "tool_calls": [CALL, second]}, {"role": "tool", "tool_messages": told}]
    results = [e for e in read(run_of(messages=turns)) if e["kind"] == "tool_result"]
    assert [(e["tool_call_id"], e["payload"]["status"]) for e in results] == [("c1", "ok"), ("c2", "ok")]


def solo(**changed: Any) -> dict[str, Any]:
    """A run of solo mode: a ticket instead of a user, and the user's tools in the agent's hands."""
    (sample,) = (s for s in samples()["tau2_bench"] if s.shape == "solo")
    run = sample.records[0]
    return {**run, "simulations": [{**run["simulations"][0], **changed}]}


def test_in_solo_mode_all_calls_are_the_agents() -> None:
    events = read(solo())
    assert [e["kind"] for e in events] == [
        "request", "model_call", "tool_result", "model_call", "tool_result", "model_call", "outcome",
    ]  # fmt: skip
    asked = events[0]["payload"]["messages"]
    assert [m["role"] for m in asked] == ["system", "user"]
    assert asked[1]["content"].startswith("Mobile data does not work.")
    calls = [c["name"] for e in events for c in e["payload"].get("message", {}).get("tool_calls", ())]
    assert calls == ["get_customer_by_phone", "toggle_airplane_mode"]
    assert [e["tool_name"] for e in events if e["kind"] == "tool_result"] == calls
    assert sum(e["payload"].get("cost_usd", 0) for e in events) == pytest.approx(0.03)


def test_a_simulations_cost_counts_where_its_messages_have_none() -> None:
    turns = [{k: v for k, v in turn.items() if k != "cost"} for turn in solo()["simulations"][0]["messages"]]
    assert read(solo(messages=turns))[0]["payload"]["usage_so_far"] == {"cost_usd": 0.03}
    assert "usage_so_far" not in read(solo())[0]["payload"]


def test_where_nobody_speaks_for_the_agent_the_users_calls_are_its_own() -> None:
    turns = [TURNS[1], TURNS[4], TURNS[5]]
    kinds = [e["kind"] for e in read(run_of(messages=turns))]
    assert kinds == ["request", "model_call", "tool_result", "outcome"]


def test_the_history_that_a_task_begins_with_is_seen_not_made() -> None:
    given = [TURNS[2], TURNS[3]]
    run = {**run_of(messages=[*given, TURNS[6]]), "tasks": [{"id": "12", "initial_state": {"message_history": given}}]}
    events = read(run)
    assert [m["role"] for m in events[0]["payload"]["messages"]] == ["system", "assistant", "tool"]
    assert [e["kind"] for e in events] == ["request", "model_call", "outcome"]


def test_a_simulation_that_never_began_is_an_attempt_that_failed() -> None:
    events = read(run_of(messages=[]))
    assert [e["kind"] for e in events] == ["request", "outcome"]
    assert events[-1]["payload"]["value"] == 0


@pytest.mark.parametrize("reason", ["infrastructure_error", "user_error"])
def test_a_failure_that_is_not_the_agents_is_no_outcome(reason: str) -> None:
    assert read(run_of(termination_reason=reason))[-1]["kind"] == "model_call"


def test_what_is_empty_gives_nothing_and_what_is_no_run_is_refused() -> None:
    assert read(run_of(messages=None, ticks=[{}])) == []  # of voice
    assert read(run_of(messages=None, mode="full_duplex")) == []
    assert read({**RUN, "simulations": []}) == []
    others: list[Any] = [[], {"simulations": {}}, run_of(messages=[{"role": "wizard"}])]
    for other in others:
        with pytest.raises(BadRecordError):
            read(other)


def test_detection() -> None:
    assert READER.sniff(Sample("run.json", [RUN])) == 1
    assert READER.sniff(Sample("run.json", [{"simulations": []}])) == 0


@pytest.mark.e2e
def test_the_real_runs_have_their_known_counts(real: Callable[[str], Any]) -> None:
    taken = real("tau2-bench")
    assert (taken.read, taken.quarantined.height) == (27, 0)
    events = taken.events
    assert events["conversation_id"].n_unique() == 484
    assert events["policy"].n_unique() == 11
    assert events["task_key"].n_unique() == 50
    outcomes = events.filter(pl.col("kind") == "outcome")
    rewards = outcomes.select("task_key", won=pl.col("payload").str.json_path_match("$.value").cast(pl.Float64) >= 1)
    tasks = rewards.group_by("task_key").agg(won=pl.col("won").sum(), n=pl.len())
    mixed = tasks.filter((pl.col("won") > 0) & (pl.col("won") < pl.col("n")))
    assert (mixed.height, (mixed["won"].cast(pl.Int64) * (mixed["n"] - mixed["won"]).cast(pl.Int64)).sum()) == (46, 776)
    statuses = Counter(p["status"] for p in taken.payloads() if "status" in p)
    assert statuses["ok"] == 3498
    assert statuses["failed"] >= 125
