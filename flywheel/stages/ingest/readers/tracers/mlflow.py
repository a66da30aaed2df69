"""MLflow traces: `Trace.to_json` (schemas 3 and 2), and rows of a `search_traces` table.

A record is a trace: its `info` with session, user and assessments, and its spans. Every attribute of a span is JSON
text of its own, ids are base64 of their bytes (hex in schema 2), previews are cut off and never content. A trace of a
judge is not the agent's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

import orjson

from flywheel.extensions import BadRecordError
from flywheel.reading.events import Event, Source, source_of
from flywheel.reading.messages import tool_schemas
from flywheel.reading.pairs import Pair, common_payload
from flywheel.reading.reader import reader
from flywheel.reading.shapes import joined_chunks
from flywheel.reading.spans import (
    Run,
    model_call,
    outline,
    place,
    tool_use,
    whole_task,
)
from flywheel.reading.values import (
    as_dict,
    as_list,
    embedded,
    first,
    hex_id,
    ident,
    number,
    text,
    when,
    whole,
)
from flywheel.stages.ingest.readers.tracers._mlflow import assessments, mapping_of

_MODEL = ("CHAT_MODEL", "LLM")
_JUDGE = "mlflow.trace.sourceScorer"
_CHUNK = "mlflow.chunk.item."


def _read(record: Any) -> Iterator[Event]:
    """Yield a trace's events and what is said of it."""
    trace = _trace_of(record)
    if trace is None:
        raise BadRecordError("bad_record", "no trace with info and spans")
    info, spans, whole_of = trace
    if _JUDGE in mapping_of(info.get("tags")):
        return
    source = _source(info)
    told = list(_spans(spans, source) if spans else _without_spans(whole_of, info, source))
    yield from told
    known = {span for event in told if (span := event.get("span_id"))}
    yield from assessments(as_list(embedded(info.get("assessments"))), source, known)


def _trace_of(record: Any) -> tuple[Mapping[str, Any], list[Mapping[str, Any]], Mapping[str, Any]] | None:
    """Return a trace's info, its spans, and where its request and response stand.

    A table's row has the whole trace as text, or its parts as columns, maybe without spans.
    """
    row = as_dict(record)
    trace = as_dict(embedded(row.get("trace"))) or row
    info, data = as_dict(embedded(trace.get("info"))), as_dict(embedded(trace.get("data")))
    if isinstance(data.get("spans"), list) and ("trace_id" in info or "request_id" in info):
        return info, [as_dict(span) for span in data["spans"]], data
    spans = embedded(row.get("spans"))
    spans = [] if spans is None and row.get("response") is not None and "request" in row else spans
    if isinstance(spans, list) and ("trace_metadata" in row or "request_metadata" in row):
        return row, [as_dict(embedded(span)) for span in spans], row
    return None


def _without_spans(told: Mapping[str, Any], info: Mapping[str, Any], source: Source) -> Iterator[Event]:
    """Yield what a trace that was exported alone says of itself; previews are cut off and say nothing."""
    usage = as_dict(embedded(mapping_of(info.get("trace_metadata")).get("mlflow.trace.tokenUsage")))
    counts = {name: whole(usage.get(name)) for name in ("input_tokens", "output_tokens")}
    run = Run({**source, "seq": 0}, None, source["ts"], None)
    yield from outline(run, _loaded(told.get("request")), _loaded(told.get("response")), counts)


def _trace_id(given: Any) -> str | None:
    """Return a trace id in hex; one of a warehouse stands behind its place."""
    found = ident(given)
    return hex_id(found.rpartition("/")[2]) if found else None


def _source(info: Mapping[str, Any]) -> Source:
    given = ident(first(info, ("trace_id", "request_id")))
    trace = _trace_id(given) or "?"
    metadata = mapping_of(first(info, ("trace_metadata", "request_metadata")))
    known = source_of(metadata, mapping_of(info.get("tags")))
    request = ident(info.get("client_request_id"))
    names = [f"trace:{trace}", *([f"trace:{given}"] if given and given != trace else [])]
    return {
        "conversation_id": ident(metadata.get("mlflow.trace.session")) or known["conversation_id"] or trace,
        "user": ident(metadata.get("mlflow.trace.user")) or known["user"],
        "policy": known["policy"] or ident(metadata.get("mlflow.modelId")),
        "task_key": known["task_key"],
        "ids": [*names, *([f"request:{request}"] if request else [])],
        "ts": when(first(info, ("request_time", "timestamp_ms"))),
    }


def _loaded(value: Any) -> Any:
    """Return an attribute, which is JSON text in all but the oldest traces."""
    if not isinstance(value, str):
        return value
    try:
        return orjson.loads(value)
    except orjson.JSONDecodeError:
        return value


def _spans(spans: list[Mapping[str, Any]], source: Source) -> Iterator[Event]:
    told = [(span, {k: _loaded(v) for k, v in mapping_of(span.get("attributes")).items()}) for span in spans]
    kinds = [str(attributes.get("mlflow.spanType")).upper() for _, attributes in told]
    asks = any(kind in _MODEL for kind in kinds)
    for seq, ((span, attributes), kind) in enumerate(zip(told, kinds, strict=True)):
        run = _run(span, {**source, "seq": 2 * seq})
        given, said = attributes.get("mlflow.spanInputs"), attributes.get("mlflow.spanOutputs")
        if kind in _MODEL:
            yield from _model_call(run, attributes, span)
        elif kind == "TOOL":
            name = _tool_name(run.name, text(attributes.get("mlflow.spanFunctionName")))
            yield from tool_use(run._replace(name=name), given, said)
        elif run.source["parent_id"] is None and not asks:
            yield from whole_task(run, given, said, last=2 * len(spans))
        elif run.source["parent_id"] is None:
            yield place(run)


def _tool_name(name: str | None, function: str | None) -> str | None:
    """Return a tool's name: old versions number the spans of one trace that have the same."""
    if name and function and name.rpartition("_")[0] == function and name.rpartition("_")[2].isdecimal():
        return function
    return name or function


def _run(span: Mapping[str, Any], source: Source) -> Run:
    context = as_dict(span.get("context"))
    span_id = hex_id(span.get("span_id")) or hex_id(context.get("span_id"))
    status = as_dict(span.get("status"))
    code = str(first(status, ("code", "status_code")) or span.get("status_code")).removeprefix("STATUS_CODE_").upper()
    return Run(
        {
            **source,
            "span_id": span_id,
            "parent_id": hex_id(first(span, ("parent_span_id", "parent_id"))),
            "ids": [*source["ids"], *([f"span:{span_id}"] if span_id else [])],
        },
        text(span.get("name")),
        _moment(span, "start_time"),
        _moment(span, "end_time"),
        _error(span, status) if code == "ERROR" else None,
        True if code == "OK" else None,
    )


def _moment(span: Mapping[str, Any], name: str) -> datetime | None:
    return when(first(span, (f"{name}_unix_nano", f"{name}_ns", name)))


def _error(span: Mapping[str, Any], status: Mapping[str, Any]) -> str:
    raised = [mapping_of(as_dict(event).get("attributes")) for event in as_list(span.get("events"))]
    kinds = [f"{e.get('exception.type')}: {e.get('exception.message', '')}" for e in raised if "exception.type" in e]
    return (
        text(first(status, ("message", "description")))
        or text(span.get("status_message"))
        or "".join(kinds[:1])
        or "error"
    )


def _model_call(run: Run, attributes: Mapping[str, Any], span: Mapping[str, Any]) -> Iterator[Event]:
    given, said = attributes.get("mlflow.spanInputs"), attributes.get("mlflow.spanOutputs")
    usage, cost = as_dict(attributes.get("mlflow.chat.tokenUsage")), as_dict(attributes.get("mlflow.llm.cost"))
    found = {
        **common_payload(Pair(as_dict(given), {}, {})),
        "model": text(attributes.get("mlflow.llm.model")) or text(as_dict(given).get("model")),
        "tools": tool_schemas(attributes.get("mlflow.chat.tools")),
        "input_tokens": whole(usage.get("input_tokens")),
        "output_tokens": whole(usage.get("output_tokens")),
        "cost_usd": number(cost.get("total_cost")),
    }
    chunks = said if isinstance(said, list) else _streamed(span) if said is None else []
    yield from model_call(run, given, joined_chunks(chunks) or said, found)


def _streamed(span: Mapping[str, Any]) -> list[Any]:
    """Return the chunks of a stream that stand in a span's events."""
    found = []
    for event in map(as_dict, as_list(span.get("events"))):
        name = str(event.get("name"))
        if name.startswith(_CHUNK) and name[len(_CHUNK) :].isdecimal():
            value = mapping_of(event.get("attributes")).get("mlflow.chunk.value")
            found.append((int(name[len(_CHUNK) :]), _loaded(value)))
    return [chunk for _, chunk in sorted(found, key=lambda item: item[0])]


READER = reader("mlflow", 1, marks=_trace_of, read=_read)
