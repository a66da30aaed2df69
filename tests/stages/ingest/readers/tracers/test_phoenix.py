"""Phoenix: span rows, pages, px documents, data frames; annotations of spans, traces and sessions."""

from __future__ import annotations

import csv
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
from flywheel.stages.ingest.readers.tracers.phoenix import READER

TRACE, LLM, TOOL, ROOT = "7dbaeba682933bd2484f9fd16655bde5", "1" * 16, "2" * 16, "9" * 16
CALL = {"tool_call.id": "c1", "tool_call.function.name": "get_order", "tool_call.function.arguments": '{"id": 7}'}
SCHEMA = '{"type":"function","function":{"name":"get_order","parameters":{"type":"object"}}}'


def row(span_id: str, kind: str, second: int, attributes: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "id": "U3Bhbg==", "name": kind.lower(), "context": {"trace_id": TRACE, "span_id": span_id}, "span_kind": kind,
        "parent_id": ROOT, "start_time": f"2026-10-01T09:00:0{second}+00:00",
        "end_time": f"2026-10-01T09:00:0{second}.500000+00:00", "status_code": "OK", "status_message": "",
        "attributes": attributes, "events": [], **more,
    }  # fmt: skip


ASKED = {
    "llm.model_name": "qwen3-8b",
    "llm.input_messages": [{"message.role": "user", "message.content": "where is order 7?"}],
    "llm.output_messages": [{"message.role": "assistant", "message.tool_calls": [CALL]}],
    "llm.tools": [{"tool.json_schema": SCHEMA}],
    "llm.token_count": {"prompt": 10, "completion": 4},
}
TOLD = {
    "llm": {
        "input_messages": [
            {"message": {"role": "user", "content": "where is order 7?"}},
            {"message": {"role": "assistant", "tool_calls": [{"tool_call": {"id": "c1", "function": {
                "name": "get_order", "arguments": '{"id": 7}'}}}]}},
            {"message": {"role": "tool", "content": "db timeout", "tool_call_id": "c1"}},
        ],
        "output_messages": [{"message": {"role": "assistant", "content": "Try later."}}],
    },
    "session": {"id": "conv-42"},
}  # fmt: skip
FAILED = {
    "status_code": "ERROR",
    "status_message": "TimeoutError: db timeout",
    "events": [{"name": "exception", "timestamp": "2026-10-01T09:00:02Z",
                "attributes": {"exception.type": "TimeoutError", "exception.message": "db timeout"}}],
}  # fmt: skip
SPANS = [
    row(LLM, "LLM", 1, ASKED),
    row(TOOL, "TOOL", 2, {"tool.name": "get_order", "input.value": '{"id": 7}'}, **FAILED),
    row("3" * 16, "LLM", 3, TOLD),
    row(ROOT, "AGENT", 0, {"user.id": "u1", "input.value": "where is order 7?"}, parent_id=None),
    row("4" * 16, "RETRIEVER", 1, {"retrieval.documents.0.document.content": "x"}),
]
ANNOTATION = {
    "id": "A1", "span_id": LLM, "name": "user_feedback", "annotator_kind": "HUMAN", "identifier": "",
    "result": {"score": 0, "label": "thumbs-down", "explanation": "no date"}, "metadata": {}, "source": "API",
    "created_at": "2026-10-01T09:05:00+00:00", "updated_at": "2026-10-01T09:06:00+00:00",
}  # fmt: skip


def read(record: Any) -> list[dict[str, Any]]:
    return list(READER.read(record, 1))


def test_a_page_of_spans_is_an_episode(tmp_path: Path, take: Callable[..., Any]) -> None:
    (tmp_path / "page.json").write_text(json.dumps({"data": SPANS, "next_cursor": None}, indent=1))
    taken = take(tmp_path)
    assert taken.adds_up()
    assert taken.quarantined.height == 0
    assert set(taken.events["source_format"]) == {"phoenix"}
    assert set(taken.events["conversation_id"]) == {"conv-42"}
    episodes, steps = build_episodes(taken.events, EpisodesConfig(), Funnel())
    made = episodes.row(0, named=True)
    assert (made["n_steps"], made["n_tool_errors"], made["model"]) == (2, 1, "qwen3-8b")
    assert (made["input_tokens"], made["output_tokens"], made["stop_reason"]) == (10, 4, "answered")
    assert json.loads(made["tools"])[0]["function"]["name"] == "get_order"
    first = steps.sort("index").row(0, named=True)
    assert (first["tool_names"], first["tool_status"]) == (["get_order"], ["failed"])
    assert json.loads(first["action"])["tool_calls"][0]["arguments"] == {"id": 7}
    assert made["user"] is not None


def test_rows_of_their_own_join_by_trace(write: Callable[..., Path], take: Callable[..., Any]) -> None:
    write("spans.jsonl", SPANS)
    taken = take()
    assert (taken.read, taken.quarantined.height, sum(taken.ignored.values())) == (5, 0, 1)
    found = taken.events.filter(pl.col("kind") == "model_call").sort("ts")
    assert list(found["conversation_id"]) == [TRACE, "conv-42"]
    assert all(f"trace:{TRACE}" in ids for ids in found["ids"])


def frame(span: dict[str, Any]) -> dict[str, Any]:
    flat = {f"attributes.{k}": v for k, v in span["attributes"].items()}
    rest = {k: v for k, v in span.items() if k not in {"attributes", "context", "id"}}
    return rest | {f"context.{k}": v for k, v in span["context"].items()} | flat


def test_a_data_frame_as_parquet(tmp_path: Path, take: Callable[..., Any]) -> None:
    rows = [frame(SPANS[0]), frame(SPANS[1])]
    pl.DataFrame(rows, infer_schema_length=None).with_columns(
        pl.col("start_time").str.to_datetime(time_zone="UTC"), pl.col("end_time").str.to_datetime(time_zone="UTC")
    ).write_parquet(tmp_path / "spans.parquet")
    taken = take(tmp_path)
    assert taken.quarantined.height == 0
    again = {e["kind"]: e for s in SPANS[:2] for e in read(s)}
    assert taken.events.height == len(again)
    for event, payload in zip(taken.events.to_dicts(), taken.payloads(), strict=True):
        assert (event["ts"], payload) == (again[event["kind"]]["ts"], again[event["kind"]]["payload"])


def test_data_frames_as_pandas_writes_them(tmp_path: Path, take: Callable[..., Any]) -> None:
    """`to_json` by columns; `to_csv` with the index, which is one of the columns, and lists as Python writes them."""
    rows = [frame(SPANS[0]), frame(SPANS[1])]
    names = list(dict.fromkeys(name for row in rows for name in row))
    cells = {name: {row["context.span_id"]: row.get(name) for row in rows} for name in names}
    (tmp_path / "json").mkdir()
    (tmp_path / "json" / "spans.json").write_text(json.dumps(cells))
    (tmp_path / "csv").mkdir()
    with (tmp_path / "csv" / "spans.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["context.span_id", *names])
        for one in rows:
            table.writerow([one["context.span_id"], *("" if one.get(name) is None else one[name] for name in names)])
    again = {e["kind"]: e["payload"] for s in SPANS[:2] for e in read(s)}
    for folder in ("json", "csv"):
        taken = take(tmp_path / folder, root=tmp_path / folder)
        assert taken.quarantined.height == 0
        assert {e["kind"]: p for e, p in zip(taken.events.to_dicts(), taken.payloads(), strict=True)} == again


def test_otlp_of_the_api_has_every_kind_of_value_as_null_but_one() -> None:
    kinds = ("array_value", "bool_value", "bytes_value", "double_value", "int_value", "kvlist_value")
    named = {"openinference.span.kind": "LLM", "input.value": "where is order 7?", "output.value": "Here."}
    attributes = [{"key": k, "value": {**dict.fromkeys(kinds), "string_value": v}} for k, v in named.items()]
    span = {"trace_id": TRACE, "span_id": LLM, "parent_span_id": None, "name": "llm", "attributes": attributes,
            "start_time_unix_nano": 1790850000000000000, "end_time_unix_nano": 1790850001000000000,
            "events": None, "links": None, "status": {"code": 1, "message": None}}  # fmt: skip
    (call,) = read({"data": [span], "next_cursor": None})
    assert call["payload"]["message"]["content"] == "Here."
    assert READER.sniff(Sample("x.json", [{"data": [span], "next_cursor": None}])) > 0


def test_nested_names_of_the_genai_conventions_in_a_data_frame() -> None:
    nested = {"response": {"id": "r1", "model": "m"}, "usage": {"input_tokens": 9}}
    (call,) = read(frame(row(LLM, "LLM", 1, {"gen_ai": nested, "output.value": '{"id": "r1", "model": "m"}'})))
    assert (call["payload"]["response_id"], call["payload"]["tags"]) == ("r1", ["content_missing"])


def test_a_document_of_px_has_annotations_and_notes() -> None:
    note = {"span_id": TOOL, "name": "note", "annotator_kind": "HUMAN", "result": {"explanation": "look here"}}
    spans = [SPANS[0] | {"annotations": [ANNOTATION]}, SPANS[1] | {"notes": [note]}]
    judged = {k: v for k, v in ANNOTATION.items() if k != "span_id"} | {"trace_id": TRACE, "annotator_kind": "LLM"}
    found = [e for e in read({"traceId": TRACE, "spans": spans, "annotations": [judged], "rootSpan": None})
             if e["kind"] == "feedback"]  # fmt: skip
    assert [(e["target"], e["payload"].get("annotator"), e["payload"]["comment"]) for e in found] == [
        (f"span:{LLM}", "human", "no date"),
        (f"span:{TOOL}", "human", "look here"),
        (f"trace:{TRACE}", "llm", "no date"),
    ]


@pytest.mark.parametrize(
    ("target", "named", "scope"),
    [
        ({"span_id": LLM}, f"span:{LLM}", "call"),
        ({"trace_id": TRACE.upper()}, f"trace:{TRACE}", "trace"),
        ({"session_id": "conv-42"}, "session:conv-42", "session"),
    ],
)
def test_an_annotation_names_what_it_judges(target: dict[str, str], named: str, scope: str) -> None:
    (event,) = read({k: v for k, v in ANNOTATION.items() if k != "span_id"} | target)
    assert (event["target"], event["payload"]["target"], str(event["ts"])) == (
        named,
        scope,
        "2026-10-01 09:06:00+00:00",
    )
    assert event["conversation_id"] == ("conv-42" if scope == "session" else named)
    assert {k: event["payload"][k] for k in ("name", "value", "label", "comment", "annotator")} == {
        "name": "user_feedback", "value": 0.0, "label": "thumbs-down", "comment": "no date", "annotator": "human",
    }  # fmt: skip


def test_annotations_as_a_data_frame_has_them() -> None:
    flat = {k: v for k, v in ANNOTATION.items() if k not in {"result", "name"}} | {"annotation_name": "tone"}
    (event,) = read(flat | {"result.score": 0.5, "result.label": None, "result.explanation": None})
    assert (event["payload"]["name"], event["payload"]["value"], event["target"]) == ("tone", 0.5, f"span:{LLM}")


def test_a_session_says_which_traces_belong_together() -> None:
    session = {
        "id": "S1", "session_id": "conv-42", "project_id": "P1",
        "traces": [{"trace_id": TRACE, "start_time": "2026-10-01T09:00:00Z"}, {"trace_id": "ab" * 16}],
    }  # fmt: skip
    judged = {k: v for k, v in ANNOTATION.items() if k != "span_id"} | {"session_id": "conv-42"}
    for record in (session, {"data": [session]}):
        events = read(record)
        assert [(e["conversation_id"], e["ids"], e["payload"]) for e in events] == [
            ("conv-42", [f"trace:{TRACE}"], {"messages": []}),
            ("conv-42", [f"trace:{'ab' * 16}"], {"messages": []}),
        ]
    assert read({"session": session, "annotations": [judged]})[0]["target"] == "session:conv-42"
    assert len(read({"session": session, "annotations": [judged]})) == 3


def test_what_judges_no_step_gives_nothing() -> None:
    assert read({"data": [], "next_cursor": None}) == []
    assert read(ANNOTATION | {"document_position": 0}) == []
    assert read(ANNOTATION | {"result": {}}) == []
    assert read(SPANS[4]) == []
    others: list[Any] = [[], {"data": [1]}, {"spans": [SPANS[0]]}, {"name": "x", "context": {}}]
    for other in others:
        with pytest.raises(BadRecordError):
            read(other)


def test_detection() -> None:
    known = [SPANS[0], {"data": SPANS}, {"traceId": TRACE, "spans": SPANS}, ANNOTATION, frame(SPANS[0])]
    assert READER.sniff(Sample("a.jsonl", known)) == 1
    strangers = [{"data": [{"id": 1}]}, {"name": "x", "span_kind": "LLM"}, {"messages": []}, {"spans": [], "info": {}}]
    assert READER.sniff(Sample("a.jsonl", strangers)) == 0
