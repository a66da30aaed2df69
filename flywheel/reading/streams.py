"""Streamed answers as logs keep them: the text that came over the wire, or the list of its events.

In: what stands where a response should stand. Out: the events in order, as objects; none when it is no stream. An event
that was cut off is left out: that the stream ended too early shows in what is missing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from flywheel.reading.values import as_dict, embedded

__all__ = ["stream_events", "streamed"]

_PLACES = ("chunks", "events", "stream", "stream_events", "streamed_chunks", "streamed_data")
_LINE_END = re.compile(r"\r\n|\n|\r")  # nothing else ends a line: JSON may hold U+2028
_BEGINNINGS = ("data:", "event:", ":", "id:", "retry:", "{")


def stream_events(value: Any) -> list[Mapping[str, Any]]:
    """Return the events of a streamed answer: SSE text, JSON lines, a list, or an object that holds one of these."""
    if isinstance(value, dict):
        held = (value[name] for name in _PLACES if isinstance(value.get(name), list | str))
        return next((found for place in held if (found := stream_events(place))), [])
    if isinstance(value, str):
        parsed = embedded(value)
        return stream_events(parsed) if isinstance(parsed, list) else list(_lines(value))
    return [event for item in value for event in _event(item)] if isinstance(value, list) else []


def streamed(value: Any) -> bool:
    """Whether what stands for a response is the text or the list of a stream."""
    return isinstance(value, list) or (isinstance(value, str) and value.lstrip().startswith(_BEGINNINGS))


def _event(item: Any) -> Iterator[Mapping[str, Any]]:
    """A list may hold the events themselves, their texts, or what an SSE client made of them."""
    if isinstance(item, str):
        yield from _lines(item)
    elif isinstance(item, dict):
        data = embedded(item.get("data"))
        yield data if isinstance(data, dict) and "choices" not in item else item


def _lines(text: str) -> Iterator[Mapping[str, Any]]:
    if not text.lstrip().startswith(_BEGINNINGS):
        return
    data: list[str] = []
    for line in [*_LINE_END.split(text), ""]:
        if line.startswith("data:"):
            data.append(line[5:].strip())
        elif line.startswith("{"):
            yield from _parsed(line)
        elif not line.strip():
            yield from _parsed("\n".join(data))
            data = []


def _parsed(data: str) -> Iterator[Mapping[str, Any]]:
    """Parse one event's data; some loggers drop the empty lines between events, so that each line is one."""
    whole = as_dict(embedded(data))
    if whole:
        yield whole
    elif "\n" in data:
        for line in data.split("\n"):
            yield from _parsed(line)
