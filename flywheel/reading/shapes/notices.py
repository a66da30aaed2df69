"""What programs write between the messages of a chat, or in a user's place: how the run goes on, what a screen shows.

In: one item of a chat, or the words of one. Out: whether it is one of these.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

from flywheel.reading.values import as_dict

NOTICES = ("info", "error", "warning", "notice")  # that Gemini CLI shows
_ASIDE = ("verbose", "follow_up")  # of Coze

# Coding agents put a user's command, what it printed, tasks that ended and reminders into a user's place, in tags.
_TAG = re.compile(
    r"\s*<(system-reminder|task-notification|teammate-message|local-command-(?:stdout|stderr|caveat)"
    r"|bash-(?:input|stdout|stderr)|command-(?:name|message|args|contents)"
    r"|environment_context|turn_aborted|subagent_notification|codex_internal_context)(?:\s[^>]{0,500})?>"
)
_SKILL = "Base directory for this skill: "
_ASKED = "<command-message>"  # begins a command that asks the agent, as the user typed it


def is_by_program(words: str) -> bool:
    """Whether the words in a user's place are nothing but what a program of coding agents puts there."""
    if words.startswith(_SKILL):
        return True
    if words.startswith(_ASKED):
        return False
    end = 0
    while tag := _TAG.match(words, end):
        closed = words.find(f"</{tag[1]}>", tag.end())
        if closed < 0:
            return False
        end = closed + len(tag[1]) + 3
    return end > 0 and not words[end:].strip()


def is_notice(item: Any, kinds: Collection[str]) -> bool:
    """Whether an item without a role is of a kind of its own, between messages that name theirs under the same name."""
    fields = as_dict(item)
    return "role" not in fields and any(isinstance(fields.get(name), str) for name in kinds)


def is_shown(item: Any) -> bool:
    """Whether an item is what a program showed on the screen between the messages of a chat."""
    fields = as_dict(item)
    return "role" not in fields and fields.get("type") in NOTICES


def is_aside(item: Any) -> bool:
    """Whether a message under the agent's role is none of its words: Coze's, on how a run goes on or what to ask."""
    fields = as_dict(item)
    return fields.get("role") == "assistant" and "content_type" in fields and fields.get("type") in _ASIDE
