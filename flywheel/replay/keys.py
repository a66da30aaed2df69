"""When two calls, two states or two answers are equal.

In: calls, states, texts. Out: keys. A result that was recorded for one call must never answer another.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any

from flywheel.records import ID_HEX, canonical_json, plain_value

START = "0" * ID_HEX  # the state before any act
ANY = '"*"'  # placeholder for the arguments of a tool whose arguments are only words, such as a handover's summary
_WORD = re.compile(r"[^\W_]+(?:[.,]\d+)*")


def call_text(name: str, arguments: Mapping[str, Any]) -> str:
    """Return the text that equal calls share: keys sorted, 1.0 as 1, strings without outer blanks, no more."""
    return f"{name} {canonical_json(plain_value(arguments))}"


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
