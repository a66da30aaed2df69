"""Turns of the agents of editors, as these keep them: requests of VS Code's chats, entries of Kiro's sessions.

In: one item of a session. Out: its messages; none for any other item.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from flywheel.reading.messages import flat_text
from flywheel.reading.shapes.beside import ABOUT
from flywheel.reading.values import as_dict, as_list, first, present, text

Item = dict[str, Any]

_KIRO = {"Prompt": "user", "AssistantMessage": "assistant", "ToolResults": "tool"}
_THINKS = "thinking"  # a part of VS Code's
_INSTRUCTIONS = "promptText"  # what VS Code puts in front of a request: its skills, a project's instructions


def of_vscode(item: Item) -> Iterator[Item]:
    """Yield a request to an editor's agent, the rounds of calls that answered it, and the answer."""
    asked, meta = as_dict(item.get("message")), as_dict(as_dict(item.get("result")).get("metadata"))
    if not isinstance(item.get("response"), list) or "text" not in asked:
        return
    about = {name: item[name] for name in ABOUT if item.get(name) is not None}
    for given in map(as_dict, as_list(as_dict(item.get("variableData")).get("variables"))):
        if given.get("kind") == _INSTRUCTIONS and text(given.get("value")):
            yield {"role": "system", "content": given["value"], **about}
    yield {"role": "user", "content": asked["text"], **about}
    rounds, outputs = (
        [as_dict(one) for one in as_list(meta.get("toolCallRounds"))],
        as_dict(meta.get("toolCallResults")),
    )
    thoughts = [
        text(as_dict(part).get("value")) or "" for part in item["response"] if as_dict(part).get("kind") == _THINKS
    ]
    thought = {"reasoning": "".join(thoughts)} if any(thoughts) else {}
    for n, made in enumerate(rounds):
        calls = [as_dict(call) for call in as_list(made.get("toolCalls"))]
        yield {"role": "assistant", "content": text(made.get("response")) or None, "tool_calls": calls, **about,
               **({} if n else thought)}  # fmt: skip
        for call in calls:
            shown = as_list(as_dict(outputs.get(str(call.get("id")))).get("content"))
            words = [_tree_text(as_dict(part).get("value")) for part in shown]
            if any(words):
                yield {"role": "tool", "tool_call_id": call.get("id"), "content": "\n".join(words), **about}
    if not rounds:
        yield {"role": "assistant", "content": "".join(map(_piece, map(as_dict, item["response"]))), **about, **thought}


def _piece(part: Mapping[str, Any]) -> str:
    """Return a piece of an answer as the editor shows it: text, or the name of a symbol or file."""
    if part.get("kind") == _THINKS:
        return ""
    reference = as_dict(part.get("inlineReference"))
    name = text(reference.get("name")) or (text(first(reference, ("fsPath", "path"))) or "").rpartition("/")[2]
    return f"`{name}`" if name else text(part.get("value")) or ""


def _tree_text(value: Any) -> str:
    """Return the text of a result, which newer tools give as a tree of elements."""
    if isinstance(value, str):
        return value
    node = as_dict(as_dict(value).get("node")) or as_dict(value)
    words = f"{chr(10) if node.get('lineBreakBefore') is True else ''}{text(node.get('text')) or ''}"
    return words + "".join(map(_tree_text, as_list(node.get("children"))))


def of_kiro(item: Item) -> Iterator[Item]:
    """Yield the message of an entry of Kiro's sessions, whose parts have their fields in `data`."""
    data = as_dict(item.get("data"))
    role, parts = _KIRO.get(str(item.get("kind"))), [as_dict(part) for part in as_list(data.get("content"))]
    if role is None or not parts or not all({"kind", "data"} <= part.keys() for part in parts):
        return
    about = present(timestamp=as_dict(data.get("meta")).get("timestamp"))
    yield {"role": role, "content": [_of_entry(part["kind"], part["data"]) for part in parts], **about}


def _of_entry(kind: str, data: Any) -> Item:
    """Return a part of such an entry as a typed part."""
    held = as_dict(data)
    if kind == "toolUse":
        return {"type": "tool_use", "id": held.get("toolUseId"), "name": held.get("name"), "input": held.get("input")}
    if kind == "toolResult":
        shown = [as_dict(part).get("data") for part in as_list(held.get("content"))]
        return {"type": "tool_result", "tool_use_id": held.get("toolUseId"), "is_error": held.get("status") == "error",
                "content": "\n".join(filter(None, map(flat_text, shown)))}  # fmt: skip
    return {"type": "text", "text": data} if kind == "text" else {"type": kind, **held}
