"""Arguments that were written bare: the text alone, for a tool that takes one argument.

In: one conversation's events, in order. Out: the same, with such arguments under their name wherever the call is
repeated; the text stays next to them. Only a tool whose schema is logged has an argument whose name is known, and text
that begins as an object does not parse: it stays as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from flywheel.stages.conversations.fragments import Event

_TYPES: dict[str, type | tuple[type, ...]] = {
    "string": str, "integer": int, "number": (int, float), "boolean": bool, "array": list,
}  # fmt: skip
_PLACES = ("messages", "input")


def name_bare_arguments(events: Sequence[Event]) -> Sequence[Event]:
    """Return the events with bare arguments named; most logs have none."""
    if not any(map(_has_bare, events)):
        return events
    offered: dict[str, tuple[str, str]] = {}
    for event in events:
        for schema in event.payload.get("tools") or ():
            offered.update(_only_argument(schema))
    return [_named(event, offered) if _has_bare(event) else event for event in events] if offered else events


def _has_bare(event: Event) -> bool:
    payload = event.payload
    if event.kind == "tool_call":
        return _is_bare(payload)
    texts = [payload.get("message"), *(m for place in _PLACES for m in _list(payload.get(place)))]
    return any(_is_bare(call) for message in texts for call in _calls(message))


def _is_bare(call: Any) -> bool:
    if not isinstance(call, dict) or call.get("arguments") is not None:
        return False
    raw = call.get("arguments_raw")
    return isinstance(raw, str) and bool(raw.strip()) and not raw.lstrip().startswith("{")


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _calls(message: Any) -> list[Any]:
    return _list(message.get("tool_calls")) if isinstance(message, dict) else []


def _only_argument(schema: Any) -> dict[str, tuple[str, str]]:
    """Return the tool's name with its only argument and the argument's type; {} where it takes more or none."""
    function = schema.get("function", schema) if isinstance(schema, dict) else {}
    parameters = function.get("parameters") if isinstance(function, dict) else None
    properties = parameters.get("properties") if isinstance(parameters, dict) else None
    if not isinstance(properties, dict) or len(properties) != 1:
        return {}
    ((name, about),) = properties.items()
    kind = about.get("type", "string") if isinstance(about, dict) else "string"
    return {str(function.get("name")): (name, kind)} if kind in _TYPES else {}


def _named(event: Event, offered: Mapping[str, tuple[str, str]]) -> Event:
    payload = dict(event.payload)
    if event.kind == "tool_call":
        payload |= _known(payload, event.tool_name or "", offered)
    if isinstance(payload.get("message"), dict):
        payload["message"] = _complete(payload["message"], offered)
    for place in _PLACES:
        if isinstance(payload.get(place), list):
            payload[place] = [_complete(message, offered) for message in payload[place]]
    return event._replace(payload=payload)


def _complete(message: Any, offered: Mapping[str, tuple[str, str]]) -> Any:
    calls = _calls(message)
    if not any(map(_is_bare, calls)):
        return message
    named = [call | _known(call, call.get("name", ""), offered) if _is_bare(call) else call for call in calls]
    return {**message, "tool_calls": named}


def _known(call: Mapping[str, Any], tool: Any, offered: Mapping[str, tuple[str, str]]) -> dict[str, Any]:
    """Return the arguments of a bare call as an object; {} where its value is of another type than the tool's."""
    if not _is_bare(call) or not isinstance(tool, str) or tool not in offered:
        return {}
    name, kind = offered[tool]
    written = call["arguments_raw"]
    try:
        value = orjson.loads(written)
    except orjson.JSONDecodeError:
        value = written
    if kind == "string" and not isinstance(value, str):
        value = written
    fits = isinstance(value, _TYPES[kind]) and (kind == "boolean" or not isinstance(value, bool))
    return {"arguments": {name: value}} if fits else {}
