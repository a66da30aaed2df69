"""A row that is too long for a round, as a window on its conversation: nothing is cut in silence, no message in two.

In: a prompt, the actions that are trained after it, and the most tokens a row may have. Out: the system messages with a
note of how much is left out, the newest user message, and as many of the newest whole turns as fit (a call and its
results are one turn), or nothing where even those do not fit. Both sides of a pair share one window, and no action is
ever cut. Only where the newest result of a tool is too long by itself is its middle left out, marked as such.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from flywheel.models.chat import ChatFormat

LEAST = 200  # characters of a tool's result that are kept of it at least
_HEAD = 2 / 3  # of what is kept of a result, its beginning; the rest is its end

Message = Mapping[str, Any]
Tools = list[dict[str, Any]] | None


class Window(NamedTuple):
    """What is left of a prompt."""

    prompt: list[dict[str, Any]]
    left_out: int  # messages
    cut: int  # characters of tools' results

    def told(self) -> str:
        """Return a sentence on what is not there."""
        cut = f" and {self.cut:,} characters of a tool's result" if self.cut else ""
        return f"{_messages(self.left_out)}{cut} left out to fit train.max_length"


def tokens_of(chat: ChatFormat, prompt: Sequence[Message], tools: Tools, actions: Sequence[Message]) -> int:
    """Return the tokens of a row: its prompt and the longest of its actions."""
    longest = max(len(chat.ids(chat.completion(prompt, tools, action))) for action in actions)
    return len(chat.ids(chat.prompt(prompt, tools))) + longest


def open_window(
    chat: ChatFormat, prompt: Sequence[Message], tools: Tools, actions: Sequence[Message], most: int
) -> Window | None:
    """Return the longest window on a prompt whose row has at most so many tokens; None where there is none.

    Args:
        chat: how the base model reads and writes.
        prompt: the messages before the action.
        tools: the schemas, which stay whole.
        actions: the assistant messages that are trained, one for each side.
        most: tokens.
    """
    head = next((n for n, message in enumerate(prompt) if message["role"] != "system"), len(prompt))
    system, turns = list(prompt[:head]), _turns(prompt[head:])

    def fits(window: Window) -> bool:
        return tokens_of(chat, window.prompt, tools, actions) <= most

    if fits(whole := _window(system, turns, len(turns))):
        return whole
    low, high = 0, max(len(turns) - 1, 0)  # turns that are known to fit, and the most that may
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(_window(system, turns, middle)) else (low, middle - 1)
    if low:
        return _window(system, turns, low)
    return _cut(system, turns, fits) if turns else None


def _turns(messages: Sequence[Message]) -> list[list[Message]]:
    """Return messages in turns: a tool's result lies with the call that it answers."""
    turns: list[list[Message]] = []
    for message in messages:
        if message["role"] == "tool" and turns:
            turns[-1].append(message)
        else:
            turns.append([message])
    return turns


def _window(system: Sequence[Message], turns: Sequence[Sequence[Message]], kept: int, cut: int = 0) -> Window:
    newest = list(turns[len(turns) - kept :])
    asked = max((n for n, turn in enumerate(turns) if turn[0]["role"] == "user"), default=-1)
    if 0 <= asked < len(turns) - kept:
        newest.insert(0, turns[asked])
    left = sum(map(len, turns)) - sum(map(len, newest))
    rest = [dict(message) for turn in newest for message in turn]
    return Window([*_noted(system, left), *rest] if left else [*map(dict, system), *rest], left, cut)


def _messages(number: int) -> str:
    return f"{number:,} earlier message{'s' if number != 1 else ''}"


def _noted(system: Sequence[Message], left: int) -> list[dict[str, Any]]:
    """Return the system messages, the last one with a note; without any, the note is one."""
    note = f"[{_messages(left)} of this conversation left out]"
    if not system:
        return [{"role": "system", "content": note}]
    text = str(system[-1].get("content") or "")
    return [*map(dict, system[:-1]), {**system[-1], "content": f"{text}\n\n{note}" if text else note}]


def _cut(
    system: Sequence[Message], turns: Sequence[Sequence[Message]], fits: Callable[[Window], bool]
) -> Window | None:
    """Return a window on the newest turn with the middle of its longest result left out, as little as will do."""
    results = [n for n, message in enumerate(turns[-1]) if message["role"] == "tool"]
    if not results:
        return None
    place = max(results, key=lambda n: len(str(turns[-1][n].get("content") or "")))
    text = str(turns[-1][place].get("content") or "")

    def window(kept: int) -> Window:
        shorter = {**turns[-1][place], "content": _shortened(text, kept)}
        newest = [*turns[-1][:place], shorter, *turns[-1][place + 1 :]]
        return _window(system, [*turns[:-1], newest], 1, len(text) - kept)

    low, high = LEAST, len(text) - 1
    if low > high or not fits(window(low)):
        return None
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(window(middle)) else (low, middle - 1)
    return window(low)


def _shortened(text: str, kept: int) -> str:
    head = int(kept * _HEAD)
    return f"{text[:head]}\n[... {len(text) - kept:,} characters left out ...]\n{text[len(text) - (kept - head) :]}"
