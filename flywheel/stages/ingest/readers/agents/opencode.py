"""Rows of opencode's database (`opencode.db`): messages, and the parts of which each consists, a row each.

Before it had a database, opencode kept the same in a file each (`storage/message/SESSION/ID.json`,
`storage/part/MESSAGE/ID.json`), the columns among the fields; a part's time may be missing there.

In: rows of `message` (`id`, `session_id`, `time_created`, `data`) and of `part` (also `message_id`); those of `session`
hold nothing of a talk. A part does not know who speaks: the message's row does, and they meet when episodes are built
(`conversations.fragments`). Out: pieces of answers, calls with what they gave at the time when they ended, what the
program put into a message as context, tokens of each step, interruptions. A helper's session is one of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from flywheel.extensions import BadRecordError
from flywheel.reading.events import Event, Source, request, tool_result
from flywheel.reading.feedback import feedback
from flywheel.reading.messages import arguments, flat_text, result_message
from flywheel.reading.reader import reader
from flywheel.reading.status import FAILED, OK
from flywheel.reading.values import as_dict, count, embedded, first, ident, number, present, text, when
from flywheel.records import EventKind
from flywheel.stages.ingest.readers.apis._dialects.calls import LINE

_ENDED = {"completed": OK, "error": FAILED}
_INPUTS = ("input", "read", "write")
_WORDS = {"content", "parts", "text", "data"}
_ABORTED = "MessageAbortedError"


def _is_row(record: Any) -> bool:
    """Whether a record is a row of one of the tables, or a file that is one; of a session's only as a file."""
    fields = _as_row(as_dict(record))
    return _is_session(fields) or ("session_id" in fields and "time_created" in fields and _data(fields) is not None)


def _as_row(record: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a file of a message or a part as a row; any other record as it is."""
    of_message = {"messageID", "type"} <= record.keys()
    is_file = "sessionID" in record and (of_message or ("role" in record and _WORDS.isdisjoint(record)))
    times = as_dict(first(as_dict(record.get("state")), ("time",)) or record.get("time"))
    if not is_file or not (of_message or "created" in times):
        return record
    row = {"id": record.get("id"), "session_id": record["sessionID"], "data": record}
    of = {"message_id": record["messageID"]} if of_message else {}
    return row | of | {"time_created": first(times, ("created", "start"))}


def _is_session(record: Mapping[str, Any]) -> bool:
    return {"id", "projectID", "directory", "version", "time"} <= record.keys()


def _data(fields: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return what a row holds: a message with its role, or a part with its type."""
    held = as_dict(embedded(fields.get("data")))
    return held if ("type" if "message_id" in fields else "role") in held else None


def _read(record: Mapping[str, Any], line: int) -> Iterator[Event]:
    """Yield the events of a row.

    Raises:
        BadRecordError: it is none of a message or a part.
    """
    record = _as_row(record)
    if _is_session(record):
        return
    data, session, of = _data(record), ident(record.get("session_id")), ident(record.get("message_id"))
    own = ident(record.get("id"))
    if data is None or session is None or (of is None and (own is None or "message_id" in record)):
        raise BadRecordError("bad_record", "no row of a message or a part")
    source: Source = {"conversation_id": session, "ts": when(record.get("time_created")), "seq": line * LINE}
    yield from _message(data, own or "", source) if of is None else _part(data, of, source)


def _message(data: Mapping[str, Any], own: str, source: Source) -> Iterator[Event]:
    """Yield who speaks in a message, with the model, and how it ended; its words are in its parts."""
    if data["role"] == "user":
        yield request([], {**source, "ids": [f"message:{own}"]}, source["seq"], {"by_user": own})
        return
    prompt = flat_text(data.get("system"))
    opening = [{"role": "system", "content": prompt}] if prompt else []
    shortened = {"replaces_context": True, "tags": ["compacted"]} if data.get("summary") is True else {}
    error = text(as_dict(data.get("error")).get("name"))
    failed = {"tags": ["api_error"]} if error and error != _ABORTED else {}
    model = text(data.get("modelID")) or text(as_dict(data.get("model")).get("modelID"))
    named = {**source, "model": model, "ids": [f"message:{own}"]}
    yield request(opening, named, source["seq"], shortened | failed)
    if error == _ABORTED:
        ended = when(as_dict(data.get("time")).get("completed")) or source["ts"]
        yield feedback({**source, "ts": ended}, {"name": "interrupt", "annotator": "implicit"})


def _part(data: Mapping[str, Any], of: str, source: Source) -> Iterator[Event]:
    kind, words = data["type"], text(data.get("text"))
    if kind in ("text", "reasoning") and words:
        if data.get("synthetic") is True:
            yield request([{"role": "system", "content": words}], source, source["seq"], {})
        elif data.get("ignored") is not True:
            yield _piece({"content" if kind == "text" else "reasoning": words}, of, source)
    elif kind == "file":
        yield _piece({"content": f"[{text(first(data, ('filename', 'mime'))) or 'file'}]"}, of, source)
    elif kind == "tool":
        yield from _call(data, of, source)
    elif kind == "step-finish":
        yield request([], source, source["seq"], _used(data))


def _piece(said: dict[str, Any], of: str, source: Source) -> Event:
    payload = {"message": {"role": "assistant", **said}, "fragment": "block", "of_message": of}
    return {**source, "kind": EventKind.MODEL_CALL, "payload": payload}


def _call(data: Mapping[str, Any], of: str, source: Source) -> Iterator[Event]:
    """Yield a call, and its result at the time when it came: other calls of the step are before it."""
    state = as_dict(data.get("state"))
    status = _ENDED.get(text(state.get("status")) or "")
    call = ident(data.get("callID")) or of
    yield _piece(
        {"tool_calls": [{"id": call, "name": text(data.get("tool")) or "", **arguments(state.get("input"))}]},
        of,
        source,
    )
    if status is not None:
        gave = result_message(
            flat_text(first(state, ("output", "error"))), {"tool_call_id": call, "name": text(data.get("tool"))},
            status=status,
        )  # fmt: skip
        ended = when(as_dict(state.get("time")).get("end")) or source["ts"]
        yield tool_result(gave, {**source, "ts": ended}, source["seq"] + 1)


def _used(data: Mapping[str, Any]) -> dict[str, Any]:
    tokens = as_dict(data.get("tokens"))
    places = {**as_dict(tokens.get("cache")), **tokens}
    inputs = [n for name in _INPUTS if (n := count(places.get(name))) is not None]
    outputs = [n for name in ("output", "reasoning") if (n := count(tokens.get(name))) is not None]
    return present(
        input_tokens=sum(inputs) if inputs else None,
        output_tokens=sum(outputs) if outputs else None,
        cost_usd=number(data.get("cost")),
    )


READER = reader("opencode", 3, "rows of opencode's database, or its storage of a file each", marks=_is_row, read=_read)
