"""Rows of Langfuse: what kind of row it is, whatever the export's naming, and the events of one observation.

In: rows of the UI and the REST API (camelCase) and of the blob-storage export (snake_case). Out: rows in
snake_case and events. `_langfuse.trace` reads complete traces, `_langfuse.scores` scores.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

from flywheel.reading.events import Event, request
from flywheel.reading.messages import arguments, flat_text, is_mcp_result
from flywheel.reading.shapes import exchange, fields_of_repr, mapping_of_repr, schemas, transcript
from flywheel.reading.span_map import packaged_span_maps
from flywheel.reading.status import FAILED, error_type, tool_status
from flywheel.reading.usage import detailed_tokens
from flywheel.reading.values import (
    as_dict,
    as_list,
    embedded,
    first,
    ident,
    lowered,
    number,
    present,
    text,
    when,
)
from flywheel.records import EventKind
from flywheel.stages.ingest.readers.tracers._otel.aliases import aliases
from flywheel.stages.ingest.readers.tracers._otel.attributes import folded
from flywheel.stages.ingest.readers.tracers._otel.genai import call_payload

Row = Mapping[str, Any]

_ROW = packaged_span_maps("flywheel.stages.ingest.readers.tracers")["langfuse"]
OBSERVATIONS = (
    "GENERATION", "SPAN", "EVENT", "AGENT", "TOOL", "CHAIN", "RETRIEVER", "EVALUATOR", "EMBEDDING", "GUARDRAIL",
)  # fmt: skip
_SCORES = ("NUMERIC", "BOOLEAN", "CATEGORICAL", "TEXT", "CORRECTION")
_SOURCES = ("API", "ANNOTATION", "EVAL")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_SAMPLING = (
    "temperature", "top_p", "top_k", "max_tokens", "max_completion_tokens", "seed", "frequency_penalty",
    "presence_penalty",
)  # fmt: skip
_NOTHING = ("None", "<NoneType response returned from OpenAI>")  # what SDKs write for an answer without text
_TOOL_MARKS = ("openinference.span.kind", "traceloop.span.kind", "langfuse.observation.type", "gen_ai.operation.name")
_AROUND_TOOL = re.compile(r"\A(?:execute_tool |running tool: ?|tool\.)|\.(?:success|error)-\d+\Z")


class Whole(NamedTuple):
    """What all observations of a trace have in common."""

    trace: Row
    task: str | None = None


def row_of(item: Any) -> Row:
    """Return a record with the names of its columns in snake_case."""
    return {_HUMP.sub("_", name).lower(): value for name, value in as_dict(item).items()}


def kind_of(row: Row) -> str:  # noqa: PLR0911 - one return a kind
    """Return what a row is: export, page, full, observation, score, session, item, trace, or ''."""
    if isinstance(row.get("trace"), dict) and isinstance(row.get("observations"), list):
        return "export"
    data = as_list(row.get("data"))
    if data and all(kind_of(row_of(inner)) for inner in data):
        return "page"
    if "id" in row and isinstance(row.get("observations"), list) and {"html_path", "scores", "total_cost"} & set(row):
        return "full"
    if row.get("type") in OBSERVATIONS and ("trace_id" in row or {"id", "start_time"} <= set(row)):
        return "observation"
    if row.get("data_type") in _SCORES and row.get("source") in _SOURCES and "name" in row:
        return "score"
    if isinstance(row.get("traces"), list) and {"id", "project_id", "created_at"} <= set(row):
        return "session"
    if {"dataset_item_id", "trace_id"} <= set(row) and {"dataset_run_id", "dataset_run_name"} & set(row):
        return "item"
    if {"id", "user_ids", "count_traces"} <= set(row):
        return "session"
    marks = {"id", "timestamp", "session_id", "user_id", "release", "public"}
    return "trace" if marks <= set(row) else ""


def mapping(item: Any) -> dict[str, Any]:
    """Return a map, which Parquet gives as a list of pairs and many columns as JSON text."""
    opened = embedded(item)
    if isinstance(opened, list) and all(isinstance(p, list | tuple) and len(p) == 2 for p in opened):  # noqa: PLR2004
        return {str(name): value for name, value in opened}
    return dict(as_dict(opened))


def attributes_of(row: Row) -> dict[str, Any]:
    """Return the OpenTelemetry attributes that a row's metadata keeps, JSON opened."""
    metadata = mapping(row.get("metadata"))
    inner = mapping(metadata.get("attributes"))
    flat = {k.removeprefix("attributes."): v for k, v in metadata.items() if k.startswith("attributes.")}
    return {name: embedded(value) for name, value in {**flat, **inner}.items()}


def source(row: Row, whole_trace: Whole, seq: int) -> dict[str, Any]:
    """Return the columns of a row's events, its own words before those of its trace."""
    trace = whole_trace.trace
    ids = {name: lowered(known) for name in ("id", "parent_observation_id") if (known := ident(row.get(name)))}
    row = {**row, "id": None, "parent_observation_id": None, **ids, "metadata": mapping(row.get("metadata"))}
    columns = _ROW.source({**row, "trace": trace})
    return {
        **columns,
        "task_key": columns["task_key"] or whole_trace.task,
        "seq": seq,
        "trace_id": _ROW.id_of({**row, "trace": trace}, "trace"),
        "tags": [t for t in as_list(first(row, ("tags", "trace_tags"))) or as_list(trace.get("tags")) if text(t)],
    }


def event(columns: Mapping[str, Any], kind: EventKind, payload: Mapping[str, Any], **more: Any) -> Event:
    """Return an event whose payload names its trace, as other readers' do."""
    shared = {name: value for name, value in columns.items() if name not in ("trace_id", "tags")}
    trace = {"trace_id": columns["trace_id"]} if columns["trace_id"] else {}
    return {**shared, "kind": kind, "payload": {**payload, **trace}, **more}


def model_call(row: Row, columns: Mapping[str, Any]) -> Event | None:
    """Return a generation's event; None without any content.

    A call without an answer that failed, or had not ended when it was exported, is a request.
    """
    payload = _payload(row)
    columns = {**columns, "ts": when(row.get("start_time")), "model": columns["model"] or payload.pop("model", None)}
    payload.pop("model", None)
    missing = "content_missing" in payload.get("tags", ())
    labels = [f"tag:{tag}" for tag in columns["tags"]]
    if labels:
        payload["tags"] = [*payload.get("tags", ()), *labels]
    failed = row.get("level") == "ERROR"
    unfinished = row.get("end_time") is None and not {"output_tokens", "latency_s"} & set(payload)
    if missing and (failed or (unfinished and "input" in payload)):
        extra = {"tags": ["call_failed" if failed else "unfinished", *labels]} | (
            {"tools": payload["tools"]} if "tools" in payload else {}
        )
        opening = request(payload.get("input", []), columns, columns["seq"], extra)
        return event(columns, EventKind.REQUEST, opening["payload"])
    if missing and not {"input", "output_tokens", "input_tokens"} & set(payload):
        return None
    if failed:
        payload["error_type"] = error_type(text(row.get("status_message"))) or "error"
    response = payload.get("response_id")
    ids = [*columns["ids"], *([f"response:{response}"] if response else [])]
    return event({**columns, "ids": ids}, EventKind.MODEL_CALL, payload)


def _payload(row: Row) -> dict[str, Any]:
    """Return a generation's payload: its input and output outweigh its columns, which outweigh its attributes."""
    attributes = attributes_of(row)
    values = exchange(row.get("input"), row.get("output"))
    if values["message"].get("content") in _NOTHING and "tool_calls" not in values["message"]:
        values |= {"message": {"role": "assistant"}, "tags": ["content_missing"]}
    if not values["message"].get("tool_calls"):
        values["message"] = _hinted(values["message"], row)
    return (
        call_payload(folded(attributes))
        | present(
            tools=schemas(row.get("tool_definitions")) or _offered(attributes),
            latency_s=_seconds(row),
            cost_usd=_cost(row),
            sampling=_sampling(row),
        )
        | _tokens(row)
        | values
    )


def _hinted(message: dict[str, Any], row: Row) -> dict[str, Any]:
    """Return a message with the calls of the tool columns, where the output shows none."""
    calls, names = as_list(row.get("tool_calls")), as_list(row.get("tool_call_names"))
    if not calls or len(calls) != len(names) or not all(isinstance(n, str) and n for n in names):
        return message
    pairs = ((as_dict(embedded(items)), name) for items, name in zip(calls, names, strict=True))
    items = [{"id": ident(c.get("id")) or "", "name": name} | arguments(c.get("arguments")) for c, name in pairs]
    return {**message, "tool_calls": items}


def _offered(attributes: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    """Return the tools that Pydantic AI or OpenInference note in the attributes."""
    asked = as_dict(attributes.get("model_request_parameters"))
    numbered = [v for k, v in sorted(attributes.items()) if re.match(r"llm\.tools\.\d+\.tool\.json_schema\Z", k)]
    return schemas([*as_list(asked.get("function_tools")), *as_list(asked.get("output_tools")), *numbered])


def _seconds(row: Row) -> float | None:
    """Return how long a row took; exports disagree on the unit of `latency`, so its two times come first."""
    started, ended = when(row.get("start_time")), when(row.get("end_time"))
    if started is not None and ended is not None:
        return (ended - started).total_seconds()
    millis = number(row.get("latency_ms"))
    return millis / 1000 if millis is not None else number(row.get("latency"))


def _cost(row: Row) -> float | None:
    """Return the cost in USD; 0 means that the model has no price."""
    details = mapping(row.get("cost_details"))
    parts = [amount for name, part in details.items() if name != "total" and (amount := number(part)) is not None]
    return _ROW.usage({**row, "cost_details": details})["cost_usd"] or sum(parts) or None


def _tokens(row: Row) -> dict[str, int]:
    return detailed_tokens(mapping(first(row, ("usage_details", "usage"))))


def _sampling(row: Row) -> dict[str, Any] | None:
    columns = mapping(row.get("model_parameters"))
    values = {name: number(columns.get(name)) for name in _SAMPLING}
    fields = {name: columns[name] for name, value in values.items() if value is not None and value != -1}
    return fields or None


def is_tool(row: Row, called: Collection[str] = ()) -> bool:
    """Whether an observation is a tool at work.

    Args:
        row: the observation.
        called: tools that the trace's model calls ask for, which a plain span may bear the name of.
    """
    kind = row.get("type")
    if kind != "SPAN":
        return kind == "TOOL"
    attributes = attributes_of(row)
    marks = [str(attributes.get(name) or "").lower() for name in _TOOL_MARKS]
    marked = any(mark in ("tool", "execute_tool") for mark in marks) or row.get("name") in called
    ran = row.get("output") is not None or row.get("level") == "ERROR"
    return ran and (marked or ("gen_ai.tool.name" in attributes and not any(marks)))


def tool(row: Row, columns: Mapping[str, Any]) -> Iterator[Event]:
    """Yield a tool observation's call and, where it has an output or failed, its result."""
    attributes = attributes_of(row)
    answer = _answer(row.get("output"))
    call_id = ident(answer.get("tool_call_id")) or ident(first(attributes, aliases().names.tool_call_id))
    value = first({**attributes, "input": row.get("input")}, ("input", *aliases().names.tool_arguments))
    named = text(first(attributes, ("gen_ai.tool.name", "tool.name")))
    names = {"tool_name": named or _AROUND_TOOL.sub("", str(row.get("name") or "")) or None, "tool_call_id": call_id}
    columns = {**columns, "model": None}
    yield event(columns, EventKind.TOOL_CALL, _arguments(value), ts=when(row.get("start_time")), **names)
    if row.get("output") is None and row.get("level") != "ERROR":
        return
    content = flat_text(answer.get("content")) or (text(row.get("status_message")) or "")
    status = FAILED if row.get("level") == "ERROR" else answer.get("status") or tool_status(content)
    payload: dict[str, Any] = {"content": content, "status": status}
    kind = error_type(text(row.get("status_message"))) or error_type(content) if status == FAILED else None
    seconds = _seconds(row)
    payload |= present(
        error_type=kind,
        latency_s=seconds,
    )
    yield event(columns, EventKind.TOOL_RESULT, payload, ts=when(row.get("end_time")), **names)


def _arguments(item: Any) -> dict[str, Any]:
    """Return a call's arguments; an input other than an object is not what the model wrote."""
    value = embedded(item)
    if isinstance(value, str):
        value = mapping_of_repr(value) or None
    inner = as_dict(value)
    if set(inner) == {"args", "kwargs"} and not inner["args"]:
        inner = as_dict(inner["kwargs"])
    return arguments(dict(inner)) if inner or value == {} else {}


def _answer(item: Any) -> Mapping[str, Any]:
    """Return a tool's output as a message; frameworks log what they hand on to the model, or its repr."""
    value = embedded(item)
    if isinstance(value, str):
        fields = fields_of_repr(value)
        return {**fields, "status": tool_status(None, fields)} if "tool_call_id" in fields else {"content": item}
    items = [m for m in (transcript([value]) if isinstance(value, dict) else None) or [] if m["role"] == "tool"]
    if items:
        return items[0]
    if is_mcp_result(value):
        return {"content": flat_text(value)} | ({"status": tool_status(None, value)} if "isError" in value else {})
    return {"content": item if isinstance(item, str) else flat_text(value)}
