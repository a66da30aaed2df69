"""When two calls, two states or two answers are equal.

In: calls, states, texts. Out: keys. Stricter than anchor states are: `LS` and `ls` are two commands, and a result that
was recorded for one must never answer the other.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any

from flywheel.records import ID_HEX, canonical_json

START = "0" * ID_HEX  # the state before any act
ANY = '"*"'  # placeholder for the arguments of a tool whose arguments are only words, such as a handover's summary
_WORD = re.compile(r"[^\W_]+(?:[.,]\d+)*")


def call_text(name: str, arguments: Mapping[str, Any]) -> str:
    """Return the text that equal calls share: keys sorted, 1.0 as 1, strings without outer blanks, no more."""
    return f"{name} {canonical_json(_plain(arguments))}"


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, list | tuple) else value


def next_state(state: str, call: str) -> str:
    """Return the state after an acting call; chained, so two states are equal if the acts so far are, in order."""
    return hashlib.sha256(f"{state}\n{call}".encode("utf-8", "surrogatepass")).hexdigest()[:ID_HEX]


def same_answer(answer: str, recorded: str, least: float) -> bool:
    """Return whether two answers are equal: enough words in common, and every number in both.

    Args:
        answer: of the attempt.
        recorded: of the log.
        least: Jaccard index of the words from which they are alike.
    """
    first, second = ({word.casefold() for word in _WORD.findall(text)} for text in (answer, recorded))
    if not first or not second or _numbers(first) != _numbers(second):
        return first == second
    return len(first & second) >= least * len(first | second)


def _numbers(words: set[str]) -> set[str]:
    return {word for word in words if any(letter.isdigit() for letter in word)}
