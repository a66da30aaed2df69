"""Weave: ops of any kind in any order, calls whose id is not their trace's, feedback of five kinds by URI."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from flywheel.config import EpisodesConfig
from flywheel.extensions import BadRecordError, Sample
from flywheel.funnel import Funnel
from flywheel.stages.conversations.episodes import build_episodes
from flywheel.stages.ingest.readers.tracers.weave import READER

FIXTURES = Path(__file__).parents[4] / "fixtures" / "weave"
CALL: dict[str, Any] = {
    "id": "c2", "project_id": "team/proj", "op_name": "weave:///team/proj/op/openai.chat.completions.create:v1",
    "trace_id": "t1", "parent_id": "c1", "thread_id": "conv-1", "started_at": "2026-10-01T09:00:01Z",
    "ended_at": "2026-10-01T09:00:03Z", "exception": None, "attributes": {"weave": {"kind": "llm"}, "release": "r7"},
    "inputs": {"model": "asked-for", "messages": [{"role": "user", "content": "Where is 7?"}], "temperature": 0.5},
    "output": {
        "id": "x1", "model": "served", "object": "chat.completion",
        "choices": [{"finish_reason": "stop", "message": {"role": "assistant", "content": "Here."}}],
    },
    "summary": {
        "usage": {"served": {"prompt_tokens": 10, "completion_tokens": 4}},
        "weave": {"status": "success", "costs": {"served": {"prompt_tokens_total_cost": 0.25, "requests": 1}}},
    },
}  # fmt: skip
TOOL: dict[str, Any] = {
    **CALL, "id": "c3", "op_name": "weave:///team/proj/op/Agent.find:v1", "attributes": {"weave": {"kind": "tool"}},
    "inputs": {"n": 7}, "output": "here", "summary": {},
}  # fmt: skip
FEEDBACK: dict[str, Any] = {
    "id": "f1", "project_id": "team/proj", "weave_ref": "weave:///team/proj/call/c1", "creator": None,
    "feedback_type": "wandb.reaction.1", "payload": {"emoji": "👎"}, "created_at": "2026-10-01T09:05:00Z",
}  # fmt: skip


def read(record: Any) -> list[dict[str, Any]]:
    return list(READER.read(record, 1))


def said(kind: str, payload: Any) -> list[dict[str, Any]]:
    aim = {"target", "target_id"}
    events = read({**FEEDBACK, "feedback_type": kind, "payload": payload})
    return [{k: v for k, v in e["payload"].items() if k not in aim} for e in events]


def test_a_model_call_of_a_thread() -> None:
    (event,) = read(CALL)
    assert (event["conversation_id"], event["policy"], event["model"]) == ("conv-1", "r7", "served")
    assert event["ids"] == ["trace:t1", "span:c2", "response:x1"]
    payload = event["payload"]
    assert payload["message"] == {"role": "assistant", "content": "Here."}
    assert payload["input"] == [{"role": "user", "content": "Where is 7?"}]
    shown = ("input_tokens", "output_tokens", "cost_usd", "latency_s", "finish_reason", "sampling")
    assert [payload[name] for name in shown] == [10, 4, 0.25, 2.0, "stop", {"temperature": 0.5}]


def test_older_calls_are_known_by_what_they_gave() -> None:
    assert read({**CALL, "attributes": {}})[0]["kind"] == "model_call"
    (other,) = read({**TOOL, "attributes": {}})
    assert (other["kind"], other["payload"]) == ("request", {"messages": []})
    assert read({**TOOL, "attributes": {"weave": {"kind": "scorer"}}}) == []


def test_a_tool_call_and_its_result() -> None:
    made, result = read(TOOL)
    assert (made["tool_name"], made["payload"]) == ("find", {"arguments": {"n": 7}})
    assert (result["payload"]["content"], result["payload"]["status"]) == ("here", "ok")


@pytest.mark.parametrize(
    "exception", ['{"type": "TimeoutError", "message": "db", "traceback": []}', "TimeoutError: db"]
)
def test_a_tool_that_failed(exception: str) -> None:
    payload = read({**TOOL, "output": None, "exception": exception})[1]["payload"]
    assert payload["content"] == "TimeoutError: db"
    assert (payload["status"], payload["error_type"]) == ("failed", "TimeoutError")


def test_langchain_writes_a_whole_run() -> None:
    message = {"lc": 1, "type": "constructor", "id": ["x", "AIMessage"], "kwargs": {"content": "Here."}}
    given = {"run_type": "llm", "name": "m", "inputs": {"messages": [[{"type": "human", "content": "Where is 7?"}]]}}
    gave = {"run_type": "llm", "name": "m", "outputs": {"generations": [[{"text": "Here.", "message": message}]]}}
    payload = read({**CALL, "inputs": given, "output": gave})[0]["payload"]
    assert (payload["message"]["content"], payload["input"][0]["content"]) == ("Here.", "Where is 7?")


def test_the_calls_of_an_evaluation_are_no_conversation() -> None:
    assert read({**CALL, "attributes": {"_weave_eval_meta": {}}}) == []
    assert read({**CALL, "op_name": "weave:///team/proj/op/Evaluation.evaluate:v1"}) == []


def test_feedback_names_its_target_by_a_uri() -> None:
    targets = {
        kind: [e["target"] for e in read({**FEEDBACK, "weave_ref": f"weave:///team/proj/{kind}/a%20b"})]
        for kind in ("call", "agent_span", "agent_turn", "agent_conversation", "object")
    }
    assert targets == {
        "call": ["span:a b"], "agent_span": ["span:a b"], "agent_turn": ["trace:a b"],
        "agent_conversation": ["session:a b"], "object": [],
    }  # fmt: skip


def test_what_feedback_says() -> None:
    assert said("wandb.reaction.1", {"emoji": "👍🏽"}) == [{"name": "thumbs", "label": "up", "annotator": "human"}]
    assert said("wandb.reaction.1", {"emoji": "🎉"}) == [{"name": "reaction", "label": "🎉", "annotator": "human"}]
    assert said("wandb.agent_user_feedback", {"emoji": "👎", "scorer_tags": ["👎", "slow"]})[1]["label"] == "slow"
    assert said("wandb.note.1", {"note": "no date"}) == [
        {"name": "comment", "comment": "no date", "annotator": "human"}
    ]
    assert said("wandb.annotation.tone", {"value": "poor"}) == [{"name": "tone", "label": "poor", "annotator": "human"}]
    assert said("wandb.runnable.Dates", {"output": {"passed": True, "reason": "has one"}}) == [
        {"name": "Dates.passed", "value": 1.0, "comment": "has one", "annotator": "code"}
    ]
    assert said("wandb.runnable.Dates", {"output": 0.5}) == [{"name": "Dates", "value": 0.5, "annotator": "code"}]
    assert said("correctness", {"value": 0.0}) == [{"name": "correctness", "value": 0.0}]


def test_feedback_that_came_with_its_call() -> None:
    summary = {**CALL["summary"], "weave": {"feedback": [FEEDBACK]}}
    _, event = read({**CALL, "summary": summary})
    assert (event["conversation_id"], event["target"]) == ("conv-1", "span:c1")


def test_what_is_neither_is_refused() -> None:
    others: list[Any] = [[], {"op_name": "x"}, {"weave_ref": "x"}]
    for other in others:
        with pytest.raises(BadRecordError):
            read(other)


def test_detection() -> None:
    assert READER.sniff(Sample("x.jsonl", [CALL, TOOL, FEEDBACK])) == 1
    assert READER.sniff(Sample("x.jsonl", [{"trace_id": "t", "inputs": {}, "id": "x"}])) == 0


def test_what_the_library_writes(take: Callable[..., Any]) -> None:
    taken = take(FIXTURES, root=FIXTURES)
    assert (taken.adds_up(), taken.quarantined.height) == (True, 0)
    episodes, steps = build_episodes(taken.events, EpisodesConfig(), Funnel())
    assert episodes.select("conversation_id", "n_steps", "n_tool_errors", "policy").rows() == [("conv-42", 3, 1, "r7")]
    assert steps.sort("index")["tool_status"].to_list() == [["ok"], [], ["failed"]]
    assert json.loads(steps.sort("index")["action"][1])["content"] == "It arrives on Monday."
    judged = taken.events.filter(pl.col("kind") == "feedback")
    assert judged["target"].n_unique() == 1
    assert any(judged["target"].item(0) in ids for ids in taken.events["ids"])


def of_langchain(op: str, kind: str | None, output: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return a call of LangChain's: its output is the run, with what it gave under `outputs`."""
    run = {"id": "r", "name": op, "run_type": "chain", "extra": {"metadata": {"thread_id": "conv-1"}}, **output}
    return {
        "id": f"c-{op}", "project_id": "team/proj", "op_name": f"weave:///team/proj/op/langchain.{op}:v1",
        "trace_id": "t1", "parent_id": "p1", "thread_id": None, "started_at": "2026-10-01T09:00:00Z",
        "ended_at": "2026-10-01T09:00:01Z", "attributes": {"weave": {"kind": kind}}, "inputs": {"id": 7},
        "output": run, "summary": {}, "exception": None, **more,
    }  # fmt: skip


def test_chains_of_langchain_are_neither_models_nor_tools() -> None:
    """Weave's client guesses their kind by what they return."""
    for kind in ("llm", "tool", None):
        (event,) = read(of_langchain("Chain.tools", kind, {"outputs": {"messages": []}}))
        assert (event["kind"], event["payload"]["messages"], event["conversation_id"]) == ("request", [], "conv-1")


def test_tools_of_langchain_give_their_message_or_their_error() -> None:
    message = {"_type": "ToolMessage", "_class_name": "ToolMessage", "content": "Monday", "tool_call_id": "c1"}
    gave = {"run_type": "tool", "outputs": {"output": message}}
    call, result = read(of_langchain("Tool.get_order", "tool", gave))
    assert (call["tool_name"], result["tool_call_id"], result["payload"]["content"]) == ("get_order", "c1", "Monday")
    failed = {"run_type": "tool", "outputs": None, "error": "ValueError('no order 8')"}
    _, result = read(of_langchain("Tool.get_order", "tool", failed))
    assert (result["payload"]["status"], result["payload"]["content"]) == ("failed", "ValueError('no order 8')")


def test_a_tool_that_returns_an_error_gives_all_of_it() -> None:
    _, result = read({**TOOL, "output": {"error": "no order 8", "code": 404}})
    assert json.loads(result["payload"]["content"]) == {"error": "no order 8", "code": 404}
