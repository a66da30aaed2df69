"""OTLP JSON written by hand: attributes, spans, log records, export requests."""

from __future__ import annotations

from typing import Any

TRACE = "7dbaeba682933bd2484f9fd16655bde5"
START = 1790845200_000_000_000


def value(plain: Any) -> dict[str, Any]:
    if isinstance(plain, bool):
        return {"boolValue": plain}
    if isinstance(plain, int):
        return {"intValue": str(plain)}
    if isinstance(plain, float):
        return {"doubleValue": plain}
    if isinstance(plain, list):
        return {"arrayValue": {"values": [value(v) for v in plain]}}
    if isinstance(plain, dict):
        return {"kvlistValue": {"values": attributes(plain)}}
    return {"stringValue": plain}


def attributes(plain: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"key": k, "value": value(v)} for k, v in plain.items()]


def span(number: int, plain: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "traceId": TRACE,
        "spanId": f"{number:016x}",
        "parentSpanId": f"{99:016x}",
        "startTimeUnixNano": str(START + number * 10**9),
        "endTimeUnixNano": str(START + number * 10**9 + 5 * 10**8),
        "attributes": attributes(plain),
        **more,
    }


def spans(*items: dict[str, Any], **resource: Any) -> dict[str, Any]:
    return {
        "resourceSpans": [{"resource": {"attributes": attributes(resource)}, "scopeSpans": [{"spans": list(items)}]}]
    }


def logs(*items: dict[str, Any]) -> dict[str, Any]:
    return {"resourceLogs": [{"scopeLogs": [{"logRecords": list(items)}]}]}
