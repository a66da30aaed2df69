"""Calls and results that a program writes into the words of a talk: Cline in the user's, n8n's memory in the agent's.

In: a message. Out: the calls, the results, and the words next to them; none for any other message.
"""

from __future__ import annotations

import json
import re
from typing import Any

from flywheel.reading.shapes.items import IDS
from flywheel.reading.shapes.turns import result_of
from flywheel.reading.status import FAILED, tool_status
from flywheel.reading.values import as_dict, as_list, first, ident, picked, text
from flywheel.records import content_id

Item = dict[str, Any]

_ABOUT = ("timestamp", "ts", "model")
_RESULT_IN_WORDS = re.compile(r"\[([A-Za-z_]{2,40})(?: for .{0,2000}?)?\] Result:\s*", re.DOTALL)
_FAILED = "The tool execution failed"
_USED = re.compile(r"\s*\[Used tools: (?=Tool: )")
_USE = re.compile(r"Tool: ([^\n,]{1,64}), Input: ")
_MOST_USES = 1000
_GAVE, _NEXT = ", Result: ", "; "
_NEXT_USE = re.compile(rf"{_NEXT}(?={_USE.pattern})")
_EDGE = re.compile(rf"[\[\]]|{_NEXT_USE.pattern}")  # at which a result may end
_JSON = json.JSONDecoder()
_IN_USERS_TAGS = re.compile(r"<(?:task|feedback|user_message|answer)>")


def narrated(item: Item) -> list[Item]:
    """Return the results that Cline writes into the user's words, and what the user wrote next to them; else [].

    The user's own words are in tags; the others are the program's, about the environment and its plan.
    """
    parts = as_list(item.get("content")) if item.get("role") == "user" else []
    words = [text(as_dict(part).get("text")) or "" for part in parts]
    results, said, seen = list[Item](), list[Any](), list[str]()
    is_open = False  # whether the next part is what the last result gave
    for part, written in zip(parts, words, strict=True):
        if mark := _RESULT_IN_WORDS.match(written):
            gave = written[mark.end() :]
            failed = {"is_error": True} if tool_status(gave) == FAILED or gave.startswith(_FAILED) else {}
            results.append({"type": "tool_result", "name": mark[1], "content": written, **failed})
            is_open = mark.end() == len(written)
        elif is_open and not written.startswith("<"):
            results[-1]["content"] += written
            is_open = False
        elif not written or _IN_USERS_TAGS.search(written):  # an image is the user's
            said.append(part)
        else:
            seen.append(written)
    if not results:
        return []
    about = {name: item[name] for name in _ABOUT if item.get(name) is not None}
    context = [{"role": "context", "name": "environment", "content": one, **about} for one in filter(str.strip, seen)]
    return [{"role": "tool", "content": results, **about}, *([{**item, "content": said}] if said else []), *context]


def of_n8n(item: Item) -> list[Item]:
    """Return the calls that the memory of n8n's agent writes before an answer, their results and the answer; else [].

    `[Used tools: Tool: search, Input: {...}, Result: ...; Tool: ..., Input: ..., Result: ...] The answer.`
    """
    message = as_dict(item.get("message")) or item
    words = message.get("content") if message.get("role", message.get("type")) in ("assistant", "ai") else None
    used = _USED.match(words) if isinstance(words, str) else None
    if not isinstance(words, str) or used is None:
        return []
    made, at = list[tuple[str, Any, str]](), used.end()
    while (use := _USE.match(words, at)) is not None and (call := _use(words, use)) is not None:
        if len(made) >= _MOST_USES:
            return []
        tool, given, gave, at = call
        made.append((tool, given, gave))
        if words.startswith("]", at):
            break
        at += len(_NEXT)
    if not words.startswith("]", at):
        return []
    own = ident(first(item, IDS)) or content_id(item)[:12]
    calls = [{"id": f"{own}/{n}", "name": tool, "arguments": given} for n, (tool, given, _) in enumerate(made)]
    results = [
        result_of({"tool_call_id": call["id"], "result": gave}) for call, (*_, gave) in zip(calls, made, strict=True)
    ]
    about = {**picked(item, _ABOUT), **picked(message, _ABOUT)}
    answer = words[at + 1 :].strip()
    return [{"role": "assistant", "content": None, "tool_calls": calls, **about}, {"role": "tool", "content": results},
            *([{**message, "content": answer}] if answer else [])]  # fmt: skip


def _use(words: str, use: re.Match[str]) -> tuple[str, Any, str, int] | None:
    """Return the tool, its arguments, what it gave and where that ends; None where the text is cut or otherwise."""
    given, at = _json_at(words, use.end())
    if at is None or not words.startswith(_GAVE, at):
        return None
    begins = at + len(_GAVE)
    ends = _end_of_result(words, begins)
    return None if ends is None else (use[1], given, words[begins:ends], ends)


def _json_at(words: str, begins: int) -> tuple[Any, int | None]:
    """Return the JSON that begins somewhere in a text, and where it ends; None for the latter where none does."""
    try:
        return _JSON.raw_decode(words, begins)
    except (ValueError, RecursionError):
        return None, None


def _end_of_result(words: str, begins: int) -> int | None:
    """Return where a result ends, before `]` or the next call: JSON by itself, words where brackets are closed."""
    _, ends = _json_at(words, begins)
    if ends is not None and (words.startswith("]", ends) or _NEXT_USE.match(words, ends)):
        return ends
    depth = 0
    for mark in _EDGE.finditer(words, begins):
        if mark[0] == "[":
            depth += 1
        elif mark[0] == "]" and depth:
            depth -= 1
        else:
            return mark.start()
    return None
