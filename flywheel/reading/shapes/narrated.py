"""Results of calls that a program writes into the words of the user, as Cline answers its model.

In: a message. Out: the results, and what the user wrote next to them; none for any other message.
"""

from __future__ import annotations

import re
from typing import Any

from flywheel.reading.status import FAILED, tool_status
from flywheel.reading.values import as_dict, as_list, text

Item = dict[str, Any]

_ABOUT = ("timestamp", "ts", "model")
_RESULT_IN_WORDS = re.compile(r"\[([A-Za-z_]{2,40})(?: for .{0,2000}?)?\] Result:\s*", re.DOTALL)
_FAILED = "The tool execution failed"
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
