"""Messages as people read them, on pages and in reports.

In: messages in normal form, as `flywheel.reading` makes them and policies write them. Out: text; nothing of it is
markup, and a page escapes it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any


def message_text(message: Mapping[str, Any]) -> str:
    """Return a message as text: its content, then its calls with their arguments, a line each."""
    parts = [str(message["content"])] if message.get("content") else []
    for call in message.get("tool_calls") or ():
        arguments = call.get("arguments") if isinstance(call, Mapping) else None
        name = call.get("name", "") if isinstance(call, Mapping) else call
        raw = call.get("arguments_raw") if isinstance(call, Mapping) else None
        parts.append(f"{name} {_arguments(arguments) if arguments is not None else raw or ''}".strip())
    return "\n".join(parts) or "(empty message)"


def _arguments(arguments: object) -> str:
    try:
        return json.dumps(arguments, indent=2, ensure_ascii=False, default=str)
    except (ValueError, RecursionError):
        return "(arguments that cannot be shown)"


def acts_of(messages: Sequence[Mapping[str, Any]]) -> str:
    """Return what an assistant did in a talk as text: its words and calls in their order, without results."""
    return "\n".join(message_text(message) for message in messages if message["role"] == "assistant")
