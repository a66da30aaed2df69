"""The spans of agent-lightning 0.x, one a record: GenAI attributes as AgentOps writes them, and rewards.

A reward's link says in attributes which span it means. In: a record of one span. Out: its events.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from flywheel.reading.events import Event, Source
from flywheel.reading.values import (
    as_dict,
    as_list,
    embedded,
    first,
    hex_id,
    ident,
    number,
    present,
    text,
    token_ids,
    when,
    whole,
)
from flywheel.records import EventKind
from flywheel.stages.ingest.readers.apis.openai import READER as CHAT
from flywheel.stages.ingest.readers.tracers._otel.attributes import nested
from flywheel.stages.ingest.readers.tracers.otel import READER as OTEL

__all__ = ["span_events"]

_REWARD, _LINK, _OPERATION = "agentlightning.reward", "agentlightning.link", "agentlightning.operation"
_REWARD_SPANS = ("agentlightning.annotation", _REWARD)
_AGENTOPS_OUTPUTS = ("agentops.task.output", "agentops.entity.output")
_LINKED = {"gen_ai.response.id": "response", "span_id": "span", "trace_id": "trace"}


def span_events(span: Mapping[str, Any], conversation: str, line: int) -> Iterator[Event]:
    """Yield the events of one span."""
    attributes = as_dict(span.get("attributes"))
    rewards = list(_rewards(span, attributes))
    source: Source = {
        "conversation_id": conversation,
        "seq": whole(span.get("sequence_id")) or 0,
        "ts": when(span.get("start_time")),
        "span_id": hex_id(span.get("span_id")),
        "parent_id": hex_id(span.get("parent_id")),
    }
    source["ids"] = list(_names(span, source, attributes))
    if rewards:
        yield from _outcomes(rewards, source, attributes)
    elif nested(attributes, f"{_OPERATION}.output.choices"):
        yield from _operation(source, attributes, line)
    else:
        for event in OTEL.read(_envelope(span, attributes), line):
            own = {**event, **source, "ts": event["ts"]}
            yield _with_tokens(own, attributes) if event["kind"] == EventKind.MODEL_CALL else own


def _names(span: Mapping[str, Any], source: Source, attributes: Mapping[str, Any]) -> Iterator[str]:
    yield f"session:{ident(span.get('rollout_id'))}"
    found = {
        "trace": hex_id(span.get("trace_id")),
        "span": source["span_id"],
        "response": ident(first(attributes, ("gen_ai.response.id", f"{_OPERATION}.output.id"))),
    }
    yield from (f"{kind}:{name}" for kind, name in found.items() if name)


def _envelope(span: Mapping[str, Any], attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the span as OTLP has it."""
    happened = [
        {"name": e.get("name"), "timeUnixNano": e.get("timestamp"), "attributes": as_dict(e.get("attributes"))}
        for e in map(as_dict, as_list(span.get("events")))
    ]
    told = {
        "traceId": span.get("trace_id"),
        "spanId": span.get("span_id"),
        "parentSpanId": span.get("parent_id"),
        "name": span.get("name"),
        "startTimeUnixNano": span.get("start_time"),
        "endTimeUnixNano": span.get("end_time"),
        "status": {"code": as_dict(span.get("status")).get("status_code")},
        "attributes": attributes,
        "events": happened,
    }
    resource = {"attributes": as_dict(as_dict(span.get("resource")).get("attributes"))}
    return {"resourceSpans": [{"resource": resource, "scopeSpans": [{"spans": [told]}]}]}


def _with_tokens(event: Event, attributes: Mapping[str, Any]) -> Event:
    logged = embedded(attributes.get("logprobs.content"))
    found = {
        "prompt_token_ids": token_ids(attributes.get("prompt_token_ids")),
        "completion_token_ids": token_ids(attributes.get("response_token_ids")),
        "completion_logprobs": [number(as_dict(t).get("logprob")) for t in as_list(logged)] or None,
        "finish_reason": text(attributes.get("gen_ai.completion.0.finish_reason")),
    }
    return event | {"payload": event["payload"] | present(found)}


def _operation(source: Source, attributes: Mapping[str, Any], line: int) -> Iterator[Event]:
    """What the Weave tracer writes: arguments and result of the client's call, flattened."""
    asked, answered = nested(attributes, f"{_OPERATION}.input"), nested(attributes, f"{_OPERATION}.output")
    for event in CHAT.read({"request": as_dict(asked), "response": as_dict(answered)}, line):
        yield {**event, **source}


def _rewards(span: Mapping[str, Any], attributes: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Yield the rewards of a span, in the words of 0.3, of 0.2, and of AgentOps; the first is the primary one."""
    for position, told in enumerate(as_list(nested(attributes, _REWARD))):
        value = number(as_dict(told).get("value"))
        if value is not None:
            yield text(as_dict(told).get("name")) or f"reward {position}", value
    old = first(attributes, (_REWARD, "reward")) if span.get("name") in _REWARD_SPANS else None
    output = as_dict(embedded(first(attributes, _AGENTOPS_OUTPUTS)))
    value = number(old if old is not None else output.get("value") if output.get("type") == "reward" else None)
    if value is not None:
        yield "primary", value


def _outcomes(rewards: list[tuple[str, float]], source: Source, attributes: Mapping[str, Any]) -> Iterator[Event]:
    links = {
        _LINKED[key]: ident(as_dict(link).get("value_match"))
        for link in as_list(nested(attributes, _LINK))
        if (key := text(as_dict(link).get("key_match"))) in _LINKED
    }
    kind, aim = next(((k, links[k]) for k in ("response", "span", "trace") if links.get(k)), (None, None))
    target = {"target": f"{kind}:{aim}"} if aim else {}
    meant = {"target": "call" if kind == "span" else kind, "target_id": aim} if aim else {}
    shared = {name: item for name, item in source.items() if name != "ids"}
    for name, value in rewards:
        payload = {"name": name, "value": value, "source": "recorded", **meant}
        yield {**shared, **target, "kind": EventKind.OUTCOME, "payload": payload}
