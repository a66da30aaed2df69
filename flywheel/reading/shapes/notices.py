"""What programs write between the messages of a chat: how the run goes on, and what a screen shows.

In: one item of a chat. Out: whether it is one of these.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from flywheel.reading.values import as_dict

NOTICES = ("info", "error", "warning", "notice")  # that Gemini CLI shows


def is_notice(item: Any, kinds: Collection[str]) -> bool:
    """Whether an item without a role is of a kind of its own, between messages that name theirs under the same name."""
    fields = as_dict(item)
    return "role" not in fields and any(isinstance(fields.get(name), str) for name in kinds)


def is_shown(item: Any) -> bool:
    """Whether an item is what a program showed on the screen between the messages of a chat."""
    fields = as_dict(item)
    return "role" not in fields and fields.get("type") in NOTICES
