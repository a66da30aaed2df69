"""Langfuse in every shape it is exported in: traces, API pages, blob-storage rows, UI tables; scores of all kinds."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from flywheel.config import EpisodesConfig
from flywheel.extensions import BadRecordError, Sample
from flywheel.funnel import Funnel
from flywheel.stages.conversations.episodes import build_episodes
from flywheel.stages.ingest.readers.tracers.langfuse import READER

FIXTURES = Path(__file__).parents[4] / "fixtures" / "langfuse"
T, S = "7dbaeba682933bd2484f9fd16655bde5", "conv-42"
ASKED = [{"role": "user", "content": "where is order 7?"}]
CALL = {"id": "c1", "type": "function", "function": {"name": "get_order", "arguments": '{"id": 7}'}}
CALLING = {"role": "assistant", "content": None, "tool_calls": [CALL]}
ANSWER = {"role": "assistant", "content": "It arrives on Monday."}
TRACE: dict[str, Any] = {
    "id": T, "projectId": "p1", "name": "support", "timestamp": "2026-10-01T09:00:00.000Z", "sessionId": S,
    "userId": "u1", "release": "2026.10.1", "version": None, "tags": ["prod"], "environment": "production",
    "public": False, "bookmarked": False, "input": None, "output": None, "metadata": "{}", "scores": [],
    "corrections": [], "observations": [],
}  # fmt: skip


def observation(span: str, kind: str = "GENERATION", second: int = 0, **more: Any) -> dict[str, Any]:
    row: dict[str, Any] = {
        "id": span, "traceId": T, "type": kind, "name": kind.lower(), "parentObservationId": None,
        "startTime": f"2026-10-01T09:00:{second:02}.000Z", "endTime": f"2026-10-01T09:00:{second + 1:02}.000Z",
        "level": "DEFAULT", "statusMessage": None, "input": None, "output": None, "metadata": "{}",
    }  # fmt: skip
    if kind == "GENERATION":
        row |= {"model": "qwen3-8b", "input": json.dumps(ASKED), "output": json.dumps(ANSWER)}
    return row | more


def export(*observations: dict[str, Any], **trace: Any) -> dict[str, Any]:
    return {"trace": TRACE | trace, "observations": list(observations)}


def read(record: Any) -> list[dict[str, Any]]:
    return list(READER.read(record, 1))


def one(record: Any, kind: str = "model_call") -> dict[str, Any]:
    (found,) = [e for e in read(record) if e["kind"] == kind]
    return found


def snake(row: dict[str, Any]) -> dict[str, Any]:
    names = {
        "traceId": "trace_id", "startTime": "start_time", "endTime": "end_time", "statusMessage": "status_message",
        "parentObservationId": "parent_observation_id", "model": "provided_model_name",
    }  # fmt: skip
    return {names.get(k, k): v for k, v in row.items()}


def test_columns_go_where_they_belong() -> None:
    row = observation(
        "A1" * 8, second=2, modelParameters={"temperature": 0.7, "top_p": "", "max_tokens": -1, "stop": "null"},
        usageDetails={"input": 8, "input_cached_tokens": 2, "output": 4, "total": 14},
        costDetails={"input": 0.0005, "total": 0.001}, toolDefinitions={"get_order": '{"description": "finds"}'},
        parentObservationId="A",
    )  # fmt: skip
    call = one(export(row))
    assert {k: call[k] for k in ("conversation_id", "user", "policy", "model", "span_id", "parent_id", "task_key")} == {
        "conversation_id": S, "user": "u1", "policy": "2026.10.1", "model": "qwen3-8b", "span_id": "a1" * 8,
        "parent_id": "A", "task_key": None,
    }  # fmt: skip
    assert call["ids"] == [f"trace:{T}", "span:" + "a1" * 8]
    assert call["ts"].isoformat() == "2026-10-01T09:00:02+00:00"
    assert call["payload"] == {
        "message": ANSWER, "input": ASKED, "trace_id": T, "latency_s": 1.0, "cost_usd": 0.001, "input_tokens": 10,
        "output_tokens": 4, "sampling": {"temperature": 0.7}, "tags": ["tag:prod"],
        "tools": [{"type": "function", "function": {"name": "get_order", "description": "finds"}}],
    }  # fmt: skip


def test_usage_that_repeats_its_sum_counts_once() -> None:
    usage = {"input": 10, "input_cached_tokens": 8, "output": 4, "total": 14}
    payload = one(export(observation("g", usageDetails=usage)))["payload"]
    assert (payload["input_tokens"], payload["output_tokens"]) == (10, 4)


def test_without_a_session_the_trace_is_the_conversation() -> None:
    assert one(export(observation("g"), sessionId=None))["conversation_id"] == T


def test_a_version_is_a_policy_where_no_release_is() -> None:
    assert one(export(observation("g", version="o"), release=None, version="t"))["policy"] == "t"
    assert one(export(observation("g", version="o"), release=None))["policy"] == "o"


def test_the_item_of_a_dataset_is_the_task() -> None:
    root = observation("r", "SPAN", metadata=json.dumps({"dataset_item_id": "item-7", "experiment_name": "e"}))
    assert one(export(root, observation("g", second=1)))["task_key"] == "item-7"
    (alone,) = read(root)  # a row of its own says at least which task its trace is of
    assert (alone["task_key"], alone["ids"], alone["payload"]["messages"]) == ("item-7", [f"trace:{T}"], [])
    item = {"id": "x", "datasetRunId": "r", "datasetRunName": "run", "datasetItemId": "item-7", "traceId": T}
    (told,) = read(item)
    assert (told["task_key"], told["conversation_id"], told["payload"]["messages"]) == ("item-7", T, [])


def test_tools_are_calls_and_results_with_their_end() -> None:
    tools = [
        observation("t1", "TOOL", 1, name="get_order", input='{"id": 7}', output="shipped"),
        observation("t2", "TOOL", 2, name="get_order", input={"args": [], "kwargs": {"id": 8}}, level="ERROR",
                    statusMessage="TimeoutError: no reply"),
        observation("t3", "TOOL", 3, name="get_order", input="{'id': 9}",
                    output="content='none' name='get_order' tool_call_id='c9'"),
        observation("t4", "TOOL", 4, name="get_order", input='{"id": 7}', output={"kwargs": {
            "content": "no", "status": "error", "tool_call_id": "c4"}, "lc": 1, "id": ["x", "ToolMessage"]}),
        observation("t5", "TOOL", 5, name="get_order", input="seven"),
    ]  # fmt: skip
    events = read(export(observation("g"), *tools))
    calls = [e for e in events if e["kind"] == "tool_call"]
    assert [(e["tool_name"], e["payload"].get("arguments")) for e in calls] == [
        ("get_order", {"id": 7}), ("get_order", {"id": 8}), ("get_order", {"id": 9}), ("get_order", {"id": 7}),
        ("get_order", None),
    ]  # fmt: skip
    results = [e for e in events if e["kind"] == "tool_result"]
    assert [(e["tool_call_id"], e["payload"]["content"], e["payload"]["status"]) for e in results] == [
        (None, "shipped", "unknown"), (None, "TimeoutError: no reply", "failed"), ("c9", "none", "unknown"),
        ("c4", "no", "failed"),
    ]  # fmt: skip
    assert results[1]["payload"]["error_type"] == "TimeoutError"
    assert results[0]["ts"].isoformat() == "2026-10-01T09:00:02+00:00"


def test_a_span_is_a_tool_where_something_says_so() -> None:
    marks = {"attributes": {"openinference.span.kind": "TOOL", "tool.name": "search"}}
    marked = observation("s1", "SPAN", 1, name="lookup", input="{}", output="x", metadata=marks)
    named = observation("s2", "SPAN", 2, name="get_order", input='{"id": 7}', output="shipped")
    other = observation("s3", "SPAN", 3, name="prepare", input="{}", output="x")
    asking = observation("g", output=json.dumps(CALLING))
    told = [e["tool_name"] for e in read(export(asking, marked, named, other)) if e["kind"] == "tool_call"]
    assert told == ["search", "get_order"]


def test_other_observations_are_nothing() -> None:
    kinds = ("SPAN", "EVENT", "AGENT", "CHAIN", "RETRIEVER", "EMBEDDING", "GUARDRAIL")
    for kind in kinds:
        assert read(observation("o", kind, input=json.dumps(ASKED), output="x")) == []


def test_what_a_judge_does_is_not_the_agents() -> None:
    judge = observation("e", "EVALUATOR", 1)
    inner = observation("j", second=2, parentObservationId="e")
    assert one(export(observation("g"), judge, inner))["span_id"] == "g"
    assert read(observation("g", environment="langfuse-llm-as-a-judge")) == []


def test_rows_are_read_alike_on_a_page_and_line_by_line(tmp_path: Path, take: Callable[..., Any]) -> None:
    """A judge's call, and a framework's call around the SDK's that words the request otherwise."""
    sdk = json.dumps([{"role": "developer", "content": "Be brief."}, *ASKED])
    rows = [
        observation("f"), observation("sdk", parentObservationId="f", input=sdk),
        observation("e", "EVALUATOR", 4), observation("j", second=4, parentObservationId="e", output="Yes, it is."),
    ]  # fmt: skip
    page, lines, turned = (tmp_path / name for name in ("page.json", "lines.jsonl", "turned.jsonl"))
    page.write_text(json.dumps({"data": rows, "meta": {}}))
    lines.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    turned.write_text("".join(f"{json.dumps(row)}\n" for row in reversed(rows)))

    taken = [take(path).built() for path in (page, lines, turned)]
    assert [(episodes.height, steps["action"].to_list()) for episodes, steps, *_ in taken] == [
        (1, taken[0][1]["action"].to_list())
    ] * 3
    assert taken[0][1].height == 1


def test_a_call_told_by_framework_and_sdk_counts_once() -> None:
    outer = observation(
        "f", output=json.dumps({"id": "r1", "choices": [{"message": CALLING}]}), usageDetails={"input": 99}
    )
    inner = observation("sdk", parentObservationId="mid", output="None", usageDetails={"input": 5}, totalCost=0.5)
    mid = observation("mid", "SPAN", parentObservationId="f")
    call = one(export(outer, mid, inner))
    assert call["payload"]["message"]["tool_calls"][0]["name"] == "get_order"
    assert (call["payload"]["input_tokens"], call["payload"]["cost_usd"]) == (5, 0.5)
    assert call["ids"] == [f"trace:{T}", "span:f", "response:r1", "span:sdk"]


def test_a_generation_around_several_is_no_call_and_different_ones_are_two() -> None:
    inner = [observation(n, second=i, parentObservationId="f", output=f"answer {n}") for i, n in enumerate("ab")]
    events = read(export(observation("f", output="answer b"), *inner))
    assert [e["span_id"] for e in events] == ["a", "b"]
    events = read(export(observation("f", output="answer f"), inner[0]))
    assert {e["span_id"] for e in events} == {"f", "a"}


def test_a_response_id_of_several_answers_is_no_response_id() -> None:
    rows = [
        observation(n, second=i, output=f"answer {n}", metadata={"attributes": {"gen_ai.response.id": "run_1"}})
        for i, n in enumerate("ab")
    ]
    assert ["response_id" in e["payload"] for e in read(export(*rows))] == [False, False]
    assert one(export(rows[0]))["payload"]["response_id"] == "run_1"


def test_a_failed_call_is_a_request_and_a_broken_off_one_an_answer() -> None:
    failed = one(export(observation("g", output=None, level="ERROR", statusMessage="RateLimitError: slow")), "request")
    assert failed["payload"]["messages"] == ASKED
    assert failed["payload"]["tags"] == ["call_failed", "tag:prod"]
    running = one(export(observation("g", output=None, endTime=None)), "request")
    assert (running["payload"]["messages"], running["payload"]["tags"]) == (ASKED, ["unfinished", "tag:prod"])
    cut = one(export(observation("g", level="ERROR", statusMessage="TimeoutError: x")))
    assert cut["payload"]["error_type"] == "TimeoutError"


def test_a_call_without_content_is_told_and_one_without_anything_is_not() -> None:
    bare = observation("g", input=None, output=None)
    assert read(bare) == []
    told = one(bare | {"usageDetails": {"input": 3, "output": 2}})["payload"]
    assert (told["message"], told["tags"], "input" in told) == ({"role": "assistant"}, ["content_missing"], False)


def test_tool_columns_help_where_the_output_shows_no_call() -> None:
    row = observation("g", output="{}", toolCalls=['{"id": "c1", "arguments": "{\\"id\\":7}", "type": "function"}'],
                      toolCallNames=["get_order"])  # fmt: skip
    wanted = [{"id": "c1", "name": "get_order", "arguments": {"id": 7}}]
    assert one(export(row))["payload"]["message"]["tool_calls"] == wanted


def test_a_trace_without_model_calls_is_told_by_its_own_words() -> None:
    span = observation(
        "s", "SPAN", input='{"args": ["where is order 7?"], "kwargs": {}}', output="It arrives on Monday."
    )
    asked, call = read(export(span))
    assert (asked["payload"]["messages"], call["payload"]["message"]) == (ASKED, ANSWER)
    assert asked["payload"]["summary"] is call["payload"]["summary"] is True
    assert call["payload"]["tags"] == ["outline"]
    _, call = read(export(span, input=json.dumps("where is it?"), output=json.dumps("There.")))
    assert call["payload"]["message"]["content"] == "There."
    events = read(export(observation("s", "SPAN", input='{"rows": 3}', output='{"ok": true}')))
    assert [(e["kind"], e["payload"]["messages"]) for e in events] == [("request", [])]


def score(**more: Any) -> dict[str, Any]:
    row = {
        "id": "s1", "traceId": T, "observationId": None, "sessionId": None, "datasetRunId": None, "name": "quality",
        "value": 0.5, "stringValue": None, "dataType": "NUMERIC", "source": "API", "comment": None, "configId": None,
        "timestamp": "2026-10-01T09:05:00.000Z",
    }  # fmt: skip
    return row | more


@pytest.mark.parametrize(
    ("given", "payload"),
    [
        ({}, {"name": "quality", "value": 0.5}),
        ({"source": "EVAL", "comment": "no date"},
         {"name": "quality", "value": 0.5, "annotator": "llm", "comment": "no date"}),
        ({"dataType": "BOOLEAN", "value": 0, "stringValue": "False"},
         {"name": "quality", "value": 0.0, "label": "False"}),
        ({"dataType": "CATEGORICAL", "value": 0, "stringValue": "rude", "source": "ANNOTATION"},
         {"name": "quality", "label": "rude", "annotator": "human"}),
        ({"dataType": "CATEGORICAL", "value": 2, "stringValue": "fine", "configId": "c"},
         {"name": "quality", "label": "fine", "value": 2.0}),
        ({"dataType": "TEXT", "value": None, "stringValue": "too short"}, {"name": "quality", "comment": "too short"}),
        ({"dataType": "CORRECTION", "name": "output", "value": 0, "stringValue": "Monday.", "source": "ANNOTATION"},
         {"name": "edit", "text": "Monday.", "annotator": "human"}),
        ({"dataType": "CORRECTION", "name": "output", "value": 0, "longStringValue": "Monday."},
         {"name": "edit", "text": "Monday."}),
    ],
)  # fmt: skip
def test_a_score_says_what_its_type_means(given: dict[str, Any], payload: dict[str, Any]) -> None:
    (feedback,) = read(score(**given))
    assert feedback["payload"] == payload | {"target": "trace", "target_id": T}
    assert (feedback["target"], feedback["conversation_id"]) == (f"trace:{T}", T)
    assert feedback["ts"].isoformat() == "2026-10-01T09:05:00+00:00"


@pytest.mark.parametrize(
    ("given", "target", "conversation", "kind"),
    [
        ({"observationId": "A1" * 8}, "span:" + "a1" * 8, T, "call"),
        ({"observationId": "Gen-1"}, "span:Gen-1", T, "call"),
        ({"traceId": None, "observationId": "g"}, "span:g", "span:g", "call"),
        ({"traceId": None, "sessionId": S}, f"session:{S}", S, "session"),
        ({"traceId": None, "subject": {"kind": "observation", "id": "g", "traceId": T}}, "span:g", T, "call"),
        ({"traceId": None, "subject": {"kind": "session", "id": S}}, f"session:{S}", S, "session"),
    ],
)
def test_a_score_means_the_most_specific_thing(given: Any, target: str, conversation: str, kind: str) -> None:
    (feedback,) = read(score(**given))
    assert (feedback["target"], feedback["conversation_id"]) == (target, conversation)
    assert feedback["payload"]["target"] == kind


@pytest.mark.parametrize(
    "given",
    [
        {"traceId": None, "datasetRunId": "run-1"},
        {"traceId": None, "subject": {"kind": "experiment", "id": "run-1"}},
        {"value": None},
        {"dataType": "CORRECTION", "stringValue": ""},
    ],
)
def test_a_score_of_no_conversation_or_without_a_value_is_nothing(given: Any) -> None:
    assert read(score(**given)) == []


def test_scores_and_corrections_inside_a_trace_stand_in_its_conversation() -> None:
    correction = score(
        id="c1", dataType="CORRECTION", longStringValue="Monday.", source="ANNOTATION", observationId="g"
    )
    events = read(export(observation("g"), scores=[score()], corrections=[correction]))
    feedback = [e for e in events if e["kind"] == "feedback"]
    assert [(e["conversation_id"], e["target"]) for e in feedback] == [(S, f"trace:{T}"), (S, "span:g")]


def blob_tables() -> dict[str, list[dict[str, Any]]]:
    """The blob-storage export: no zone in times, numbers as text, maps of text, no session on older observations."""
    times = {"start_time": "2026-10-01 09:00:00.000000", "end_time": "2026-10-01 09:00:01.000000"}
    call = snake(observation("g1", input=json.dumps(ASKED), output=json.dumps(CALLING))) | times
    call |= {
        "usage_details": {"input": "8", "output": "4"}, "total_cost": "0.001", "model_parameters": '{"top_p": 1}',
        "tool_calls": [], "tool_call_names": [], "tool_definitions": {}, "metadata": {"attributes": "{}"},
    }  # fmt: skip
    tool = snake(observation("t1", "TOOL", 1, name="get_order", input='{"id":7}', output="shipped"))
    history = [*ASKED, CALLING, {"role": "tool", "tool_call_id": "c1", "content": "shipped"}]
    last = snake(observation("g2", second=2, input=json.dumps(history)))
    trace: dict[str, Any] = {
        "id": T, "timestamp": "2026-10-01 09:00:00.000", "name": "support", "environment": "production",
        "project_id": "p1", "metadata": {}, "user_id": "u1", "session_id": S, "release": "2026.10.1", "version": None,
        "public": False, "bookmarked": False, "tags": [], "input": "x", "output": "y",
    }  # fmt: skip
    judged = {
        "id": "s1", "timestamp": "2026-10-01 09:05:00.000", "project_id": "p1", "environment": "production",
        "trace_id": T, "observation_id": None, "session_id": None, "dataset_run_id": None, "name": "user-feedback",
        "value": 0, "source": "API", "comment": "no date", "data_type": "BOOLEAN", "string_value": "False",
    }  # fmt: skip
    return {"traces": [trace], "observations": [call, tool, last], "scores": [judged]}


def check_blob(taken: Any) -> None:
    assert taken.adds_up()
    assert taken.quarantined.is_empty()
    assert set(taken.events["source_format"]) == {"langfuse"}
    kinds = {"model_call": 3, "tool_call": 1, "tool_result": 1, "feedback": 1, "request": 1}
    assert Counter(taken.events["kind"]) == kinds
    first = taken.events.filter(pl.col("span_id") == "g1").row(0, named=True)
    payload = json.loads(first["payload"])
    assert first["ts"].isoformat() == "2026-10-01T09:00:00+00:00"
    assert (payload["input_tokens"], payload["cost_usd"], payload["latency_s"]) == (8, 0.001, 1.0)
    assert payload["sampling"] == {"top_p": 1}
    mapped = taken.events.filter(pl.col("kind") == "request").row(0, named=True)
    assert (mapped["conversation_id"], mapped["ids"], mapped["policy"]) == (S, [f"trace:{T}"], "2026.10.1")
    assert taken.built()[1].height == 2, "what the trace's row says is what its observations said"


def test_a_blob_storage_export_is_read_from_jsonl(tmp_path: Path, take: Callable[..., Any]) -> None:
    for table, rows in blob_tables().items():
        folder = tmp_path / table
        folder.mkdir()
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / "2026-10-01.jsonl.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
    check_blob(take())


def test_a_blob_storage_export_is_read_from_parquet(tmp_path: Path, take: Callable[..., Any]) -> None:
    maps = {"usage_details": pa.map_(pa.string(), pa.uint64()), "metadata": pa.map_(pa.string(), pa.string())}
    for table, rows in blob_tables().items():
        made = []
        for row in rows:
            told = {**row, "usage_details": [(k, int(v)) for k, v in row.get("usage_details", {}).items()]}
            told["metadata"] = list(row["metadata"].items()) if isinstance(row.get("metadata"), dict) else []
            told.pop("tool_definitions", None)
            made.append(told)
        names = sorted({name for row in made for name in row})
        columns = {n: pa.array([r.get(n) for r in made], type=maps.get(n)) for n in names}
        pq.write_table(pa.table(columns), tmp_path / f"{table}.parquet")
    check_blob(take())


def test_a_ui_table_has_scores_as_columns_and_comments(tmp_path: Path, take: Callable[..., Any]) -> None:
    said = [
        {"id": "c", "content": "look here", "author_email": "a@example.com", "created_at": "2026-10-02T08:00:00.000Z"}
    ]
    trace: dict[str, Any] = {
        "id": T, "timestamp": "2026-10-01T09:00:00.000Z", "name": "support", "userId": "u1", "sessionId": S,
        "release": "r", "version": None, "environment": "production", "tags": ["prod"], "bookmarked": False,
        "public": False, "input": ["a", "b"], "output": "y", "metadata": {}, "comments": said, "user-feedback": [0, 1],
        "tone": ["rude"], "unused": None,
    }  # fmt: skip
    told = {e["payload"]["name"]: e for e in read(trace) if e["kind"] == "feedback"}
    assert {name: (e["payload"].get("value"), e["payload"].get("label"), e["target"]) for name, e in told.items()} == {
        "user-feedback": (1.0, None, f"trace:{T}"), "tone": (None, "rude", f"trace:{T}"),
        "comment": (None, None, f"trace:{T}"),
    }  # fmt: skip
    assert told["comment"]["payload"]["annotator"] == "human"
    event = observation("g", sessionId=S, userId="u1", traceName="x", latencyMs=1000, comments=[], quality=[0.5])
    rows = [event, event | {"id": "h", "startTime": "2026-10-01T09:00:05.000Z"}]
    (tmp_path / "events.json").write_text(json.dumps(rows))
    taken = take()
    assert taken.adds_up()
    assert set(taken.events["target"].drop_nulls()) == {f"trace:{T}"}
    assert taken.events.filter(pl.col("kind") == "feedback")["event_id"].n_unique() == 1  # told on each row, said once
    old = {k: v for k, v in event.items() if k != "latencyMs"}
    assert [e["target"] for e in read(old) if e["kind"] == "feedback"] == ["span:g"]


def test_sessions_say_which_traces_they_have() -> None:
    session = {"id": S, "createdAt": "2026-10-01T09:00:00Z", "projectId": "p1", "traces": [{"id": T}, {"id": "t2"}]}
    assert [(e["conversation_id"], e["ids"]) for e in read(session)] == [(S, [f"trace:{T}"]), (S, ["trace:t2"])]
    assert read({"id": S, "userIds": ["u"], "countTraces": 2, "comments": []}) == []


def test_a_list_of_traces_maps_them() -> None:
    listed = {k: v for k, v in TRACE.items() if k != "corrections"} | {
        "htmlPath": "/x", "observations": ["a", "b"], "scores": ["s1"],
    }  # fmt: skip
    page = {"data": [listed], "meta": {"page": 1, "totalItems": 1}}
    assert [(e["kind"], e["conversation_id"], e["payload"]["messages"]) for e in read(page)] == [("request", S, [])]


@pytest.mark.parametrize("name", ["observations-v2", "trace-v1"])
def test_what_the_sdks_models_write_is_one_episode(name: str, take: Callable[..., Any]) -> None:
    taken = take(FIXTURES / f"{name}.json", root=FIXTURES)
    assert taken.adds_up()
    assert taken.quarantined.is_empty()
    calls = taken.events.filter(pl.col("kind") == "model_call")
    assert calls["span_id"].to_list() == ["o1", "o3"]
    assert set(calls["policy"]) == {"2026.10.1"}
    assert set(calls["conversation_id"]) == {S}
    episodes, steps = build_episodes(taken.events, EpisodesConfig(), Funnel())
    (episode,) = episodes.iter_rows(named=True)
    assert {k: episode[k] for k in ("n_steps", "n_tool_calls", "stop_reason", "input_tokens", "model", "tags")} == {
        "n_steps": 2, "n_tool_calls": 1, "stop_reason": "answered", "input_tokens": 20, "model": "qwen3-8b",
        "tags": ["tag:prod"],
    }  # fmt: skip
    assert [json.loads(s)[-1]["role"] for s in steps["observation"]] == ["user", "tool"]


def test_an_agent_traced_by_langfuses_langchain_handler_is_one_conversation(take: Callable[..., Any]) -> None:
    """Rows of two traces of one session: an answered question, and one whose tool raised."""
    taken = take(FIXTURES / "langgraph-rows.jsonl", root=FIXTURES)
    assert taken.adds_up()
    assert taken.quarantined.is_empty()
    assert Counter(taken.events["kind"]) == {"model_call": 3, "tool_call": 2, "tool_result": 2}
    assert sum(taken.ignored.values()) == 7  # chains, which repeat what models and tools say
    episodes, steps = build_episodes(taken.events, EpisodesConfig(), Funnel())
    (episode,) = episodes.iter_rows(named=True)
    assert (episode["conversation_id"], episode["policy"], episode["n_tool_errors"]) == (S, "2026.10.1", 1)
    assert [t["function"]["name"] for t in json.loads(episode["tools"])] == ["get_order"]
    told = [(len(json.loads(s["observation"])), s["tool_names"], s["tool_status"]) for s in steps.iter_rows(named=True)]
    assert told == [(2, ["get_order"], ["ok"]), (1, [], []), (2, ["get_order"], ["failed"])]


def test_calls_traced_by_langfuses_openai_wrapper_are_read(take: Callable[..., Any]) -> None:
    """A call, two choices, a response of several items, one of a single item, and a refused request."""
    taken = take(FIXTURES / "openai-rows.jsonl", root=FIXTURES)
    assert taken.adds_up()
    rows = taken.events.sort("ts").to_dicts()
    assert [row["kind"] for row in rows] == ["model_call"] * 4 + ["request"]
    told = [json.loads(row["payload"]) for row in rows]
    calls = [{"id": "c1", "name": "get_order", "arguments": {"number": 7}}]
    answer = {"role": "assistant", "content": "It is shipped."}
    assert [p["message"] for p in told[:4]] == [
        {"role": "assistant", "tool_calls": calls}, answer,
        {"role": "assistant", "tool_calls": calls, "reasoning": "look it up"}, answer,
    ]  # fmt: skip
    assert told[1]["other_choices"] == [{"role": "assistant", "content": "Shipped."}]
    histories = [[m["role"] for m in p["input"]] for p in told[:4]]
    assert histories == [["system", "user"], ["system", "user", "assistant", "tool"]] * 2
    assert [p.get("tools", [{}])[0].get("function", {}).get("name") for p in told[:3]] == [
        "get_order",
        None,
        "get_order",
    ]
    assert {(p["input_tokens"], p["output_tokens"]) for p in told[:4]} == {(10, 5)}
    assert told[0]["sampling"]["temperature"] == 0.5
    assert (told[4]["messages"], told[4]["tags"]) == (told[0]["input"], ["call_failed"])


def test_scores_as_the_sdks_models_write_them() -> None:
    events = read(json.loads((FIXTURES / "scores-v3.json").read_bytes()))
    told = [(e["target"], {k: v for k, v in e["payload"].items() if not k.startswith("target")}) for e in events]
    assert told == [
        (f"trace:{T}", {"name": "user-feedback", "value": 0.0, "label": "False"}),
        ("span:o3", {"name": "quality", "value": 0.25, "annotator": "llm", "comment": "no date"}),
        (f"session:{S}", {"name": "tone", "label": "rude", "annotator": "human"}),
        (f"trace:{T}", {"name": "note", "comment": "too short", "annotator": "human"}),
        ("span:o3", {"name": "edit", "text": "Monday, 5 October.", "annotator": "human"}),
    ]
    old = [e for e in read(json.loads((FIXTURES / "trace-v1.json").read_bytes())) if e["kind"] == "feedback"]
    assert [(e["target"], e["payload"].get("value"), e["payload"].get("label")) for e in old] == [
        (f"trace:{T}", 0.0, "False"), ("span:o3", 0.25, None), (f"trace:{T}", None, "rude"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "record",
    [
        {"messages": ASKED},
        {"request": {"messages": ASKED}, "response": {"choices": []}},
        {"id": "x", "type": "message", "content": []},
        {"trace_id": "t", "span_id": "s", "start_time": 1, "attributes": {}},
        {"id": "x", "trace": "t", "spans": []},
        {"data": [{"object": "chat.completion"}]},
        [],
        None,
    ],
)
def test_other_formats_are_left_alone(record: Any) -> None:
    assert READER.sniff(Sample("x.json", [record])) == 0.0


def test_a_system_prompt_that_only_the_agents_span_has_is_the_calls() -> None:
    noted = json.dumps({"attributes": {"gen_ai.system_instructions": '[{"type": "text", "content": "Be kind."}]'}})
    told = json.dumps({"prompt": "where is order 7?", "system": "Be kind."})
    around: list[dict[str, Any]] = [{"metadata": noted}, {"input": told}]
    for agent in around:
        calls = (observation("g", parentObservationId="a"), observation("h", parentObservationId="a", second=2))
        events = read(export(observation("a", "AGENT", **agent), *calls))
        inputs = [e["payload"]["input"] for e in events if e["kind"] == "model_call"]
        assert inputs == [[{"role": "system", "content": "Be kind."}, *ASKED]] * 2
    own = json.dumps([{"role": "system", "content": "Be quick."}, *ASKED])
    call = one(export(observation("a", "AGENT", metadata=noted), observation("g", parentObservationId="a", input=own)))
    assert call["payload"]["input"][0]["content"] == "Be quick."


def test_an_agent_whose_results_are_only_in_spans_saw_them() -> None:
    """As LangSmith's exporter logs Claude's agents: a field's name where the input should be."""
    block = {"type": "tool_use", "id": "c1", "name": "get_order", "input": {"id": 7}}
    shown = {"content": [{"type": "text", "text": "shipped"}]}
    record = export(
        observation("g1", input=json.dumps(ASKED[0]), output=json.dumps({"role": "assistant", "content": [block]})),
        observation("t", "TOOL", 1, name="get_order", input='{"input": {"id": 7}}', output=json.dumps(shown)),
        observation("g2", second=2, input='{"content": "role"}'),
    )
    events = read(record)
    assert [e["kind"] for e in events] == ["model_call", "tool_call", "tool_result", "model_call"]
    assert events[2]["payload"]["content"] == "shipped"
    assert "input" not in events[3]["payload"]


def test_the_ai_sdks_calls_are_calls() -> None:
    made = [{"toolCallId": "c1", "toolName": "get_order", "input": '{"id": 7}'}]
    call = one(export(observation("g", output=json.dumps(made))))
    assert call["payload"]["message"]["tool_calls"] == [{"id": "c1", "name": "get_order", "arguments": {"id": 7}}]
    assert "content" not in call["payload"]["message"]


def test_costs_without_a_sum_are_added_up_and_cached_tokens_count_once() -> None:
    cached = {
        "input": 5, "output": 7, "cache_read_input_tokens": 30, "cache_creation_input_tokens": 200,
        "cache_creation_ephemeral_5m_input_tokens": 200,
    }  # fmt: skip
    call = one(export(observation("g", usageDetails=cached, costDetails={"input": 0.25, "output": 0.5})))
    assert (call["payload"]["input_tokens"], call["payload"]["output_tokens"]) == (235, 7)
    assert call["payload"]["cost_usd"] == 0.75


_BADLY = (
    "input", "output", "metadata", "modelParameters", "usageDetails", "costDetails", "toolDefinitions", "toolCalls",
    "toolCallNames", "tags", "parentObservationId", "startTime", "level",
)  # fmt: skip
_BAD: Sequence[Any] = (3, [], [[]], {}, "x", None, True)
HOSTILE: Sequence[Any] = [
    export(*(observation("g", **dict.fromkeys(_BADLY, bad)) for bad in _BAD)),
    export(None, 3, tags=3, metadata=3, sessionId=[], scores=[None, 3, {}], corrections="x"),  # type: ignore[arg-type]
    score(value=[], name=3, comment={}, timestamp="never"),
    score(subject="x", traceId={}, sessionId=[]),
    {"data": [observation("g")], "meta": None},
    {"id": S, "createdAt": None, "projectId": None, "traces": [None, 3]},
]  # fmt: skip


def test_a_trace_without_an_id_is_refused() -> None:
    with pytest.raises(BadRecordError, match="neither an id of its own nor of a trace"):
        read({"trace": {}, "observations": []})


@pytest.mark.parametrize("record", HOSTILE)
def test_hostile_rows_do_no_harm(record: Any) -> None:
    assert READER.sniff(Sample("x.json", [record])) == 1.0
    for event in read(record):
        assert isinstance(event["conversation_id"], str)
        json.dumps(event["payload"])


def test_a_record_that_is_no_row_is_refused() -> None:
    with pytest.raises(BadRecordError):
        read(["x"])
