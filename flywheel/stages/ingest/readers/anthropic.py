"""Anthropic Messages: logged request/response pairs, and transcripts made of content blocks.

The system prompt stands beside the messages, tool results stand inside user messages, an assistant message that ends
the request is the beginning of the answer, and the usage counts cached tokens apart: all of it is put in normal form.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from flywheel.extensions import BadRecordError, Sample
from flywheel.records import EventKind, content_id
from flywheel.stages.ingest.readers._events import (
    Event,
    Source,
    conversation_of,
    judgements,
    request,
    source_of,
    spoken,
)
from flywheel.stages.ingest.readers._messages import Message, messages, tool_schemas
from flywheel.stages.ingest.readers._pairs import Pair, common_payload, pair_of, share
from flywheel.stages.ingest.readers._values import as_dict, as_list, embedded, ident, text, whole

__all__ = ["READER", "AnthropicReader"]

_BLOCKS = ("text", "thinking", "redacted_thinking", "tool_use", "tool_result", "server_tool_use")
_TELLING = ("tool_use", "tool_result", "thinking", "redacted_thinking")
_CACHED = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")


class AnthropicReader:
    """Reads Messages API logs."""

    name = "anthropic"
    version = 1

    def sniff(self, sample: Sample) -> float:
        """Pairs are certain; transcripts are when a block says so that only this API has."""
        return max(
            0.95 * share(sample.records, _is_pair),
            0.9 * share(sample.records, _is_response),
            0.7 * share(sample.records, _is_transcript),
        )

    def read(self, record: Any, line: int) -> Iterator[Event]:  # noqa: ARG002 - the protocol's signature
        """Yield the events of one pair or transcript."""
        if not isinstance(record, dict):
            raise BadRecordError("bad_record", "no JSON object")
        pair = pair_of(record)
        if not pair.request:
            return
        if _is_message(pair.response):
            yield from _call(pair)
        elif pair.request is pair.envelope and not record.get("error"):
            yield from _transcript(record)
        else:
            history = _history(pair.request)
            tools = tool_schemas(pair.request.get("tools"))
            extra = {"tags": ["call_failed"]} | ({"tools": tools} if tools else {})
            yield request(history, _source(pair, history), len(history), extra)


def _is_message(response: Mapping[str, Any]) -> bool:
    content = response.get("content")
    blocks = isinstance(content, list) and all(as_dict(b).get("type") in _BLOCKS for b in content)
    named = response.get("type") == "message" or "stop_reason" in response
    return blocks and (named or response.get("role") == "assistant")


def _is_pair(record: Any) -> bool:
    pair = pair_of(record)
    return bool(pair.request) and _is_message(pair.response)


def _is_response(record: Any) -> bool:
    outer = as_dict(record)
    batch = as_dict(as_dict(outer.get("result")).get("message"))
    return _is_message(outer) or ("custom_id" in outer and _is_message(batch))


def _is_transcript(record: Any) -> bool:
    outer = as_dict(record)
    found = as_list(outer.get("messages"))
    if not found or not all(as_dict(m).get("role") in ("user", "assistant") for m in found):
        return False
    parts = (p for m in found for p in as_list(m.get("content")))
    return "system" in outer or any(as_dict(p).get("type") in _TELLING for p in parts)


def _history(asked: Mapping[str, Any]) -> list[Message]:
    system = asked.get("system")
    first = [{"role": "system", "content": system}] if system else []
    return messages([*first, *as_list(embedded(asked.get("messages")))])


def _source(pair: Pair, history: list[Message]) -> Source:
    metadata = as_dict(embedded(pair.request.get("metadata")))
    outer_metadata = as_dict(embedded(pair.envelope.get("metadata")))
    source = source_of(metadata, outer_metadata, pair.envelope, pair.request, pair.response)
    if source["conversation_id"] is None:
        source["conversation_id"] = conversation_of(history, source["user"])
    source["model"] = text(pair.response.get("model")) or source["model"]
    return source


def _call(pair: Pair) -> Iterator[Event]:
    history = _history(pair.request)
    content = list(pair.response["content"])
    if history and history[-1]["role"] == "assistant" and not history[-1].get("tool_calls"):
        content = [{"type": "text", "text": history.pop().get("content") or ""}, *content]  # a prefilled answer
    source = _source(pair, history)
    usage = as_dict(pair.response.get("usage"))
    counts = [n for n in (whole(usage.get(name)) for name in _CACHED) if n is not None]
    answer = messages([{"role": "assistant", "content": _merged(content)}])
    found = {
        "message": answer[-1],
        "input": history,
        "tools": tool_schemas(pair.request.get("tools")),
        "response_id": ident(pair.response.get("id")),
        "finish_reason": text(pair.response.get("stop_reason")),
        "input_tokens": sum(counts) if counts else None,
        "output_tokens": whole(usage.get("output_tokens")),
    }
    payload = {name: value for name, value in found.items() if value is not None} | common_payload(pair)
    yield {**source, "kind": EventKind.MODEL_CALL, "seq": len(history), "payload": payload}
    yield from judgements(pair.envelope, source, payload.get("response_id"))


def _merged(content: list[Any]) -> list[Any]:
    """Join neighbouring texts: a prefill and its continuation are one sentence."""
    merged: list[Any] = []
    for block in content:
        before = as_dict(merged[-1]) if merged else {}
        if as_dict(block).get("type") == "text" == before.get("type"):
            merged[-1] = {"type": "text", "text": f"{before.get('text') or ''}{block.get('text') or ''}"}
        else:
            merged.append(block)
    return merged


def _transcript(record: Mapping[str, Any]) -> Iterator[Event]:
    history = _history(record)
    source = source_of(as_dict(embedded(record.get("metadata"))), record)
    if source["conversation_id"] is None:
        source["conversation_id"] = "chat-" + content_id("transcript", history, source["user"], source["task_key"])
    tools = tool_schemas(record.get("tools"))
    yield from spoken(history, source, {"tools": tools} if tools else {})
    yield from judgements(record, source, None)


READER = AnthropicReader()
