"""Whose call a LiteLLM record tells of: its session, trace, request and response ids, under all their names.

In: a record. Out: the envelope and the names that other readers' events have, too.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from typing import Any

from flywheel.reading.values import as_dict, embedded, first, ident, picked
from flywheel.stages.ingest.readers.apis._dialects.calls import names

__all__ = ["call_names", "envelope", "own_id"]

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}\Z")
_WRAPPED = "bGl0ZWxsbT"  # litellm: in base64
_SESSION = ("session_id", "conversation_id", "thread_id", "sessionId", "litellm_session_id")
_USER = ("end_user", "user_api_key_end_user_id")
_KEPT = ("response_time", "request_duration_ms", "response_cost", "spend")


def envelope(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return what says whose call it was and when, without what only LiteLLM itself means by its words."""
    metadata = as_dict(embedded(record.get("metadata")))
    own = [as_dict(embedded(metadata.get(name))) for name in ("requester_metadata", "spend_logs_metadata")]
    told = {**own[1], **own[0]}
    trace = ident(record.get("trace_id"))
    session = first(record, _SESSION) or first(told, _SESSION)
    if session == trace or (
        session and "request_id" in record
    ):  # a spend log's session is the trace when there is none
        session, trace = None, ident(session)
    session = session or first(told, _SESSION) or (trace if trace and not _UUID.match(trace) else None)
    user = first(record, _USER) or first(metadata, _USER) or first(told, ("user_id", "user"))
    return {
        "metadata": {**told, "session_id": ident(session), "conversation_id": None, "trace_id": None},
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
    told = inner.rpartition("response_id:")[2]
    return told if inner.startswith("litellm:") and told else named


def call_names(record: Mapping[str, Any], conversation: str) -> list[str]:
    """Return all names of a call: LiteLLM's, the provider's, and the trace, which may be a session."""
    trace = ident(first(record, ("trace_id", "session_id")))
    response = ident(first(as_dict(embedded(record.get("response"))), ("id",)))
    own = ident(first(record, ("id", "request_id")))
    called = names(conversation, request=ident(record.get("litellm_call_id")), trace=trace, session=trace)
    responses = dict.fromkeys((own, response, own_id(response)))
    return called + [f"response:{one}" for one in responses if one and conversation not in (one, f"response:{one}")]
