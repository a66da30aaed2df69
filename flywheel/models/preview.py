"""What of a row is trained: its rendered text in segments, each either in the loss or not.

In: messages as the datasets hold them. Out: segments whose texts, one after the other, are what the model reads. Only
what the assistant wrote after the prompt is trained, each message with its end-of-turn token.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from flywheel.models.chat import ChatFormat


class Segment(NamedTuple):
    """Consecutive tokens of a row."""

    text: str
    trained: bool
    tokens: int


def segments(
    chat: ChatFormat,
    prompt: Sequence[Mapping[str, Any]],
    tools: list[dict[str, Any]] | None,
    answer: Sequence[Mapping[str, Any]],
    *,
    thoughts: bool = True,
) -> list[Segment]:
    """Return the segments of a prompt and what follows it: one action, or actions with what came back between them.

    Args:
        chat: how the base model reads and writes.
        prompt: the messages before.
        tools: at hand.
        answer: the messages that follow.
        thoughts: whether logged thoughts are trained.

    Raises:
        FlywheelError: the template renders a prompt differently when an action follows.
    """
    rendered: list[Segment] = []
    history, end = list(prompt), 0
    for message in answer:
        if message["role"] == "assistant":
            before = chat.prompt(history, tools)
            context, action = chat.parts(history, tools, message, thoughts=thoughts)
            seen = before[end:] + context
            rendered += [_segment(chat, seen, trained=False), _segment(chat, action, trained=True)]
            end = len(before) + len(context) + len(action)
        history.append(message)
    return rendered


def _segment(chat: ChatFormat, text: str, *, trained: bool) -> Segment:
    ids = chat.ids(text)
    return Segment(str(chat.tokenizer.decode(ids)), trained, len(ids))


def tokens(
    chat: ChatFormat,
    prompt: Sequence[Mapping[str, Any]],
    tools: list[dict[str, Any]] | None,
    answer: Sequence[Mapping[str, Any]],
) -> list[str]:
    """Return the trained text of an answer in tokens; one after the other they are the text.

    A character that is written in several tokens belongs to the last one.

    Raises:
        FlywheelError: the template renders a prompt differently when an action follows.
    """
    history, found = list(prompt), []
    for message in answer:
        if message["role"] == "assistant":
            found += _cut(chat, chat.completion(history, tools, message))
        history.append(message)
    return found


def _cut(chat: ChatFormat, text: str) -> list[str]:
    if not chat.tokenizer.is_fast:  # no offsets: decoded one by one
        return [str(chat.tokenizer.decode([one])) for one in chat.ids(text)]
    spans = chat.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
    ends = [end for _, end in spans]
    starts = [0, *ends[:-1]]
    return [text[start:end] for start, end in zip(starts, ends, strict=True) if end > start]
