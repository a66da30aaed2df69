"""What a model call answered, in whatever way a framework wraps it.

In: an output as it was logged. Out: messages in normal form, one a choice; the pieces of one answer are joined.
Nothing raises for a shape that is not known: it is what the assistant said, as text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from flywheel.reading.messages import Message, flat_text, messages
from flywheel.reading.shapes.lists import DEEPEST, listed
from flywheel.reading.shapes.turns import ITEM_KINDS, is_turn, koogs_calls, turns_of
from flywheel.reading.values import as_dict, as_list, embedded, first, text

_GENERATION = {"text", "type", "generation_info"}  # of LangChain
_WRAPPED = ("text", "content", "response", "output")  # where an object may hold nothing but the answer's text
_WRAPPERS = (
    "message", "response", "output", "result", "messages", "generations", "data", "completion", "return", "content",
)  # fmt: skip


def answered(value: Any) -> list[Message]:
    """Return the assistant messages of a model call's output, one a choice; the first is the answer."""
    given = embedded(value)
    if given is None or given in ("", {}, []):
        return []
    found = _of(given, 0)
    if found is None:
        found = [{"role": "assistant", "content": _written(value)}]
    return [m for m in messages(found) if m["role"] == "assistant"]


def _written(value: Any) -> str | None:
    """Return an output that is no message of anybody as text; JSON that was logged as text is what the model wrote."""
    if isinstance(value, dict) and len(value) == 1:
        (only,) = value.items()
        if only[0] in _WRAPPED and isinstance(only[1], str):
            return only[1]
    return flat_text(value)


def _of(given: Any, depth: int = 0) -> list[Any] | None:
    """Return the assistant turns of an output, one a choice; None when it is no shape that is known."""
    if isinstance(given, str):
        found = turns_of([given], "assistant") if is_turn(given) else None
        return found or ([{"role": "assistant", "content": given}] if depth else None)
    if depth > DEEPEST:
        return None
    return _of_list(given, depth) if isinstance(given, list) else _of_object(as_dict(given), depth)


def _of_object(item: Mapping[str, Any], depth: int) -> list[Any] | None:
    for name in ("choices", "candidates"):
        if as_list(item.get(name)):
            return [turn for choice in item[name] for turn in _choice(as_dict(choice), depth)]
    if _is_vercel(item):
        return turns_of([{**item, "role": "assistant"}])
    if is_turn(item) or (isinstance(item.get("content"), list) and "stop_reason" in item):
        return turns_of([item], "assistant")
    if isinstance(item.get("output"), list) and item.get("object") in (None, "response"):
        return _of(item["output"], depth + 1)
    return _wrapped(item, depth)


def _wrapped(item: Mapping[str, Any], depth: int) -> list[Any] | None:
    """Return the turns of an output that wraps a message, or a list of which the last is the answer."""
    for name in _WRAPPERS:
        inner = embedded(item.get(name))
        if isinstance(inner, dict | list) and inner:
            found = _of(inner, depth + 1)
            if found:
                return found[-1:] if name == "messages" else found
    said = text(item.get("text")) if depth and set(item) <= _GENERATION else None  # a model's own JSON stays as it is
    return [{"role": "assistant", "content": said}] if said else None


def _choice(choice: Mapping[str, Any], depth: int) -> list[Any]:
    inner = first(choice, ("message", "delta", "content"))
    if isinstance(inner, dict):
        return turns_of([{**inner, "role": "assistant"}], "assistant")[:1]
    said = text(choice.get("text")) or (inner if isinstance(inner, str) else None)
    return [{"role": "assistant", "content": said}] if said or depth == 0 else []


def _of_list(given: list[Any], depth: int) -> list[Any] | None:
    """Return the turns of a list: choices, or the pieces of one answer."""
    items = listed(given)
    if items is None:
        if all(isinstance(i, dict) and i.get("type") in ("text", "tool_use", "thinking") for i in given):
            return turns_of([{"role": "assistant", "content": given}])
        nested = [_of(embedded(i), depth + 1) for i in given]
        return [t for turns in nested for t in turns or ()] if all(n is not None for n in nested) else None
    turns = [t for t in turns_of(items, "assistant") if t["role"] == "assistant"]
    return _one(turns) if len(turns) > 1 and any(map(_is_piece, items)) else turns


def _is_piece(item: Any) -> bool:
    """Whether an item is no choice: the Responses API lists the items of one answer, Koog its calls."""
    piece = as_dict(item)
    return piece.get("type") in ITEM_KINDS or bool(koogs_calls(str(piece.get("role")), piece.get("content")))


def _one(turns: Sequence[Mapping[str, Any]]) -> list[Any]:
    """Join the pieces of one answer."""
    parts: list[Any] = []
    calls: list[Any] = []
    for turn in turns:
        content = turn.get("content")
        parts += content if isinstance(content, list) else [content] if content else []
        calls += as_list(turn.get("tool_calls"))
    return [{"role": "assistant", "content": parts or None, "tool_calls": calls}]


def _is_vercel(item: Mapping[str, Any]) -> bool:
    return (
        "role" not in item and bool({"toolCalls", "tool_calls"} & set(item)) and bool({"text", "content"} & set(item))
    )
