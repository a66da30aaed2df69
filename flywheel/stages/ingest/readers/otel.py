"""OpenTelemetry: OTLP JSON with the GenAI semantic conventions, current and legacy.

A model span gives a model call with its input, a tool span a tool call and its result, an evaluation event feedback.
One record is one export request, which holds spans of many traces in no useful order, and a trace may be spread over
many records: a span without a conversation id takes its trace's from the same record, else the trace's own id, and
every event carries `trace_id` in its payload so that what belongs together can be found later.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from flywheel.extensions import BadRecordError, Sample
from flywheel.records import EventKind, content_id
from flywheel.stages.ingest.readers._events import Event, Source
from flywheel.stages.ingest.readers._genai import (
    ALIASES,
    answer_from,
    call_payload,
    history_of,
    legacy_messages,
    operation,
    output_of,
)
from flywheel.stages.ingest.readers._messages import Message, arguments, flat_text
from flywheel.stages.ingest.readers._otlp import Envelope, LogRecord, Span, is_envelope, open_envelope
from flywheel.stages.ingest.readers._pairs import share
from flywheel.stages.ingest.readers._status import FAILED, OK, error_type, tool_status
from flywheel.stages.ingest.readers._values import embedded, first, ident, number, text

__all__ = ["READER", "OtelReader"]

_EVALUATION = "gen_ai.evaluation.result"
_DETAILS = "gen_ai.client.inference.operation.details"


class OtelReader:
    """Reads OTLP JSON."""

    name = "otel"
    version = 1

    def sniff(self, sample: Sample) -> float:
        """An envelope is an envelope."""
        return share(sample.records, is_envelope)

    def read(self, record: Any, line: int) -> Iterator[Event]:  # noqa: ARG002 - the protocol's signature
        """Yield the events of one export request."""
        if not is_envelope(record):
            raise BadRecordError("bad_record", "no resourceSpans or resourceLogs")
        envelope = open_envelope(record)
        known = _conversations(envelope)
        for position, span in enumerate(envelope.spans):
            source = _source(span, span.attributes, known, position)
            yield from _span_events(span, source)
        yield from _log_events(envelope, known)


def _conversations(envelope: Envelope) -> dict[str, str]:
    """Return the conversation of each trace for which the record names exactly one."""
    named: dict[str, set[str]] = defaultdict(set)
    items: list[Span | LogRecord] = [*envelope.spans, *envelope.logs]
    for item in items:
        conversation = ident(first(item.attributes, ALIASES["conversation"]))
        if conversation and item.trace_id:
            named[item.trace_id].add(conversation)
    return {trace: next(iter(found)) for trace, found in named.items() if len(found) == 1}


def _source(item: Span | LogRecord, attributes: Mapping[str, Any], known: Mapping[str, str], seq: int) -> Source:
    both = {**item.resource, **attributes}
    trace = item.trace_id or ""
    conversation = ident(first(attributes, ALIASES["conversation"])) or known.get(trace) or item.trace_id
    if conversation is None:
        conversation = ident(first(item.resource, ALIASES["conversation"])) or _orphan(item, attributes)
    return {
        "conversation_id": conversation,
        "user": ident(first(both, ALIASES["user"])),
        "policy": ident(first(both, ALIASES["policy"])),
        "task_key": ident(first(both, ALIASES["task"])),
        "model": text(first(attributes, ALIASES["model"])),
        "span_id": item.span_id,
        "parent_id": item.parent_id if isinstance(item, Span) else None,
        "seq": seq,
        "trace": {"trace_id": item.trace_id} if item.trace_id else {},
    }


def _orphan(item: Span | LogRecord, attributes: Mapping[str, Any]) -> str:
    response = ident(first(attributes, ALIASES["response_id"]))
    return f"response:{response}" if response else f"span:{item.span_id or content_id(item.name)}"


def _event(source: Source, kind: EventKind, ts: datetime | None, payload: dict[str, Any], **columns: Any) -> Event:
    shared = {name: value for name, value in source.items() if name != "trace"}
    return {**shared, "kind": kind, "ts": ts, "payload": payload | source["trace"], **columns}


def _span_events(span: Span, source: Source) -> Iterator[Event]:
    what = operation(span)
    if what == "model":
        yield _model_call(span, source)
    elif what == "tool":
        yield from _tool_events(span, source)
    for happened in span.events:
        if happened.name == _EVALUATION:
            yield _feedback(happened.attributes, source, happened.ts or span.ended)


def _seconds(span: Span) -> dict[str, float]:
    if span.started is None or span.ended is None:
        return {}
    return {"latency_s": (span.ended - span.started).total_seconds()}


def _content(attributes: Mapping[str, Any]) -> tuple[list[Message] | None, list[Message], list[str]]:
    """Return input, answers and flags; content that the SDK cut off is missing content, not a lost envelope."""
    try:
        return history_of(attributes), output_of(attributes), []
    except BadRecordError as error:
        return None, [], ["truncated" if error.reason == "truncated" else "unreadable_content"]


def _model_call(span: Span, source: Source) -> Event:
    asked, answers, tags = _content(span.attributes)
    if asked is None and not answers and not tags:
        found, answers = legacy_messages(span.events)
        asked = found or None
    payload = answer_from(answers, tags) | call_payload(span.attributes) | _seconds(span)
    if asked is not None:
        payload["input"] = asked
    if span.failed:
        payload["error_type"] = text(span.attributes.get("error.type")) or "error"
    return _event(source, EventKind.MODEL_CALL, span.started, payload)


def _tool_events(span: Span, source: Source) -> Iterator[Event]:
    """A tool span is a call at its beginning and a result at its end."""
    told = {name: first(span.attributes, ALIASES[name]) for name in ("tool_name", "tool_call_id")}
    name = text(told["tool_name"]) or span.name.removeprefix("execute_tool ").strip() or None
    columns = {"tool_name": name, "tool_call_id": ident(told["tool_call_id"])}
    given = first(span.attributes, ALIASES["tool_arguments"])
    payload = arguments(given) if given is not None else {}
    yield _event(source, EventKind.TOOL_CALL, span.started, payload, **columns)
    result = first(span.attributes, ALIASES["tool_result"])
    content = flat_text(embedded(result) if isinstance(embedded(result), list) else result) or ""
    payload = {"content": content, "status": _tool_status(span, content, has_result=result is not None)} | _seconds(
        span
    )
    kind = text(span.attributes.get("error.type")) or (error_type(content) if payload["status"] == FAILED else None)
    if kind:
        payload["error_type"] = kind
    yield _event(source, EventKind.TOOL_RESULT, span.ended, payload, **columns)


def _tool_status(span: Span, content: str, *, has_result: bool) -> str:
    """The span's own word outweighs the text, except that a tool may return its error as an ordinary result."""
    raised = any(event.name == "exception" for event in span.events)
    if span.failed or raised or span.attributes.get("error.type"):
        return FAILED
    said = tool_status(content)
    if said == FAILED or span.ok:
        return said if said == FAILED else OK
    return OK if has_result and "gen_ai.tool.call.result" in span.attributes else said


def _feedback(attributes: Mapping[str, Any], source: Source, ts: datetime | None) -> Event:
    response = ident(first(attributes, ALIASES["response_id"]))
    target = source["span_id"] or response
    found = {
        "name": text(attributes.get("gen_ai.evaluation.name")) or "evaluation",
        "value": number(attributes.get("gen_ai.evaluation.score.value")),
        "label": text(attributes.get("gen_ai.evaluation.score.label")),
        "comment": text(attributes.get("gen_ai.evaluation.explanation")),
        "target": "call" if source["span_id"] else "response" if response else "trace",
        "target_id": target,
        "response_id": response,
    }
    payload = {name: value for name, value in found.items() if value is not None}
    return _event(source, EventKind.FEEDBACK, ts, payload, span_id=None, parent_id=None, seq=0)


def _log_events(envelope: Envelope, known: Mapping[str, str]) -> Iterator[Event]:
    """Legacy content events of one model call come as many records, one a message; they are put together here."""
    calls: dict[tuple[str | None, str | None], list[LogRecord]] = defaultdict(list)
    for record in envelope.logs:
        if record.name == _EVALUATION:
            yield _feedback(record.attributes, _source(record, record.attributes, known, 0), record.ts)
        elif record.name == _DETAILS:
            yield _logged_call(record, known, *_content(record.attributes))
        elif record.name.startswith("gen_ai."):
            calls[record.trace_id, record.span_id].append(record)
    for records in calls.values():
        asked, answers = legacy_messages(records)
        if answers:
            yield _logged_call(records[-1], known, asked, answers, [])


def _logged_call(
    record: LogRecord, known: Mapping[str, str], asked: list[Message] | None, answers: list[Message], tags: list[str]
) -> Event:
    source = _source(record, record.attributes, known, 0)
    payload = answer_from(answers, tags) | call_payload(record.attributes)
    if asked is not None:
        payload["input"] = asked
    return _event(source, EventKind.MODEL_CALL, record.ts, payload)


READER = OtelReader()
