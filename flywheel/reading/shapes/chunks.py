"""The pieces of a streamed answer put together, where a tracer logged the stream and not what became of it.

In: chunks in order: texts, chunks of chat completions, or LangChain's message chunks. Out: one response of chat
completions, or one message, or None when they are no such chunks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from flywheel.reading.streams import assembled
from flywheel.reading.values import as_dict, as_list, embedded, first, text


def joined_chunks(chunks: Sequence[Any]) -> dict[str, Any] | None:
    """Return the answer that a stream's chunks make."""
    found = [as_dict(embedded(chunk)) for chunk in chunks]
    if chunks and all(isinstance(chunk, str) for chunk in chunks) and not any(c.get("choices") for c in found):
        return {"role": "assistant", "content": "".join(chunks)}
    known = [chunk for chunk in map(_of_chat, found) if chunk is not None]
    return assembled(known) if known and len(known) >= len(found) // 2 else None


def _of_chat(chunk: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return a chunk in the words of chat completions."""
    if isinstance(chunk.get("choices"), list):
        return chunk
    if as_list(chunk.get("id"))[-1:] == ["AIMessageChunk"]:
        return {"choices": [{"delta": _delta(as_dict(chunk.get("kwargs")))}]}
    return {**chunk, "choices": [{"delta": _delta(chunk)}]} if chunk.get("type") == "AIMessageChunk" else None


def _delta(message: Mapping[str, Any]) -> dict[str, Any]:
    said = message.get("content")
    parts = [text(as_dict(part).get("text")) or "" for part in as_list(said)]
    pieces = map(as_dict, as_list(first(message, ("tool_call_chunks", "tool_calls"))))
    calls = [{**piece, "function": {**piece, "arguments": piece.get("args")}} for piece in pieces]
    return {"content": "".join(parts) or said, "tool_calls": calls}
