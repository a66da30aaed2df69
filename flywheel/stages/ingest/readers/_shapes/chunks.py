"""The pieces of a streamed answer put together, where a tracer logged the stream and not what became of it.

In: chunks in order: texts, deltas of chat completions, or LangChain's message chunks. Out: one output as `_shapes`
reads it, or None when they are no such chunks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from flywheel.stages.ingest.readers._values import as_dict, as_list, embedded, first, text

__all__ = ["joined_chunks"]

_WHOLE = ("id", "model", "usage")  # what a chunk says of the whole answer


def joined_chunks(chunks: Sequence[Any]) -> dict[str, Any] | None:
    """Return the answer that a stream's chunks make."""
    found = [embedded(chunk) for chunk in chunks]
    if found and all(isinstance(chunk, str) for chunk in chunks) and not any(as_dict(c).get("choices") for c in found):
        return {"role": "assistant", "content": "".join(chunks)}
    deltas = [delta for chunk in found if (delta := _delta(as_dict(chunk))) is not None]
    if not deltas or len(deltas) < len(found) // 2:
        return None
    whole = {
        k: v for chunk in found for k, v in as_dict(chunk).items() if k in _WHOLE and isinstance(v, str | dict) and v
    }
    reasons = [as_dict(c).get("finish_reason") for chunk in found for c in as_list(as_dict(chunk).get("choices"))]
    message: dict[str, Any] = {"role": "assistant", "content": "".join(map(_words, deltas)) or None}
    calls = _calls(c for delta in deltas for c in as_list(first(delta, ("tool_call_chunks", "tool_calls"))))
    if calls:
        message["tool_calls"] = calls
    reason = next((r for r in reversed(reasons) if r), None)
    return {**whole, "choices": [{"message": message, "finish_reason": reason}]}


def _delta(chunk: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return what a chunk adds; {} for one that only tells of usage."""
    choices = chunk.get("choices")
    if isinstance(choices, list):
        return as_dict(as_dict(choices[0]).get("delta")) if choices else {}
    if as_list(chunk.get("id"))[-1:] == ["AIMessageChunk"]:
        return as_dict(chunk.get("kwargs"))
    return chunk if chunk.get("type") == "AIMessageChunk" else None


def _words(delta: Mapping[str, Any]) -> str:
    content = delta.get("content")
    if isinstance(content, list):
        return "".join(text(as_dict(part).get("text")) or "" for part in content)
    return text(content) or ""


def _calls(pieces: Iterable[Any]) -> list[dict[str, Any]]:
    """Return calls whose arguments came in pieces, told apart by their index."""
    made: dict[Any, dict[str, Any]] = {}
    for piece in map(as_dict, pieces):
        inner = as_dict(piece.get("function")) or piece
        call = made.setdefault(piece.get("index", len(made)), {"id": "", "name": "", "arguments": ""})
        call["id"] = call["id"] or text(piece.get("id")) or ""
        call["name"] += text(inner.get("name")) or ""
        call["arguments"] += text(first(inner, ("arguments", "args"))) or ""
    return list(made.values())
