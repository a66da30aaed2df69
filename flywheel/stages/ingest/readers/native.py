"""flywheel's own JSONL, for producers that write it themselves: one `LogEvent` a line (schemas/log_event).

`payload` is an object; event_id and the source fields may be left out and are ignored. Feedback that comes later, in a
file of its own, is a line of the same form, or a flat one (schemas/feedback): {"target", "target_id", "name", "value",
...}, which names its target by any id that the log has; it may also come before its target. Unlike foreign formats
this one is checked strictly, field by field, because its producer can be fixed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from flywheel.extensions import BadRecordError
from flywheel.reading.events import Event
from flywheel.reading.messages import arguments, flat_text, messages
from flywheel.reading.reader import reader
from flywheel.reading.status import FAILED, OK, UNKNOWN, tool_status
from flywheel.reading.values import as_dict, embedded, ident, number, when
from flywheel.records import EventKind, LogEvent, is_name

_FIELDS = set(LogEvent.model_fields)
_TEXTS = {"span_id", "parent_id", "model", "policy", "task_key", "user", "tool_name", "tool_call_id"}
_FLAT = {
    "name", "value", "label", "comment", "text", "target", "target_id", "annotator", "scale", "source",
    "trace_id", "response_id",
}  # fmt: skip
_ALSO = {"correction": "text", "created_at": "ts", "id": "span_id"}  # other names of a flat line's fields
# What a flat line may judge, as kinds of ids.
_TARGETS = {
    "call": "call", "step": "span", "span": "span", "trace": "trace", "session": "session", "response": "response",
    "response_id": "response", "request": "request", "request_id": "request", "message": "message",
}  # fmt: skip
_SAYS = {"value", "label", "comment", "text"}
_KINDS = {kind.value: kind for kind in EventKind}
_LATE = {EventKind.FEEDBACK, EventKind.OUTCOME}
_NAME_LENGTH = 40
_TEXT_OR_NUMBER = (str, int)


def _read(record: Any) -> Iterator[Event]:
    """Yield the event of one line."""
    if "payload" in record or not _is_flat(record):
        given, target = record, record.get("target")
    else:
        given = _unflatten(record)
        target = given.pop("_target", None)
    if not given.keys() <= _FIELDS:
        raise BadRecordError("bad_record", f"{_field_name(min(given.keys() - _FIELDS))}: unknown field")
    event: Event = {name: _text(value, name) for name, value in given.items() if name in _TEXTS}
    event["kind"] = kind = _kind(given)
    event["conversation_id"] = ident(given.get("conversation_id"))
    if event["conversation_id"] is None:
        raise BadRecordError("bad_record", "conversation_id: required")
    event["ts"], event["seq"] = _time(given), _seq(given)
    placed = event["ts"] or event.get("span_id") or given.get("seq") is not None
    if not placed and kind not in _LATE:
        raise BadRecordError("bad_record", "ts, seq or span_id: one of them is required")
    payload = embedded(given.get("payload"))
    if not isinstance(payload, dict):
        raise BadRecordError("bad_record", "payload: an object is required")
    event["payload"] = _CHECKS[kind](_checked(payload))
    event["ids"], event["target"] = _named(given, target)
    yield event


def _field_name(name: str) -> str:
    """Return a field's name for a message; other names than identifiers might be private data."""
    return name if name.isidentifier() and len(name) <= _NAME_LENGTH else "(not an identifier)"


def _is_event(record: Any) -> bool:
    outer = as_dict(record)
    kind = outer.get("kind")
    return isinstance(kind, str) and kind in _KINDS and "conversation_id" in outer and "payload" in outer


def _is_flat(record: Any) -> bool:
    names = {name for name, value in as_dict(record).items() if value is not None}  # a table has all its columns
    if "payload" in names:
        return False
    aimed = "conversation_id" in names or {"target", "target_id"} <= names
    says = names & (_SAYS | set(_ALSO))
    return aimed and "name" in names and bool(says) and "messages" not in names


def _unflatten(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a flat line as an event; without a conversation it has its target's name as conversation."""
    fields = {_ALSO.get(name, name): value for name, value in record.items() if value is not None}
    payload = {name: value for name, value in fields.items() if name in _FLAT}
    rest = {name: value for name, value in fields.items() if name not in _FLAT}
    kind, meant = fields.get("target"), ident(fields.get("target_id"))
    if kind is not None and not (isinstance(kind, str) and kind in _TARGETS):
        raise BadRecordError("bad_record", f"target: one of {', '.join(_TARGETS)} is required")
    if kind is not None and meant is not None:
        rest["_target"] = f"{_TARGETS[kind]}:{meant}"
        rest.setdefault("conversation_id", rest["_target"])
        payload["target"] = _MEANT.get(_TARGETS[kind], _TARGETS[kind])
    if rest.get("kind") == EventKind.OUTCOME.value:
        payload["source"] = EventKind.FEEDBACK.value  # a line of feedback states no outcome, unless [trust] lets it
    return {"kind": EventKind.FEEDBACK.value, **rest, "payload": payload}


_MEANT = {"span": "step", "request": "response", "message": "response"}  # as `LogEvent` calls it


def _named(fields: Mapping[str, Any], target: Any) -> tuple[list[str], str | None]:
    ids = fields.get("ids") or []
    if not isinstance(ids, list) or not all(map(is_name, ids)):
        raise BadRecordError("bad_record", "ids: a list of kind:id is required")
    if target is not None and not is_name(target):
        raise BadRecordError("bad_record", "target: kind:id is required")
    return ids, target


def _text(value: Any, name: str) -> str | None:
    if value is not None and not isinstance(value, _TEXT_OR_NUMBER):
        raise BadRecordError("bad_record", f"{name}: a text is required")
    return ident(value)


def _kind(fields: Mapping[str, Any]) -> EventKind:
    value = fields.get("kind")
    kind = _KINDS.get(value) if isinstance(value, str) else None
    if kind is None:
        raise BadRecordError("bad_record", f"kind: one of {', '.join(sorted(_KINDS))} is required")
    return kind


def _time(fields: Mapping[str, Any]) -> Any:
    value = fields.get("ts")
    time = when(value)
    if value is not None and time is None:
        raise BadRecordError("bad_record", "ts: no ISO 8601 time or number since 1970")
    return time


def _seq(fields: Mapping[str, Any]) -> int:
    value = fields.get("seq")
    if value is None:
        return 0
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 63:
        raise BadRecordError("bad_record", "seq: a whole number from 0 is required")
    return value


def _nested(payload: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    try:
        return messages(payload.get(name))
    except BadRecordError as error:
        raise BadRecordError(error.reason, f"payload.{name}: {error.detail}") from None


def _request(payload: dict[str, Any]) -> dict[str, Any]:
    history = _nested(payload, "messages")
    if not history:
        raise BadRecordError("bad_record", "payload.messages: at least one is required")
    return {**payload, "messages": history}


def _model_call(payload: dict[str, Any]) -> dict[str, Any]:
    message = payload.get("message")
    if not isinstance(message, dict):
        raise BadRecordError("bad_record", "payload.message: an object is required")
    answer = _nested({"message": {"role": "assistant", **message}}, "message")[-1]
    if answer["role"] != "assistant":
        raise BadRecordError("bad_record", "payload.message: the role is not assistant")
    fields = {**payload, "message": answer}
    return fields | ({"input": _nested(payload, "input")} if payload.get("input") is not None else {})


def _tool_call(payload: dict[str, Any]) -> dict[str, Any]:
    if payload.get("arguments") is None and "arguments_raw" in payload:
        return payload | arguments(payload["arguments_raw"])
    return payload | arguments(payload.get("arguments"))


def _tool_result(payload: dict[str, Any]) -> dict[str, Any]:
    content, status = flat_text(payload.get("content")) or "", payload.get("status")
    if status is None:
        status = tool_status(content, payload)
    if status not in (OK, FAILED, UNKNOWN):
        raise BadRecordError("bad_record", f"payload.status: one of {OK}, {FAILED}, {UNKNOWN} is required")
    return {**payload, "content": content, "status": status}


def _opinion(payload: dict[str, Any]) -> dict[str, Any]:
    name, value = payload.get("name"), payload.get("value")
    if not isinstance(name, str) or not name:
        raise BadRecordError("bad_record", "payload.name: a text is required")
    score = number(value)
    if value is not None and score is None:
        raise BadRecordError("bad_record", "payload.value: a finite number is required")
    return payload | ({} if score is None else {"value": score})


def _outcome(payload: dict[str, Any]) -> dict[str, Any]:
    checked = _opinion(payload)
    if checked.get("value") is None:
        raise BadRecordError("bad_record", "payload.value: required")
    return checked


def _checked(payload: dict[str, Any]) -> dict[str, Any]:
    """Check the fields that any kind may have, and that what comes after trusts."""
    for name, (kinds, what) in _TYPED.items() if not payload.keys().isdisjoint(_TYPED) else ():
        value = payload.get(name)
        if value is not None and (not isinstance(value, kinds) or isinstance(value, bool)):
            raise BadRecordError("bad_record", f"payload.{name}: {what} is required")
    for name, inner, what in _LISTS:
        if payload.get(name) and not all(isinstance(item, inner) for item in payload[name]):
            raise BadRecordError("bad_record", f"payload.{name}: a list of {what} is required")
    return payload


_TYPES: tuple[tuple[tuple[str, ...], Any, str], ...] = (
    (("response_id", "finish_reason", "label", "comment", "text", "arguments_raw", "error_type"), str, "a text"),
    (("input_tokens", "output_tokens", "cost_usd", "latency_s"), int | float, "a number"),
    (("tags", "tools"), list, "a list"),
)

_TYPED = {name: (kinds, what) for names, kinds, what in _TYPES for name in names}
_LISTS = (("tags", str, "texts"), ("tools", dict, "objects"))

_CHECKS: dict[EventKind, Callable[[dict[str, Any]], dict[str, Any]]] = {
    EventKind.REQUEST: _request,
    EventKind.MODEL_CALL: _model_call,
    EventKind.TOOL_CALL: _tool_call,
    EventKind.TOOL_RESULT: _tool_result,
    EventKind.FEEDBACK: _opinion,
    EventKind.OUTCOME: _outcome,
}

READER = reader("native", 4, "flywheel's own events", marks=[(1.0, _is_event), (0.9, _is_flat)], read=_read)
