"""Spans as Jaeger, Zipkin, Tempo and Cloud Trace give them back are those that the collector wrote."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from flywheel.stages.ingest.readers.tracers._otel.backends import exported_spans, is_exported
from flywheel.stages.ingest.readers.tracers._otel.otlp import Span, is_envelope, open_envelope

if TYPE_CHECKING:
    from tests.stages.ingest.conftest import Take

OTLP = Path(__file__).parents[4] / "fixtures" / "otel"
Record = dict[str, Any]
Way = Callable[[list[tuple[Record, Span]]], list[Record]]


def sent(name: str) -> list[tuple[Record, Span]]:
    """Return a file's spans, as they were sent and as they are read; none of them holds bytes or log records."""
    records = [json.loads(line) for line in (OTLP / name).read_text().splitlines()]
    raw = [
        span
        for record in records
        for group in record.get("resourceSpans", ())
        for scope in group["scopeSpans"]
        for span in scope["spans"]
    ]
    return list(zip(raw, (span for record in records for span in open_envelope(record).spans), strict=True))


def micros(nanos: Any) -> int:
    return int(nanos) // 1000


def told(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, list | dict) else value


def tags(values: Record) -> list[Record]:
    kinds = {bool: "bool", int: "int64", float: "float64"}
    return [{"key": k, "type": kinds.get(type(v), "string"), "value": told(v)} for k, v in values.items()]


def ended(span: Span) -> Record:
    if span.failed:
        return {"otel.status_code": "ERROR", "error": True, "otel.status_description": span.message or ""}
    return {"otel.status_code": "OK"} if span.ok else {}


def jaeger(raw: Record, span: Span) -> Record:
    parent = [{"refType": "CHILD_OF", "traceID": span.trace_id, "spanID": span.parent_id}] if span.parent_id else []
    began = micros(raw["startTimeUnixNano"])
    logs = [
        {"timestamp": micros(was["timeUnixNano"]), "fields": tags({"event": event.name, **event.attributes})}
        for was, event in zip(raw.get("events", ()), span.events, strict=True)
    ]
    return {"traceID": span.trace_id, "spanID": span.span_id, "operationName": span.name, "references": parent,
            "startTime": began, "duration": micros(raw["endTimeUnixNano"]) - began, "logs": logs,
            "tags": tags({**span.attributes, **ended(span)}), "processID": "p1"}  # fmt: skip


def pages(spans: list[tuple[Record, Span]]) -> list[Record]:
    """Return what Jaeger's API answers: a page of traces."""
    traces: dict[Any, list[Record]] = {}
    for raw, span in spans:
        traces.setdefault(span.trace_id, []).append(jaeger(raw, span))
    processes = {"p1": {"serviceName": "agent", "tags": tags(spans[0][1].resource)}}
    data = [
        {"traceID": trace, "spans": made, "processes": processes, "warnings": None} for trace, made in traces.items()
    ]
    return [{"data": data, "total": 0, "limit": 0, "offset": 0, "errors": None}]


def stored(spans: list[tuple[Record, Span]]) -> list[Record]:
    """Return spans as Elasticsearch holds them, some of whose tags are an object."""
    process = {"serviceName": "agent", "tag": {k.replace(".", "@"): v for k, v in spans[0][1].resource.items()}}
    return [{**jaeger(raw, span), "processID": None, "process": process} for raw, span in spans]


def zipkin(spans: list[tuple[Record, Span]]) -> list[Record]:
    """Return Zipkin's spans: every tag is a text, and an event has a name alone."""
    return [
        {"traceId": span.trace_id, "id": span.span_id, "parentId": span.parent_id, "name": span.name,
         "timestamp": micros(raw["startTimeUnixNano"]),
         "duration": micros(raw["endTimeUnixNano"]) - micros(raw["startTimeUnixNano"]),
         "localEndpoint": {"serviceName": "agent"},
         "annotations": [{"timestamp": micros(was["timeUnixNano"]), "value": json.dumps({e.name: e.attributes})}
                         for was, e in zip(raw.get("events", ()), span.events, strict=True)],
         "tags": {k: told(v) if isinstance(v, str | list | dict) else json.dumps(v)
                  for k, v in {**span.attributes, **span.resource, **ended(span)}.items()}}
        for raw, span in spans
    ]  # fmt: skip


def google(spans: list[tuple[Record, Span]]) -> list[Record]:
    """Return traces as Cloud Trace's API lists them: ids of spans are decimal, labels are texts."""
    traces: dict[str, list[Record]] = {}
    for (raw, span), sent_as in zip(spans, zipkin(spans), strict=True):
        numbers = {name: str(int(raw[name], 16)) for name in ("spanId", "parentSpanId") if raw.get(name)}
        assert span.started is not None
        assert span.ended is not None
        traces.setdefault(raw["traceId"], []).append({
            **numbers, "kind": "RPC_CLIENT", "name": raw["name"], "startTime": span.started.isoformat(),
            "endTime": span.ended.isoformat(), "labels": sent_as["tags"],
        })  # fmt: skip
    return [{"projectId": "p", "traceId": trace, "spans": several} for trace, several in traces.items()]


def tempo(spans: list[tuple[Record, Span]]) -> list[Record]:
    attributes = [{"key": k, "value": {"stringValue": v}} for k, v in spans[0][1].resource.items()]
    return [
        {"batches": [{"resource": {"attributes": attributes}, "scopeSpans": [{"spans": [raw for raw, _ in spans]}]}]}
    ]


def newer_tempo(spans: list[tuple[Record, Span]]) -> list[Record]:
    return [{"trace": {"resourceSpans": tempo(spans)[0]["batches"]}}]


def single(spans: list[tuple[Record, Span]]) -> list[Record]:
    """Return each span as a record of its own, as OTLP has it."""
    resource = tempo(spans)[0]["batches"][0]["resource"]
    return [{**raw, "resource": resource} for raw, _ in spans]


KEPT = ["conversation_id", "kind", "ts", "tool_name", "tool_call_id", "model", "policy", "user", "payload"]
WAYS = [(pages, tempo), (stored, single), (zipkin, single), (newer_tempo, tempo)]


def events(path: Path, take: Take) -> list[tuple[Any, ...]]:
    found = take(path, root=path.parent)
    assert found.quarantined.height == 0
    assert set(found.events["source_format"]) == {"otel"}
    rows = found.events.with_columns(pl.col("ts").dt.truncate("1ms")).select(KEPT).rows()
    return sorted(rows, key=str)


def written(path: Path, records: list[Record]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


@pytest.mark.parametrize(("way", "as_sent"), WAYS)
@pytest.mark.parametrize("name", ["openinference.jsonl", "openllmetry.jsonl"])
def test_a_backend_gives_back_what_was_sent(name: str, way: Way, as_sent: Way, tmp_path: Path, take: Take) -> None:
    spans = sent(name)
    back, there = written(tmp_path / "back.jsonl", way(spans)), written(tmp_path / "sent.jsonl", as_sent(spans))
    assert events(back, take) == events(there, take)


def test_cloud_trace_gives_back_what_was_sent_but_events_of_spans(tmp_path: Path, take: Take) -> None:
    spans = sent("openllmetry.jsonl")
    back, there = written(tmp_path / "back.jsonl", google(spans)), written(tmp_path / "sent.jsonl", tempo(spans))
    assert events(back, take) == events(there, take)


def test_tempos_batches_are_an_export_request(take: Take, tmp_path: Path) -> None:
    found = events(written(tmp_path / "tempo.jsonl", tempo(sent("openllmetry.jsonl"))), take)
    assert found == events(OTLP / "openllmetry.jsonl", take)


def test_a_field_called_trace_hides_no_spans(take: Take, tmp_path: Path) -> None:
    """Only what Tempo's newer API wraps is looked for in it."""
    (batch,) = tempo(sent("openllmetry.jsonl"))
    beside = {"trace": {"id": "t1"}, "resourceSpans": batch["batches"]}
    found = events(written(tmp_path / "beside.jsonl", [beside]), take)
    assert found == events(OTLP / "openllmetry.jsonl", take)


def test_zipkins_api_gives_lists_of_spans(tmp_path: Path, take: Take) -> None:
    spans = sent("openllmetry.jsonl")
    pages_ = tmp_path / "traces.json"
    pages_.write_text(json.dumps([zipkin(spans)]))
    assert events(pages_, take) == events(written(tmp_path / "sent.jsonl", tempo(spans)), take)


def test_a_failed_span_and_what_it_follows() -> None:
    fields = {"traceID": "ab", "spanID": "01", "operationName": "chat", "startTime": 1790845200000000, "duration": 5,
              "references": [{"refType": "FOLLOWS_FROM", "traceID": "cd", "spanID": "02"}],
              "tags": [{"key": "error", "type": "bool", "value": True},
                       {"key": "span.kind", "type": "string", "value": "server"}]}  # fmt: skip
    (span,) = exported_spans(fields)
    assert (span.failed, span.ok, span.parent_id, span.server) == (True, False, None, True)
    assert span.links == [("cd", "02")]
    assert span.started is not None
    assert span.ended == span.started + timedelta(microseconds=5)


@pytest.mark.parametrize(
    "record",
    [
        {"batches": [{"id": 1, "status": "completed"}]},
        {"data": [{"spans": [{"start": 0, "end": 4}]}]},
        {"traceId": "a", "id": "b", "timestamp": "yesterday", "tags": {}},
        {"traceId": "a", "id": "b", "timestamp": 1, "tags": ["x"]},
        {},
    ],
)
def test_what_has_a_word_in_common_is_none(record: Record) -> None:
    assert not is_exported(record)
    assert not is_envelope(record)
