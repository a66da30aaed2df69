"""Spans as tracing backends give them back: Jaeger (API, download, stored spans), Zipkin's v2, Google's Cloud Trace.

What an SDK sent as attributes are their tags, of Zipkin's and Google's texts alone; times are in microseconds, but
Google's.

Sources: jaegertracing.io/docs (internal JSON of the query API; the Elasticsearch schema has `tag` and `process`),
zipkin.io/zipkin-api (v2), OpenTelemetry's specification of both exporters (`otel.status_code`, `error`);
cloud.google.com/trace/docs/reference/v1 (`Trace`, `TraceSpan`).

In: one record. Out: `Span`s.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from flywheel.reading.values import as_dict, as_list, embedded, first, ident, number, text, when
from flywheel.stages.ingest.readers.tracers._otel.attributes import folded
from flywheel.stages.ingest.readers.tracers._otel.otlp import Link, Span, SpanEvent, plain_attributes

_JAEGER = {"traceID", "spanID", "operationName", "startTime"}
_ZIPKIN = {"traceId", "id", "timestamp", "tags"}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NUMBERS = ("token", "count", "temperature", ".top_", "penalty", ".seed", ".max_")  # of what Zipkin has as texts
_UNSIGNED = re.compile(r"[0-9]{1,20}")  # of 64 bits
_DECIMAL = re.compile(r"-?(?:0|[1-9]\d{0,14})(?:\.\d{1,15})?")


def is_exported(record: Any) -> bool:
    """Whether a record is a trace, a page of traces or a span of one of these backends."""
    return next(_traces(record), None) is not None or bool(_of_zipkin(record)) or _is_google(record)


def exported_spans(record: Any) -> list[Span]:
    """Return the spans of a record."""
    if found := _of_zipkin(record):
        return list(map(_zipkin, found))
    if _is_google(record):
        return [_google(record["traceId"], span) for span in record["spans"]]
    return [_jaeger(span, processes) for spans, processes in _traces(record) for span in spans]


def _traces(record: Any) -> Iterator[tuple[Sequence[Mapping[str, Any]], Mapping[str, Any]]]:
    """Yield the spans of each trace of Jaeger's, with the processes that made them."""
    outer = as_dict(record)
    if outer.keys() >= _JAEGER:
        yield [outer], {}
    for trace in map(as_dict, [outer, *as_list(outer.get("data"))]):
        spans = [span for span in map(as_dict, as_list(trace.get("spans"))) if span.keys() >= _JAEGER]
        if spans and "traceID" in trace:
            yield spans, as_dict(trace.get("processes"))


def _jaeger(fields: Mapping[str, Any], processes: Mapping[str, Any]) -> Span:
    tags = _tags(fields)
    process = as_dict(first(fields, ("process",)) or processes.get(str(fields.get("processID"))))
    references = [as_dict(reference) for reference in as_list(fields.get("references"))]
    parents = [r for r in references if r.get("refType") == "CHILD_OF" and r.get("traceID") == fields["traceID"]]
    parent = ident(parents[0].get("spanID")) if parents else ident(fields.get("parentSpanID"))
    links = [Link(ident(r.get("traceID")), ident(r.get("spanID"))) for r in references if r not in parents[:1]]
    events = [_event(as_dict(log)) for log in as_list(fields.get("logs"))]
    trace, span, name = (ident(fields[key]) for key in ("traceID", "spanID", "operationName"))
    resource = {"service.name": process.get("serviceName"), **_tags(process)}
    return _made((trace, span, parent), name, fields["startTime"], fields, tags, resource, events, links)


def _tags(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tags of a span or process; a store may keep some as an object, with `@` for dots."""
    kept = {str(name).replace("@", "."): value for name, value in as_dict(fields.get("tag")).items()}
    return kept | plain_attributes(fields.get("tags"))


def _event(log: Mapping[str, Any]) -> SpanEvent:
    fields = plain_attributes(log.get("fields"))
    return SpanEvent(text(fields.pop("event", None)) or "", _micros(log.get("timestamp")), fields)


def _of_zipkin(record: Any) -> list[Mapping[str, Any]]:
    """Return a span, or the spans of a trace, which is a list; none where another program wrote it."""
    spans = [as_dict(span) for span in (record if isinstance(record, list) else [record])]
    return spans if all(map(_is_zipkin, spans)) else []


def _is_zipkin(fields: Mapping[str, Any]) -> bool:
    return fields.keys() >= _ZIPKIN and isinstance(fields["tags"], dict) and number(fields["timestamp"]) is not None


def _zipkin(fields: Mapping[str, Any]) -> Span:
    tags = {name: _number(name, value) for name, value in fields["tags"].items()}
    resource = {"service.name": as_dict(fields.get("localEndpoint")).get("serviceName")}
    events = [_annotation(as_dict(one)) for one in as_list(fields.get("annotations"))]
    ids = (ident(fields["traceId"]), ident(fields["id"]), ident(fields.get("parentId")))
    return _made(ids, text(fields.get("name")), fields["timestamp"], fields, tags, resource, events, [])


def _is_google(record: Any) -> bool:
    """Whether a record is a trace of Cloud Trace."""
    outer = as_dict(record)
    spans = as_list(outer.get("spans"))
    is_trace = {"projectId", "traceId"} <= outer.keys() and bool(spans)
    return is_trace and all({"spanId", "name", "startTime"} <= as_dict(span).keys() for span in spans)


def _google(trace: Any, fields: Mapping[str, Any]) -> Span:
    labels = {name: _number(name, value) for name, value in as_dict(fields.get("labels")).items()}
    began, ended = when(fields["startTime"]), when(fields.get("endTime"))
    took = (ended - began) // timedelta(microseconds=1) if began is not None and ended is not None else None
    ids = (ident(trace), _as_hex(fields["spanId"]), _as_hex(fields.get("parentSpanId")))
    micros = (began - _EPOCH) // timedelta(microseconds=1) if began is not None else None
    about = {"duration": took, "kind": str(fields.get("kind")).removeprefix("RPC_")}
    error = labels.get("/error/message") or ("error.type" in labels or None)
    tags = labels if error is None or "error" in labels else {**labels, "error": error}
    return _made(ids, text(fields.get("name")), micros, about, tags, {}, [], [])


def _as_hex(value: Any) -> str | None:
    """Return a span's number as other backends and SDKs write it."""
    name = ident(value)
    return f"{int(name):016x}" if name is not None and _UNSIGNED.fullmatch(name) else name


def _annotation(fields: Mapping[str, Any]) -> SpanEvent:
    """Return an event: its name, or an object that has its attributes under its name."""
    name, attributes = text(fields.get("value")) or "", dict[str, Any]()
    held = as_dict(embedded(name))
    if len(held) == 1:
        name, attributes = next((str(key), dict(as_dict(value))) for key, value in held.items())
    return SpanEvent(name, _micros(fields.get("timestamp")), attributes)


def _number(name: str, value: Any) -> Any:
    """Return a count or a setting of sampling as a number."""
    is_number = isinstance(value, str) and _DECIMAL.fullmatch(value) and any(word in name for word in _NUMBERS)
    return json.loads(value) if is_number else value


def _made(  # noqa: PLR0913, PLR0917 - what both backends name otherwise
    ids: tuple[str | None, str | None, str | None],
    name: str | None,
    began: Any,
    fields: Mapping[str, Any],
    tags: Mapping[str, Any],
    resource: dict[str, Any],
    events: list[SpanEvent],
    links: list[Link],
) -> Span:
    began_at, took = number(began), number(fields.get("duration"))
    code, error = str(tags.get("otel.status_code")).upper(), tags.get("error")
    message = text(tags.get("otel.status_description")) or (text(error) if error not in ("true", "false") else None)
    kind = str(first(tags, ("span.kind",)) or fields.get("kind")).lower()
    return Span(
        *ids,
        name=name or "",
        started=_micros(began_at),
        ended=_micros(began_at + took) if began_at is not None and took is not None else None,
        attributes=folded(dict(tags)),
        resource=resource,
        failed=code == "ERROR" or error is True or (isinstance(error, str) and error != "false"),
        ok=code == "OK",
        message=message,
        events=events,
        links=links,
        server=kind == "server",
    )


def _micros(value: Any) -> datetime | None:
    micros = number(value)
    return when(int(micros) * 1000) if micros is not None else None
