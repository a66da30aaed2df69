"""Whether two conversations asked the same of the agent: the users' turns before two actions, one by one.

In: two prompts. Out: whether every turn of the one asks what the turn of the other asks, and the facts (numbers, ids,
addresses) that only one of them gave. People, and models that play them, word one request in many ways, so equal words
are not demanded: a turn must have most content words in common, the same negations and as many facts. What a short turn
agrees to ("yes, please") is in the agent's words before it, so these are compared as well.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from functools import lru_cache
from typing import NamedTuple

from flywheel.stages.common.canonical import normal_text

ALIKE = 0.7  # Dice coefficient of content words from which two turns are the same
SHORT = 4  # content words; a turn of fewer is an answer to the agent
_LONG = 4  # letters of a content word in scripts with spaces between words
_WORD = re.compile(r"\w+(?:[-./@:+]\w+)*")
_NO = re.compile(
    r"\b(?:no|not|never|none|without|cannot|nothing|only|nein|nicht|kein\w*|ohne|non|pas|sans|sin|nunca|não|sem)\b"
    r"|n['\u2019]t\b|不|没|无|ない|않"
)


class Turn(NamedTuple):
    """A turn of the user: its content words with facts as `#`, its facts, its negations, and the agent's words before.

    `before` is empty where the turn speaks for itself.
    """

    words: Counter[str]
    facts: frozenset[str]
    negations: int
    before: Counter[str]


def only_in_one(one: str, other: str) -> frozenset[str] | None:
    """Return the facts that users gave in one of two conversations only; None where they asked for different things.

    Args:
        one: a prompt, a JSON list of messages.
        other: another one.
    """
    if one == other:
        return frozenset()
    (ours, role), (theirs, other_role) = _turns(one), _turns(other)
    if role != other_role or len(ours) != len(theirs):
        return None
    if not all(_says_the_same(a, b) for a, b in zip(ours, theirs, strict=True)):
        return None
    told, told_there = (frozenset[str]().union(*(turn.facts for turn in turns)) for turns in (ours, theirs))
    return told ^ told_there


def _says_the_same(one: Turn, other: Turn) -> bool:
    if len(one.facts) != len(other.facts) or one.negations != other.negations:
        return False
    return _alike(one.words, other.words) and _alike(one.before, other.before)


def _alike(one: Counter[str], other: Counter[str]) -> bool:
    total = one.total() + other.total()
    return one == other or 2 * (one & other).total() >= ALIKE * total


@lru_cache(maxsize=64)  # a state's prompts are compared with one another
def _turns(prompt: str) -> tuple[tuple[Turn, ...], str]:
    """Return the user's turns of a prompt, and the role of its newest message that is not the system's."""
    turns, said, role = list[Turn](), "", ""
    for message in json.loads(prompt):
        content = message.get("content")
        text = content if isinstance(content, str) else ""
        if message["role"] == "user":
            turns.append(_turn(text, said))
        elif message["role"] == "assistant":
            said = text
        role = message["role"] if message["role"] != "system" else role
    return tuple(turns), role


def _turn(text: str, said: str) -> Turn:
    words = _words(text)
    facts = frozenset(word for word in _WORD.findall(normal_text(text)) if _is_fact(word))
    before = _words(said) if words.total() < SHORT else Counter[str]()
    return Turn(words, facts, len(_NO.findall(normal_text(text))), before)


def _words(text: str) -> Counter[str]:
    words = _WORD.findall(normal_text(text))
    return Counter("#" if _is_fact(word) else word for word in words if len(word) >= _LONG or not word.isascii())


def _is_fact(word: str) -> bool:
    return any(letter.isdigit() or letter in "_@" for letter in word)
