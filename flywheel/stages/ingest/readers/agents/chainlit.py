"""Rows of Chainlit's data layer: threads, their steps, and what users thought of them, a row each.

In: rows of `steps` (`threadId`, `type`, `input`, `output`, `isError`, `generation`), `threads` and `feedbacks`, as its
SQLAlchemy layer keeps them. Out: what users wrote and what they were answered, calls of tools with what they gave,
tokens and models of generations, thumbs. What a program's own run was given is there as messages too, so it makes none;
`threads` name the user. Fields: https://docs.chainlit.io/data-layers/sqlalchemy.
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
from flywheel.reading.usage import token_counts
from flywheel.reading.values import as_dict, embedded, ident, number, present, text, when
from flywheel.records import EventKind
from flywheel.stages.ingest.readers.apis._dialects.calls import LINE

_STEP = {"threadId", "type", "id", "createdAt"}
_TYPES = {"user_message", "assistant_message", "system_message", "run", "tool", "llm", "embedding", "retrieval",
          "rerank", "undefined"}  # fmt: skip
_OF_OTHERS = ("role", "content", "text", "messages")  # that no row of Chainlit's has
_THREAD = {"id", "createdAt", "userIdentifier", "metadata"}
_RATING = {"id", "forId", "value"}
_TOOLS = ("tool", "retrieval")
_TOKENS = {"input_tokens": "inputTokenCount", "output_tokens": "outputTokenCount"}


def _is_step(record: Any) -> bool:
    fields = as_dict(record)
    is_known = fields.keys() >= _STEP and str(fields["type"]) in _TYPES
    return is_known and fields.keys().isdisjoint(_OF_OTHERS)


def _is_row(record: Any) -> bool:
    fields = as_dict(record)
    is_other = not fields.keys().isdisjoint(_OF_OTHERS)
    return _is_step(record) or (not is_other and (fields.keys() >= _THREAD or fields.keys() >= _RATING))


def _read(record: Mapping[str, Any], line: int) -> Iterator[Event]:
    """Yield the events of a row.

    Raises:
        BadRecordError: it is none of the three, or a step names no thread.
    """
    if record.keys() >= _RATING:
        yield from _rated(record, line)
        return
    if not _is_row(record):
        raise BadRecordError("bad_record", "no row of a thread, a step or a rating")
    is_step = _is_step(record)
    thread = ident(record.get("threadId" if is_step else "id"))
    if thread is None:
        raise BadRecordError("bad_record", "a step without its thread")
    source: Source = {
        "conversation_id": thread, "ts": when(record.get("createdAt")), "seq": line * LINE,
        "user": ident(record.get("userIdentifier")) or ident(record.get("userId")),
    }  # fmt: skip
    yield from _of_step(record, source) if is_step else [request([], {**source, "ts": None}, source["seq"], {})]


def _rated(record: Mapping[str, Any], line: int) -> Iterator[Event]:
    """Yield what a user thought of a step: 1 or 0, in earlier versions 1 or -1."""
    aim, value = f"message:{ident(record['forId'])}", number(record["value"])
    source = {"conversation_id": aim, "target": aim, "seq": line * LINE, "ts": when(record.get("createdAt"))}
    if value is not None:
        comment = text(record.get("comment"))
        rating = {"name": "thumbs", "value": 1.0 if value > 0 else -1.0, "annotator": "human"}
        yield feedback(source, {**rating, **present(comment=comment)})


def _of_step(record: Mapping[str, Any], source: Source) -> Iterator[Event]:
    kind, own = record["type"], ident(record.get("id")) or ""
    said, is_failed = _words(record, "output"), record.get("isError") in (True, 1, "true", "True")
    named = {**source, "ids": [f"message:{own}"] if own else []}
    if kind == "user_message" and (asked := said or _words(record, "input")):
        yield request([{"role": "user", "content": asked}], named, source["seq"], {})
    elif kind == "system_message" and said:
        yield request([{"role": "system", "content": said}], named, source["seq"], {})
    elif kind == "assistant_message" and said:
        failed = {"tags": ["api_error"]} if is_failed else {}
        yield {**named, "kind": EventKind.MODEL_CALL,
               "payload": {"message": {"role": "assistant", "content": said}, **failed}}  # fmt: skip
    elif kind in _TOOLS:
        yield from _call(record, own, {**named, "ids": []}, is_failed=is_failed)
    generation = as_dict(embedded(record.get("generation")))
    used = present(token_counts({**generation, **{name: generation.get(own) for name, own in _TOKENS.items()}}))
    if used:
        yield request([], {**source, "model": text(generation.get("model"))}, source["seq"] + 2, used)


def _call(record: Mapping[str, Any], own: str, source: Source, *, is_failed: bool) -> Iterator[Event]:
    """Yield a tool's call, and what it gave at the time when it ended."""
    name = text(record.get("name")) or ""
    given = embedded(record.get("input"))
    given = {"input": given} if isinstance(given, str) and given else given
    call = {"id": own, "name": name, **arguments(given or {})}
    made = {"role": "assistant", "content": None, "tool_calls": [call]}
    yield {**source, "kind": EventKind.MODEL_CALL, "payload": {"message": made}}
    if (gave := _words(record, "output")) is not None:
        status = FAILED if is_failed else OK
        result = result_message(gave, {"tool_call_id": own, "name": name}, status=status)
        yield tool_result(result, {**source, "ts": when(record.get("end")) or source["ts"]}, source["seq"] + 1)


def _words(record: Mapping[str, Any], name: str) -> str | None:
    return flat_text(record.get(name)) or None


READER = reader("chainlit", 1, "rows of Chainlit's data layer", marks=_is_row, read=_read)
