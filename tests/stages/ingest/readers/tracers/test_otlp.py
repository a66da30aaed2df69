"""The OTLP envelope in both spellings."""

from __future__ import annotations

from typing import Any

import pytest
from flywheel.stages.ingest.readers.tracers._otel.otlp import is_envelope, open_envelope

SPAN: dict[str, Any] = {
    "traceId": "7DBAEBA682933BD2484F9FD16655BDE5",
    "spanId": "14eca92ad034c2ed",
    "parentSpanId": "",
    "name": "chat m",
    "startTimeUnixNano": "1790845200000000000",
    "endTimeUnixNano": 1790845200900000000,
    "status": {"code": "STATUS_CODE_ERROR"},
    "events": [{"name": "e", "timeUnixNano": {"low": 0, "high": 416970000}, "attributes": []}],
    "attributes": [
        {"key": "s", "value": {"stringValue": "x"}},
        {"key": "i", "value": {"intValue": "10"}},
        {"key": "d", "value": {"doubleValue": 0.5}},
        {"key": "b", "value": {"boolValue": False}},
        {"key": "l", "value": {"arrayValue": {"values": [{"stringValue": "a"}, {}]}}},
        {"key": "m", "value": {"kvlistValue": {"values": [{"key": "k", "value": {"intValue": 1}}]}}},
        {"key": "n", "value": {}},
        {"key": "raw", "value": {"bytesValue": "AAAA"}},
        {"key": "bad", "value": {"intValue": "x"}},
    ],
}


def snake(value: Any) -> Any:
    if isinstance(value, list):
        return [snake(v) for v in value]
    if isinstance(value, dict):
        return {"".join(f"_{c.lower()}" if c.isupper() else c for c in k): snake(v) for k, v in value.items()}
    return value


def envelope(span: dict[str, Any]) -> dict[str, Any]:
    resource = {"attributes": [{"key": "service.version", "value": {"stringValue": "r1"}}]}
    return {"resourceSpans": [{"resource": resource, "scopeSpans": [{"scope": {"name": "x"}, "spans": [span]}]}]}


@pytest.mark.parametrize("record", [envelope(SPAN), snake(envelope(SPAN))], ids=["camel", "snake"])
def test_a_span_in_both_spellings(record: dict[str, Any]) -> None:
    assert is_envelope(record)
    (span,) = open_envelope(record).spans
    assert (span.trace_id, span.span_id, span.parent_id) == (
        "7dbaeba682933bd2484f9fd16655bde5",
        "14eca92ad034c2ed",
        None,
    )
    assert span.attributes == {
        "s": "x", "i": 10, "d": 0.5, "b": False, "l": ["a", None], "m": {"k": 1},
    }  # fmt: skip
    assert span.resource == {"service.version": "r1"}
    assert (span.failed, span.ok) == (True, False)
    assert span.started is not None
    assert span.ended is not None
    assert (span.ended - span.started).total_seconds() == 0.9
    assert [e.name for e in span.events] == ["e"]


def test_log_records_have_a_name_a_time_and_a_body() -> None:
    records = [
        {
            "eventName": "a",
            "timeUnixNano": "0",
            "observedTimeUnixNano": "1790845200000000000",
            "body": {"stringValue": "x"},
        },
        {"attributes": [{"key": "event.name", "value": {"stringValue": "b"}}], "body": {"kvlistValue": {"values": []}}},
    ]
    found = open_envelope({"resourceLogs": [{"scopeLogs": [{"logRecords": records}]}]}).logs
    assert [(r.name, r.body, str(r.ts)) for r in found] == [("a", "x", "2026-10-01 09:00:00+00:00"), ("b", {}, "None")]


@pytest.mark.parametrize(
    "record",
    [
        {"resourceSpans": [7]},
        {"resourceSpans": [{"scopeSpans": [None, {"spans": [3, {"attributes": 7, "events": [1], "status": 5}]}]}]},
        {"resourceLogs": [{}]},
    ],
)
def test_nothing_in_it_has_to_be_there(record: dict[str, Any]) -> None:
    assert is_envelope(record)
    open_envelope(record)
