"""Events of model and tool spans, a framework's span and its SDK's span as one.

In: the spans of a record. Out: model_call, tool_call and tool_result events. AgentOps has spans for the calls of an
answer, children of the model's span that end before it: the answer comes in pieces, joined by its span id.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from flywheel.reading.events import Event, Source, answer_from, conversation_of
from flywheel.reading.messages import Message, call, flat_text
from flywheel.reading.shapes import instructions_around
from flywheel.reading.values import as_dict, as_list, first, present, text, when
from flywheel.records import EventKind
from flywheel.stages.ingest.readers.tracers._otel.aliases import aliases
from flywheel.stages.ingest.readers.tracers._otel.attributes import value_of
from flywheel.stages.ingest.readers.tracers._otel.genai import call_payload, content_of, legacy_messages
from flywheel.stages.ingest.readers.tracers._otel.otlp import Span, model_of
from flywheel.stages.ingest.readers.tracers._otel.spans import Spans, event
from flywheel.stages.ingest.readers.tracers._otel.tools import raised_in, seconds, tool_events

_MADE = "tool_call."  # how AgentOps names the span of a call that an answer asks for


def call_events(spans: Spans) -> Iterator[Event]:
    """Yield the events of a record's model and tool spans."""
    roles = [spans.role(span) for span in spans.spans]
    calls = _Calls(spans, [s for s, role in zip(spans.spans, roles, strict=True) if role == "model"])
    for seq, (span, role) in enumerate(zip(spans.spans, roles, strict=True)):
        if role == "model" and not calls.is_duplicate(span):
            yield calls.event(span, seq)
        elif role == "tool":
            yield from tool_events(span, spans, seq)
        elif not role and (span.name.startswith(_MADE) or (not span.name and "tool.parameters" in span.attributes)):
            yield from _call_span(span, spans, seq)


class _Calls:
    """The model calls of a record, and which of them are duplicates of another span."""

    def __init__(self, spans: Spans, items: list[Span]) -> None:
        self._payloads = {id(span): _payload(span) for span in items}
        self._spans = spans
        self._inner = {id(span): self._duplicates(span) for span in items}
        self._dropped = {id(duplicate) for duplicates in self._inner.values() for duplicate in duplicates}
        self._dropped |= {id(span) for span in items if self._is_sum(span)}

    def is_duplicate(self, span: Span) -> bool:
        """Whether another span has this call."""
        return id(span) in self._dropped

    def _within(self, outer: Span) -> list[Span]:
        return [span for span in self._spans.children(outer) if id(span) in self._payloads]

    def _duplicates(self, outer: Span) -> list[Span]:
        """Return the calls under this one that are this one: failed tries, and the one that gave its answer."""
        inner = self._within(outer)
        items = [span for span in inner if not span.failed]
        mine = self._payloads[id(outer)]
        return inner if len(items) <= 1 and all(_same_call(mine, self._payloads[id(s)]) for s in items) else []

    def _is_sum(self, outer: Span) -> bool:
        """Whether a span only repeats the last of several calls under it."""
        items = [span for span in self._within(outer) if not span.failed]
        return len(items) > 1 and _same_call(self._payloads[id(outer)], self._payloads[id(items[-1])])

    def event(self, span: Span, seq: int) -> Event:
        """Return a call with what its duplicates add."""
        payload, source = dict(self._payloads[id(span)]), self._spans.source(span, seq)
        for duplicate in self._duplicates_of(span):
            payload = _merged(payload, self._payloads[id(duplicate)])
            source["model"] = source["model"] or model_of(duplicate.attributes)
            source["ids"] += [f"span:{duplicate.span_id}"] if duplicate.span_id else []
        if payload.get("response_id"):
            source["ids"] += [f"response:{payload['response_id']}"]
        self._instruct(payload, span)
        if self._spans.is_alone(span) and source["conversation_id"] == span.trace_id:
            source["conversation_id"] = _named_alone(payload, source)
        ts = span.started or when(value_of(span.attributes, aliases().names.time))
        if span.failed and not _has_content(payload):
            return event(source, EventKind.REQUEST, ts, _unanswered(payload))
        return event(source, EventKind.MODEL_CALL, ts, _in_pieces(payload, span))

    def _instruct(self, payload: dict[str, Any], span: Span) -> None:
        """Put the system prompt that only a span around a call has before its messages, the nearest span's first."""
        history = payload.get("input")
        if not history or history[0]["role"] != "user" or any(m["role"] == "system" for m in history):
            return
        _, *around = self._spans.upwards(span)
        outer = [above.attributes for above in around if isinstance(above, Span)]
        names = aliases().names
        noted = (flat_text(value_of(attributes, names.system)) for attributes in outer)
        told = (instructions_around(value_of(attributes, names.input), history) for attributes in outer)
        instructions = next((text for pair in zip(noted, told, strict=True) for text in pair if text), None)
        if instructions:
            payload["input"] = [{"role": "system", "content": instructions}, *history]

    def _duplicates_of(self, span: Span) -> Iterator[Span]:
        for duplicate in self._inner[id(span)]:
            yield duplicate
            yield from self._duplicates_of(duplicate)


def _named_alone(payload: Mapping[str, Any], source: Source) -> str:
    """Name the conversation of a trace that is one call: by how its input begins, or by its response where it has none.

    A client may trace its own requests, without content, next to the spans of an instrumentation.
    """
    if payload.get("input"):
        return conversation_of(payload["input"], source["user"])
    response = payload.get("response_id") if not _has_content(payload) else None
    return f"response:{response}" if response else str(source["conversation_id"])


def _payload(span: Span) -> dict[str, Any]:
    asked, answers, tags = content_of(span.attributes)
    if asked is None and not answers and not tags:
        found, answers = legacy_messages(span.events)
        asked = found or None
    payload = answer_from(answers, tags) | call_payload(span.attributes) | seconds(span)
    if asked is not None:
        payload["input"] = asked
    if span.failed:
        payload["error_type"] = text(span.attributes.get("error.type")) or raised_in(span) or "error"
    return payload


def _in_pieces(payload: dict[str, Any], span: Span) -> dict[str, Any]:
    """Return an answer that ended in calls but has none as a piece: AgentOps has its calls in spans below it."""
    choice = as_dict((as_list(span.attributes.get("gen_ai.completion")) or [None])[0])
    ended = choice.get("finish_reason") in ("tool_calls", "function_call")
    if not ended or not span.span_id or payload["message"].get("tool_calls"):
        return payload
    tags = [tag for tag in payload.pop("tags", ()) if tag != "content_missing"]
    return payload | {"response_id": span.span_id, "fragment": "block"} | ({"tags": tags} if tags else {})


def _call_span(span: Span, spans: Spans, seq: int) -> Iterator[Event]:
    """Yield a call that the answer of the span above made."""
    told_of = {
        "id": first(span.attributes, ("tool.call.id", "tool.id")),
        "name": span.attributes.get("tool.name"),
        "arguments": span.attributes.get("tool.parameters"),
    }
    made_call = call(told_of)
    if made_call is not None:
        message = {"role": "assistant", "tool_calls": [made_call]}
        payload = present(message=message, response_id=span.parent_id, fragment="block")
        yield event(spans.source(span, seq), EventKind.MODEL_CALL, span.started, payload)


def _unanswered(payload: Mapping[str, Any]) -> dict[str, Any]:
    """A call that failed: what the agent was asked is known, an answer is not."""
    kept = {name: payload[name] for name in ("tools", "error_type") if name in payload}
    return {"messages": payload.get("input", []), "tags": ["call_failed"], **kept}


def _has_content(payload: Mapping[str, Any]) -> bool:
    return "content_missing" not in payload.get("tags", ())


def _same_call(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two nested spans have the same answer; one without content does not differ."""
    if not (_has_content(one) and _has_content(other)):
        return True
    (words, calls), (told, made) = _answer(one["message"]), _answer(other["message"])
    return calls == made and (words == told or (bool(calls) and "" in (words, told)))  # AutoGen's has calls alone


def _answer(message: Message) -> tuple[str, list[tuple[str, Any]]]:
    calls = [(call["name"], call["arguments"]) for call in message.get("tool_calls", ())]
    return (message.get("content") or "").strip(), calls


def _merged(payload: dict[str, Any], duplicate: Mapping[str, Any]) -> dict[str, Any]:
    """Return a call with its duplicate's content where it has none, and its duplicate's other fields."""
    content = ("message", "other_choices", "tags")
    if not _has_content(payload) and _has_content(duplicate):
        payload = {k: v for k, v in payload.items() if k not in content} | {
            k: duplicate[k] for k in content if k in duplicate
        }
    whole = {k: v for k, v in duplicate.items() if k not in {"tags", "error_type", "other_choices"}} | payload
    inputs = [one["input"] for one in (payload, duplicate) if "input" in one]
    if len(inputs) > 1 and len(inputs[0]) == len(inputs[1]):
        whole["input"] = max(inputs, key=lambda messages: sum(bool(m.get("content")) for m in messages))
    words = duplicate["message"].get("content") if payload["message"].get("tool_calls") else None
    if words and not payload["message"].get("content"):
        whole["message"] = {**payload["message"], "content": words}
    return whole
