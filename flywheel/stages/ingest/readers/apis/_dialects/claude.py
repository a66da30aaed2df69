"""The dialect of Anthropic's Messages: requests and responses in normal form.

In: the request and the response of one call, also streamed. Out: the input's messages, and the turns of the answer,
which begins with what the request prefilled and holds the results of tools that Anthropic ran itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from flywheel.reading.messages import Message, messages, tool_schemas
from flywheel.reading.streams import stream_events
from flywheel.reading.usage import APART, token_counts
from flywheel.reading.values import as_dict, as_list, embedded, present, text
from flywheel.stages.ingest.readers.apis._dialects.calls import Dialect

_FOREIGN = ("output_text", "input_text", "refusal")  # parts of another API's messages, which also have a type
_BLOCKS = ("text", "thinking", "redacted_thinking", "tool_use", "tool_result", "server_tool_use")
_DELTAS = {"text_delta": "text", "thinking_delta": "thinking", "input_json_delta": "partial_json"}


def is_message(response: Any) -> bool:
    """Whether an object is a response of this API; what a stream begins with is none, for its blocks come behind it."""
    fields = as_dict(response)
    if fields.get("content") == [] and fields.get("stop_reason", "") is None:
        return False
    kinds = [as_dict(block).get("type") for block in as_list(fields.get("content"))]
    if not isinstance(fields.get("content"), list) or not all(isinstance(k, str) and k not in _FOREIGN for k in kinds):
        return False
    named = fields.get("type") == "message" or "stop_reason" in fields
    return named or (fields.get("role") == "assistant" and all(kind in _BLOCKS for kind in kinds))


def _completed(response: Mapping[str, Any]) -> Mapping[str, Any]:
    return response if is_message(response) else _assembled(stream_events(response))


def _assembled(events: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the message that a stream's events make; {} when they do not begin one."""
    message: dict[str, Any] = {}
    blocks: dict[Any, dict[str, Any]] = {}
    usage: dict[str, Any] = {}
    for event in events:
        kind, place = event.get("type"), event.get("index")
        started = as_dict(event.get("message"))
        if kind == "message_start" and started:
            message = dict(started)
        elif kind == "content_block_start":
            blocks[str(place)] = dict(as_dict(event.get("content_block")))
        elif kind == "content_block_delta" and str(place) in blocks:
            _extend(blocks[str(place)], as_dict(event.get("delta")))
        elif kind == "message_delta":
            message |= present(as_dict(event.get("delta")))
        counts = as_dict(started.get("usage")) or as_dict(event.get("usage"))
        usage |= present(counts)
    if not message:
        return {}
    partial = {} if message.get("stop_reason") else {"partial": True}
    return {**message, "type": "message", "content": [_closed(b) for b in blocks.values()], "usage": usage, **partial}


def _extend(block: dict[str, Any], delta: Mapping[str, Any]) -> None:
    name = _DELTAS.get(str(delta.get("type")))
    content = delta.get(name) if name else None
    if name and isinstance(content, str):
        block[name] = f"{block.get(name) or ''}{content}"


def _closed(block: dict[str, Any]) -> dict[str, Any]:
    """Return a block whose input was streamed as JSON text; one that does not parse stays a text."""
    arguments = block.pop("partial_json", None)
    return {**block, "input": arguments} if arguments else block


def claude_history(asked: Mapping[str, Any]) -> list[Message]:
    """Return all messages of a request or a transcript, the system prompt first."""
    system = asked.get("system")
    first = [{"role": "system", "content": system}] if system else []
    value = embedded(asked.get("messages"))
    return messages([*first, *map(_continuous, value)] if isinstance(value, list) else value)


def _continuous(message: Any) -> Any:
    """Return a message in which neighbouring texts of the agent are one: only citations came between them."""
    content = as_dict(message).get("content")
    if not isinstance(content, list) or message.get("role") != "assistant":
        return message
    return {**message, "content": _merged(content)}


def _merged(content: list[Any]) -> list[Any]:
    merged: list[Any] = []
    for block in content:
        before = as_dict(merged[-1]) if merged else {}
        if as_dict(block).get("type") == "text" == before.get("type"):
            merged[-1] = {"type": "text", "text": f"{before.get('text') or ''}{block.get('text') or ''}"}
        else:
            merged.append(block)
    return merged


def _prefill(asked: Mapping[str, Any]) -> str | None:
    """Return the beginning of the answer, when the request gives it: a text of the agent that comes last."""
    last = as_dict((as_list(embedded(asked.get("messages"))) or [None])[-1])
    if last.get("role") != "assistant":
        return None
    turns = messages([_continuous(last)])
    return turns[0].get("content") or "" if len(turns) == 1 and not turns[0].get("tool_calls") else None


def _history(asked: Mapping[str, Any]) -> list[Message]:
    history = claude_history(asked)
    return history if _prefill(asked) is None else history[:-1]


def _answer(asked: Mapping[str, Any], response: Mapping[str, Any]) -> tuple[list[Message], dict[str, Any]]:
    if not response:
        return [], {}
    prefill = _prefill(asked)
    begun = [{"type": "text", "text": prefill}] if prefill else []
    content = _merged([*begun, *as_list(response.get("content"))])
    usage = as_dict(response.get("usage"))
    fields = {
        "finish_reason": text(response.get("stop_reason")),
        **token_counts(usage, cached=APART),
        "tags": ["partial"] if response.get("partial") else None,
    }
    turns = messages([{"role": "assistant", "content": content}])
    empty = all(not turn.get("content") and len(turn) <= len(("role", "content")) for turn in turns)
    return ([] if response.get("partial") and empty else turns), fields


def _tools(asked: Mapping[str, Any], response: Mapping[str, Any]) -> list[dict[str, Any]] | None:  # noqa: ARG001 - a dialect's signature
    return tool_schemas(asked.get("tools"))


CLAUDE = Dialect(("messages",), _history, _completed, _answer, _tools)
