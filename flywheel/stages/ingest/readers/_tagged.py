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
from flywheel.reading.messages import Message, flat_text, messages
from flywheel.reading.shapes.reprs import mapping_of_repr
from flywheel.reading.values import as_dict, embedded, first
from flywheel.records import canonical_json
from flywheel.stages.ingest.framing.texts.rendered import MARK, turns_of_text

OPENED, CLOSED = "<tool_response>", "</tool_response>"
_RESULT = re.compile(rf"{OPENED}\n?(.*?)\n?{CLOSED}", re.DOTALL)
_GIVEN = ("results", "result", "content", "output", "response")
_BEGUN = {"", "<think>", "<think>\n\n</think>"}  # of an answer, by its template
_END = re.compile(
    r"<\|(?:im_end|endoftext|eot_id|eom_id|end)\|>|<end_of_turn>|</s>|<\uff5cend\u2581of\u2581sentence\uff5c>"
)


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
        named = [{**_as_python(call), "id": f"call{len(before)}-{n}"} for n, call in enumerate(calls)]
        return [{"role": role, "content": _END.sub("", spoken).strip(), **({"tool_calls": named} if named else {})}]
    closed = content[: content.rfind(CLOSED) + len(CLOSED)] if CLOSED in content else ""
    alone = closed and not (_RESULT.sub("", closed) + content[len(closed) :]).strip()
    if role != "tool" and not alone:
        return [{"role": role, "content": content.strip()}]
    asked: list[Message] = next((m["tool_calls"] for m in reversed(before) if m.get("tool_calls")), [])
    results = _RESULT.findall(closed) if alone else _by_name(content, asked) or [content.strip()]
    ids = [call["id"] for call in asked[: len(results)]] + [""] * (len(results) - len(asked))
    return [{"role": "tool", "content": result, "tool_call_id": one} for result, one in zip(results, ids, strict=True)]


def rendered_history(prompt: str) -> list[Message]:
    """Return the messages of a prompt that a chat template rendered, with its calls and results; [] for other text."""
    if MARK.search(prompt) is None:
        return []
    history: list[Message] = []
    turns = [(role, words) for role, words, _ in turns_of_text(prompt)]
    if turns and turns[-1][0] == "assistant" and turns[-1][1].strip() in _BEGUN:  # where the answer begins
        turns.pop()
    for role, words in turns:
        history += turn_messages(role, words, history)
    return messages(history)


def _as_python(call: dict[str, Any]) -> dict[str, Any]:
    """Return a call that is written as Python shows a dictionary, as some rows of Hermes' data have them."""
    written = mapping_of_repr(str(call.get("arguments_raw") or "")) if call.get("arguments") is None else {}
    is_call = isinstance(written.get("name"), str) and isinstance(written.get("arguments"), dict)
    return {"name": written["name"], "arguments": written["arguments"]} if is_call else call


def _by_name(content: str, asked: Sequence[Message]) -> list[str]:
    """Return the results of several calls that are one list, each with its tool's name (ToolACE); else nothing."""
    given = embedded(content) if len(asked) > 1 else None
    items = [as_dict(item) for item in given] if isinstance(given, list) else []
    if not items or [item.get("name") for item in items] != [call.get("name") for call in asked]:
        return []
    return [flat_text(first(item, _GIVEN)) or canonical_json(item) for item in items]
