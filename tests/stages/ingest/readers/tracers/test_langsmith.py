"""LangSmith: rows of many traces in any order, LangChain's messages, projects that are no conversations, feedback."""

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
from flywheel.stages.ingest.readers.tracers.langsmith import READER

FIXTURES = Path(__file__).parents[4] / "fixtures" / "langsmith"


def lc(kind: str, **kwargs: Any) -> dict[str, Any]:
    return {"lc": 1, "type": "constructor", "id": ["langchain", "schema", "messages", kind], "kwargs": kwargs}


ANSWER = lc(
    "AIMessage", type="ai", content="",
    tool_calls=[{"type": "tool_call", "id": "c1", "name": "find", "args": {"n": 7}}],
    response_metadata={"model_name": "qwen3-8b", "finish_reason": "tool_calls"},
    usage_metadata={"input_tokens": 10, "output_tokens": 4},
)  # fmt: skip
RUN: dict[str, Any] = {
    "id": "r2", "trace_id": "r1", "parent_run_id": "r1", "dotted_order": "20261001T090000Zr1.20261001T090001Zr2",
    "name": "ChatOpenAI", "run_type": "llm", "start_time": "2026-10-01T09:00:01", "end_time": "2026-10-01T09:00:03",
    "status": "success", "error": None, "session_id": "a-project", "reference_example_id": None,
    "inputs": {"messages": [[lc("SystemMessage", content="Be kind."), lc("HumanMessage", content="Where is 7?")]]},
    "outputs": {"generations": [[{"text": "", "generation_info": None, "message": ANSWER}]]},
    "extra": {
        "metadata": {"thread_id": "conv-1", "ls_model_name": "asked-for", "revision_id": "r9", "user_id": "u1"},
        "invocation_params": {"tools": [{"type": "function", "function": {"name": "find"}}], "temperature": 0.3},
    },
    "prompt_tokens": 0, "completion_tokens": 0, "total_cost": "0.25",
}  # fmt: skip
TOOL: dict[str, Any] = {
    **RUN, "id": "r3", "name": "find", "run_type": "tool", "inputs": {"input": "{'n': 7}"},
    "outputs": {"output": "here"},
    "extra": {"metadata": {}}, "start_time": "2026-10-01T09:00:04", "end_time": "2026-10-01T09:00:05",
}  # fmt: skip
FEEDBACK: dict[str, Any] = {
    "id": "f1", "run_id": "r1", "trace_id": "r1", "session_id": "a-project", "key": "user_score", "score": False,
    "value": None, "comment": "no date", "correction": {"output": "On Monday."}, "comparative_experiment_id": None,
    "feedback_source": {"type": "api", "metadata": {}}, "created_at": "2026-10-01T09:05:00+00:00",
}  # fmt: skip


def read(record: Any) -> list[dict[str, Any]]:
    return list(READER.read(record, 1))


def test_a_model_run_is_a_call_of_its_thread_not_of_its_project() -> None:
    (event,) = read(RUN)
    assert event["conversation_id"] == "conv-1"
    assert (event["model"], event["policy"], event["user"]) == ("qwen3-8b", "r9", "u1")
    assert event["ids"] == ["trace:r1", "span:r2"]
    assert event["ts"].isoformat() == "2026-10-01T09:00:01+00:00"
    payload = event["payload"]
    assert payload["message"]["tool_calls"] == [{"id": "c1", "name": "find", "arguments": {"n": 7}}]
    assert [m["role"] for m in payload["input"]] == ["system", "user"]
    shown = ("input_tokens", "output_tokens", "cost_usd", "latency_s", "finish_reason", "sampling")
    assert [payload[name] for name in shown] == [10, 4, 0.25, 2.0, "tool_calls", {"temperature": 0.3}]
    assert payload["tools"][0]["function"]["name"] == "find"


def test_arguments_that_langchain_could_not_parse_are_a_malformed_call() -> None:
    bad = lc("AIMessage", content="", tool_calls=[], invalid_tool_calls=[{"id": "c", "name": "find", "args": "{n"}])
    (event,) = read({**RUN, "outputs": {"generations": [[{"message": bad}]]}})
    assert event["payload"]["message"]["tool_calls"] == [
        {"id": "c", "name": "find", "arguments": None, "arguments_raw": "{n"}
    ]


@pytest.mark.parametrize(
    ("inputs", "outputs"),
    [
        (
            {"messages": [{"role": "user", "content": "hi"}], "model": "m"},
            {"id": "x1", "choices": [{"message": {"role": "assistant", "content": "Bye."}, "finish_reason": "stop"}]},
        ),
        (  # wrap_anthropic flattens the answer
            {"system": "Be kind.", "messages": [{"role": "user", "content": "hi"}]},
            {"id": "x1", "role": "assistant", "content": [{"type": "text", "text": "Bye."}], "stop_reason": "end_turn"},
        ),
        ({"messages": [{"type": "human", "content": "hi"}]}, {"output": {"type": "ai", "content": "Bye."}}),
        ({"prompts": ["hi"]}, {"generations": [[{"text": "Bye."}]]}),
    ],
)
def test_inputs_and_outputs_of_every_wrapper(inputs: Any, outputs: Any) -> None:
    payload = read({**RUN, "inputs": inputs, "outputs": outputs})[0]["payload"]
    assert payload["message"] == {"role": "assistant", "content": "Bye."}
    assert payload["input"][-1] == {"role": "user", "content": "hi"}


def test_a_tool_run_is_a_call_and_a_result() -> None:
    made, result = read(TOOL)
    assert made["payload"] == {"arguments": {"n": 7}}  # old versions wrote Python
    assert (made["kind"], result["kind"], result["tool_name"]) == ("tool_call", "tool_result", "find")
    assert result["conversation_id"] == "r1"  # its trace's; the trace's session is joined later
    assert (result["payload"]["content"], result["payload"]["status"]) == ("here", "ok")
    assert result["seq"] > made["seq"]


def test_a_tools_plain_input_is_not_what_the_model_wrote() -> None:
    assert read({**TOOL, "inputs": {"input": "order 7"}})[0]["payload"] == {}


def test_a_tool_message_says_its_call_and_its_status_itself() -> None:
    said = lc("ToolMessage", content="not found", tool_call_id="c1", status="error")
    result = read({**TOOL, "inputs": {"n": 7}, "outputs": {"output": said}})[1]
    assert (result["tool_call_id"], result["payload"]["status"]) == ("c1", "failed")


def test_a_failed_tool_run_has_no_output() -> None:
    failed = {**TOOL, "outputs": None, "status": "error", "error": "TimeoutError('db')Traceback (most"}
    made, result = read({**failed, "extra": {"tool_call_id": "c1"}})
    assert made["tool_call_id"] == result["tool_call_id"] == "c1"
    assert (result["payload"]["status"], result["payload"]["error_type"]) == ("failed", "TimeoutError")


def test_a_run_without_an_answer() -> None:
    (failed,) = read({**RUN, "outputs": None, "error": "RateLimitError", "status": "error"})
    assert (failed["kind"], failed["payload"]["tags"]) == ("request", ["call_failed"])
    (hidden,) = read({**RUN, "inputs": {}, "outputs": {}})
    assert hidden["payload"]["tags"] == ["content_missing"]


def test_other_runs_only_say_where_a_trace_belongs() -> None:
    root = {
        **RUN,
        "id": "r1",
        "run_type": "chain",
        "reference_example_id": "ex-5",
        "dotted_order": "20261001T090000Zr1",
        "inputs": {"rows": 3},
    }
    (event,) = read(root)
    assert (event["kind"], event["payload"], event["task_key"]) == ("request", {"messages": []}, "ex-5")
    assert (event["conversation_id"], event["ids"]) == ("conv-1", ["trace:r1", "span:r1"])
    assert read({**RUN, "run_type": "retriever"}) == []


def test_a_trace_of_one_run_is_all_there_is() -> None:
    root = {**RUN, "run_type": "chain", "parent_run_id": None, "child_run_ids": [], "extra": {}}
    asked, answer = read({**root, "inputs": {"question": "Where is 7?"}, "outputs": {"output": "Here."}})
    assert asked["payload"]["messages"] == [{"role": "user", "content": "Where is 7?"}]
    assert (answer["kind"], answer["payload"]["message"]["content"]) == ("model_call", "Here.")


def test_runs_of_an_export_that_leaves_their_ids_out() -> None:
    trimmed = {name: held for name, held in RUN.items() if name not in ("id", "dotted_order")}
    runs = [{**trimmed, "trace_id": "t1", "parent_run_id": parent} for parent in (None, "r7")]
    events = [event for run in runs for event in read(run)]
    assert [event["kind"] for event in events] == ["model_call", "model_call"]
    assert len({event["span_id"] for event in events}) == 2


def test_nested_runs_and_pages_of_runs() -> None:
    root = {**RUN, "run_type": "chain", "child_runs": [TOOL]}
    assert [e["kind"] for e in read(root)] == ["request", "tool_call", "tool_result"]
    assert len(read({"runs": [RUN, TOOL], "cursors": {}})) == 3


def test_the_second_api_writes_in_capitals() -> None:
    new = {
        "id": "r2", "trace_id": "r1", "run_type": "TOOL", "status": "SUCCESS", "thread_id": "conv-1", "name": "find",
        "inputs": {"n": 7}, "outputs": {"output": "here"}, "parent_run_ids": ["r0", "r1"],
        "metadata": {"user_id": "u1"},
        "end_time": "2026-10-01T09:00:05Z",
    }  # fmt: skip
    result = read(new)[1]
    assert (result["conversation_id"], result["parent_id"], result["user"]) == ("conv-1", "r1", "u1")
    assert result["payload"]["status"] == "ok"


def test_feedback_means_a_trace_or_a_run() -> None:
    score, edit = read(FEEDBACK)
    assert score["target"] == score["conversation_id"] == "trace:r1"
    assert score["payload"] == {
        "name": "user_score", "value": 0.0, "comment": "no date", "target": "trace", "target_id": "r1",
    }  # fmt: skip
    assert (edit["payload"]["name"], edit["payload"]["text"]) == ("edit", "On Monday.")
    assert read({**FEEDBACK, "run_id": "r2"})[0]["target"] == "span:r2"
    assert read({**FEEDBACK, "run_id": None, "trace_id": None}) == []  # about a whole project


def test_who_gave_feedback() -> None:
    by = {source: read({**FEEDBACK, "feedback_source": {"type": source}})[0]["payload"].get("annotator") for source in
          ("api", "app", "model", "auto_eval")}  # fmt: skip
    assert by == {"api": None, "app": "human", "model": "llm", "auto_eval": "llm"}


def test_categories_and_corrected_scores() -> None:
    (said,) = read({**FEEDBACK, "score": None, "value": "poor", "correction": None})
    assert said["payload"]["label"] == "poor"
    (corrected,) = read({**FEEDBACK, "score": 1, "correction": {"score": 0}, "feedback_source": {"type": "auto_eval"}})
    assert (corrected["payload"]["value"], corrected["payload"]["annotator"]) == (0.0, "human")
    (scaled,) = read({**FEEDBACK, "score": 4, "correction": None, "feedback_config": {"min": 1, "max": 5}})
    assert scaled["payload"]["scale"] == [1.0, 5.0]


def test_what_is_left_of_feedback_in_a_run() -> None:
    stats = {"user_score": {"n": 1, "avg": 0.0}, "kind": {"n": 1, "avg": None, "values": {"poor": 1}}}
    *_, label, score = read({**RUN, "feedback_stats": stats})
    assert (label["payload"]["label"], score["payload"]["value"]) == ("poor", 0.0)
    assert score["target"] == "span:r2"
    each = json.dumps([{"key": "user_score", "score": 1, "created_at": "2026-10-01T09:05:00Z"}])
    *_, one = read({**RUN, "feedback_stats": stats, "feedbacks": each})
    assert (one["payload"]["value"], one["conversation_id"]) == (1.0, "conv-1")


def test_what_is_no_run_is_refused() -> None:
    others: list[Any] = [[], {"run_type": "llm"}, {"key": "x"}, "text"]
    for other in others:
        with pytest.raises(BadRecordError):
            read(other)


def test_detection() -> None:
    assert READER.sniff(Sample("x.jsonl", [RUN, TOOL, FEEDBACK])) == 1
    assert READER.sniff(Sample("x.jsonl", [{"messages": []}, {"run_id": "r", "key": "k", "reward": 1}])) == 0


def test_a_bulk_exports_rows(tmp_path: Path, take: Callable[..., Any]) -> None:
    rows = [{k: json.dumps(v) if isinstance(v, dict) else v for k, v in row.items()} for row in (TOOL, RUN)]
    pl.DataFrame(rows).write_parquet(tmp_path / "runs.parquet")
    taken = take()
    assert taken.adds_up()
    assert taken.quarantined.height == 0
    assert sorted(taken.events["kind"]) == ["model_call", "tool_call", "tool_result"]


def test_what_the_library_writes(take: Callable[..., Any]) -> None:
    taken = take(FIXTURES, root=FIXTURES)
    assert taken.adds_up()
    assert (taken.quarantined.height, set(taken.events["source_format"])) == (0, {"langsmith"})
    episodes, steps = build_episodes(taken.events, EpisodesConfig(), Funnel())
    talk = episodes.filter(pl.col("conversation_id") == "conv-42")
    assert talk.select("n_steps", "n_tool_calls", "n_tool_errors").row(0) == (3, 2, 1)
    assert talk["stop_reason"].item() == "tool_result"
    path = steps.filter(pl.col("episode_id") == talk["episode_id"].item()).sort("index")
    assert path["tool_status"].to_list() == [["ok"], [], ["failed"]]
    assert not path["resets_context"].any()
    judged = taken.events.filter(pl.col("kind") == "feedback")
    assert judged["target"].n_unique() == 2
