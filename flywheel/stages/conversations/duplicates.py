"""Duplicate records: a framework's span around the SDK's, a span and its content events, a second delivery.

In: one conversation's events, in order. Out: the same with each model call and each tool span once, merged from all
its records, and the number of duplicates. An id alone proves nothing: servers restart their numbering, so two calls
that both have content are one only if the content is equal.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from flywheel.stages.common.canonical import call_key

if TYPE_CHECKING:
    from flywheel.stages.conversations.fragments import Event

Messages = list[dict[str, Any]]

_MODEL, _TOOL = "model_call", ("tool_call", "tool_result")
_TALK = ("request", _MODEL, *_TOOL)
_MOST_FILES = 64  # of a conversation: more are its turns, a file each
_SEVERAL, _LONG_TALK = 4, 200  # texts, and characters of them, that no two talks have in common
_LONG_ID = 12  # characters that no counter has
_MISSING = {"content_missing", "truncated", "unreadable_content"}


def merge_duplicates(events: Sequence[Event]) -> tuple[list[Event], int]:
    """Return the events without duplicates, and how many model calls were duplicates."""
    merged: list[Event] = []
    places: dict[tuple[str, str], list[int]] = {}
    repeated = 0
    for event in _told_by_one(_without_summaries(events)):
        duplicate = _duplicate_of(event, merged, places)
        if duplicate is None:
            for name in _names(event):
                places.setdefault(name, []).append(len(merged))
            merged.append(event)
        else:
            merged[duplicate] = _merged(merged[duplicate], event)
            repeated += event.kind == _MODEL
    return merged, repeated


def _without_summaries(events: Sequence[Event]) -> Sequence[Event]:
    """Return the events without summaries of calls that are logged too: a trace's own input and output.

    A summary gives way to the calls of its trace; where one of them names no trace, they are taken to be of the same.
    Of several of one trace that hold whole talks one that lies within another, a helper's, is left out.
    """
    if not any(event.payload.get("summary") for event in events):
        return events
    calls = [_traces(e) for e in events if e.kind == _MODEL and not e.payload.get("summary")]
    logged = {trace for traces in calls for trace in traces}
    anywhere = not all(calls)

    def is_logged(summary: Event) -> bool:
        traces = _traces(summary)
        return anywhere or not traces or bool(traces & logged)

    kept = [e for e in events if not (e.payload.get("summary") and calls and is_logged(e))]
    inner = _inner_talks([e for e in kept if e.payload.get("summary")])
    return [e for e in kept if not (e.payload.get("summary") and e.record in inner)] if inner else kept


def _inner_talks(summaries: Sequence[Event]) -> set[str]:
    """Return the records whose summary is of a part of a trace of which another one has the talk."""
    by_trace: dict[str, dict[str, list[tuple[int, Event]]]] = defaultdict(lambda: defaultdict(list))
    for place, event in enumerate(summaries):
        for trace in _traces(event):
            by_trace[trace][event.record].append((place, event))
    inner = set[str]()
    for records in by_trace.values():
        talks = [record for record, own in records.items() if sum(e.kind != "request" for _, e in own) > 1]
        if not talks or len(records) == 1:
            continue
        ended = -1
        for record in (*talks, *(one for one in records if one not in talks)):
            begins, ends = records[record][0][0], records[record][-1][0]
            if begins > ended and (record in talks or ended < 0):
                ended = ends
            else:
                inner.add(record)
    return inner


def _told_by_one(events: Sequence[Event]) -> Sequence[Event]:
    """Return the events without what a file has that another one of the conversation has too: a harness's own trace.

    All calls of such a file are in the other one, by their ids, tools and arguments; of a file without calls all words,
    and these are not few. Of two that have the same calls the one is kept that counts more tokens, then the one with
    more words. Words that only the file has stay.
    """
    by_file: dict[str, list[Event]] = defaultdict(list)
    for event in events:
        by_file[_file(event)].append(event)
    if not 1 < len(by_file) <= _MOST_FILES:
        return events
    told = {file: _Told(own) for file, own in by_file.items()}
    order = sorted(told, key=lambda file: (*told[file].rank, file))
    again: dict[str, _Told] = {}
    for place, file in enumerate(order):
        own = told[file]
        whole = next((told[one] for one in order[place + 1 :] if own.is_within(told[one])), None)
        if whole is not None and own.is_sure:
            again[file] = whole
    return [event for event in events if _file(event) not in again or not again[_file(event)].has(event)]


def _file(event: Event) -> str:
    return event.record.rpartition(":")[0]


class _Told:
    """What a file has of a conversation: calls by id, tool and arguments, and the words of who speaks in it."""

    def __init__(self, events: Sequence[Event]) -> None:
        acts = [event for event in events if event.kind == _MODEL]
        self.calls = {key for act in acts for key in _ids_of(act)}
        self.ids = {name for name, _ in self.calls}
        self.results = {event.tool_call_id for event in events if event.kind == "tool_result"}
        self.words = {said for event in events for said in _words_of(event)}
        counted = sum("output_tokens" in act.payload for act in acts)
        self.rank = (len(self.calls), counted, len(self.words), -len(acts))

    def is_within(self, other: _Told) -> bool:
        """Whether another file has all its calls; of a file without calls all words."""
        return self.calls <= other.calls if self.calls else self.words <= other.words

    @property
    def is_sure(self) -> bool:
        """Whether nothing else has its calls or words: some programs number the calls of each turn from 0 on."""
        if self.ids:
            return all(len(name) >= _LONG_ID for name in self.ids)
        return len(self.words) >= _SEVERAL and sum(len(said) for _, said in self.words) >= _LONG_TALK

    def has(self, event: Event) -> bool:
        """Whether nothing of an event is missing here; of thoughts alone there is no need to ask."""
        if event.kind == "tool_result":
            return event.tool_call_id in self.ids & self.results
        return event.kind in _TALK and set(_words_of(event)) <= self.words and set(_ids_of(event)) <= self.calls


def _words_of(event: Event) -> Iterator[tuple[str, str]]:
    """Yield who speaks in an event, with what they say."""
    held = event.payload.get("messages") if event.kind == "request" else [event.payload.get("message")]
    for message in held if isinstance(held, list) else []:
        content = message.get("content") if isinstance(message, dict) else None
        if isinstance(content, str) and content.strip():
            yield message.get("role", ""), " ".join(content.split())


def _ids_of(act: Event) -> Iterator[tuple[str, str]]:
    """Yield the id and the key of each call that an act makes."""
    for call in calls_of(_output(act)):
        yield str(call.get("id") or ""), call_key(call)


def _traces(event: Event) -> set[str]:
    return {name for name in event.ids if name.startswith("trace:")}


def _names(event: Event) -> list[tuple[str, str]]:
    """Return the ids by which duplicates of an event may be found."""
    if event.kind in _TOOL:
        return [(event.kind, event.span_id)] if event.span_id else []
    if event.kind != _MODEL:
        return []
    if event.payload.get("summary"):
        return [("summary", trace) for trace in sorted(_traces(event))]
    response = event.payload.get("response_id")
    names = [("span", event.span_id), ("response", response), ("inside", event.parent_id)]
    return [(kind, name) for kind, name in names if isinstance(name, str) and name]


def _duplicate_of(event: Event, merged: Sequence[Event], places: Mapping[tuple[str, str], list[int]]) -> int | None:
    if event.kind in _TOOL:
        found = places.get((event.kind, event.span_id or ""), ())
        return next((place for place in found if _may_be_one(merged[place], event)), None)
    if event.kind != _MODEL:
        return None
    for kind, name in _names(event):
        for other in ("span", "inside") if kind in ("span", "inside") else (kind,):
            if kind == other == "inside":  # two calls of one parent
                continue
            for place in reversed(places.get((other, name), ())):
                if _same_call(merged[place], event, by_span=kind != "response"):
                    return place
    return None


def _may_be_one(one: Event, other: Event) -> bool:
    """Whether two records of a span may be of one call: a message of several results has one id for all of them."""
    return None in (one.tool_call_id, other.tool_call_id) or one.tool_call_id == other.tool_call_id


def _same_call(one: Event, other: Event, *, by_span: bool) -> bool:
    """Whether two records are one call: of one span, or of one right inside the other, by what it wrote alone.

    What was asked is written otherwise by a framework than by the SDK inside it.
    """
    if not (_has_content(one) and _has_content(other)):
        return True
    if not same_message(_output(one), _output(other)) and not (by_span and _is_wordless(one, other)):
        return False
    inputs, others = one.payload.get("input"), other.payload.get("input")
    if by_span or not (isinstance(inputs, list) and isinstance(others, list)):
        return True
    return len(inputs) == len(others) and all(map(same_message, inputs, others))


def _is_wordless(one: Event, other: Event) -> bool:
    """Whether two records have the same calls, one of them without the words that the other has next to them."""
    (_, words, calls), (_, told, made) = signature_of(_output(one)), signature_of(_output(other))
    return bool(calls) and calls == made and "" in (words, told)


def _output(event: Event) -> dict[str, Any]:
    message = event.payload.get("message")
    return message if isinstance(message, dict) else {}


def _has_content(event: Event) -> bool:
    message = _output(event)
    return bool(message.get("content") or message.get("tool_calls"))


def _merged(one: Event, other: Event) -> Event:
    """Return the first of two records with the content of the fuller one and the other fields of both."""
    fuller, poorer = (one, other) if _fullness(one) >= _fullness(other) else (other, one)
    payload = {**poorer.payload, **{k: v for k, v in fuller.payload.items() if v is not None}}
    if not _output(fuller).get("content") and _output(poorer).get("content"):
        payload["message"] = _output(fuller) | {"content": _output(poorer)["content"]}
    longest = max((_inputs(one), _inputs(other)), key=_told)
    if longest is not None:
        payload["input"] = longest
    tags = {tag for e in (one, other) for tag in e.payload.get("tags") or () if isinstance(tag, str)}
    if _has_content(fuller):
        tags -= _MISSING - set(fuller.payload.get("tags") or ())
    payload.pop("tags", None)
    return one._replace(
        payload=payload | ({"tags": sorted(tags)} if tags else {}),
        tool_name=one.tool_name or other.tool_name,
        tool_call_id=one.tool_call_id or other.tool_call_id,
    )


def _told(messages: Messages | None) -> tuple[int, int]:
    """Return how many messages an input has, and how many of these have words or calls."""
    if messages is None:
        return (-1, 0)
    return len(messages), sum(bool(message.get("content") or message.get("tool_calls")) for message in messages)


def _inputs(event: Event) -> Messages | None:
    messages = event.payload.get("input")
    return messages if isinstance(messages, list) else None


def _fullness(event: Event) -> tuple[bool, bool, int]:
    payload = event.payload
    explicit = payload.get("status") in {"ok", "failed"} or payload.get("arguments") is not None
    return _has_content(event) or bool(payload.get("content")), explicit, len(payload)


def calls_of(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a message's calls that name a tool."""
    calls = message.get("tool_calls")
    return [c for c in calls if isinstance(c, dict) and c.get("name")] if isinstance(calls, list) else []


def nameless_calls(message: Mapping[str, Any]) -> int:
    """Return how many of a message's calls name no tool: the log lost what was called."""
    calls = message.get("tool_calls")
    return len(calls) - len(calls_of(message)) if isinstance(calls, list) else 0


def signature_of(message: Mapping[str, Any]) -> tuple[str, str, tuple[str, ...]]:
    """Return what identifies a message in a repeated history: ids, names, statuses and reasoning may be left out."""
    content = message.get("content")
    text = content.strip() if isinstance(content, str) else ""
    return message.get("role", ""), text, tuple(call_key(c) for c in calls_of(message))


def same_message(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two messages are the same, also where one record leaves ids out."""
    return one == other or (one.get("role") == other.get("role") and signature_of(one) == signature_of(other))
