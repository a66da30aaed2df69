"""agent-lightning: the events of its 1.x gateway, the spans of its 0.x store, and the rollouts of both.

A conversation is one attempt of one rollout. A rollout's record may stand in another file: it gives the task, which is
the rollout's input, so that rollouts of one input are attempts at one task. `model_version` is the training step that
served a call, and with the model's name its policy.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from flywheel.extensions import BadRecordError
from flywheel.reading.events import Event, Source, request
from flywheel.reading.reader import reader
from flywheel.reading.values import as_dict, first, ident, number, text, when
from flywheel.records import EventKind, content_id
from flywheel.stages.ingest.readers.apis.openai import READER as CHAT
from flywheel.stages.ingest.readers.tracers._agl_spans import span_events

_EVENT = {"event_type", "rollout_id", "attempt_id", "data"}
_SPAN = {"rollout_id", "attempt_id", "sequence_id", "attributes"}
_ROLLOUT = {"rollout_id", "input", "status"}
_FIRST_ATTEMPT = "0"  # what 1.x calls the only attempt


def _read(record: Any, line: int) -> Iterator[Event]:
    """Yield the events of one record, or of each on a page of its REST interface."""
    for item in _items(record):
        kind = _kind(item)
        if not kind:
            raise BadRecordError("bad_record", "neither an event, a span nor a rollout")
        if kind == "span":
            yield from span_events(item, _conversation(item), line)
        elif kind == "rollout":
            yield from _rollout(item)
        else:
            yield from _logged(item, line)


def _is_known(record: Any) -> bool:
    return any(map(_kind, _items(record)))


def _items(record: Any) -> list[Any]:
    items = as_dict(record).get("items")
    return items if isinstance(items, list) else [record]


def _kind(record: Any) -> str:
    fields = set(as_dict(record))
    if fields >= _EVENT:
        return "event"
    if fields >= _SPAN:
        return "span"
    return "rollout" if fields >= _ROLLOUT and fields & {"mode", "is_train", "attempt"} else ""


def _conversation(record: Mapping[str, Any]) -> str:
    rollout, attempt = ident(record.get("rollout_id")), ident(record.get("attempt_id"))
    if rollout is None:
        raise BadRecordError("bad_record", "no rollout_id")
    return f"{rollout}/{attempt}" if attempt is not None else rollout


def _rollout(record: Mapping[str, Any]) -> Iterator[Event]:
    """A rollout says what its attempt was asked; where it names no attempt, the attempts say that they are its."""
    asked, status = record.get("input"), as_dict(record.get("status"))
    attempt = ident(as_dict(record.get("attempt")).get("attempt_id"))
    if attempt is None and status:
        attempt = ident(status.get("last_attempt_id")) or _FIRST_ATTEMPT
    named = ident(first(as_dict(asked), ("data_id", "instance_id", "task_id", "id")))
    if asked is None:
        return
    source: Source = {
        "conversation_id": _conversation({**record, "attempt_id": attempt}),
        "task_key": f"agent_lightning/{named or content_id(asked)}",
        "ts": when(first({**record, **status}, ("start_time", "created_at"))),
    }
    yield request([], source, 0, {})


def _logged(record: Mapping[str, Any], line: int) -> Iterator[Event]:
    data = as_dict(record.get("data"))
    source: Source = {"conversation_id": _conversation(record), "ts": when(record.get("timestamp"))}
    source["ids"] = [f"session:{ident(record['rollout_id'])}"]
    if record["event_type"] == "model_request":
        model, version = text(data.get("model")), ident(data.get("model_version"))
        policy = "@".join(t for t in (model, version) if t) if version else None
        asked = {name: data.get(name) for name in ("request", "response", "latency_ms")}
        for event in CHAT.read(asked | {"response": _whole(data.get("response"))}, line):
            response = event["payload"].get("response_id")
            ids = source["ids"] + ([f"response:{response}"] if response else [])
            yield {**event, **source, "ids": ids, "model": event["model"] or model, "policy": policy}
    elif record["event_type"] == "reward":
        yield from _reward(data, source)


def _whole(response: Any) -> Any:
    """Return a response; what old gateways kept as raw chunks is none that can be read here."""
    return response if isinstance(response, dict) else {}


def _reward(data: Mapping[str, Any], source: Source) -> Iterator[Event]:
    value = number(data.get("value"))
    if value is None or data.get("source") == "fallback":  # filled in by the system: nobody judged
        return
    payload = {"name": "reward", "value": value, "source": "verifier"}
    comment = text(first(data, ("message", "reason")))
    payload |= {"comment": comment} if comment else {}
    yield {**source, "kind": EventKind.OUTCOME, "seq": 0, "payload": payload}


READER = reader("agent_lightning", 1, marks=_is_known, read=_read)
