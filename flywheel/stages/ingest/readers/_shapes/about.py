"""What a traced model call was asked and answered, and what the answer says of itself, wherever in it that stands.

`_shapes` finds the messages. Here they are taken with care, because one unreadable span must not cost its trace, and
the rest is gathered: LangChain writes the model, the reason to stop and the tokens on the message that it made.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from flywheel.extensions import BadRecordError
from flywheel.stages.ingest.readers._messages import Message
from flywheel.stages.ingest.readers._shapes.asked import Asked, answered, asked
from flywheel.stages.ingest.readers._values import as_dict, as_list, embedded, first, ident, text, whole

__all__ = ["about_answer", "choices_of", "history_of"]

_INNER = ("output", "outputs", "llm_output", "message", "kwargs", "response_metadata", "generation_info")
_LISTS = {"choices": 0, "candidates": 0, "generations": 0, "messages": -1, "output": -1}
_DEPTH = 5
_USAGE = ("usage", "usage_metadata", "token_usage", "usageMetadata")
_PROMPT_TOKENS = ("input_tokens", "prompt_tokens", "prompt_token_count", "promptTokenCount")
_ANSWER_TOKENS = ("output_tokens", "completion_tokens", "candidates_token_count", "candidatesTokenCount")
_NOT_THE_SERVERS = ("run-", "lc_", "run--")  # ids that LangChain makes


def history_of(given: Any) -> Asked:
    """Return a call's input; without messages when it was not logged or cannot be read."""
    try:
        return asked(given) or Asked([], None)
    except BadRecordError:
        return Asked([], None)


def choices_of(said: Any) -> list[Message]:
    """Return a call's answers, one a choice; none when nothing was logged or it cannot be read."""
    try:
        return [message for message in answered(said) if len(message) > 1]
    except BadRecordError:
        return []


def about_answer(said: Any) -> dict[str, Any]:
    """Return the payload fields that an answer has beside its message, and the `model` that gave it."""
    places = list(_places(as_dict(embedded(said)), _DEPTH))

    def find(*names: str) -> Any:
        return next((value for place in places if (value := first(place, names)) is not None), None)

    usage = as_dict(find(*_USAGE))
    ids = (ident(place.get("id")) for place in places)
    found = {
        "model": text(find("model_name", "model", "modelVersion")),
        "response_id": next((name for name in ids if name and not name.startswith(_NOT_THE_SERVERS)), None),
        "finish_reason": text(find("finish_reason", "stop_reason", "finishReason")),
        "input_tokens": whole(first(usage, _PROMPT_TOKENS)),
        "output_tokens": whole(first(usage, _ANSWER_TOKENS)),
    }
    return {name: value for name, value in found.items() if value is not None}


def _places(found: Mapping[str, Any], depth: int) -> Iterator[Mapping[str, Any]]:
    """Yield an answer and the objects in it that speak of the whole, outermost first."""
    if not found or not depth:
        return
    yield found
    for name in _INNER:
        yield from _places(as_dict(embedded(found.get(name))), depth - 1)
    for name, position in _LISTS.items():
        several = as_list(found.get(name))
        several = several[0] if several and isinstance(several[0], list) else several
        yield from _places(as_dict(several[position]) if several else {}, depth - 1)
