"""LangChain's and LangGraph's `astream_events` (v1, v2), as applications write them: an event a line.

A model and a tool are read from the event of their end, which has what they were given, too; events of chains, parsers
and retrievers, beginnings and pieces of a stream repeat these or hold nothing of an agent. Messages are objects,
LangChain's serialized classes; their texts (`json.dumps(event, default=str)`) do not name roles, and are refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from flywheel.extensions import BadRecordError
from flywheel.reading.events import Event, source_of
from flywheel.reading.reader import has, reader
from flywheel.reading.spans import Run, model_call, tool_use
from flywheel.reading.values import as_dict, as_list, first, ident, text, when
from flywheel.stages.ingest.readers.apis._dialects.calls import LINE

_ANSWERED = ("on_chat_model_end", "on_llm_end")
_RAN = ("on_tool_end", "on_tool_error")
_RUNNABLES = ("chat_model", "llm", "tool", "chain", "retriever", "prompt", "parser", "custom_event")
_TEXTS = "messages as texts, which do not name their roles; write events with `default=lambda held: held.model_dump()`"
_SESSIONS = ("thread_id", "session_id", "conversation_id")


def _is_event(record: Any) -> bool:
    fields = as_dict(record)
    kind = str(fields.get("event"))
    is_known = kind.startswith("on_") and kind.removeprefix("on_").startswith(_RUNNABLES)
    return is_known and isinstance(fields.get("data"), dict) and "run_id" in fields


def _read(record: Mapping[str, Any], line: int) -> Iterator[Event]:
    """Yield the call of a model or a tool that ended."""
    kind, data = record["event"], as_dict(record["data"])
    metadata = as_dict(record.get("metadata"))
    root = ident((as_list(record.get("parent_ids")) or [record["run_id"]])[0])
    source = source_of(metadata, record)
    source["conversation_id"] = ident(first(metadata, _SESSIONS)) or root
    if source["conversation_id"] is None:
        raise BadRecordError("bad_record", "neither run_id nor parent_ids is an id")
    source |= {"seq": line * LINE, "span_id": ident(record["run_id"]), "ids": [f"trace:{root}"]}
    at, error = when(first(record, ("timestamp", "ts"))), data.get("error")
    run = Run(source, text(record.get("name")), at, at, error=None if error is None else text(error) or "error")
    if kind in _ANSWERED:
        if isinstance(data.get("output"), str):
            raise BadRecordError("bad_record", _TEXTS)
        model = text(metadata.get("ls_model_name"))
        yield from model_call(run, _asked(data.get("input")), data.get("output"), {}, model=model)
    elif kind in _RAN:
        yield from tool_use(run, data.get("input"), data.get("output"))


def _asked(given: Any) -> Any:
    """Return what a model was asked: the messages of its only batch, or a text."""
    batches = as_list(as_dict(given).get("messages"))
    return {"messages": batches[0]} if len(batches) == 1 and isinstance(batches[0], list) else given


READER = reader(
    "langchain_events", 2, "events of LangChain's astream_events", marks=[(0.9, _is_event)],
    needs=has("event", "data", "run_id"), read=_read,
)  # fmt: skip
