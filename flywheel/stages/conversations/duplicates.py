"""What a log tells twice: a framework's span around the SDK's, a span and its content events, a second delivery.

In: one conversation's events, in order. Out: the same with each model call and each tool span once, holding what all
its tellings say, and how many were told again. An id alone proves nothing: servers number answers anew after a restart,
so two calls that both have content are one only when they say the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from flywheel.stages.common.canonical import call_key

if TYPE_CHECKING:
    from flywheel.stages.conversations.event import Event

Messages = list[dict[str, Any]]

_MODEL, _TOOL = "model_call", ("tool_call", "tool_result")
_MISSING = {"content_missing", "truncated", "unreadable_content"}


def merge_twins(events: Sequence[Event]) -> tuple[list[Event], int]:
    """Return the events with nothing told twice, and how many model calls were."""
    told: list[Event] = []
    places: dict[tuple[str, str], list[int]] = {}
    repeated = 0
    for event in _without_summaries(events):
        twin = _twin(event, told, places)
        if twin is None:
            for name in _names(event):
                places.setdefault(name, []).append(len(told))
            told.append(event)
        else:
            told[twin] = _merged(told[twin], event)
            repeated += event.kind == _MODEL
    return told, repeated


def _without_summaries(events: Sequence[Event]) -> Sequence[Event]:
    """Return the events without what only sums up calls that are there: a trace's own input and output.

    A summary gives way to the calls of its trace; where one of them names no trace, they are taken to be of the same.
    """
    if not any(event.payload.get("summary") for event in events):
        return events
    calls = [_traces(e) for e in events if e.kind == _MODEL and not e.payload.get("summary")]
    told = {trace for traces in calls for trace in traces}
    anywhere = not all(calls)
    return [e for e in events if not (e.payload.get("summary") and calls and (anywhere or _is_told(e, told)))]


def _is_told(summary: Event, told: set[str]) -> bool:
    traces = _traces(summary)
    return not traces or bool(traces & told)


def _traces(event: Event) -> set[str]:
    return {name for name in event.ids if name.startswith("trace:")}


def _names(event: Event) -> list[tuple[str, str]]:
    """Return the ids by which an event may be told again."""
    if event.kind in _TOOL:
        return [(event.kind, event.span_id)] if event.span_id else []
    if event.kind != _MODEL:
        return []
    if event.payload.get("summary"):
        return [("summary", trace) for trace in sorted(_traces(event))]
    response = event.payload.get("response_id")
    found = [("span", event.span_id), ("response", response), ("inside", event.parent_id)]
    return [(kind, name) for kind, name in found if isinstance(name, str) and name]


def _twin(event: Event, told: Sequence[Event], places: Mapping[tuple[str, str], list[int]]) -> int | None:
    if event.kind in _TOOL:
        return next(iter(places.get((event.kind, event.span_id or ""), ())), None)
    if event.kind != _MODEL:
        return None
    for kind, name in _names(event):
        for other in ("span", "inside") if kind in ("span", "inside") else (kind,):
            if kind == other == "inside":  # two calls of one parent
                continue
            for place in reversed(places.get((other, name), ())):
                if _same_call(told[place], event, same_span=kind == other == "span"):
                    return place
    return None


def _same_call(one: Event, other: Event, *, same_span: bool) -> bool:
    if not (_says(one) and _says(other)):
        return True
    if not same_message(_output(one), _output(other)):
        return False
    given, also = one.payload.get("input"), other.payload.get("input")
    return same_span or not (isinstance(given, list) and isinstance(also, list)) or _same_all(given, also)


def _output(event: Event) -> dict[str, Any]:
    message = event.payload.get("message")
    return message if isinstance(message, dict) else {}


def _says(event: Event) -> bool:
    message = _output(event)
    return bool(message.get("content") or message.get("tool_calls"))


def _merged(one: Event, other: Event) -> Event:
    """Return the event that stands first with the content of the fuller telling and the rest of both."""
    fuller, poorer = (one, other) if _fullness(one) >= _fullness(other) else (other, one)
    payload = {**poorer.payload, **{k: v for k, v in fuller.payload.items() if v is not None}}
    longest = max((_inputs(one), _inputs(other)), key=lambda given: -1 if given is None else len(given))
    if longest is not None:
        payload["input"] = longest
    tags = {tag for e in (one, other) for tag in e.payload.get("tags") or () if isinstance(tag, str)}
    if _says(fuller):
        tags -= _MISSING - set(fuller.payload.get("tags") or ())
    payload.pop("tags", None)
    return one._replace(
        payload=payload | ({"tags": sorted(tags)} if tags else {}),
        tool_name=one.tool_name or other.tool_name,
        tool_call_id=one.tool_call_id or other.tool_call_id,
    )


def _inputs(event: Event) -> Messages | None:
    given = event.payload.get("input")
    return given if isinstance(given, list) else None


def _fullness(event: Event) -> tuple[bool, bool, int]:
    payload = event.payload
    explicit = payload.get("status") in {"ok", "failed"} or payload.get("arguments") is not None
    return _says(event) or bool(payload.get("content")), explicit, len(payload)


def calls_of(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a message's calls that name a tool."""
    calls = message.get("tool_calls")
    return [c for c in calls if isinstance(c, dict) and c.get("name")] if isinstance(calls, list) else []


def _signature(message: Mapping[str, Any]) -> tuple[str, str, list[str]]:
    """Return what identifies a message in a repeated history: ids, names, statuses and reasoning may be left out."""
    content = message.get("content")
    text = content.strip() if isinstance(content, str) else ""
    return message.get("role", ""), text, [call_key(c) for c in calls_of(message)]


def same_message(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two messages are the same thing said, also where one telling leaves ids out."""
    return one == other or (one.get("role") == other.get("role") and _signature(one) == _signature(other))


def _same_all(one: Messages, other: Messages) -> bool:
    return len(one) == len(other) and all(map(same_message, one, other))
