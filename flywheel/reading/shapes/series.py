"""Calls of a model that a record lists one after the other, each with what was asked and what was answered.

In: a record. Out: the chat that they make. Each call repeats the chat before it, so that the last one has it all; calls
that do not go on from one another are several talks, and make none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from flywheel.reading.messages import Message
from flywheel.reading.shapes.inputs import asked
from flywheel.reading.shapes.outputs import answered
from flywheel.reading.values import as_dict, as_list, embedded

_PAIRS = (
    ("input", "output"), ("inputs", "outputs"), ("request", "response"), ("messages", "response"),
    ("messages", "output"), ("messages", "completion"), ("prompt", "completion"), ("prompt", "response"),
)  # fmt: skip
_DEEPEST = 2  # objects around a list of calls


def chat_of_calls(record: Mapping[str, Any]) -> list[Message]:
    """Return the messages of a record's calls, in normal form; [] where it lists none that are one chat."""
    for held in _lists(record, 0):
        calls = list(map(_call, held))
        if all(calls) and (history := _joined([call for call in calls if call is not None])):
            return history
    return []


def _lists(place: Mapping[str, Any], depth: int) -> Iterator[list[Any]]:
    for held in map(embedded, place.values()):
        if isinstance(held, list) and held and all(isinstance(item, dict) for item in held):
            yield held
        elif isinstance(held, dict) and depth < _DEEPEST:
            yield from _lists(held, depth + 1)


def _call(item: Any) -> tuple[list[Message], Message] | None:
    """Return what was asked and answered, where that is a list of messages and a message."""
    fields = as_dict(item)
    for question, answer in _PAIRS:
        given, gave = embedded(fields.get(question)), embedded(fields.get(answer))
        if not _is_chat(given) or not gave:
            continue
        said = asked(given)
        answers = answered(gave)
        if said is not None and said.messages and len(answers) == 1:
            return said.messages, answers[0]
    return None


def _is_chat(given: Any) -> bool:
    items = as_list(given) or as_list(embedded(as_dict(given).get("messages")))
    return bool(items) and all("role" in as_dict(item) for item in items)


def _joined(calls: Sequence[tuple[list[Message], Message]]) -> list[Message]:
    chat: list[Message] = []
    for history, answer in calls:
        before, own = ([m for m in talk if m["role"] != "system"] for talk in (chat, history))
        if own[: len(before)] != before:
            return []
        chat = [*history, answer]
    return chat if any(message["role"] == "user" for message in chat) else []
