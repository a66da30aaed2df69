"""Calls and results in the tags of chat templates: `<tool_call>` in the agent's words, `<tool_response>` behind them.

In: messages of a chat that a server without a parser of calls logged, or of a data set (Hermes, Qwen). Out: the same
with calls as calls, several of a message too, and each result as that of the call in its place, whoever's message it
is in.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from flywheel.models.calls import split_calls
from flywheel.reading.messages import Message, messages

OPENED, CLOSED = "<tool_response>", "</tool_response>"
_RESULT = re.compile(rf"{OPENED}\n?(.*?)\n?{CLOSED}", re.DOTALL)
_END = re.compile(r"<\|(?:im_end|endoftext|eot_id|eom_id)\|>")


def with_tagged(history: list[Message]) -> tuple[list[Message], list[int]]:
    """Return a chat in which calls and results in tags are calls and results, and the place of each message before.

    A chat that has calls, or none in tags with results, is returned as it is.
    """
    has_results = any(m["role"] == "tool" or (m.get("content") or "").startswith(OPENED) for m in history)
    if not has_results or any(message.get("tool_calls") for message in history):
        return history, list(range(len(history)))
    whole: list[dict[str, Any]] = []
    places: list[int] = []
    for place, message in enumerate(history):
        made = turn_messages(message["role"], message.get("content") or "", whole)
        is_same = made[0].keys() == {"role", "content"} and made[0]["role"] == message["role"]
        whole += [message if is_same else {**message, **made[0]}] if len(made) == 1 else made
        places += [place] * len(made)
    if not any(message.get("tool_calls") for message in whole):
        return history, list(range(len(history)))
    return messages(whole), places


def turn_messages(role: str, content: str, before: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return what one turn of the text holds: a message, or the results of the calls before it."""
    if role == "assistant":
        calls, spoken = split_calls(content, lambda part: _END.sub("", part))
        named = [{**call, "id": f"call{len(before)}-{n}"} for n, call in enumerate(calls)]
        return [{"role": role, "content": _END.sub("", spoken).strip(), **({"tool_calls": named} if named else {})}]
    closed = content[: content.rfind(CLOSED) + len(CLOSED)] if CLOSED in content else ""
    alone = closed and not (_RESULT.sub("", closed) + content[len(closed) :]).strip()
    results = _RESULT.findall(closed) if alone else [content.strip()]
    if role != "tool" and not alone:
        return [{"role": role, "content": content.strip()}]
    asked: list[Message] = next((m["tool_calls"] for m in reversed(before) if m.get("tool_calls")), [])
    ids = [call["id"] for call in asked[: len(results)]] + [""] * (len(results) - len(asked))
    return [{"role": "tool", "content": result, "tool_call_id": one} for result, one in zip(results, ids, strict=True)]
