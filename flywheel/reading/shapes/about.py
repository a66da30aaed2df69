"""What an answer says of itself, wherever in it that stands.

In: an output as it was logged: LangChain writes the model, the reason to stop and the tokens on the message that it
made, others on the response. Out: payload fields.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from flywheel.reading.usage import token_counts
from flywheel.reading.values import as_dict, as_list, embedded, first, ident, present, text

_INNER = ("output", "outputs", "llm_output", "message", "kwargs", "response_metadata", "generation_info")
_LISTS = {"choices": 0, "candidates": 0, "generations": 0, "messages": -1, "output": -1}
_DEPTH = 5
_USAGE = ("usage", "usage_metadata", "token_usage", "usageMetadata")
_REASONS = ("finish_reason", "stop_reason", "finishReason", "stopReason")
_MODEL = ("model_name", "model", "model_version", "modelVersion")
_OF_A_RESPONSE = ("choices", "content", "finish_reason", "model", "object", "output", "stop_reason", "usage")
_NOT_THE_SERVERS = ("run-", "lc_", "run--")  # ids that LangChain makes


def about_answer(said: Any) -> dict[str, Any]:
    """Return the payload fields that an answer has beside its message, and the `model` that gave it."""
    places = list(_places(as_dict(embedded(said)), _DEPTH))

    def find(names: tuple[str, ...]) -> Any:
        return next((value for place in places if (value := first(place, names)) is not None), None)

    found = {
        "model": text(find(_MODEL)),
        "response_id": next((name for place in places if (name := _own_id(place))), None),
        "finish_reason": text(find(_REASONS)),
        **token_counts(as_dict(find(_USAGE))),
    }
    return present(found)


def _own_id(place: Mapping[str, Any]) -> str | None:
    """Return a response's id, which is neither that of an item of it nor one that a framework made."""
    named = ident(first(place, ("response_id", "responseId")))
    item = place.get("type") == "message" and "stop_reason" not in place
    if named is None and not item and first(place, _OF_A_RESPONSE) is not None:
        named = ident(place.get("id"))
    return named if named and not named.startswith(_NOT_THE_SERVERS) else None


def _places(found: Mapping[str, Any], depth: int) -> Iterator[Mapping[str, Any]]:
    """Yield an answer and the objects in it that speak of the whole, outermost first."""
    if not found or not depth:
        return
    yield found
    for name in _INNER:
        if inner := found.get(name):
            yield from _places(as_dict(embedded(inner)), depth - 1)
    for name, position in _LISTS.items():
        several = as_list(found.get(name))
        several = several[0] if several and isinstance(several[0], list) else several
        if several:
            yield from _places(as_dict(several[position]), depth - 1)
