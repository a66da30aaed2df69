"""Logged pairs of request and response, in the envelopes that loggers commonly use.

In: a record. Out: the request, the response, and the envelope's own fields. A record without a request has no prompt to
learn from; one without a response is a call that failed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from flywheel.reading.streams import stream_events, streamed
from flywheel.reading.usage import token_ids
from flywheel.reading.values import as_dict, as_list, count, embedded, first, number, present, text

_ENVELOPES = (
    ("request", "response"),
    ("request_body", "response_body"),
    ("requestBody", "responseBody"),
    ("kwargs", "response"),
    ("input", "output"),
    ("body", "response"),
)
_SAMPLING = {
    "temperature", "top_p", "top_k", "max_tokens", "max_completion_tokens", "max_output_tokens", "seed", "stop",
    "stop_sequences", "frequency_penalty", "presence_penalty", "reasoning_effort",
}  # fmt: skip
_LATENCY_S = ("latency_s", "latency", "duration_s", "response_time", "elapsed_s")
_LATENCY_MS = ("latency_ms", "request_duration_ms", "duration_ms", "response_time_ms", "elapsed_ms")
_COST = ("cost_usd", "response_cost", "spend", "total_cost", "cost")


class Pair(NamedTuple):
    """A request with its response. Both are mappings, empty when the record has none."""

    request: Mapping[str, Any]
    response: Mapping[str, Any]
    envelope: Mapping[str, Any]


def pair_of(record: Any, fields: tuple[str, ...] = ("messages",)) -> Pair:
    """Return a record's request and response, whatever their fields are called.

    Args:
        record: a record of a log.
        fields: an object with one of these is a request.
    """
    outer = as_dict(record)
    for asked, answered in _ENVELOPES:
        request, response = embedded(outer.get(asked)), embedded(outer.get(answered))
        if isinstance(request, dict) and any(name in request for name in fields):
            return Pair(request, response_body(response) or {"events": stream_events(outer)}, outer)
    if any(isinstance(outer.get(name), list | str) for name in fields):
        answer = first(outer, ("response", "completion", "output"))
        return Pair(outer, response_body(embedded(answer)) or outer, outer)
    return Pair({}, response_body(embedded(outer.get("response"))) or outer, outer)


def response_body(response: Any) -> Mapping[str, Any]:
    """Return a response as an object: batch files and proxies wrap it once more, and a stream is a text or a list."""
    if streamed(response):
        return {"events": response}
    fields = as_dict(response)
    inner = embedded(fields.get("body"))
    if streamed(inner):
        return {"events": inner}
    return inner if isinstance(inner, dict) else fields


def common_payload(pair: Pair) -> dict[str, Any]:
    """Return the payload fields that all dialects name alike: sampling, latency, cost."""
    request, envelope = pair.request, pair.envelope
    fields: dict[str, Any] = {}
    if sampling := {name: request[name] for name in _SAMPLING & request.keys() if request[name] is not None}:
        fields["sampling"] = sampling
    if (seconds := number(first(envelope, _LATENCY_S))) is not None:
        fields["latency_s"] = seconds
    elif (millis := number(first(envelope, _LATENCY_MS))) is not None:
        fields["latency_s"] = millis / 1000
    if (cost := number(first(envelope, _COST))) is not None:
        fields["cost_usd"] = cost
    return fields


def sampled(choice: Mapping[str, Any]) -> dict[str, Any]:
    """Return a choice's reason to stop and, where the server gives them, its tokens and log-probabilities."""
    logprobs = as_dict(choice.get("logprobs"))
    content = [as_dict(token) for token in as_list(logprobs.get("content"))]
    items = [number(token.get("logprob")) for token in content]
    return present(
        finish_reason=text(choice.get("finish_reason")),
        prompt_token_ids=token_ids(choice.get("prompt_token_ids")),
        completion_token_ids=token_ids(choice.get("token_ids"))
        or _written_ids([token.get("token") for token in content] or as_list(logprobs.get("tokens"))),
        completion_logprobs=items or [number(item) for item in as_list(logprobs.get("token_logprobs"))] or None,
    )


def _written_ids(tokens: list[Any]) -> list[int] | None:
    """Return the ids that vLLM writes as `token_id:N` when it is asked to return tokens as ids."""
    parts = [token.rpartition("token_id:") for token in tokens if isinstance(token, str)]
    items = [count(digits) for before, mark, digits in parts if mark and not before]
    return [n for n in items if n is not None] if items and len(items) == len(tokens) else None
