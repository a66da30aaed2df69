"""The output of a model call: its answers and what it reports of the call, however a framework wraps them.

In: an output as it was logged. Out: messages in normal form, one a choice, and payload fields. An unknown shape raises
no error: it becomes the assistant's text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from flywheel.reading.events import answer_from
from flywheel.reading.messages import Message, flat_text, messages
from flywheel.reading.shapes.inputs import DEEPEST, asked, listed, schemas
from flywheel.reading.shapes.turns import ITEM_KINDS, is_part, is_turn, koogs_calls, turns_of
from flywheel.reading.streams import assembled
from flywheel.reading.usage import APART, token_counts
from flywheel.reading.values import as_dict, as_list, embedded, first, ident, present, text

_GENERATION = {"text", "type", "generation_info"}  # of LangChain
_WRAPPED = ("text", "content", "response", "output")  # where an object may hold nothing but the answer's text
_WRAPPERS = (
    "message", "response", "output", "result", "messages", "generations", "data", "completion", "return", "content",
    "replies",
)  # fmt: skip
_INNER = ("output", "outputs", "llm_output", "message", "kwargs", "response_metadata", "generation_info")
_LISTS = {"choices": 0, "candidates": 0, "generations": 0, "messages": -1, "output": -1}
_DEPTH = 5
_CALLS = re.compile(
    r'"(?:tool_?calls|function_?call|tool_?use)"\s*:\s*(?:\[\s*)?\{|"function"\s*:\s*\{\s*"arguments"', re.IGNORECASE
)
_OBJECT = re.compile(r"<[\w.]+ [^\n]{1,300} at 0x[0-9a-f]{6,16}>")  # a stream's, as Python shows it
_USAGE = ("usage", "usage_metadata", "token_usage", "usageMetadata")
_REASONS = ("finish_reason", "stop_reason", "finishReason", "stopReason")
_MODEL = ("model_name", "model", "model_version", "modelVersion")
_OF_A_RESPONSE = ("choices", "content", "finish_reason", "model", "object", "output", "stop_reason", "usage")
_NOT_THE_SERVERS = ("run-", "lc_", "run--")  # ids that LangChain makes


def answered(value: Any) -> list[Message]:
    """Return the assistant messages of a model call's output, one a choice; the first is the answer.

    A stream of which nothing but the object's name was logged holds none.
    """
    opened = embedded(value)
    if opened is None or opened in ("", {}, []) or (isinstance(opened, str) and _OBJECT.fullmatch(opened)):
        return []
    turns = _of(opened, 0)
    if turns is None:
        turns = [{"role": "assistant", "content": _written(value)}]
    return [m for m in messages(turns) if m["role"] == "assistant"]


def unread(value: Any, answers: Sequence[Message]) -> list[str]:
    """Return the tag of an output with tool calls in a shape that is not known, which became text."""
    opened = embedded(value)
    if len(answers) != 1 or not isinstance(opened, dict | list) or answers[0].get("tool_calls"):
        return []
    content = answers[0].get("content") or ""
    return ["unreadable_content"] if _CALLS.search(content) and content == _written(value) else []


def _written(value: Any) -> str | None:
    """Return an output without any message as text; JSON that was logged as text is what the model wrote."""
    if isinstance(value, dict) and len(value) == 1:
        (only,) = value.items()
        if only[0] in _WRAPPED and isinstance(only[1], str):
            return only[1]
    return flat_text(value)


def _of(value: Any, depth: int = 0) -> list[Any] | None:
    """Return the assistant turns of an output, one a choice; None for an unknown shape."""
    if isinstance(value, str):
        turns = turns_of([value], "assistant") if is_turn(value) else None
        return turns or ([{"role": "assistant", "content": value}] if depth else None)
    if depth > DEEPEST:
        return None
    return _of_list(value, depth) if isinstance(value, list) else _of_object(as_dict(value), depth)


def _of_object(item: Mapping[str, Any], depth: int) -> list[Any] | None:
    for name in ("choices", "candidates"):
        if as_list(item.get(name)):
            return [turn for choice in item[name] for turn in _choice(as_dict(choice), depth)]
    if "textParts" in item or (is_part(item) and "toolName" in item):
        return turns_of([_of_devtools(item) if "textParts" in item else {"role": "assistant", "content": [item]}])
    called = first(item, ("toolCalls", "tool_calls")) or not {"text", "content"}.isdisjoint(item)
    if item.get("role") is None and called and not {"toolCalls", "tool_calls"}.isdisjoint(item):
        return turns_of([{**item, "role": "assistant"}])
    said = item.get("content")
    is_ended = isinstance(said, list) and not {"stop_reason", "finish_reason"}.isdisjoint(item)
    if is_turn(item) or is_ended or (isinstance(said, str) and "finish_reason" in item):
        return turns_of([item], "assistant")
    if isinstance(item.get("output"), list) and item.get("object") in (None, "response"):
        return _of(item["output"], depth + 1)
    return _wrapped(item, depth)


def _of_devtools(item: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answer of a step as the AI SDK's developer tools keep it: its words, thoughts and calls in lists."""
    words, thoughts = ([{"type": kind, "text": as_dict(part).get("text")} for part in as_list(item.get(name))]
                       for kind, name in (("text", "textParts"), ("reasoning", "reasoningParts")))  # fmt: skip
    return {"role": "assistant", "content": [*thoughts, *words, *as_list(item.get("toolCalls"))]}


def _wrapped(item: Mapping[str, Any], depth: int) -> list[Any] | None:
    """Return the turns of an output that wraps a message, or a list of which the last is the answer."""
    for name in _WRAPPERS:
        inner = embedded(item.get(name))
        if isinstance(inner, dict | list) and inner:
            turns = _of(inner, depth + 1)
            if turns:
                return turns[-1:] if name == "messages" else turns
    content = (
        text(item.get("text")) if depth and set(item) <= _GENERATION else None
    )  # a model's own JSON stays as it is
    return [{"role": "assistant", "content": content}] if content else None


def _choice(choice: Mapping[str, Any], depth: int) -> list[Any]:
    inner = first(choice, ("message", "delta", "content"))
    if isinstance(inner, dict):
        return turns_of([{**inner, "role": "assistant"}], "assistant")[:1]
    content = text(choice.get("text")) or (inner if isinstance(inner, str) else None)
    return [{"role": "assistant", "content": content}] if content or depth == 0 else []


def _of_list(entries: list[Any], depth: int) -> list[Any] | None:
    """Return the turns of a list: choices, or the pieces of one answer."""
    items = listed(entries)
    if items is None:
        if entries and (all(map(is_part, entries)) or _are_converse(entries)):
            return turns_of([{"role": "assistant", "content": entries}])
        if entries and all({"name", "arguments"} & as_dict(as_dict(entry).get("function")).keys() for entry in entries):
            return turns_of([{"role": "assistant", "content": None, "tool_calls": entries}])
        nested = [_of(embedded(i), depth + 1) for i in entries]
        return [t for turns in nested for t in turns or ()] if all(n is not None for n in nested) else None
    turns = [t for t in turns_of(items, "assistant") if t["role"] == "assistant"]
    return _one(turns) if len(turns) > 1 and any(map(_is_piece, items)) else turns


def _are_converse(entries: list[Any]) -> bool:
    """Whether a list is an answer's parts in Bedrock's Converse API: texts, thoughts and calls, without a type."""
    parts = [as_dict(entry) for entry in entries]
    known = all(part and part.keys() <= {"text", "toolUse", "reasoningContent"} for part in parts)
    return known and any("text" not in part for part in parts)


def _is_piece(item: Any) -> bool:
    """Whether an item is part of an answer, not a choice: an item of the Responses API, or a call of Koog's."""
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


def about_answer(item: Any) -> dict[str, Any]:
    """Return the payload fields that an answer has in addition to its message, and its `model`."""
    places = list(_places(as_dict(embedded(item)), _DEPTH))

    def find(names: tuple[str, ...]) -> Any:
        return next((value for place in places if (value := first(place, names)) is not None), None)

    return present(
        model=text(find(_MODEL)),
        response_id=next((name for place in places if (name := _own_id(place))), None),
        finish_reason=text(find(_REASONS)),
        **_counted(as_dict(find(_USAGE))),
    )


def _counted(usage: Mapping[str, Any]) -> dict[str, int | None]:
    """Return the tokens of a call; where a sum is logged, cached ones are in it."""
    summed = not usage.keys().isdisjoint(("prompt_tokens", "total_tokens"))
    return token_counts(usage, cached=() if summed else APART)


def _own_id(place: Mapping[str, Any]) -> str | None:
    """Return a response's id, which is neither that of an item of it nor one that a framework made."""
    named = ident(first(place, ("response_id", "responseId")))
    item = place.get("type") == "message" and "stop_reason" not in place
    if named is None and not item and first(place, _OF_A_RESPONSE) is not None:
        named = ident(place.get("id"))
    return named if named and not named.startswith(_NOT_THE_SERVERS) else None


def _places(fields: Mapping[str, Any], depth: int) -> Iterator[Mapping[str, Any]]:
    """Yield an answer and the objects in it that speak of the whole, outermost first."""
    if not fields or not depth:
        return
    yield fields
    for name in _INNER:
        if inner := fields.get(name):
            yield from _places(as_dict(embedded(inner)), depth - 1)
    for name, position in _LISTS.items():
        several = as_list(fields.get(name))
        several = several[0] if several and isinstance(several[0], list) else several
        if several:
            yield from _places(as_dict(several[position]), depth - 1)


def exchange(inputs: Any, output: Any) -> dict[str, Any]:
    """Return a model call's payload from its input and output, and the `model` that the response names.

    Without any output the message is empty and tagged `content_missing`, as everywhere.
    """
    answers = answered(output)
    payload = answer_from(answers, unread(output, answers)) | about_answer(output)
    response = as_dict(embedded(output))
    echo = response if response.get("object") == "response" else {}  # the Responses API repeats what it was asked
    begins = asked(inputs)
    tools = (begins.tools if begins else None) or schemas(echo.get("tools"))
    if tools:
        payload["tools"] = tools
    if begins is None:
        return payload
    instructions = text(echo.get("instructions"))
    if instructions and not any(m["role"] == "system" for m in begins.messages):
        begins.messages.insert(0, {"role": "system", "content": instructions})
    return payload | {"input": begins.messages}


def joined_chunks(chunks: Sequence[Any]) -> dict[str, Any] | None:
    """Return the answer that a stream's chunks make."""
    items = [as_dict(embedded(chunk)) for chunk in chunks]
    if chunks and all(isinstance(chunk, str) for chunk in chunks) and not any(c.get("choices") for c in items):
        return {"role": "assistant", "content": "".join(chunks)}
    known = [chunk for chunk in map(_of_chat, items) if chunk is not None]
    return assembled(known) if known and len(known) >= len(items) // 2 else None


def _of_chat(chunk: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return a chunk in the words of chat completions."""
    if isinstance(chunk.get("choices"), list):
        return chunk
    if as_list(chunk.get("id"))[-1:] == ["AIMessageChunk"]:
        return {"choices": [{"delta": _delta(as_dict(chunk.get("kwargs")))}]}
    return {**chunk, "choices": [{"delta": _delta(chunk)}]} if chunk.get("type") == "AIMessageChunk" else None


def _delta(message: Mapping[str, Any]) -> dict[str, Any]:
    content = message.get("content")
    parts = [text(as_dict(part).get("text")) or "" for part in as_list(content)]
    pieces = map(as_dict, as_list(first(message, ("tool_call_chunks", "tool_calls"))))
    calls = [{**piece, "function": {**piece, "arguments": piece.get("args")}} for piece in pieces]
    return {"content": "".join(parts) or content, "tool_calls": calls}
