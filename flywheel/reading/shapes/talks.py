"""The talk of a whole run, where its output holds it: the messages of an agent's state, with its calls and results.

In: the output of a trace's outermost span as it was logged, and what the run was asked. Out: what the agent saw before
its first act, and everything from there on, with what is known of each message.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from flywheel.extensions import BadRecordError
from flywheel.reading.messages import Message
from flywheel.reading.shapes.chats import chat
from flywheel.reading.shapes.inputs import DEEPEST, listed
from flywheel.reading.shapes.trajectories import acted, numbered
from flywheel.reading.values import as_dict, embedded

_HOLDERS = (
    "messages", "output", "outputs", "result", "response", "data", "return", "value", "values", "update", "state",
    "chat_history", "history", "conversation", "kwargs",
)  # fmt: skip


class Talk(NamedTuple):
    """What a run saw before its first act, what came from there on, and what is known of these, by position."""

    seen: list[Message]
    rest: list[Message]
    facts: Mapping[int, Mapping[str, Any]]


def talk_of(output: Any, question: Sequence[Message] = (), *, new_from: int | None = None) -> Talk | None:
    """Return the talk in a run's output; None where it holds none, or nothing but answers.

    Args:
        output: the run's output, as it was logged.
        question: what the run was asked, in normal form: earlier runs may be in the output, too, and their acts come
            before the last words of a person that are in both.
        new_from: position of the first message that is of this run, where the log has it.
    """
    items = _listed_in(output, 0) or _acts_in(output, question)
    if items is None or len(items) < 2:  # noqa: PLR2004 - an answer
        return None
    try:
        history, facts = chat(items)
        before = _first_of_run(items, history, new_from) if new_from else _end_of_question(history, question)
    except BadRecordError:
        return None
    speakers = [message["role"] for message in history]
    if set(speakers) <= {"assistant"} or "assistant" not in speakers[before:]:
        return None
    start = speakers.index("assistant", before)
    rest = {position - start: told for position, told in facts.items() if position >= start}
    seen = history[:start] if start or not question else [dict(message) for message in question]
    return Talk(seen, history[start:], rest)


def _listed_in(value: Any, depth: int) -> list[Any] | None:
    """Return the messages in an output, however it wraps them."""
    opened = embedded(value)
    if (items := listed(opened)) is not None or depth > DEEPEST:
        return items
    outer = as_dict(opened)
    if items := _ended(outer):
        return items
    inner = (_listed_in(outer[name], depth + 1) for name in _HOLDERS if isinstance(outer.get(name), list | dict | str))
    return next((items for items in inner if items is not None), None)


def _ended(outer: Mapping[str, Any]) -> list[Any]:
    """Return the messages of CrewAI's result of a task with the answer: without a tool it is next to them."""
    items, answer = listed(outer.get("messages")), outer.get("raw")
    is_open = items and as_dict(items[-1]).get("role") in ("system", "user")
    return [*items, {"role": "assistant", "content": answer}] if items and is_open and isinstance(answer, str) else []


def _acts_in(output: Any, question: Sequence[Message]) -> list[Any] | None:
    """Return what was asked, and the acts and the answer that a result keeps apart from one another."""
    outer = as_dict(embedded(output))
    outer = as_dict(embedded(outer.get("outputs"))) or as_dict(embedded(outer.get("output"))) or outer
    if items := acted(outer):
        return [*(question or items[:1]), *items[1:]]
    items = numbered(outer)
    return [*question, *items] if items else None


def _first_of_run(items: Sequence[Any], history: Sequence[Message], new_from: int) -> int:
    """Return where a run begins: its position may count messages that are written as two, a person's comes first."""
    begins = len(chat(items[:new_from])[0])
    return next((n for n in range(begins, len(history)) if history[n]["role"] == "user"), begins)


def _end_of_question(history: Sequence[Message], question: Sequence[Message]) -> int:
    """Return the position after the last words of a person that the run was asked with; 0 where they are not there."""
    words = next((m["content"] for m in reversed(question) if m["role"] == "user" and m.get("content")), None)
    if words is None:
        return 0
    places = (n for n, message in enumerate(history) if message["role"] == "user" and message.get("content") == words)
    return max(places, default=-1) + 1
