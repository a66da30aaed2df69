"""MLflow: attributes that are JSON text each, ids in base64, assessments that replace one another, judges' traces."""

from __future__ import annotations

import base64
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
from flywheel.stages.ingest.readers.tracers.mlflow import READER

FIXTURES = Path(__file__).parents[4] / "fixtures" / "mlflow"
TRACE = "ab" * 16
START = 1790850000000000000


def b64(hex_id: str) -> str:
    return base64.b64encode(bytes.fromhex(hex_id)).decode()


def span(number: int, kind: str, *, code: str = "OK", parent: int | None = 1, **attributes: Any) -> dict[str, Any]:
    named = {"spanType": kind, **attributes}
    return {
        "trace_id": b64(TRACE), "span_id": b64(f"{number:016x}"), "name": attributes.get("spanFunctionName", "span"),
        "parent_span_id": b64(f"{parent:016x}") if parent else None,
        "start_time_unix_nano": START + number * 10**9, "end_time_unix_nano": START + number * 10**9 + 5 * 10**8,
        "events": [], "status": {"code": f"STATUS_CODE_{code}", "message": ""},
        "attributes": {f"mlflow.{name}": json.dumps(value) for name, value in named.items()},
    }  # fmt: skip


ASKED = {"model": "m", "messages": [{"role": "user", "content": "Where is 7?"}], "temperature": 0.5}
SAID = {"id": "x1", "choices": [{"finish_reason": "stop", "message": {"role": "assistant", "content": "Here."}}]}
ROOT = span(1, "AGENT", parent=None, spanInputs={"question": "Where is 7?"}, spanOutputs="Here.")
CALL = span(2, "CHAT_MODEL", spanInputs=ASKED, spanOutputs=SAID)
CALL["attributes"]["mlflow.chat.tokenUsage"] = '{"input_tokens": 10, "output_tokens": 4}'
CALL["attributes"]["mlflow.llm.cost"] = '{"total_cost": 0.25}'
TOOL = span(3, "TOOL", spanInputs={"n": 7}, spanOutputs={"found": True}, spanFunctionName="find")
INFO: dict[str, Any] = {
    "trace_id": f"tr-{TRACE}", "request_time": "2026-10-01T09:00:00Z", "state": "OK", "client_request_id": "req-7",
    "request_preview": "Where is", "tags": {"mlflow.traceName": "agent"},
    "trace_metadata": {"mlflow.trace.session": "conv-1", "mlflow.trace.user": "u1", "mlflow.modelId": "m-3"},
}  # fmt: skip


def assessed(name: str, **fields: Any) -> dict[str, Any]:
    return {
        "assessment_id": f"a-{name}", "assessment_name": name, "source": {"source_type": "HUMAN", "source_id": "u1"},
        "create_time": "2026-10-01T09:05:00Z", **fields,
    }  # fmt: skip


def trace(*spans: dict[str, Any], **info: Any) -> dict[str, Any]:
    return {"info": {**INFO, **info}, "data": {"spans": list(spans)}}


def read(record: Any) -> list[dict[str, Any]]:
    return list(READER.read(record, 1))


def judged(*assessments: dict[str, Any]) -> list[dict[str, Any]]:
    return [e for e in read(trace(ROOT, CALL, assessments=list(assessments))) if e["kind"] in ("feedback", "outcome")]


def test_a_model_span_is_a_call_of_the_traces_session() -> None:
    place, event = read(trace(ROOT, CALL))
    assert (place["kind"], place["payload"]) == ("request", {"messages": []})
    assert (event["conversation_id"], event["user"], event["policy"], event["model"]) == ("conv-1", "u1", "m-3", "m")
    assert (event["span_id"], event["parent_id"]) == ("0000000000000002", "0000000000000001")
    assert event["ids"] == [
        f"trace:{TRACE}", f"trace:tr-{TRACE}", "request:req-7", "span:0000000000000002", "response:x1",
    ]  # fmt: skip
    payload = event["payload"]
    assert payload["message"] == {"role": "assistant", "content": "Here."}
    assert payload["input"] == [{"role": "user", "content": "Where is 7?"}]
    shown = ("input_tokens", "output_tokens", "cost_usd", "latency_s", "finish_reason", "sampling", "response_id")
    assert [payload[name] for name in shown] == [10, 4, 0.25, 0.5, "stop", {"temperature": 0.5}, "x1"]


def test_a_tool_span_is_a_call_and_a_result() -> None:
    _, made, result = read(trace(ROOT, TOOL, CALL))[:3]
    assert (made["tool_name"], made["payload"]) == ("find", {"arguments": {"n": 7}})
    assert (result["payload"]["content"], result["payload"]["status"]) == ('{"found":true}', "ok")
    numbered = {**TOOL, "name": "find_2"}  # the second of its name
    assert read(trace(ROOT, numbered))[-1]["tool_name"] == "find"


def test_a_failed_tool_span_has_no_output() -> None:
    broken = span(3, "TOOL", code="ERROR", spanInputs={"n": 7})
    broken["events"] = [{"name": "exception", "attributes": {"exception.type": "TimeoutError"}}]
    payload = read(trace(ROOT, broken, CALL))[2]["payload"]
    assert (payload["status"], payload["error_type"]) == ("failed", "TimeoutError")
    unset = span(3, "TOOL", code="UNSET", spanInputs={"n": 7}, spanOutputs="found")
    assert read(trace(ROOT, unset, CALL))[2]["payload"]["status"] == "unknown"


def test_a_stream_stands_in_events_or_in_a_list() -> None:
    pieces = [{"choices": [{"delta": {"content": said}}]} for said in ("He", "re.")]
    streamed = span(2, "CHAT_MODEL", spanInputs=ASKED)
    streamed["events"] = [
        {"name": f"mlflow.chunk.item.{n}", "attributes": {"mlflow.chunk.value": json.dumps(piece)}}
        for n, piece in reversed(list(enumerate(pieces)))
    ]
    for given in (streamed, span(2, "CHAT_MODEL", spanInputs=ASKED, spanOutputs=pieces)):
        assert read(trace(ROOT, given))[1]["payload"]["message"] == {"role": "assistant", "content": "Here."}


def test_without_a_model_span_the_outermost_one_is_all_there_is() -> None:
    asked, made, result, answer = sorted(read(trace(ROOT, TOOL)), key=lambda event: event["seq"])
    assert asked["payload"]["messages"] == [{"role": "user", "content": "Where is 7?"}]
    assert (made["kind"], result["kind"]) == ("tool_call", "tool_result")
    assert answer["payload"]["message"]["content"] == "Here."
    assert answer["payload"]["tags"] == ["reconstructed"]


def test_a_run_under_the_outermost_span_may_hold_the_whole_talk() -> None:
    """A request that an application traces itself, and AutoGen's run in it, whose calls are not traced."""
    talk = [
        {"source": "user", "content": "Where is 7?", "type": "TextMessage"},
        {"source": "bot", "content": [{"id": "c1", "name": "find", "arguments": '{"n": 7}'}],
         "type": "ToolCallRequestEvent"},
        {"source": "bot", "content": [{"call_id": "c1", "name": "find", "content": "Oslo", "is_error": False}],
         "type": "ToolCallExecutionEvent"},
        {"source": "bot", "content": "In Oslo.", "type": "TextMessage"},
    ]  # fmt: skip
    inner = span(2, "AGENT", spanInputs={"task": "Where is 7?"}, spanOutputs={"messages": talk})
    schema = {"type": "function", "function": {"name": "find", "parameters": {}}}
    inner["attributes"]["mlflow.chat.tools"] = json.dumps([schema])
    events = read(trace(ROOT, inner))
    acts = [event["payload"] for event in events if event["kind"] == "model_call"]
    assert [bool(act["message"].get("tool_calls")) for act in acts] == [True, False]
    assert (acts[0]["tools"], acts[1]["message"]["content"]) == ([schema], "In Oslo.")
    assert [e["payload"]["content"] for e in events if e["kind"] == "tool_result"] == ["Oslo"]


def test_the_answer_of_a_stream_may_be_in_the_step_around_it() -> None:
    """LlamaIndex' agents stream; MLflow logs the name of the stream's object."""
    shown = "<async_generator object wrap.<locals>.g at 0x7fb2a48f2e90>"
    step = span(4, "CHAIN", spanInputs={}, spanOutputs={"response": {"role": "assistant", "content": "Here."}})
    _, call = read(trace(ROOT, step, span(5, "CHAT_MODEL", parent=4, spanInputs=ASKED, spanOutputs=shown)))
    assert call["payload"]["message"] == {"role": "assistant", "content": "Here."}
    _, alone = read(trace(ROOT, span(5, "CHAT_MODEL", spanInputs=ASKED, spanOutputs=shown)))
    assert alone["payload"]["tags"] == ["content_missing"]


def test_a_tool_of_smolagents_has_its_arguments_and_its_value() -> None:
    given = {"sanitize_inputs_outputs": True, "kwargs": {"n": 7}}
    _, made, result = read(trace(ROOT, span(3, "TOOL", spanInputs=given, spanOutputs={"_value": "Oslo"}), CALL))[:3]
    assert (made["payload"], result["payload"]["content"]) == ({"arguments": {"n": 7}}, "Oslo")


def test_schema_2() -> None:
    old = {
        "name": "chat", "context": {"trace_id": f"0x{TRACE}", "span_id": "0000000000000002"}, "parent_id": None,
        "start_time": START, "end_time": START + 10**9, "status_code": "OK", "status_message": "", "events": [],
        "attributes": CALL["attributes"],
    }  # fmt: skip
    info = {"request_id": f"tr-{TRACE}", "timestamp_ms": START // 10**6, "request_metadata": {}, "tags": {}}
    (event,) = read({"info": info, "data": {"spans": [old]}})
    assert (event["conversation_id"], event["span_id"]) == (TRACE, "0000000000000002")
    assert event["ts"].isoformat() == "2026-10-01T10:20:00+00:00"


def test_a_warehouses_trace_id_stands_behind_its_place() -> None:
    event = read(trace(CALL, trace_id=f"trace:/cat.schema/{TRACE}"))[0]
    assert event["ids"][0] == f"trace:{TRACE}"


def test_a_judges_trace_is_not_the_agents() -> None:
    assert read(trace(ROOT, CALL, tags={"mlflow.trace.sourceScorer": "tone"})) == []


def test_what_was_replaced_does_not_count() -> None:
    given = [
        assessed("old", feedback={"value": True}, valid=False),
        assessed("older", feedback={"value": True}),
        assessed("new", feedback={"value": False}, overrides="a-older", valid=True),
    ]
    (one,) = judged(*given)
    assert one["payload"] == {
        "name": "new", "value": 0.0, "target": "trace", "target_id": TRACE, "annotator": "human",
    }  # fmt: skip
    assert one["ts"].isoformat() == "2026-10-01T09:05:00+00:00"


def test_who_said_it_and_how() -> None:
    judge, code, nobody = ({"source_type": kind, "source_id": name} for kind, name in
                           (("LLM_JUDGE", "j"), ("CODE", "c"), ("CODE", "default")))  # fmt: skip
    said, checked, unnamed, broken = judged(
        assessed("tone", source=judge, feedback={"value": "no"}, rationale="curt"),
        assessed("has_date", source=code, feedback={"value": True}),
        assessed("thumbs", source=nobody, feedback={"value": True}),
        assessed("failed", source=judge, feedback={"error": {"error_code": "X"}}, rationale="none"),
    )
    assert [said["payload"][name] for name in ("label", "value", "annotator")] == ["no", 0.0, "llm"]
    assert (checked["kind"], checked["payload"]["source"]) == ("outcome", "verifier")
    assert (unnamed["kind"], unnamed["payload"].get("annotator")) == ("feedback", None)
    assert "value" not in broken["payload"]


def test_what_is_judged() -> None:
    on_span, on_root, on_session = judged(
        assessed("a", feedback={"value": 1}, span_id="0000000000000002"),
        assessed("b", feedback={"value": 1}, span_id="00000000000000ff"),
        assessed("c", feedback={"value": 1}, metadata={"mlflow.assessment.onlineScoringSessionId": "conv-1"}),
    )
    targets = [on_span["target"], on_root["target"], on_session["target"]]
    assert targets == ["span:0000000000000002", f"trace:{TRACE}", "session:conv-1"]
    assert on_span["payload"]["target"] == "call"


@pytest.mark.parametrize(
    "value",
    [
        {"value": "On Monday."},
        {"value": {"expected_response": "On Monday."}},
        {"serialized_value": {"serialization_format": "JSON_FORMAT", "value": '{"output": "On Monday."}'}},
    ],
)
def test_an_expectation_is_a_text_to_compare_with(value: Any) -> None:
    (one,) = judged(assessed("expected_response", expectation=value))
    assert (one["payload"]["name"], one["payload"]["text"]) == ("expected_response", "On Monday.")


def test_what_is_no_trace_is_refused() -> None:
    others: list[Any] = [[], {"info": {}, "data": {}}, {"info": INFO}, {"spans": []}]
    for other in others:
        with pytest.raises(BadRecordError):
            read(other)


def test_detection() -> None:
    assert READER.sniff(Sample("x.json", [trace(ROOT, CALL)])) == 1
    assert READER.sniff(Sample("x.json", [{"info": {}, "trajectory": [], "history": []}])) == 0


def test_a_tables_rows(tmp_path: Path, take: Callable[..., Any]) -> None:
    whole = {"trace_id": f"tr-{TRACE}", "trace": json.dumps(trace(ROOT, CALL)), "state": "OK"}
    parts = {**{k: v for k, v in INFO.items() if k != "tags"}, "tags": {"a": "b"}, "spans": [ROOT, CALL, TOOL]}
    for name, row in (("whole", whole), ("parts", parts)):
        pl.DataFrame([row]).write_parquet(tmp_path / f"{name}.parquet")
    taken = take()
    assert (taken.adds_up(), taken.quarantined.height) == (True, 0)
    counts = taken.events.group_by("source_file", "kind").len().sort("source_file", "kind").rows()
    assert counts == [
        ("parts.parquet", "model_call", 1), ("parts.parquet", "request", 1), ("parts.parquet", "tool_call", 1),
        ("parts.parquet", "tool_result", 1), ("whole.parquet", "model_call", 1), ("whole.parquet", "request", 1),
    ]  # fmt: skip


def test_what_the_library_writes(take: Callable[..., Any]) -> None:
    taken = take(FIXTURES, root=FIXTURES)
    assert (taken.adds_up(), taken.quarantined.height, taken.read) == (True, 0, 4)
    episodes, steps = build_episodes(taken.events, EpisodesConfig(), Funnel())
    assert episodes.height == 3
    talk = episodes.filter(pl.col("conversation_id") == "conv-42")
    assert talk.select("n_steps", "n_tool_calls", "n_tool_errors").row(0) == (3, 2, 1)
    path = steps.filter(pl.col("episode_id") == talk["episode_id"].item()).sort("index")
    assert path["tool_status"].to_list() == [["ok"], [], ["failed"]]
    answers = [json.loads(action).get("content") for action in steps["action"]]
    assert {"Bye!", "No idea.", "It arrives on Monday."} <= set(answers)
