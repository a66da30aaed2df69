"""Messages that are logged in pieces: streamed deltas, or one content block a line.

In: one conversation's events, in order. Out: the same with the pieces of each response joined at the place of its
first piece. Blocks are whole parts of a message; deltas are cut anywhere, also inside a word or a call's arguments; a
revision is the whole message once more, with what came since, and takes the place of the one before.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from flywheel.reading.values import literal
from flywheel.stages.common.canonical import parse

_DELTA = "delta"
_COUNTED = ("input_tokens", "output_tokens", "cost_usd", "latency_s")
_REVISION = "revision"
_JOINTS = {"block": "\n", _DELTA: "", _REVISION: "\n"}


class Event(NamedTuple):
    """An event of a conversation with its payload parsed."""

    event_id: str
    kind: str
    span_id: str | None
    parent_id: str | None
    tool_name: str | None
    tool_call_id: str | None
    payload: dict[str, Any]
    ids: Sequence[str] = ()
    record: str = ""  # of which log it is; '' where that is not known


def join_fragments(events: Sequence[Event]) -> list[Event]:
    """Return the events with every response complete."""
    events = _without_echoes(_by_whom(_whole_inputs(events)))
    named = _responses(events)
    pieces: dict[str, list[Event]] = {}
    for event, response in zip(events, named, strict=True):
        if response:
            pieces.setdefault(response, []).append(event)
    if not pieces:
        return list(events)
    joined = []
    for event, response in zip(events, named, strict=True):
        if not response:
            joined.append(event)
        elif response in pieces:
            joined.append(_joined(pieces.pop(response)))
    return joined


def _whole_inputs(events: Sequence[Event]) -> Sequence[Event]:
    """Return the events with what a call was asked as its input, where each message of it is a record of its own.

    Exporters write such records in batches, of which the answer is mostly in a later one.
    """
    spans: dict[str, list[Event]] = defaultdict(list)
    for event in events:
        if event.payload.get("pieces") is True and event.span_id:
            spans[event.span_id].append(event)
    whole: dict[str, Event | None] = {}  # by event id; None for a piece that is in another
    for pieces in spans.values():
        call = next((piece for piece in pieces if piece.kind == "model_call"), None)
        if call is None or len(pieces) == 1:
            continue
        asked = [message for piece in pieces for message in _asked_in(piece)]
        whole |= {piece.event_id: None for piece in pieces if piece.kind == "request"}
        whole[call.event_id] = call._replace(payload=call.payload | ({"input": asked} if asked else {}))
    return [one for event in events if (one := whole.get(event.event_id, event)) is not None] if whole else events


def _asked_in(piece: Event) -> list[Any]:
    messages = piece.payload.get("messages" if piece.kind == "request" else "input")
    return messages if isinstance(messages, list) else []


def _by_whom(events: Sequence[Event]) -> Sequence[Event]:
    """Return the events with the pieces of messages that are a user's as requests.

    A piece may only name its message (`of_message`); another event names the messages of users (`by_user`).
    """
    users = {event.payload["by_user"] for event in events if isinstance(event.payload.get("by_user"), str)}
    if not users:
        return events
    of = (event.payload.get("of_message") for event in events)
    return [_asked(e) if isinstance(name, str) and name in users else e for e, name in zip(events, of, strict=True)]


def _asked(piece: Event) -> Event:
    message = piece.payload.get("message")
    said = {"role": "user", "content": message.get("content")} if isinstance(message, dict) else None
    return piece._replace(kind="request", payload={"messages": [said] if said and said["content"] else []})


def _without_echoes(events: Sequence[Event]) -> Sequence[Event]:
    """Return the events without pieces that only log calls again, as when they begin: same id, tool and arguments."""
    made: set[tuple[str, ...]] = set()
    kept = []
    for event in events:
        message = event.payload.get("message") if event.payload.get("fragment") == "block" else None
        calls = {_call_key(call) for call in message.get("tool_calls") or ()} if isinstance(message, dict) else set()
        if message and calls and calls <= made and all(own for own, *_ in calls) and not message.get("content"):
            continue
        made |= calls
        kept.append(event)
    return kept


def _call_key(call: Any) -> tuple[str, ...]:
    fields = call if isinstance(call, dict) else {}
    return (str(fields.get("id") or ""), str(fields.get("name")), str(fields.get("arguments")))


def _responses(events: Sequence[Event]) -> list[str]:
    """Return the response that each event is a piece of, or ''; pieces without an id are one response a run of them."""
    named, run = [], 0
    for event in events:
        is_piece = event.kind == "model_call" and event.payload.get("fragment") in _JOINTS
        run += not is_piece
        response = event.payload.get("response_id")
        name = f"id:{response}" if isinstance(response, str) and response else f"run:{run}"
        named.append(name if is_piece else "")
    return named


def _joined(pieces: Sequence[Event]) -> Event:
    payload: dict[str, Any] = {}
    for piece in pieces:
        payload |= {name: value for name, value in piece.payload.items() if name not in {"message", "fragment", "tags"}}
    for name in _COUNTED:  # repeated on every piece, or growing
        amounts = [a for p in pieces if isinstance(a := p.payload.get(name), int | float)]
        if amounts:
            payload[name] = max(amounts)
    tags = sorted({tag for p in pieces for tag in p.payload.get("tags") or () if isinstance(tag, str)})
    if tags:
        payload["tags"] = tags
    is_cut = any(p.payload["fragment"] == _DELTA for p in pieces)
    parts = [part for p in pieces if isinstance(part := p.payload.get("message"), dict)]
    if any(p.payload["fragment"] == _REVISION for p in pieces):
        parts = parts[-1:]
    payload["message"] = _message(parts, _JOINTS[_DELTA if is_cut else "block"])
    return pieces[0]._replace(payload=payload)


def _message(parts: Sequence[Mapping[str, Any]], joint: str) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant"}
    for name in ("content", "reasoning"):
        texts = [part[name] for part in parts if isinstance(part.get(name), str)]
        if texts:
            message[name] = joint.join(texts)
    calls = [call for part in parts for call in part.get("tool_calls") or () if isinstance(call, dict)]
    if calls:
        are_whole = joint or all(call.get("id") and isinstance(call.get("arguments"), dict) for call in calls)
        message["tool_calls"] = calls if are_whole else _assembled(calls)
    attachments = [held for part in parts for held in part.get("attachments") or ()]
    return message | ({"attachments": attachments} if attachments else {})


def _assembled(deltas: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Put calls together by their index: id and name are in the first piece, the arguments are cut."""
    calls: dict[int, dict[str, Any]] = {}
    for delta in deltas:
        index = delta.get("index")
        call = calls.setdefault(index if isinstance(index, int) else 0, {"id": "", "name": "", "arguments_raw": ""})
        call["id"] = call["id"] or str(delta.get("id") or "")
        call["name"] = call["name"] or str(delta.get("name") or "")
        call["arguments_raw"] += str(delta.get("arguments_raw") or "")
    return [_parsed(call) for _, call in sorted(calls.items()) if call["name"] or call["id"]]


def _parsed(call: dict[str, Any]) -> dict[str, Any]:
    raw = call.pop("arguments_raw")
    try:
        arguments = parse(raw, exact=True) if raw.strip() else {}
    except ValueError:
        arguments = None
    return (
        {**call, "arguments": arguments}
        if isinstance(arguments, dict)
        else {**call, "arguments": literal(raw), "arguments_raw": raw}
    )
