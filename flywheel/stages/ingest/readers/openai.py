"""OpenAI Chat Completions: logged request/response pairs, batch output, and plain chat transcripts.

A pair gives one model call with its full input. A transcript ({"messages": [...]}, as in fine-tuning files) gives
requests, model calls and tool results. A response without a request has no prompt and gives nothing.
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
from flywheel.stages.ingest.readers._pairs import Pair, common_payload, pair_of, sampled, share
from flywheel.stages.ingest.readers._values import as_dict, as_list, embedded, ident, text, token_ids, whole

__all__ = ["READER", "OpenAIReader"]

_BLOCKS = ("tool_use", "tool_result", "thinking")


class OpenAIReader:
    """Reads Chat Completions logs."""

    name = "openai"
    version = 1

    def sniff(self, sample: Sample) -> float:
        """Pairs are certain; plain transcripts might be part of something that a more special reader knows."""
        return max(
            0.95 * share(sample.records, _is_pair),
            0.9 * share(sample.records, _is_response),
            0.6 * share(sample.records, _is_transcript),
        )

    def read(self, record: Any, line: int) -> Iterator[Event]:  # noqa: ARG002 - the protocol's signature
        """Yield the events of one pair or transcript."""
        if not isinstance(record, dict):
            raise BadRecordError("bad_record", "no JSON object")
        pair = pair_of(record)
        if not pair.request:
            return
        if _choices(pair.response):
            yield from _call(pair)
        elif pair.request is pair.envelope and not _failed(record):
            yield from _transcript(record)
        else:
            yield from _unanswered(pair)


def _choices(response: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [c for c in as_list(response.get("choices")) if isinstance(c, dict) and isinstance(c.get("message"), dict)]


def _failed(record: Mapping[str, Any]) -> bool:
    return bool(record.get("error")) or "response" in record


def _is_pair(record: Any) -> bool:
    pair = pair_of(record)
    return bool(pair.request) and isinstance(pair.response.get("choices"), list)


def _is_response(record: Any) -> bool:
    response = pair_of(record).response
    known = response.get("object") in ("chat.completion", "chat.completion.chunk")
    return known or ("custom_id" in as_dict(record) and "/chat/completions" in str(as_dict(record).get("url")))


def _is_transcript(record: Any) -> bool:
    found = as_list(as_dict(record).get("messages"))
    if not found or not all(isinstance(m, dict) and isinstance(m.get("role"), str) for m in found):
        return False
    parts = (p for m in found for p in as_list(m.get("content")))
    return not any(as_dict(p).get("type") in _BLOCKS for p in parts)


def _source(pair: Pair, history: list[Message], places: tuple[Mapping[str, Any], ...]) -> Source:
    source = source_of(*places)
    if source["conversation_id"] is None:
        source["conversation_id"] = conversation_of(history, source["user"])
    source["model"] = text(pair.response.get("model")) or source["model"]
    return source


def _call(pair: Pair) -> Iterator[Event]:
    history = messages(pair.request.get("messages"))
    metadata = as_dict(embedded(pair.request.get("metadata")))
    outer_metadata = as_dict(embedded(pair.envelope.get("metadata")))
    source = _source(pair, history, (metadata, outer_metadata, pair.envelope, pair.request, pair.response))
    response_id = ident(pair.response.get("id"))
    yield {**source, "kind": EventKind.MODEL_CALL, "seq": len(history), "payload": _payload(pair, history, response_id)}
    yield from judgements(pair.envelope, source, response_id)


def _payload(pair: Pair, history: list[Message], response_id: str | None) -> dict[str, Any]:
    choices = _choices(pair.response)
    chosen, others = choices[0], choices[1:]
    usage = as_dict(pair.response.get("usage"))
    found = {
        "message": messages([{**chosen["message"], "role": "assistant"}])[0],
        "input": history,
        "tools": tool_schemas(pair.request.get("tools") or pair.request.get("functions")),
        "response_id": response_id,
        "input_tokens": whole(usage.get("prompt_tokens")),
        "output_tokens": whole(usage.get("completion_tokens")),
        "prompt_token_ids": token_ids(pair.response.get("prompt_token_ids")),
        "other_choices": [messages([{**c["message"], "role": "assistant"}])[0] for c in others] or None,
    }
    told = {name: value for name, value in found.items() if value is not None}
    return sampled(chosen) | told | common_payload(pair)


def _transcript(record: Mapping[str, Any]) -> Iterator[Event]:
    """A transcript is one attempt: the same words twice are the same attempt, any other words another one."""
    history = messages(record["messages"])
    metadata = as_dict(embedded(record.get("metadata")))
    source = source_of(metadata, record)
    if source["conversation_id"] is None:
        source["conversation_id"] = "chat-" + content_id("transcript", history, source["user"], source["task_key"])
    extra = {"tools": tool_schemas(record.get("tools") or record.get("functions"))}
    yield from spoken(history, source, {k: v for k, v in extra.items() if v is not None})
    yield from judgements(record, source, None)


def _unanswered(pair: Pair) -> Iterator[Event]:
    """A call that failed: what the agent was asked is known, an answer is not."""
    history = messages(pair.request.get("messages"))
    metadata = as_dict(embedded(pair.request.get("metadata")))
    source = _source(pair, history, (metadata, as_dict(pair.envelope.get("metadata")), pair.envelope, pair.request))
    tools = tool_schemas(pair.request.get("tools"))
    yield request(history, source, len(history), {"tags": ["call_failed"]} | ({"tools": tools} if tools else {}))


READER = OpenAIReader()
