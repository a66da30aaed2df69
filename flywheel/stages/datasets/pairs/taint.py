"""Whether an action may have been dictated by what a tool returned: text that an outsider can write.

In: an assistant message and the conversation before it. Out: tainted or not. An action is tainted when it sends, pays,
changes or deletes something, or when a tool result gives the agent orders, and its arguments repeat eight words, or an
address, of a tool result that no user wrote. Edits of a text quote what was read, so they count only after such orders.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from flywheel.records import texts_in
from flywheel.stages.common.tools import quotes_by_contract

_SPAN = 8  # words
_SENSITIVE = re.compile(
    r"(?:^|_)(?:send|post|publish|upload|share|forward|reply|email|mail|message|pay|transfer|refund|purchase|order|book"
    r"|create|write|update|modify|change|delete|remove|drop|cancel|grant|revoke|invite|deploy|push|merge)(?:_|$)"
)
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_ORDERS = re.compile(
    r"(?:ignore|disregard|forget|override)\s+(?:\w+\s+){0,3}(?:instructions?|prompts?|rules|guidelines|polic(?:y|ies))"
    r"|you\s+(?:are\s+now|must\s+now|will\s+now)\b|new\s+(?:system\s+)?instructions?\s*:|<\s*/?\s*system\s*>"
    r"|\bsystem\s*(?:prompt|message|override)\s*:|\b(?:assistant|agent|ai)\s*,?\s+(?:please\s+)?(?:send|forward|transfer"
    r"|delete|execute|run|call|email|upload)\b|do\s+not\s+(?:tell|inform|mention\s+(?:this\s+)?to)\s+the\s+user",
    re.IGNORECASE,
)
_ADDRESS = re.compile(r"https?://[^\s\"'<>)\]]+|[\w.+-]+@[\w-]+\.[\w.]+|<(?:EMAIL|URL|PHONE|IBAN|CARD)_[0-9A-Za-z]+>")


def tainted(message: dict[str, Any], prompt: str) -> bool:
    """Return whether the message's calls carry out what a tool result may have ordered.

    Args:
        message: assistant message.
        prompt: JSON list of the messages before it.
    """
    calls = message.get("tool_calls") or []
    if not calls:
        return False
    ordered, spans, addresses, by_people = _results(prompt)
    if not ordered:  # an edit repeats what was read, whoever wrote that
        calls = [call for call in calls if not quotes_by_contract(call["name"], call.get("arguments") or ())]
    if not ordered and not any(_is_sensitive(call["name"]) for call in calls):
        return False
    for text in texts_in([call.get("arguments") for call in calls]):
        if any(address in addresses and address not in by_people for address in _ADDRESS.findall(text)):
            return True
        if any(span in spans and span not in by_people for span in _spans(text)):
            return True
    return False


def _is_sensitive(tool: str) -> bool:
    return _SENSITIVE.search(re.sub(r"[^0-9a-z]+", "_", _CAMEL.sub("_", tool).lower())) is not None


@lru_cache(maxsize=64)
def _results(prompt: str) -> tuple[bool, frozenset[str], frozenset[str], str]:
    """Return whether a result gives orders, the results' spans and addresses, and all texts of people."""
    messages = json.loads(prompt)
    results = [str(m.get("content") or "") for m in messages if m["role"] == "tool"]
    people = " ".join(str(m.get("content") or "") for m in messages if m["role"] in {"user", "system"})
    return (
        any(_ORDERS.search(text) for text in results),
        frozenset(span for text in results for span in _spans(text)),
        frozenset(address for text in results for address in _ADDRESS.findall(text)),
        " ".join(people.split()) + " " + " ".join(re.findall(r"\w+", people.lower())),
    )


def _spans(text: str) -> Iterator[str]:
    words = re.findall(r"\w+", text.lower())
    return (" ".join(words[n : n + _SPAN]) for n in range(len(words) - _SPAN + 1))
