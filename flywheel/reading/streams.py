"""Streamed answers as logs keep them: the text that came over the wire, or the list of its events.

In: a logged response. Out: its events in order, as objects, none when it is not a stream; an event that was cut off is
left out. Chunks of Chat Completions become the response that a call without streaming gives; where no chunk has a
reason to stop, it has `partial`, because the stream was broken off.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from flywheel.reading.values import as_dict, as_list, embedded, first, picked

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
    """Whether a logged response is the text or the list of a stream."""
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


_TEXTS = ("content", "reasoning_content", "reasoning", "refusal")


def is_chunk(event: Any) -> bool:
    """Whether an object is one chunk of a streamed answer."""
    fields = as_dict(event)
    choices = as_list(fields.get("choices"))
    if fields.get("object") == "chat.completion.chunk":
        return isinstance(fields.get("choices"), list)
    return any("delta" in as_dict(choice) for choice in choices)


@dataclass
class _Choice:
    """One choice, as far as it has come."""

    message: dict[str, Any] = field(default_factory=lambda: {"role": "assistant"})
    calls: dict[Any, dict[str, Any]] = field(default_factory=dict)
    lists: dict[str, list[Any]] = field(default_factory=dict)
    text: str | None = None
    finish_reason: Any = None

    def take(self, fields: Mapping[str, Any]) -> None:
        """Add one chunk."""
        delta = as_dict(fields.get("delta")) or as_dict(fields.get("message"))
        for name in _TEXTS:
            if isinstance(delta.get(name), str):
                self.message[name] = self.message.get(name, "") + delta[name]
        if isinstance(fields.get("text"), str):
            self.text = (self.text or "") + fields["text"]
        for call in as_list(delta.get("tool_calls")):
            self._call(as_dict(call))
        legacy = as_dict(delta.get("function_call"))
        if legacy:
            _extend(self.message.setdefault("function_call", {}), legacy)
        logprobs = as_dict(fields.get("logprobs"))
        for name, items in [("token_ids", fields.get("token_ids")), *logprobs.items()]:
            if isinstance(items, list):
                self.lists.setdefault(name, []).extend(items)
        self.finish_reason = first(fields, ("finish_reason",)) or self.finish_reason

    def _call(self, fields: Mapping[str, Any]) -> None:
        """Fragments of a call carry its index; a server without one sends whole calls, or gives an id to the first."""
        key = fields.get("index")
        if not isinstance(key, int):
            key = len(self.calls) if fields.get("id") or not self.calls else next(reversed(self.calls))
        call = self.calls.setdefault(key, {"id": None, "function": {}})
        call["id"] = call["id"] or fields.get("id")
        custom = as_dict(fields.get("custom"))
        _extend(call["function"], {**custom, "arguments": custom.get("input")} if custom else fields.get("function"))

    def whole(self, index: int) -> dict[str, Any]:
        """Return the choice of a response that was not streamed."""
        lists = dict(self.lists)
        ids = {"token_ids": lists.pop("token_ids")} if "token_ids" in lists else {}
        fields: dict[str, Any] = {"index": index, "finish_reason": self.finish_reason, **ids}
        if lists:
            fields["logprobs"] = lists
        if self.text is not None:
            return fields | {"text": self.text}
        calls = {"tool_calls": [self.calls[key] for key in sorted(self.calls)]} if self.calls else {}
        return fields | {"message": {**self.message, **calls}}


def _extend(call: dict[str, Any], value: Any) -> None:
    fields = as_dict(value)
    call["name"] = call.get("name") or fields.get("name")
    if isinstance(fields.get("arguments"), str):
        call["arguments"] = call.get("arguments", "") + fields["arguments"]
    elif fields.get("arguments") is not None:
        call["arguments"] = fields["arguments"]


def assembled(chunks: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the response that the chunks make; {} when none of them has a choice or is one."""
    choices: dict[int, _Choice] = {}
    response: dict[str, Any] = {}
    for chunk in chunks:
        if not isinstance(chunk.get("choices"), list):
            continue
        kept = ("id", "created", "model", "usage", "prompt_token_ids", "service_tier", "system_fingerprint")
        response |= picked(chunk, kept)
        for given in as_list(chunk["choices"]):
            index = as_dict(given).get("index")
            choices.setdefault(index if isinstance(index, int) else 0, _Choice()).take(as_dict(given))
    if not choices:
        return response
    partial = {"partial": True} if any(c.finish_reason is None for c in choices.values()) else {}
    return {**response, **partial, "choices": [choices[index].whole(index) for index in sorted(choices)]}
