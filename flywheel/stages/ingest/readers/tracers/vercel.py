"""Vercel AI SDK: spans outside OTLP, a plain object a span, and what its developer tools keep of each step.

A span is `{"name": "ai.streamText.doStream", "attributes": ...}`; the developer tools' `generations.json` holds runs
and steps, each with what the model was asked and answered. Only the inner spans are calls (`doGenerate`, `doStream`);
the spans around them repeat them. A call without a trace and without a session belongs to the conversation that begins
like it; a tool's span without either cannot be placed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flywheel.reading.events import Event, conversation_of
from flywheel.reading.reader import reader
from flywheel.reading.values import as_dict, as_list, embedded, present, text
from flywheel.records import EventKind
from flywheel.stages.ingest.readers.apis.exchanges import READER as EXCHANGES
from flywheel.stages.ingest.readers.tracers._otel.otlp import single_span
from flywheel.stages.ingest.readers.tracers.otel import events_of

_OPERATIONS = ("ai.operationId", "operation.name")
_ALONE = ("span:", "response:")  # how a conversation is called that consists of one span


def _read(record: Any, line: int) -> Iterator[Event]:
    """Yield the events of one span, or of each step of the developer tools; without times, in the order of the file."""
    if _is_of_devtools(record):
        for n, step in enumerate(map(_exchange, record["steps"])):
            yield from EXCHANGES.read(step, line + n)
        return
    span = single_span(record)
    for event in events_of([span]):
        if span.trace_id is None and event["conversation_id"].startswith(_ALONE):
            asked = event["payload"].get("input")
            if event["kind"] != EventKind.MODEL_CALL or not asked:
                continue
            event["conversation_id"] = conversation_of(asked, event["user"])
        yield {**event, "seq": line}


def _is_of_devtools(record: Any) -> bool:
    """Whether a record is what the AI SDK's developer tools keep."""
    steps = as_list(as_dict(record).get("steps"))
    return (
        "runs" in as_dict(record)
        and bool(steps)
        and all({"run_id", "model_id", "input", "output"} <= as_dict(s).keys() for s in steps)
    )


def _exchange(step: dict[str, Any]) -> dict[str, Any]:
    """Return a step as a call of its model. What went over the wire (`raw_...`) is there once more."""
    asked = as_dict(embedded(step["input"]))
    named = present(session_id=asked.get("sessionId") or step["run_id"], model=step["model_id"])
    times = present(timestamp=step.get("started_at"), duration_ms=step.get("duration_ms"), error=step.get("error"))
    return {**named, **times, "usage": embedded(step.get("usage")), "input": asked, "output": step["output"]}


def _is_span(record: Any) -> bool:
    span = as_dict(record)
    attributes = as_dict(span.get("attributes"))
    operations = (text(attributes.get(name)) for name in _OPERATIONS)
    ours = text(span.get("name")) is not None and "span_kind" not in span and not _printed(span)
    return ours and any(found is not None and found.startswith("ai.") for found in operations)


def _printed(span: Any) -> bool:
    """Whether it is a span as Python's SDK prints it, which the `otel` reader knows."""
    return "trace_id" in as_dict(span.get("context")) and isinstance(span.get("status"), dict)


def _is_known(record: Any) -> bool:
    return _is_span(record) or _is_of_devtools(record)


READER = reader(
    "vercel", 7, "AI SDK spans, one a record, and its developer tools' steps",
    marks=_is_known, refusal="no span of the AI SDK", read=_read,
)  # fmt: skip
