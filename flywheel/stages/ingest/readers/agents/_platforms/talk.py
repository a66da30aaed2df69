"""What a platform's record holds of a conversation, and the turns that it is made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from flywheel.reading.feedback import Opinion
from flywheel.reading.messages import flat_text
from flywheel.reading.status import FAILED, OK
from flywheel.reading.values import embedded, present, text, when

_RATED = {"like": 1.0, "dislike": 0.0, "THUMBS_UP": 1.0, "THUMBS_DOWN": 0.0}
STARS = (1, 5)

Turn = dict[str, Any]  # a message of Chat Completions; `facts` are those of `Rollout.facts`
# How a record is known, and what reads it.
Shapes = Sequence[tuple[Callable[[Any], object], Callable[[Mapping[str, Any]], "Talk"]]]


class Talk(NamedTuple):
    """What a record holds of a conversation; one without a name is an attempt of its own."""

    turns: Sequence[Turn]
    conversation: str | None = None
    user: str | None = None
    opinions: Sequence[Opinion] = ()
    tools: Any = None
    is_piece: bool = False  # whether other records go on with the conversation


def words_said(role: str, words: Any, at: Any = None, **counts: Any) -> list[Turn]:
    """Return the words of a speaker as a turn; nothing where there are none."""
    content = flat_text(words)
    return [{"role": role, "content": content, "facts": present(ts=when(at), **counts)}] if content else []


def call_ran(own: str, tool: Any, given: Any, result: Any, at: Any = None, *, failed: bool | None = None) -> list[Turn]:
    """Return a call and its result; without one, where neither a result nor a failure is known."""
    facts = present(ts=when(at))
    call = {"id": own, "name": str(tool or ""), "arguments": embedded(given) if given is not None else {}}
    turns: list[Turn] = [{"role": "assistant", "tool_calls": [call], "facts": facts}]
    if result is not None or failed:
        status = {True: {"status": FAILED}, False: {"status": OK}, None: {}}[failed]
        turns.append(
            {"role": "tool", "tool_call_id": own, "content": flat_text(result) or "", "facts": facts, **status}
        )
    return turns


def rating_of(value: Any, comment: Any = None) -> list[Opinion]:
    value = _RATED.get(value) if isinstance(value, str) else None
    return (
        [Opinion("rating", value=value, comment=text(comment), annotator="human", scale=(0, 1))]
        if value is not None
        else []
    )
