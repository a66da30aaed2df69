"""What a reply of a server holds: answers that the model ended itself, or that reached the tokens they were given.

In: a choice of a reply, which any program may have written. Out: an `Answer`; what has another form raises one of
`NO_FORM`, what the server broke off `Unfinished`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from flywheel.errors import EvalError
from flywheel.models.calls import json_or_none
from flywheel.models.served.transport import Unfinished

NO_FORM = (KeyError, TypeError, AttributeError, IndexError, ValueError, OverflowError)  # of a reply of another form
_WHOLE = frozenset({"", "stop", "tool_calls", "function_call", "eos", "word", "eos_token", "stop_sequence"})
_CUT = frozenset({"length", "limit"})
_BROKEN_OFF = frozenset({"abort", "error", "content_filter", "repetition", "none"})  # names that are safe to show
_MOST_TOKENS = 2**31  # in a vocabulary


class Answer(NamedTuple):
    """What came back."""

    text: str
    ids: list[int] | None  # tokens written, where the server gives them
    tokens: int  # how many they are
    read: int  # tokens of the prompt; 0 where it is unknown
    message: dict[str, Any] | None = None  # as the server parsed it


def count(value: Any) -> int:
    """Return a number of things.

    Raises:
        ValueError: it is none.
    """
    if (number := int(value)) < 0:
        raise ValueError
    return number


def token_ids(ids: Any) -> list[int] | None:
    """Return the tokens of an answer, where there are any.

    Raises:
        ValueError: one of them cannot be one.
    """
    if ids is not None and not all(type(one) is int and 0 <= one < _MOST_TOKENS for one in ids):
        raise ValueError
    return None if ids is None else list(ids)


def require_whole(written: int, why: str, most: int) -> None:
    """Refuse an answer that the server ended for a reason of its own: it is not the answer that the model gives."""
    if why in _CUT and 0 < written < most:  # cut at `most`, it counts as it does in this process
        raise EvalError(
            f"the server cut an answer at {written:,} of {most:,} tokens",
            hint="start it with a longer context, or set a smaller eval.max_new_tokens",
        )
    if why not in _CUT | _WHOLE:
        raise Unfinished(why if why in _BROKEN_OFF else "for a reason of its own")


def chosen_answer(choice: Mapping[str, Any], written: int, read: int) -> Answer:
    """Return the answer that a choice holds."""
    message = choice.get("message")
    if message and not all(isinstance(call.get("function"), Mapping) for call in message.get("tool_calls") or []):
        raise TypeError
    text = (message.get("content") if message else choice["text"]) or ""
    return Answer(str(text), token_ids(choice.get("token_ids")), written, read, message)


def parsed_calls(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the calls that a server parsed, in the normal form; arguments other than an object stay a text."""
    calls = []
    for number, call in enumerate(message.get("tool_calls") or []):
        function = call["function"]
        raw = function.get("arguments")
        arguments = json_or_none(raw) if isinstance(raw, str) else raw
        made = {"id": str(call.get("id") or f"call{number:05d}"), "name": str(function.get("name") or "")}
        known = isinstance(arguments, dict)
        calls.append({**made, "arguments": arguments if known else None} | ({} if known else {"arguments_raw": raw}))
    return calls
