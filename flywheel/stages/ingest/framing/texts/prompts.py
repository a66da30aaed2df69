"""Prompts that look like talks: templates with places to be filled, and examples in front of a question.

In: texts, or the messages of a chat. Out: whether they are a prompt and not a log.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from flywheel.reading.values import as_dict

_PLACE = re.compile(r"(?:[\w ]{1,30}:\s{0,3})?(?:\{\w{1,40}\}|\{\{[^{}]{1,200}\}\}|\{%.{1,300}%\})\Z")
_OF_FRAMEWORKS = ("{agent_scratchpad}", "{tool_names}", "{chat_history}")
_LOOP = ("Thought", "Action", "Observation")  # two of which only a prompt explains in one line


def is_place(text: Any) -> bool:
    """Whether a text is nothing but a place to be filled: `{{input}}`, `{question}`, `{% if image %}`."""
    return isinstance(text, str) and _PLACE.match(text.strip()) is not None


def has_places(lines: Sequence[str]) -> bool:
    """Whether one of some lines is a place to be filled, or has one that frameworks fill."""
    return any(is_place(line) or any(name in line for name in _OF_FRAMEWORKS) for line in lines)


def explains_a_loop(lines: Sequence[str]) -> bool:
    """Whether one of some lines in front of a talk explains how its steps are to be written."""
    return any(sum(name in line for name in _LOOP) > 1 for line in lines)


def is_prompt(messages: Sequence[Any]) -> bool:
    """Whether messages are a prompt: one is a place to be filled, or the last is an empty one of the user."""
    said = [as_dict(message) for message in messages]
    if any("role" in message and is_place(message.get("content")) for message in said):
        return True
    return len(said) > 1 and said[-1].get("role") == "user" and said[-1].get("content") == ""
