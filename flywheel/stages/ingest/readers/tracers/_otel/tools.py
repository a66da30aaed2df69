"""Tool spans: a call at its beginning, a result at its end, whatever the framework wraps them in.

In: a tool span with those of the same call within it. Out: events. LangChain's tools give messages, OpenLLMetry's and
LangSmith's decorators write them as JSON in objects of their own, LlamaIndex and Agno results with a flag.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from flywheel.reading.events import Event
from flywheel.reading.messages import arguments
from flywheel.reading.shapes.returned import returned
from flywheel.reading.status import FAILED, OK, UNKNOWN, error_type, tool_status
from flywheel.reading.values import as_dict, embedded, first, ident, number, text
from flywheel.records import EventKind
from flywheel.stages.ingest.readers.tracers._otel.aliases import aliases
from flywheel.stages.ingest.readers.tracers._otel.attributes import unquoted, value_of
from flywheel.stages.ingest.readers.tracers._otel.otlp import Span, SpanEvent
from flywheel.stages.ingest.readers.tracers._otel.spans import Spans, event

_NOT_SAID = {"<not specified>"}  # Google ADK's word for no call id
_MERGED = "(merged tools)"  # Google ADK's summary of parallel calls, which have spans of their own
_HANDOFF = "handoff to "  # of the OpenAI Agents SDK: who speaks on; the call that asked for it is in the answer
_FUNCTIONS = {"args", "kwargs", "sanitize_inputs_outputs"}  # of a decorator, of smolagents


def tool_events(span: Span, spans: Spans, seq: int) -> Iterator[Event]:
    """A tool span is a call at its beginning and a result at its end."""
    name, outer = _tool_name(span), spans.parent(span)
    is_twin = outer is not None and spans.role(outer) == "tool" and _tool_name(outer) == name
    if name == _MERGED or span.name.startswith(_HANDOFF) or is_twin:
        return
    inner = [s for s in spans.children(span) if spans.role(s) == "tool" and _tool_name(s) == name]
    copies = [span, *inner]
    answer = returned(unquoted(_given(copies)))
    named = [ident(unquoted(value_of(s.attributes, aliases().names.tool_call_id))) for s in copies]
    call_id = next(filter(None, (*named, ident(answer.get("tool_call_id")), _id_beside(copies))), None)
    columns = {"tool_name": name, "tool_call_id": None if call_id in _NOT_SAID else call_id}
    source = spans.source(span, seq)
    yield event(source, EventKind.TOOL_CALL, span.started, _arguments(copies), **columns)
    yield event(source, EventKind.TOOL_RESULT, span.ended, _result(copies, answer), **columns)


def _tool_name(span: Span) -> str | None:
    """Return a tool's name; MCP's and the conventions' spans have it behind a word of theirs."""
    content = text(value_of(span.attributes, aliases().names.tool_name))
    named = content or span.name.removeprefix("execute_tool ").removeprefix("tools/call ").strip()
    return named.removesuffix(".__call__") or None  # as DSPy names its tools


def _arguments(copies: list[Span]) -> dict[str, Any]:
    names = aliases().names.tool_arguments
    for name, value in ((name, span.attributes.get(name)) for span in copies for name in names):
        if value is not None and value != "" and not _is_schema(name, value):
            return arguments(_unwrapped(value))
    given = next((event.attributes.get("content") for event in _events(copies, "gen_ai.tool.message")), None)
    return {} if given is None else arguments(given)


def _events(copies: list[Span], name: str) -> Iterator[SpanEvent]:
    """Yield the events of a name: Strands writes what a tool was given, and gave, as events of its span."""
    return (happened for span in copies for happened in span.events if happened.name == name)


def _is_schema(name: str, value: Any) -> bool:
    schema = as_dict(embedded(value)) if name == "tool.parameters" else {}
    return schema.get("type") == "object" and "properties" in schema


def _unwrapped(value: Any) -> Any:
    """OpenLLMetry writes the arguments of a function, LangChain's of a run; both wrap what the model gave."""
    fields = as_dict(embedded(value))
    if "kwargs" in fields and fields.keys() <= _FUNCTIONS and not fields.get("args"):
        return fields["kwargs"]
    inner = fields.get("inputs")
    return inner if isinstance(inner, dict) and inner and "input_str" in fields else value


def _id_beside(copies: list[Span]) -> str | None:
    """Return the call's id in what LangChain's callbacks were given, as OpenLLMetry writes it."""
    inputs = (as_dict(embedded(span.attributes.get("traceloop.entity.input"))) for span in copies)
    return next((name for given in inputs if (name := ident(as_dict(given.get("kwargs")).get("tool_call_id")))), None)


def _given(copies: list[Span]) -> Any:
    """Return what the tool gave back, as it was logged."""
    found = (first(span.attributes, aliases().names.tool_result) for span in copies)
    told = (happened.attributes.get("message") for happened in _events(copies, "gen_ai.choice"))
    return next((value for value in (*found, *told) if value is not None), None)


def _result(copies: list[Span], answer: Mapping[str, Any]) -> dict[str, Any]:
    content = answer.get("content") or _error_text(copies) or ""
    payload = {"content": content, "status": _status(copies, content, answer.get("status"))} | seconds(copies[0])
    if payload["status"] == FAILED:
        errors = (text(s.attributes.get("error.type")) or raised_in(s) for s in copies)
        kind = next((found for found in errors if found), None) or error_type(content)
        payload |= {"error_type": kind} if kind else {}
    return payload


def _error_text(copies: list[Span]) -> str | None:
    """Return an error's text where there is no result: of its event, of the span's status, of its attributes."""
    raised = (text(e.attributes.get("exception.message")) for s in copies for e in s.events if e.name == "exception")
    noted = (text(s.attributes.get("exception.message")) for s in copies)
    return next(filter(None, (*raised, *(s.message for s in copies), *noted)), None)


def _status(copies: list[Span], content: str, stated: str | None) -> str:
    """The span's own word outweighs the text, except that a tool may return its error as an ordinary result."""
    if stated == FAILED or any(_failed(span) for span in copies):
        return FAILED
    status = tool_status(content)
    if status == FAILED:
        return FAILED
    names = aliases().names
    flags = [span.attributes.get(name) for span in copies for name in names.tool_failed]
    gave = (*names.tool_success, *names.tool_result)  # an unset status is that of a span that did not fail
    proven = any(span.ok or (span.ended and first(span.attributes, gave) is not None) for span in copies)
    proven = proven or any(span.attributes.get("gen_ai.tool.status") == "success" for span in copies)
    return OK if proven or stated == OK or False in flags else status or UNKNOWN


def _failed(span: Span) -> bool:
    raised = any(happened.name == "exception" for happened in span.events)
    flags = (span.attributes.get(name) for name in aliases().names.tool_failed)
    level = span.attributes.get("langfuse.observation.level")
    named = any(span.attributes.get(name) for name in ("error.type", "exception.type", "exception.message"))
    return bool(span.failed or raised or named or True in flags or level == "ERROR")


def raised_in(span: Span) -> str | None:
    """Return the type of the exception that a span recorded."""
    raised = next((e for e in span.events if e.name == "exception"), None)
    return text(raised.attributes.get("exception.type")) if raised else None


def seconds(span: Span) -> dict[str, float]:
    """Return how long a span took, as a payload field."""
    if span.started is None or span.ended is None:
        told_ms = number(first(span.attributes, aliases().names.latency_ms))
        return {} if told_ms is None else {"latency_s": told_ms / 1000}
    return {"latency_s": (span.ended - span.started).total_seconds()}
