"""Google ADK: sessions with their events, as `adk web`, the API server and the session services give them.

A record is a session, or a row of the table `events` of a session service's database, as it was before it kept an event
as one object: what its actions were, a pickle, is not read. Who wrote an event is its `author`, the user or an agent,
and its content is Gemini's. Pieces of a stream (`partial`) are repeated whole by the event after them. Names are in
camel or snake case.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from flywheel.extensions import BadRecordError
from flywheel.reading.events import Event
from flywheel.reading.messages import with_origins
from flywheel.reading.reader import reader
from flywheel.reading.rollout import Rollout, rollout_events
from flywheel.reading.shapes.turns import Turn, turns_of
from flywheel.reading.usage import token_counts
from flywheel.reading.values import as_dict, as_list, embedded, first, ident, present, text, when
from flywheel.stages.ingest.readers.apis._dialects.calls import LINE

_EVENTS = ("events", "sessionEvents")
_ROW = {"app_name", "user_id", "session_id", "invocation_id", "author", "content"}
_APP, _USER = ("appName", "app_name"), ("userId", "user_id")


def _read(record: Any, line: int) -> Iterator[Event]:
    """Yield the messages of a session, or of one of its events."""
    is_row = _is_row(record)
    written = [_of_row(record)] if is_row else [as_dict(event) for event in as_list(first(record, _EVENTS))]
    events = [event for event in written if as_dict(event.get("content")).get("parts") and not event.get("partial")]
    history, origins = with_origins(events, _turns)
    facts = {position: _facts(event, history[position]["role"]) for position, event in origins.items()}
    if not events:
        return
    conversation = ident(record.get("session_id" if is_row else "id")) or _session_of(written[0])
    if conversation is None:
        raise BadRecordError("bad_record", "no session id")
    rollout = Rollout(
        conversation=conversation,
        policy=text(first(record, _APP)),
        messages=history,
        facts=facts,
        first=line * LINE if is_row else 0,
        started=next((fields["ts"] for fields in facts.values() if "ts" in fields), None),
    )
    user = ident(first(record, _USER))
    yield from ({**event, "user": user} for event in rollout_events(rollout))


def _turns(event: Mapping[str, Any]) -> list[Turn]:
    content = as_dict(event.get("content"))
    role = text(content.get("role")) or ("user" if event.get("author") == "user" else "model")
    return turns_of([{**content, "role": role}])


def _facts(event: Mapping[str, Any], role: str) -> dict[str, Any]:
    usage = as_dict(first(event, ("usageMetadata", "usage_metadata"))) if role == "assistant" else {}
    model = text(first(event, ("modelVersion", "model_version"))) if role == "assistant" else None
    return present(ts=when(event.get("timestamp")), model=model, **token_counts(usage))


def _session_of(event: Mapping[str, Any]) -> str | None:
    """Return the session in the name that Vertex AI's Agent Engine gives an event: .../sessions/ID/events/ID."""
    before, _, rest = str(event.get("name")).partition("/sessions/")
    return rest.partition("/")[0] or None if before else None


def _is_row(record: Any) -> bool:
    fields = as_dict(record)
    return fields.keys() >= _ROW and (fields.get("content") is None or "parts" in as_dict(embedded(fields["content"])))


def _of_row(record: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a row as an event: its columns hold JSON as text."""
    return {name: embedded(held) for name, held in record.items()}


def _is_session(record: Any) -> bool:
    if _is_row(record):
        return True
    session = as_dict(record)
    events = [as_dict(event) for event in as_list(first(session, _EVENTS))]
    named = first(session, _APP) is not None or _session_of(events[0] if events else {}) is not None
    return named and all("author" in event for event in events) and bool(events)


READER = reader("adk", 4, "sessions of Google ADK", marks=_is_session, refusal="no session with events", read=_read)
