"""Opik: files of one trace each, results under `output`, scores of several authors, traces that judges made."""

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
from flywheel.stages.ingest.readers.tracers.opik import READER

FIXTURES = Path(__file__).parents[4] / "fixtures" / "opik"
NEVER = {"error_info": None, "feedback_scores": None, "total_estimated_cost": None}
TRACE: dict[str, Any] = {
    **NEVER, "id": "t1", "name": "agent", "start_time": "2026-10-01 09:00:00+00:00", "thread_id": "conv-1",
    "end_time": "2026-10-01 09:00:05+00:00", "input": {"question": "Where is 7?"}, "output": {"output": "Here."},
    "metadata": {"release": "r7"}, "source": "sdk", "experiment": None, "span_count": 2,
}  # fmt: skip
CALL: dict[str, Any] = {
    **NEVER, "id": "s2", "trace_id": "t1", "parent_span_id": "s1", "name": "chat", "type": "llm", "model": "asked-for",
    "start_time": "2026-10-01 09:00:01+00:00", "end_time": "2026-10-01 09:00:03+00:00", "total_estimated_cost": 0.25,
    "input": {"messages": [{"role": "user", "content": "Where is 7?"}]},
    "output": {"choices": [{"finish_reason": "stop", "message": {"role": "assistant", "content": "Here."}}]},
    "metadata": {
        "created_from": "openai", "id": "x1", "model": "served", "temperature": 0.5,
        "tools": [{"type": "function", "function": {"name": "find"}}],
    },
    "usage": {"prompt_tokens": 10, "completion_tokens": 4},
}  # fmt: skip
TOOL: dict[str, Any] = {
    **NEVER, "id": "s3", "trace_id": "t1", "parent_span_id": "s1", "name": "find", "type": "tool", "input": {"n": 7},
    "start_time": "2026-10-01 09:00:03+00:00", "end_time": "2026-10-01 09:00:04+00:00", "output": {"output": "here"},
}  # fmt: skip
SCORE = {"name": "user_feedback", "value": 0.0, "reason": "no date", "source": "ui", "category_name": None}


def export(*spans: dict[str, Any], **trace: Any) -> dict[str, Any]:
    return {"trace": {**TRACE, **trace}, "spans": list(spans), "attachments": []}


def read(record: Any) -> list[dict[str, Any]]:
    return list(READER.read(record, 1))


def test_a_model_span_is_a_call_of_the_traces_thread() -> None:
    place, event = read(export(CALL))
    assert (place["kind"], place["payload"]) == ("request", {"messages": []})
    assert (event["conversation_id"], event["policy"], event["model"]) == ("conv-1", "r7", "served")
    assert event["ids"] == ["trace:t1", "span:s2", "response:x1"]
    assert event["ts"].isoformat() == "2026-10-01T09:00:01+00:00"
    payload = event["payload"]
    assert payload["message"] == {"role": "assistant", "content": "Here."}
    assert payload["input"] == [{"role": "user", "content": "Where is 7?"}]
    shown = ("input_tokens", "output_tokens", "cost_usd", "latency_s", "finish_reason", "sampling")
    assert [payload[name] for name in shown] == [10, 4, 0.25, 2.0, "stop", {"temperature": 0.5}]
    assert payload["tools"][0]["function"]["name"] == "find"


def test_a_tool_span_is_a_call_and_a_result() -> None:
    made, result = read(export(CALL, TOOL))[2:]
    assert (made["tool_name"], made["payload"]) == ("find", {"arguments": {"n": 7}})
    assert (result["payload"]["content"], result["payload"]["status"]) == ("here", "ok")
    error = {"exception_type": "TimeoutError", "message": "db timeout", "traceback": "..."}
    payload = read(export(CALL, {**TOOL, "output": None, "error_info": error}))[3]["payload"]
    assert (payload["status"], payload["error_type"]) == ("failed", "TimeoutError")
    assert payload["content"] == "TimeoutError: db timeout"


def test_a_span_that_never_ended_has_no_result() -> None:
    assert [e["kind"] for e in read(export(CALL, {**TOOL, "output": None, "end_time": None}))[2:]] == ["tool_call"]


def test_without_a_model_span_the_trace_is_all_there_is() -> None:
    events = sorted(read(export(TOOL)), key=lambda event: event["seq"])
    assert [e["kind"] for e in events] == ["request", "tool_call", "tool_result", "model_call"]
    assert events[0]["payload"]["messages"] == [{"role": "user", "content": "Where is 7?"}]
    assert events[-1]["payload"]["message"]["content"] == "Here."


def test_rows_of_the_api_are_joined_by_their_trace() -> None:
    (trace,) = read({**TRACE, "input": {"rows": 3}})
    assert (trace["kind"], trace["payload"], trace["conversation_id"]) == ("request", {"messages": []}, "conv-1")
    (span,) = read(CALL)
    assert span["conversation_id"] == "t1"
    assert trace["ids"] == ["trace:t1"]
    assert [e["kind"] for e in read({**TRACE, "llm_span_count": 0})] == ["request", "model_call"]


def test_scores_of_a_trace_and_of_a_span() -> None:
    judged = {**CALL, "feedback_scores": [{**SCORE, "source": "online_scoring", "category_name": "poor"}]}
    of_trace, of_span = (e for e in read(export(judged, feedback_scores=[SCORE])) if e["kind"] == "feedback")
    assert of_trace["target"] == "trace:t1"
    assert of_trace["payload"] == {
        "name": "user_feedback", "value": 0.0, "comment": "no date", "target": "trace", "target_id": "t1",
        "annotator": "human",
    }  # fmt: skip
    assert (of_span["target"], of_span["payload"]["annotator"]) == ("span:s2", "llm")
    assert of_span["payload"]["label"] == "poor"


def test_each_author_counts() -> None:
    by = {
        "ann": {"value": 1.0, "source": "ui", "last_updated_at": "2026-10-01T09:05:00Z"},
        "bot": {"value": 0.0, "source": "online_scoring", "reason": "curt"},
    }
    events = read(export(CALL, feedback_scores=[{**SCORE, "value": 0.5, "value_by_author": by}]))
    said = [e["payload"] for e in events if e["kind"] == "feedback"]
    assert [(p["value"], p["annotator"], p["comment"]) for p in said] == [
        (1.0, "human", "no date"), (0.0, "llm", "curt"),
    ]  # fmt: skip


def test_comments_and_tasks() -> None:
    comment = {"text": "no date", "created_at": "2026-10-01T09:05:00Z"}
    events = read(export(CALL, comments=[comment], experiment={"dataset_item_id": "item-5"}))
    said = next(e for e in events if e["kind"] == "feedback")
    assert (said["payload"]["name"], said["payload"]["comment"]) == ("comment", "no date")
    assert {e["task_key"] for e in events} == {"item-5"}


def test_a_judges_trace_is_not_the_agents() -> None:
    assert read(export(CALL, source="evaluator")) == []
    assert read({**CALL, "source": "evaluator"}) == []


def test_what_is_no_trace_is_refused() -> None:
    others: list[Any] = [[], {"trace": {}, "spans": []}, {"id": "x"}, {"trace": TRACE}]
    for other in others:
        with pytest.raises(BadRecordError):
            read(other)


def test_detection() -> None:
    assert READER.sniff(Sample("x.json", [export(CALL)])) == 1
    assert READER.sniff(Sample("x.jsonl", [TRACE, CALL])) == 1
    assert READER.sniff(Sample("x.jsonl", [{"trace_id": "t", "type": "llm", "id": "x"}])) == 0


def test_what_the_library_writes(take: Callable[..., Any]) -> None:
    taken = take(FIXTURES, root=FIXTURES)
    assert (taken.adds_up(), taken.quarantined.height, taken.read) == (True, 0, 2)
    episodes, steps = build_episodes(taken.events, EpisodesConfig(), Funnel())
    assert episodes.select("conversation_id", "n_steps", "n_tool_errors", "policy").rows() == [("conv-42", 3, 1, "r7")]
    assert steps.sort("index")["tool_status"].to_list() == [["ok"], [], ["failed"]]
    actions = [json.loads(action) for action in steps.sort("index")["action"]]
    assert actions[1]["content"] == "It arrives on Monday."
    assert taken.events.filter(pl.col("kind") == "feedback").height == 1


@pytest.mark.parametrize("form", ["rows", "page"])
def test_rows_without_what_was_never_set(form: str, take: Callable[..., Any], write: Callable[..., Path]) -> None:
    """The SDK's own rows leave such fields out, and the API gives a page of rows."""
    times = {"start_time": "2026-10-01T09:00:00Z", "end_time": "2026-10-01T09:00:02Z"}
    trace = {"id": "t1", "project_id": "p", "name": "agent", "thread_id": "conv-1", "span_count": 1, **times,
             "input": {"question": "When?"}, "output": {"output": "Monday."}}  # fmt: skip
    span = {"id": "s1", "project_id": "p", "trace_id": "t1", "name": "chat", "type": "llm", "source": "sdk", **times,
            "input": {"messages": [{"role": "user", "content": "When?"}]}, "usage": {"prompt_tokens": 3},
            "output": {"choices": [{"message": {"role": "assistant", "content": "Monday."}}]}}  # fmt: skip
    root = {**span, "id": "s0", "name": "agent", "type": "general", "input": {"question": "When?"}}
    for name, rows in (("traces", [trace]), ("spans", [root, span])):
        page = {"page": 1, "size": 100, "total": len(rows), "content": rows}
        write(f"{name}.jsonl", rows if form == "rows" else [page])
    taken = take()
    assert (taken.quarantined.height, taken.adds_up()) == (0, True)
    episodes, steps = taken.built()
    assert (episodes["conversation_id"].to_list(), steps.height) == (["conv-1"], 1)
