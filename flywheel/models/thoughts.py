"""Thoughts before an action: how a base model's template takes them, and where a rendered thought ends.

Templates of reasoning models take a logged thought under a name of their own and leave earlier thoughts out by a rule
of their own; some take none, and their model writes it between tags before the action. Both are rendered as production
did: what a template drops from earlier turns stays dropped.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from flywheel.errors import TemplateError

OPEN, CLOSE = "<think>", "</think>"
TAGS = "tags"
NAMES = ("reasoning_content", "thinking", "reasoning")
_OPENED = re.compile(r"<think>\s*\Z")
_MARK = "flywheel_probe_thought"
_IN_TAGS = re.compile(r"\A\s*(?:<think>)?.*?</think>\s*", re.DOTALL)
_ON_A_CHANNEL = re.compile(r"\A\s*<\|channel\|>analysis<\|message\|>.*?(?:<\|end\|>|\Z)", re.DOTALL)


def way_of_thinking(render: Callable[[Sequence[Mapping[str, Any]], bool], str], added: Mapping[str, int]) -> str:
    """Return how a model's thoughts are rendered.

    Args:
        render: the template on messages, with a generation prompt or without.
        added: the tokenizer's added tokens.

    Returns:
        The name under which the template takes a thought; "tags" where it takes none, and the model writes it between
        tags; "" for a model that does not think.
    """
    asked = {"role": "user", "content": "x"}
    for name in NAMES:
        try:
            if _MARK in render([asked, {"role": "assistant", "content": "y", name: _MARK}], False):
                return name
        except TemplateError:
            continue
    return TAGS if opens_a_thought(render) or {OPEN, CLOSE} <= added.keys() else ""


def opens_a_thought(render: Callable[[Sequence[Mapping[str, Any]], bool], str]) -> bool:
    """Return whether a rendered prompt ends with the tag that opens a thought: what is written then begins in it."""
    try:
        return _OPENED.search(render([{"role": "user", "content": "x"}], True)) is not None
    except TemplateError:
        return False


def without_opening(prompt: str) -> str:
    """Return a rendered prompt without the tag at its end that opens a thought."""
    return _OPENED.sub("", prompt)


def in_tags(thought: str, opening: str) -> str:
    """Return a thought between tags, as a model writes it; the prompt may have opened it."""
    if opening:
        return f"{thought}\n{CLOSE}\n\n"
    return f"{OPEN}\n{thought}\n{CLOSE}\n\n" if thought else ""


def end_of_thought(action: str) -> int:
    """Return where the thought that a rendered action begins with ends, blank lines after it included; 0 for none."""
    found = _ON_A_CHANNEL.match(action) or _IN_TAGS.match(action)
    return found.end() if found else 0
