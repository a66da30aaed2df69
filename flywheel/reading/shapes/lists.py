"""Lists of messages, told from any other list.

In: a logged value. Out: its items, or None. An item may also be a tool that was offered.
"""

from __future__ import annotations

from typing import Any

from flywheel.reading.shapes.turns import is_turn, pair_of_texts
from flywheel.reading.values import as_dict, as_list, embedded

DEEPEST = 6  # wrappers around a message; what is deeper is text


def listed(given: Any) -> list[Any] | None:
    """Return a list of messages; a batch of one is opened."""
    items = as_list(embedded(given))
    if len(items) == 1 and isinstance(items[0], list) and not pair_of_texts(items[0]):
        items = items[0]
    items = [embedded(i) if isinstance(i, str) and i.lstrip()[:1] == "{" else i for i in items]
    items = [i for i in items if offer(i) is None]
    return items if items and any(is_turn(i) or pair_of_texts(i) for i in items) else None


def offer(item: Any) -> Any:
    """Return the tool schema in a message of Langfuse's LangChain handler, which writes offered tools as messages."""
    message = as_dict(item)
    if message.get("role") != "tool" or message.get("tool_call_id"):
        return None
    content = as_dict(embedded(message.get("content")))
    function = as_dict(content.get("function"))
    offered = "name" in function and {"parameters", "description"} & set(function)
    bare = "name" in content and any(isinstance(content.get(k), dict) for k in ("input_schema", "parameters"))
    return content if offered or bare else None
