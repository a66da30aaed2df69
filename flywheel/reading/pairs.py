"""Logged pairs of request and response, in the envelopes that loggers commonly use.

In: a record. Out: the request, the response, and the envelope's own fields. A record without a request has no prompt to
learn from; one without a response is a call that failed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from flywheel.reading.captured import as_captured
from flywheel.reading.messages import ROLES
from flywheel.reading.streams import stream_events, streamed
from flywheel.reading.usage import token_ids
from flywheel.reading.values import as_dict, as_list, count, embedded, first, number, present, text

_ENVELOPES = (
    ("request", "response"),
    ("request_body", "response_body"),
    ("requestBody", "responseBody"),
    ("RequestBody", "ResponseBody"),
    ("request_head", "response_head"),
    ("kwargs", "response"),
    ("kwargs", "request_response"),
    ("input", "output"),
    ("body", "response"),
    ("responses_create_params", "response"),
)
_ANSWERS = (
    "output_message",
    "response",
    "completion",
    "output",
    "raw_output",
    "original_response",
)  # the last is LiteLLM's debug file
_API = {
    "choices",
    "object",
    "role",
    "error",
    "status_code",
}  # text that is JSON with one of these is not what a model wrote
_API_PARTS = ("content", "output", "message", "response", "body", "chunks", "events")
_FAILED_HTTP = 400  # HTTP statuses from here on are failures
_SAMPLING = {
    "temperature", "top_p", "top_k", "max_tokens", "max_completion_tokens", "max_output_tokens", "seed", "stop",
    "stop_sequences", "frequency_penalty", "presence_penalty", "reasoning_effort",
}  # fmt: skip
_LATENCY_S = ("latency_s", "latency", "duration_s", "response_time", "elapsed_s")
_LATENCY_MS = ("latency_ms", "request_duration_ms", "duration_ms", "response_time_ms", "elapsed_ms")
_COST = ("cost_usd", "response_cost", "spend", "total_cost", "cost", "estimated_cost_usd", "estimated_cost")
USED = ("usage", "token_usage", "tokens_used")  # objects that may have the cost with the tokens


_PREDICTED = {"prediction", "predicted", "predicted_answer", "model_answer"}  # the agent's, next to the right `answer`
_REPR = re.compile(r"[A-Z]\w*\(\s*\w+=")  # an object as Python shows it: a response that is not JSON


class Pair(NamedTuple):
    """A request with its response. Both are mappings, empty when the record has none."""

    request: Mapping[str, Any]
    response: Mapping[str, Any]
    envelope: Mapping[str, Any]


def pair_of(record: Any, fields: tuple[str, ...] = ("messages",)) -> Pair:
    """Return a record's request and response, whatever their fields are called.

    An answer of which only the text or the message was logged is a response with one choice, which has `said`.

    Args:
        record: a record of a log.
        fields: an object with one of these is a request.
    """
    outer = as_captured(as_dict(record))
    for asked, answered in _ENVELOPES:
        is_elsewhere = asked == "kwargs" and answered not in outer  # there are two names for its answer
        request = None if is_elsewhere else embedded(outer.get(asked))
        inner = embedded(on_the_wire(request)) if isinstance(request, dict) else None
        request = inner if isinstance(inner, dict) else request
        if isinstance(request, dict) and any(name in request for name in fields):
            response = _said(outer.get(answered), outer) or response_body(embedded(outer.get(answered)))
            return Pair(request, response or {"events": stream_events(outer)}, outer)
    if any(isinstance(outer.get(name), list | str) for name in fields):
        is_answered = outer.get("messages") and _PREDICTED.isdisjoint(outer)  # else it is what was to be answered
        answer = first(outer, (*_ANSWERS, "answer") if is_answered else _ANSWERS)
        outputs = as_list(outer.get("outputs"))  # DSPy's
        is_shown = isinstance(answer, str) and _REPR.match(answer) is not None
        answer = outputs[0] if (answer is None or is_shown) and len(outputs) == 1 else answer
        answer = answer[0] if isinstance(answer, list) and len(answer) == 1 and isinstance(answer[0], str) else answer
        said = {} if ends_answered(outer) else _said(answer, outer)
        return Pair(outer, said or response_body(embedded(answer)) or outer, outer)
    return Pair({}, response_body(embedded(outer.get("response"))) or outer, outer)


def ends_answered(record: Mapping[str, Any]) -> bool:
    """Whether a record's messages end with an answer: what is next to them is a copy of it, or a right answer."""
    last = as_dict((as_list(embedded(record.get("messages"))) or [None])[-1])
    return ROLES.get(str(last.get("role"))) == "assistant"


def _said(answer: Any, outer: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the response in an answer's text or message; {} for what an API sent, and for the text of a failure."""
    fields = as_dict(answer)
    speaks = ROLES.get(str(fields.get("role"))) == "assistant" and "type" not in fields
    if speaks and isinstance(fields.get("content"), str | None):
        usage = as_dict(first(outer, USED)) or outer
        return {"usage": usage, **fields, "choices": [{"message": fields}], "said": True}
    status = number(first(outer, ("status_code", "status")))
    if outer.get("error") or (status is not None and status >= _FAILED_HTTP) or not _is_words(answer):
        return {}
    message = {"role": "assistant", "content": answer}
    return {"choices": [{"message": message}], "usage": as_dict(first(outer, USED)) or outer, "said": True}


def _is_words(answer: Any) -> bool:
    """Whether a logged answer is what a model wrote, which may be JSON, and not the text that came over the wire."""
    if not isinstance(answer, str) or not answer.strip() or answer.lstrip().startswith(("data:", "event:")):
        return False
    whole = embedded(answer)
    parts = [whole] if isinstance(whole, dict) else stream_events(answer)
    return not any(
        _API & part.keys() or any(isinstance(part.get(n), dict | list) for n in _API_PARTS) for part in parts
    )


def response_body(response: Any) -> Mapping[str, Any]:
    """Return a response as an object: batch files and proxies wrap it once more, and a stream is a text or a list."""
    if streamed(response):
        return {"events": response}
    fields = as_dict(response)
    inner = embedded(on_the_wire(fields))
    if streamed(inner):
        return {"events": inner}
    return inner if isinstance(inner, dict) else fields


def on_the_wire(message: Mapping[str, Any]) -> Any:
    """Return what went over the wire in an HTTP message, as loggers, VCR's cassettes and HAR files record it."""
    body = first(message, ("body", "body_raw"))  # the second as claude-trace has what was streamed
    if isinstance(written := as_dict(body).get("string"), str):
        return written
    held = as_dict(message.get("postData")) or as_dict(message.get("content"))
    return held["text"] if body is None and {"mimeType", "text"} <= held.keys() else body


def common_payload(pair: Pair, response: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the payload fields that all dialects name alike: sampling, latency, cost.

    Args:
        pair: request and response.
        response: put together, where it was streamed; gateways tell the cost with the tokens.
    """
    request, envelope = pair.request, pair.envelope
    fields: dict[str, Any] = {}
    if sampling := {name: request[name] for name in _SAMPLING & request.keys() if request[name] is not None}:
        fields["sampling"] = sampling
    if (seconds := number(first(envelope, _LATENCY_S))) is not None:
        fields["latency_s"] = seconds
    elif (millis := number(first(envelope, _LATENCY_MS))) is not None:
        fields["latency_s"] = millis / 1000
    places = (envelope, *(as_dict(held.get(name)) for held in (envelope, response or pair.response) for name in USED))
    costs = [cost for place in places if (cost := _amount(first(place, _COST))) is not None]
    if costs:
        fields["cost_usd"] = next(filter(None, costs), costs[0])
    return fields


def _amount(cost: Any) -> float | None:
    """Return a cost, which some APIs split by what was paid for (Perplexity's)."""
    return number(first(cost, ("usd", "total_cost", "total"))) if isinstance(cost, dict) else number(cost)


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
