"""Anthropic Messages: logged request/response pairs, also streamed, bare messages, and transcripts made of blocks.

The system prompt is next to the messages, tool results are inside user messages, an assistant message that ends the
request is the beginning of the answer, and the usage counts cached tokens apart: all of it is put in normal form.
A message without its request is a call of the conversation that is named by its id.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from flywheel.reading.events import Event, attempt_of, source_of, spoken
from flywheel.reading.feedback import judgements
from flywheel.reading.messages import tool_schemas
from flywheel.reading.pairs import Pair, pair_of
from flywheel.reading.reader import reader
from flywheel.reading.shapes.turns import has_untyped_parts
from flywheel.reading.values import as_dict, as_list, embedded
from flywheel.stages.ingest.readers.apis._dialects.calls import call_events
from flywheel.stages.ingest.readers.apis._dialects.claude import CLAUDE, claude_history, is_message
from flywheel.stages.ingest.readers.apis._dialects.which import as_answered

_TELLING = ("tool_use", "tool_result", "thinking", "redacted_thinking")


def _read(record: Any, line: int) -> Iterator[Event]:
    """Yield the events of one pair, message or transcript."""
    pair, dialect = as_answered(record, _pair(record), CLAUDE)
    if dialect is CLAUDE and pair.request is record and not (CLAUDE.completed(pair.response) or record.get("error")):
        yield from _transcript(record)
    elif pair.request or is_message(pair.response):
        yield from call_events(pair, dialect, line)


def _pair(record: Any) -> Pair:
    """Return a record's pair; an answer of which only the text was logged becomes a message."""
    pair = pair_of(record)
    if "said" not in pair.response:
        return pair
    (choice,) = pair.response["choices"]
    written = [{"type": "text", "text": choice["message"].get("content") or ""}]
    return pair._replace(response={**pair.response, "type": "message", "content": written})


def _is_pair(record: Any) -> bool:
    pair = pair_of(record)
    is_error = pair.response.get("type") == "error" and bool(as_dict(pair.response.get("error")))
    return bool(pair.request) and (is_error or bool(CLAUDE.completed(pair.response)))


def _is_answer(record: Any) -> bool:
    """Whether a record is a response of this API, or has one without its request."""
    return is_message(pair_of(record).response)


def _is_transcript(record: Any) -> bool:
    pair = pair_of(record)
    outer = pair.request if "said" in pair.response else as_dict(record)
    items = as_list(outer.get("messages"))
    if not items or not all(as_dict(m).get("role") in ("user", "assistant") for m in items):
        return False
    if has_untyped_parts(items):
        return False
    parts = (p for m in items for p in as_list(m.get("content")))
    return "system" in outer or any(as_dict(p).get("type") in _TELLING for p in parts)


def _transcript(record: Mapping[str, Any]) -> Iterator[Event]:
    history = claude_history(record)
    source = source_of(as_dict(embedded(record.get("metadata"))), record)
    if source["conversation_id"] is None:
        source["conversation_id"] = attempt_of(record, history, source)
    tools = tool_schemas(record.get("tools"))
    yield from spoken(history, source, {"tools": tools} if tools else {})
    yield from judgements(record, source, None)


READER = reader(
    "anthropic", 16, "Messages API logs", marks=[(0.95, _is_pair), (0.9, _is_answer), (0.7, _is_transcript)], read=_read
)
