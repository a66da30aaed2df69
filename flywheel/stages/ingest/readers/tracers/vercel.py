"""Vercel AI SDK spans outside OTLP: a plain object a span, `{"name": "ai.streamText.doStream", "attributes": ...}`.

Only the inner spans are calls (`doGenerate`, `doStream`); the spans around them repeat them. A call without a trace and
without a session belongs to the conversation that begins like it; a tool's span without either cannot be placed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flywheel.reading.events import Event, conversation_of
from flywheel.reading.reader import reader
from flywheel.reading.values import as_dict, text
from flywheel.records import EventKind
from flywheel.stages.ingest.readers.tracers._otel.otlp import single_span
from flywheel.stages.ingest.readers.tracers.otel import events_of

_OPERATIONS = ("ai.operationId", "operation.name")
_ALONE = ("span:", "response:")  # how a conversation is called that consists of one span


def _read(record: Any, line: int) -> Iterator[Event]:
    """Yield the events of one span; without times, the order is that of the file."""
    span = single_span(record)
    for event in events_of([span]):
        if span.trace_id is None and event["conversation_id"].startswith(_ALONE):
            asked = event["payload"].get("input")
            if event["kind"] != EventKind.MODEL_CALL or not asked:
                continue
            event["conversation_id"] = conversation_of(asked, event["user"])
        yield {**event, "seq": line}


def _is_span(record: Any) -> bool:
    span = as_dict(record)
    attributes = as_dict(span.get("attributes"))
    operations = (text(attributes.get(name)) for name in _OPERATIONS)
    ours = text(span.get("name")) is not None and "span_kind" not in span and not _printed(span)
    return ours and any(found is not None and found.startswith("ai.") for found in operations)


def _printed(span: Any) -> bool:
    """Whether it is a span as Python's SDK prints it, which the `otel` reader knows."""
    return "trace_id" in as_dict(span.get("context")) and isinstance(span.get("status"), dict)


READER = reader("vercel", 6, "AI SDK spans, one a record", marks=_is_span, refusal="no span of the AI SDK", read=_read)
