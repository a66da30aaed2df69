"""LiteLLM: its standard logging payload (S3, GCS, callbacks) and the rows of its table LiteLLM_SpendLogs.

One record is one call. Its conversation is the session that the client named. LiteLLM writes that session into the
trace id too, but makes up a UUID for each call that has none: such a trace only becomes another name of the call, and
the conversation is named by how it begins. Content that was not stored, or was redacted, is not made up: the
record then only shows which ids belong together.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from flywheel.reading.events import Event, Source, request, source_of, tool_result
from flywheel.reading.messages import LITELLM_REDACTED, arguments, flat_text, result_message
from flywheel.reading.pairs import Pair
from flywheel.reading.reader import has, reader
from flywheel.reading.status import FAILED, OK
from flywheel.reading.usage import token_counts
from flywheel.reading.values import as_dict, as_list, embedded, first, ident, number, picked, present, text
from flywheel.records import EventKind
from flywheel.stages.ingest.readers.apis._dialects.calls import Dialect, call_events, names
from flywheel.stages.ingest.readers.apis._dialects.gateways import GATEWAY_CHAT, dialect_of
from flywheel.stages.ingest.readers.apis._dialects.responses import RESPONSES

_CUT = "litellm_truncated"
_TALKS = ("completion", "responses", "anthropic_messages")
_TOOL = "call_mcp_tool"
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}\Z")
_WRAPPED = "bGl0ZWxsbT"  # litellm: in base64
_SESSION = ("session_id", "conversation_id", "thread_id", "sessionId", "litellm_session_id")
_USER = ("end_user", "user_api_key_end_user_id")
_KEPT = ("response_time", "request_duration_ms", "response_cost", "spend")


def _read(record: Any, line: int) -> Iterator[Event]:
    """Yield the events of one call; calls of other kinds (embeddings, images) have none."""
    kind = str(record["call_type"])
    pair = _pair(record)
    if kind == _TOOL:
        yield from _tool(record, pair)
        return
    dialect = _dialect(kind, pair.response)
    if dialect is None:
        return
    if tag := _missing(record, pair):
        yield request([], _source(record, pair), 0, {"tags": [tag]})
        return
    yield from _completed(list(call_events(pair, dialect, line)), record)


def _is_call(record: Any) -> bool:
    known = set(as_dict(record))
    return "call_type" in known and bool(
        known >= {"litellm_call_id", "model_parameters"}
        or known >= {"response_cost", "model_map_information"}
        or known >= {"request_id", "startTime", "api_key"}
    )


def _pair(record: Mapping[str, Any]) -> Pair:
    """Return the call as a request, a response and an envelope in the usual words."""
    sent = as_dict(embedded(record.get("proxy_server_request")))
    asked = dict(as_dict(sent.get("body")) or sent)
    if not {"messages", "input", "prompt"} & set(asked):
        asked = _request(record)
    response = dict(as_dict(embedded(record.get("response"))))
    for place, name in ((asked, "previous_response_id"), (response, "previous_response_id"), (response, "id")):
        if place.get(name):
            place[name] = own_id(place[name])
    asked.setdefault("model", record.get("model"))
    return Pair(asked, response, envelope(record))


def _request(record: Mapping[str, Any]) -> dict[str, Any]:
    value = embedded(record.get("messages"))
    if isinstance(value, dict):
        held = first(value, ("messages", "input"))
        value = held if held is not None else [value] if "role" in value else []
    turns = [{"role": "user", "content": value}] if isinstance(value, str) and value else as_list(value)
    return {**as_dict(embedded(record.get("model_parameters"))), "messages": turns, "input": turns}


def _dialect(kind: str, response: Mapping[str, Any]) -> Dialect | None:
    dialect = dialect_of(response)
    if dialect is None and any(word in kind for word in _TALKS):
        return RESPONSES if "responses" in kind else GATEWAY_CHAT
    return dialect


def _holds(value: Any, mark: str) -> bool:
    """Whether a text anywhere inside has the mark, which JSON writes as it is; hardly any record has it."""
    try:
        return mark.encode() in orjson.dumps(value) and _contains(value, mark)
    except TypeError:  # an integer beyond 64 bits
        return _contains(value, mark)


def _contains(value: Any, mark: str) -> bool:
    if isinstance(value, str):
        return mark in value
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return any(_contains(item, mark) for item in inner)


def _missing(record: Mapping[str, Any], pair: Pair) -> str | None:
    """Return why a call's content cannot be used, as a tag."""
    items = [record.get(name) for name in ("messages", "response", "proxy_server_request")]
    if _holds(items, LITELLM_REDACTED):
        return "redacted"
    asked = pair.request.get("messages") or pair.request.get("input") or pair.request.get("prompt")
    return None if asked or pair.response else "content_missing"


def _completed(events: list[Event], record: Mapping[str, Any]) -> Iterator[Event]:
    """Yield the events with the record's token counts, tags and names."""
    counts = token_counts(record)
    tags = ["truncated"] if _holds(record, _CUT) else []
    last = max((n for n, e in enumerate(events) if e["kind"] == EventKind.MODEL_CALL), default=-1)
    for position, event in enumerate(events):
        payload = event["payload"]
        if position == last:
            payload = {name: value for name, value in counts.items() if value} | payload
        if tags:
            payload = {**payload, "tags": [*payload.get("tags", ()), *tags]}
        yield {**event, "payload": payload, "ids": call_names(record, event["conversation_id"])}


def _source(record: Mapping[str, Any], pair: Pair) -> Source:
    """Return the columns of a call that has no messages to be named by."""
    source = source_of(pair.envelope["metadata"], pair.envelope, pair.request)
    named = ident(first(record, ("trace_id", "session_id", "litellm_call_id", "id", "request_id")))
    source["conversation_id"] = source["conversation_id"] or named or "litellm"
    source["ids"] = call_names(record, source["conversation_id"])
    return source


def _tool(record: Mapping[str, Any], pair: Pair) -> Iterator[Event]:
    """Yield a tool call that went through the gateway, and how it ended."""
    fields = as_dict(as_dict(embedded(record.get("metadata"))).get("mcp_tool_call_metadata"))
    name = text(fields.get("name")) or text(fields.get("namespaced_tool_name"))
    if name is None:
        return
    own = ident(first(record, ("litellm_call_id", "id", "request_id")))
    source = {**_source(record, pair), "span_id": own, "tool_name": name}
    yield {**source, "kind": EventKind.TOOL_CALL, "seq": 0, "payload": arguments(fields.get("arguments"))}
    result = as_dict(embedded(first(fields, ("result",)) or record.get("response")))
    content = flat_text(first(result, ("content", "structuredContent", "structured_content")))
    failed = record.get("status") == "failure"
    flag = first(result, ("isError", "is_error"))
    status = FAILED if failed or flag is True else OK if flag is False else None
    message = result_message(content or text(record.get("error_str")), {"name": name}, status=status)
    event = tool_result(message, source | {"parent_id": own}, 1)
    yield {
        **event,
        "payload": event["payload"]
        | present(
            latency_s=number(record.get("response_time")),
        ),
    }


def envelope(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return whose call it was and when, under the names that `source_of` knows; LiteLLM's own meanings left out."""
    metadata = as_dict(embedded(record.get("metadata")))
    own = [as_dict(embedded(metadata.get(name))) for name in ("requester_metadata", "spend_logs_metadata")]
    fields = {**own[1], **own[0]}
    trace = ident(record.get("trace_id"))
    session = first(record, _SESSION) or first(fields, _SESSION)
    if session == trace or (
        session and "request_id" in record
    ):  # a spend log's session is the trace when there is none
        session, trace = None, ident(session)
    session = session or first(fields, _SESSION) or (trace if trace and not _UUID.match(trace) else None)
    user = first(record, _USER) or first(metadata, _USER) or first(fields, ("user_id", "user"))
    return {
        "metadata": {**fields, "session_id": ident(session), "conversation_id": None, "trace_id": None},
        "user": user,
        "request_id": record.get("litellm_call_id"),
        "start_time": record.get("startTime"),
        **picked(record, _KEPT),
    }


def own_id(value: Any) -> str | None:
    """Return a response's own id: LiteLLM wraps it together with the deployment that answered."""
    named = ident(value) or ""
    if not named.removeprefix("resp_").startswith(_WRAPPED):
        return named or None
    try:
        inner = base64.b64decode(named.removeprefix("resp_"), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError, ValueError):
        return named or None
    response_id = inner.rpartition("response_id:")[2]
    return response_id if inner.startswith("litellm:") and response_id else named


def call_names(record: Mapping[str, Any], conversation: str) -> list[str]:
    """Return all names of a call: LiteLLM's, the provider's, and the trace, which may be a session."""
    trace = ident(first(record, ("trace_id", "session_id")))
    response = ident(first(as_dict(embedded(record.get("response"))), ("id",)))
    own = ident(first(record, ("id", "request_id")))
    called = names(conversation, request=ident(record.get("litellm_call_id")), trace=trace, session=trace)
    responses = dict.fromkeys((own, response, own_id(response)))
    return called + [f"response:{one}" for one in responses if one and conversation not in (one, f"response:{one}")]


READER = reader(
    "litellm", 7, "LiteLLM's logging payloads and spend logs", marks=_is_call, needs=has("call_type"), read=_read
)
