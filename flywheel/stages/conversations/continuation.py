"""Whether a history goes on from what the agent has seen: inputs repeat it, and programs write it otherwise.

In: the context, which is what was seen and done so far, and the input of a later call. Out: what the input adds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from flywheel.stages.conversations.duplicates import Messages, calls_of, same_message, signature_of

_LONG_ID = 12  # characters that no counter has


def side_by_side(history: Messages, context: Messages) -> Messages:
    """Return a history with calls that an action made at once, and that it repeats one by one, as one action."""
    several = {made: message for message in context if len(made := _made_in(message)) > 1}
    homes = {call_id: made for made in several for call_id in made}
    whole: Messages = []
    missing: dict[frozenset[str], set[str]] = {}
    for message in history if several else ():
        told = _made_in(message)
        made = homes.get(next(iter(told), ""), frozenset())
        if message.get("content") or not told < made or not told:
            whole.append(message)
            continue
        whole += [] if made in missing else [several[made]]
        missing[made] = missing.get(made, set(made)) - told
    return whole if missing and not any(missing.values()) else history


def _made_in(message: Mapping[str, Any]) -> frozenset[str]:
    """Return the ids of a message's calls, where all of them have one."""
    names = [str(made.get("id") or "") for made in calls_of(message)]
    return frozenset(names) if all(names) else frozenset()


def continuation(context: Messages, history: Messages) -> Messages | None:
    """Return the messages that a history adds to the context, or None if it does not begin with it."""
    n = len(context)
    if len(history) < n or not all(same_message(a, b) for a, b in zip(context, history, strict=False)):
        return None
    return history[n:]


class Retold(NamedTuple):
    """What a history adds to the context, and what it shows of acts that the log has in part: each with its whole."""

    fresh: Messages
    completed: list[tuple[dict[str, Any], dict[str, Any]]]


def retold(context: Messages, history: Messages) -> Retold | None:
    """Return what a history adds to the context where a program writes the agent's acts otherwise.

    The Responses API has a message for each thought, text and call of one act; frameworks leave out the words next to
    calls, the calls, or an act of calls alone. An act is known by its calls' ids, by its words, or by all that its
    pieces hold together. Where instrumentation left calls or words of an answer out, the history has them. One without
    any act shows what came in, as Strands' does in MLflow; without anything new it is another try.
    """
    if not any(message.get("role") == "assistant" for message in history):
        fresh = continuation([message for message in context if message.get("role") != "assistant"], history)
        return Retold(fresh, []) if fresh else None
    position, completed = 0, []
    for message in context:
        if position < len(history) and _is_part(message, history[position]):
            completed.append((message, history[position]))
            position += 1
            continue
        pieces = _pieces(message, history, position)
        if pieces is None:
            return None
        position += pieces
    return Retold(history[position:], completed)


def _pieces(message: Mapping[str, Any], history: Messages, start: int) -> int | None:
    """Return how many messages from a place of a history on are one of the context; None where it is another."""
    if start >= len(history):
        return None
    if same_message(message, history[start]):
        return 1
    if message.get("role") != "assistant":
        return None
    _, words, calls = signature_of(message)
    told, made = "", tuple[str, ...]()
    for n in range(start, len(history)):
        role, text, keys = signature_of(history[n])
        if role != "assistant":
            break
        told, made = told + "".join(text.split()), made + keys
        is_thought = not (text or keys) and n + 1 < len(history) and history[n + 1].get("role") == "assistant"
        if not is_thought and told == "".join(words.split()) and made == calls:
            return n + 1 - start
    if _is_told_alike(message, history[start]):
        return 1
    is_left_out = calls and history[start].get("role") == "tool"
    return 0 if is_left_out and (not words or history[start].get("tool_call_id") in _made_in(message)) else None


def _is_part(message: Mapping[str, Any], piece: Mapping[str, Any]) -> bool:
    """Whether a message of a history has an act's calls and words, and more of them, or its calls in their order."""
    if message.get("role") != "assistant" or piece.get("role") != "assistant":
        return False
    (_, words, calls), (_, told, made) = signature_of(message), signature_of(piece)
    is_within = words in {"", told} and (not calls or set(calls) <= set(made))
    is_more = len(made) > len(calls) or (not words and bool(told) and bool(calls) and calls == made)
    return is_within and (is_more or (calls != made and sorted(calls) == sorted(made)))


def _is_told_alike(message: Mapping[str, Any], piece: Mapping[str, Any]) -> bool:
    """Whether a message is an act without its words or its calls: by the calls' ids, or by the words."""
    made = _made_in(message)
    if piece.get("role") != "assistant" or not calls_of(message):
        return False
    words, told = str(message.get("content") or "").strip(), str(piece.get("content") or "").strip()
    if not calls_of(piece) and words == told:
        return True
    if not made or any(len(name) < _LONG_ID for name in made):
        return False
    return _made_in(piece) == made or (not calls_of(piece) and all(name in told for name in made))
