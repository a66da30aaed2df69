"""Exports of traces alone: what a trace was asked and answered, unless its calls are logged, also in another file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

TURNS = {"t1": ("Where is order 7?", "On its way."), "t2": ("And order 8?", "It arrives on Monday.")}
MINUTES = {"t1": "00", "t2": "10"}


def at(trace: str, second: int) -> str:
    return f"2026-10-01T09:{MINUTES[trace]}:{second:02}Z"


def langfuse(trace: str) -> dict[str, Any]:
    given, said = TURNS[trace]
    return {
        "id": trace, "timestamp": at(trace, 0), "name": "support", "user_id": "u1", "session_id": "conv-1",
        "release": "r1", "public": False, "tags": [], "input": given, "output": said, "environment": "production",
    }  # fmt: skip


def langsmith(trace: str) -> dict[str, Any]:
    given, said = TURNS[trace]
    return {
        "id": trace, "trace_id": trace, "parent_run_id": None, "dotted_order": f"20261001T090000Z{trace}",
        "name": "agent", "run_type": "chain", "start_time": at(trace, 0), "end_time": at(trace, 9), "status": "success",
        "inputs": {"question": given}, "outputs": {"output": said}, "prompt_tokens": 10, "completion_tokens": 4,
        "extra": {"metadata": {"thread_id": "conv-1"}},
    }  # fmt: skip


def weave(trace: str) -> dict[str, Any]:
    given, said = TURNS[trace]
    return {
        "id": f"c-{trace}", "op_name": "weave:///team/proj/op/answer:v1", "trace_id": trace, "parent_id": None,
        "thread_id": "conv-1", "started_at": at(trace, 0), "ended_at": at(trace, 9), "exception": None,
        "attributes": {}, "inputs": {"question": given}, "output": said,
        "summary": {"usage": {"m": {"prompt_tokens": 10, "completion_tokens": 4}}},
    }  # fmt: skip


def opik(trace: str) -> dict[str, Any]:
    given, said = TURNS[trace]
    return {
        "id": trace, "name": "agent", "start_time": at(trace, 0), "end_time": at(trace, 9), "thread_id": "conv-1",
        "input": {"question": given}, "output": {"output": said}, "metadata": {}, "error_info": None,
        "feedback_scores": None, "total_estimated_cost": 0.1, "span_count": 3, "llm_span_count": 2,
        "usage": {"prompt_tokens": 10, "completion_tokens": 4},
    }  # fmt: skip


def mlflow(trace: str) -> dict[str, Any]:
    given, said = TURNS[trace]
    return {
        "trace_id": f"tr-{trace}", "request_time": at(trace, 0), "state": "OK", "tags": {},
        "trace_metadata": {"mlflow.trace.session": "conv-1"}, "request": json.dumps({"question": given}),
        "response": json.dumps(said), "request_preview": "Where",
    }  # fmt: skip


def call_of(make: Callable[[str], dict[str, Any]], trace: str) -> dict[str, Any]:
    """A model call of a trace, as the same system logs it."""
    given, said = TURNS[trace]
    messages, times = [{"role": "user", "content": given}], (at(trace, 2), at(trace, 4))
    whole = {"choices": [{"finish_reason": "stop", "message": {"role": "assistant", "content": said}}]}
    row = {**make(trace), "id": f"m-{trace}", "trace_id": trace, "start_time": times[0], "end_time": times[1]}
    calls: dict[Any, dict[str, Any]] = {
        langfuse: {"type": "GENERATION", "input": messages, "output": whole["choices"][0]["message"]},
        langsmith: {"run_type": "llm", "parent_run_id": trace, "inputs": {"messages": messages}, "outputs": whole},
        weave: {"parent_id": f"c-{trace}", "attributes": {"weave": {"kind": "llm"}}, "inputs": {"messages": messages},
                "output": whole, "started_at": times[0], "ended_at": times[1]},
        opik: {"type": "llm", "input": {"messages": messages}, "output": whole},
        mlflow: {"spans": [{
            "span_id": "00000000000000aa", "parent_id": None, "name": "chat", "start_time_ns": 1790845202 * 10**9,
            "end_time_ns": 1790845204 * 10**9, "status_code": "OK",
            "attributes": {"mlflow.spanType": '"CHAT_MODEL"', "mlflow.spanInputs": json.dumps({"messages": messages}),
                           "mlflow.spanOutputs": json.dumps(whole)},
        }]},
    }  # fmt: skip
    return row | calls[make] | ({"trace_id": f"tr-{trace}"} if make is mlflow else {})


def said_in(steps: pl.DataFrame) -> list[tuple[str, str]]:
    """Return what each step heard last, and said."""
    rows = steps.sort("index").select("observation", "action").iter_rows()
    return [(json.loads(seen)[-1]["content"], json.loads(action)["content"]) for seen, action in rows]


SYSTEMS = [langfuse, langsmith, weave, opik, mlflow]


@pytest.mark.parametrize("make", SYSTEMS)
def test_a_session_of_traces_alone(
    make: Callable[[str], dict[str, Any]], take: Callable[..., Any], write: Callable[..., Path]
) -> None:
    write("traces.jsonl", [make("t2"), make("t1")])
    taken = take()
    assert (taken.quarantined.height, taken.adds_up()) == (0, True)
    episodes, steps = taken.built()
    assert episodes["conversation_id"].to_list() == ["conv-1"]
    assert said_in(steps) == list(TURNS.values())
    assert not steps["resets_context"].any()
    assert episodes["output_tokens"].to_list() == [None if make in (langfuse, mlflow) else 8]


@pytest.mark.parametrize("make", SYSTEMS)
@pytest.mark.parametrize("logged", ["t1", "t2"])
def test_a_trace_whose_calls_stand_in_another_file_is_told_once(
    make: Callable[[str], dict[str, Any]], logged: str, take: Callable[..., Any], write: Callable[..., Path]
) -> None:
    write("traces.jsonl", [make("t1"), make("t2")])
    write("calls.jsonl", [call_of(make, logged)])
    taken = take()
    episodes, steps = taken.built()
    assert episodes["conversation_id"].to_list() == ["conv-1"]
    assert said_in(steps)[0][0] == TURNS["t1"][0]
    assert [answer for _, answer in said_in(steps)] == [answer for _, answer in TURNS.values()]
    called = taken.events.filter(~pl.col("payload").str.contains('"summary":true'), pl.col("kind") == "model_call")
    assert called["event_id"].item() in steps["event_id"].to_list()


def test_what_a_program_hands_to_another_is_no_conversation(
    take: Callable[..., Any], write: Callable[..., Path]
) -> None:
    write("traces.jsonl", [{**make("t1"), "input": {"rows": 3}, "inputs": {"rows": 3}} for make in (langsmith,)])
    assert take().built()[1].is_empty()
