"""Helicone: rows of its request table, as its export tool and its REST API give them, with the bodies.

A row is one call through the gateway. Its session is in the properties that the client sent; it has columns for ratings
and scores. A row without bodies (an export without --include-body) only shows which ids belong together. Tools that
were logged by hand are calls with results.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from flywheel.reading.events import Event, Source, request, source_of, tool_result
from flywheel.reading.feedback import feedback
from flywheel.reading.messages import arguments, flat_text, result_message
from flywheel.reading.pairs import Pair, response_body
from flywheel.reading.reader import has, reader
from flywheel.reading.status import FAILED
from flywheel.reading.usage import token_counts
from flywheel.reading.values import as_dict, embedded, first, ident, number, text, when
from flywheel.records import EventKind
from flywheel.stages.ingest.readers.apis._dialects.calls import call_events, names
from flywheel.stages.ingest.readers.apis._dialects.gateways import GATEWAY_CHAT, dialect_of
from flywheel.stages.ingest.readers.apis._dialects.responses import RESPONSES

_FIELDS = {"request_id", "request_created_at", "response_created_at", "response_status"}
_OWN = {"request_body", "request_properties", "properties", "signed_body_url", "request_path"}
_SESSION = "helicone-session-id"
_COST = ("cost", "costUSD", "cost_usd")
_ERROR = 400  # HTTP statuses from here on are failures


def _read(record: Any, line: int) -> Iterator[Event]:
    """Yield the events of one call, and its ratings and scores."""
    bodies = as_dict(embedded(record.get("signed_body_content")))
    asked = as_dict(embedded(first(bodies, ("request",)) or record.get("request_body")))
    answered = embedded(first(bodies, ("response",)) or record.get("response_body"))
    events = list(_call(Pair(asked, response_body(answered), _envelope(record)), record, line))
    yield from events
    yield from _ratings(record, events)


def _is_row(record: Any) -> bool:
    return as_dict(record).keys() >= _FIELDS and len(_OWN & record.keys()) > 1


def _properties(record: Mapping[str, Any]) -> dict[str, Any]:
    fields = {**as_dict(embedded(record.get("properties"))), **as_dict(embedded(record.get("request_properties")))}
    return fields | {str(name).lower(): value for name, value in fields.items()}


def _envelope(record: Mapping[str, Any]) -> dict[str, Any]:
    properties = _properties(record)
    delay = number(record.get("delay_ms"))
    return {
        "metadata": {**properties, "session_id": properties.get(_SESSION) or properties.get("session_id")},
        "user": first(record, ("request_user_id", "helicone_user")),
        "request_id": record.get("request_id"),
        "start_time": record.get("request_created_at"),
        "model": first(record, ("response_model", "model", "request_model")),
        "cost_usd": first(record, _COST),
        "latency_ms": delay,
    }


def _call(pair: Pair, record: Mapping[str, Any], line: int) -> Iterator[Event]:
    if pair.request.get("_type") == "tool":
        yield from _tool(pair, record)
        return
    dialect = dialect_of(pair.response)
    if dialect is None and {"messages", "prompt"} & set(pair.request):
        dialect = GATEWAY_CHAT
    elif dialect is None and "input" in pair.request and "/responses" in str(record.get("request_path")):
        dialect = RESPONSES
    if dialect is None:
        yield request([], _source(pair), 0, {"tags": ["content_missing"]})
        return
    counts = token_counts(record)
    for event in call_events(pair, dialect, line):
        if event["kind"] == EventKind.MODEL_CALL and "#" not in str(event["payload"].get("response_id")):
            event["payload"] = {name: n for name, n in counts.items() if n} | event["payload"]
        yield event


def _source(pair: Pair) -> Source:
    """Return the columns of a row that has no messages to be named by."""
    source = source_of(pair.envelope["metadata"], pair.envelope)
    own = ident(pair.envelope.get("request_id"))
    source["conversation_id"] = source["conversation_id"] or f"request:{own}"
    return source | {"ids": names(source["conversation_id"], request=own)}


def _tool(pair: Pair, record: Mapping[str, Any]) -> Iterator[Event]:
    """Yield a tool call that the application logged itself."""
    name = text(pair.request.get("toolName")) or text(pair.request.get("name"))
    if name is None:
        return
    source = {**_source(pair), "span_id": ident(record.get("request_id")), "tool_name": name}
    inputs = pair.request.get("input")
    payload = arguments(inputs if isinstance(inputs, dict | str) or inputs is None else {"input": inputs})
    yield {**source, "kind": EventKind.TOOL_CALL, "seq": 0, "payload": payload}
    fields = {key: value for key, value in pair.response.items() if key not in ("_type", "toolName")}
    failed = (number(record.get("response_status")) or 0) >= _ERROR
    content = flat_text(fields) if fields else None
    message = result_message(content, {"name": name}, status=FAILED if failed else None)
    yield tool_result(message, {**source, "ts": when(record.get("response_created_at"))}, 1)


def _ratings(record: Mapping[str, Any], events: list[Event]) -> Iterator[Event]:
    """Yield the rating and the scores of a call; a score of 0 or 1 may have been true or false."""
    if not events:
        return
    own = events[-1]
    aim = {"target": "response", "target_id": ident(record.get("request_id"))}
    source = {name: own.get(name) for name in ("conversation_id", "user", "policy", "task_key", "model")}
    rated = record.get("feedback_rating")
    if isinstance(rated, bool):
        payload = {"name": "thumbs", "value": float(rated), "annotator": "human", **aim}
        yield feedback(source, payload, ts=when(record.get("feedback_created_at")))
    for name, value in as_dict(embedded(record.get("scores"))).items():
        score = number(as_dict(value).get("value") if isinstance(value, dict) else value)
        if score is not None and name != "helicone-score-feedback":
            payload = {"name": str(name), "value": score, "annotator": "code", **aim}
            yield feedback(source, payload, ts=None)


READER = reader("helicone", 6, "exported requests of Helicone", marks=_is_row, needs=has("request_id"), read=_read)
