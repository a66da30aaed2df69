"""TensorZero tables dumped as rows, or as its API lists them: inferences, model inferences and the four feedbacks.

In: rows whose nested fields are JSON in texts (tables) or objects (API). Out: an inference is a call in its episode's
conversation; what was sent to the provider (`ModelInference`) is a piece of the same call that adds tokens and model.
A feedback names an inference or an episode without saying which: inferences answer to both names. A boolean metric is
an outcome; a float one is only kept, because its range and direction are in tensorzero.toml. Ids hold their time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from flywheel.extensions import BadRecordError
from flywheel.reading.events import Event, Source
from flywheel.reading.messages import Message, flat_text, messages, tool_schemas
from flywheel.reading.pairs import Pair, common_payload
from flywheel.reading.reader import reader
from flywheel.reading.usage import token_counts
from flywheel.reading.values import as_dict, as_list, embedded, first, ident, number, present, text, when
from flywheel.records import EventKind, canonical_json

_INFERENCE = {"function_name", "variant_name", "episode_id"}
_MODEL = {"inference_id", "raw_request", "raw_response"}
_METRIC = {"target_id", "metric_name", "value"}
_BOOLEANS = {"true": True, "false": False}  # as a table has them
_COMMENT = {"target_id", "target_type", "value"}
_DEMONSTRATION = {"id", "inference_id", "value"}
_KINDS = (_INFERENCE, _MODEL, _METRIC, _COMMENT, _DEMONSTRATION)
_UUID7 = 7


def _read(record: Any, line: int) -> Iterator[Event]:
    """Yield the events of one row."""
    fields = set(record)
    if fields >= _INFERENCE:
        yield from _inference(record, line)
    elif fields >= _MODEL:
        yield from _model_inference(record, line)
    else:
        yield from _feedback(record, line)


def _is_row(record: Any) -> bool:
    return any(as_dict(record).keys() >= kind for kind in _KINDS)


def _time(row: Mapping[str, Any], name: str | None) -> datetime | None:
    """Return a row's time: its own field, else the one that its id was made of."""
    logged = when(first(row, ("timestamp", "created_at")))
    if logged is not None or name is None:
        return logged
    try:
        uuid = UUID(name)
    except ValueError:
        return None
    return when(uuid.int >> 80) if uuid.version == _UUID7 else None


def _inference(row: Mapping[str, Any], line: int) -> Iterator[Event]:
    name, episode = ident(first(row, ("inference_id", "id"))), ident(row.get("episode_id"))
    if name is None or episode is None:
        raise BadRecordError("bad_record", "an inference without its id or episode")
    tags = as_dict(embedded(row.get("tags")))
    source: Source = {
        "conversation_id": episode,
        "policy": "/".join(t for t in (text(row.get("function_name")), text(row.get("variant_name"))) if t) or None,
        "task_key": ident(tags.get("tensorzero::datapoint_id")),
        "user": ident(tags.get("user_id")),
        "ts": _time(row, name),
        "span_id": name,
        "ids": [f"trace:{name}", f"response:{name}"],
    }
    params = as_dict(as_dict(embedded(row.get("inference_params"))).get("chat_completion"))
    offered = as_dict(embedded(row.get("tool_params"))).get("tools_available")
    payload = {"response_id": name, "fragment": "block"} | present(
        input=_history(as_dict(embedded(row.get("input")))) or None,
        message=_output(embedded(row.get("output"))),
        tools=tool_schemas([*as_list(offered), *as_list(first(row, ("additional_tools", "dynamic_tools")))]),
        latency_s=_seconds(row.get("processing_time_ms")),
    )
    payload |= common_payload(Pair(params, {}, {}))
    yield {**source, "kind": EventKind.MODEL_CALL, "seq": line, "payload": payload}


def _seconds(millis: Any) -> float | None:
    amount = number(millis)
    return amount / 1000 if amount is not None else None


def _history(fields: Mapping[str, Any]) -> list[Message]:
    system = fields.get("system")
    rules = [{"role": "system", "content": _words(system)}] if system else []
    turns = [
        {**as_dict(turn), "content": _blocks(as_dict(turn).get("content"))} for turn in as_list(fields.get("messages"))
    ]
    return messages([*rules, *turns])


def _words(value: Any) -> str:
    """Return a text; a template's arguments, whose text is made later, become JSON."""
    return value if isinstance(value, str) else canonical_json(value)


def _blocks(content: Any) -> Any:
    """Return content whose blocks say what they hold in the usual places."""
    return [_block(as_dict(block)) for block in content] if isinstance(content, list) else content


def _block(block: Mapping[str, Any]) -> Mapping[str, Any]:
    kind = block.get("type")
    if kind in ("text", "raw_text", "template"):
        return {"type": "text", "text": _words(first(block, ("text", "value", "arguments")) or "")}
    if kind == "thought":
        return {"type": "thinking", "thinking": text(block.get("text")) or ""}
    if kind == "tool_call":
        names = {"name": first(block, ("name", "raw_name")), "arguments": first(block, ("arguments", "raw_arguments"))}
        return {**block, **names}
    return block


def _output(value: Any) -> Message:
    """Return what was generated: blocks, or of a JSON function the raw text."""
    content = _blocks(value) if isinstance(value, list) else text(as_dict(value).get("raw")) or flat_text(value)
    return messages([{"role": "assistant", "content": content}])[-1]


def _model_inference(row: Mapping[str, Any], line: int) -> Iterator[Event]:
    """Yield what a provider's answer adds to its inference, as a piece without words."""
    target, name = ident(row.get("inference_id")), ident(row.get("id"))
    if target is None:
        raise BadRecordError("bad_record", "a model inference without its inference")
    counts = present(
        **token_counts(row),
        cost_usd=number(row.get("cost")),
        finish_reason=text(row.get("finish_reason")),
    )
    payload = {"message": {"role": "assistant"}, "response_id": target, "fragment": "block", **counts}
    source = {"conversation_id": target, "model": text(row.get("model_name")), "ts": _time(row, name), "span_id": name}
    yield {**source, "kind": EventKind.MODEL_CALL, "seq": line, "payload": payload}


def _feedback(row: Mapping[str, Any], line: int) -> Iterator[Event]:
    name, target = ident(row.get("id")), ident(first(row, ("target_id", "inference_id")))
    if target is None:
        raise BadRecordError("bad_record", "a feedback without a target")
    kind, payload = _judgement(row)
    aim = f"trace:{target}"
    yield {
        "conversation_id": aim, "target": aim, "ts": _time(row, name), "span_id": name, "kind": kind, "seq": line,
        "payload": {**payload, "target_id": target},
    }  # fmt: skip


def _judgement(row: Mapping[str, Any]) -> tuple[EventKind, dict[str, Any]]:
    value, metric = row.get("value"), text(row.get("metric_name"))
    value = _BOOLEANS.get(value, value) if metric and isinstance(value, str) else value
    if metric and isinstance(value, bool):
        return EventKind.OUTCOME, {"name": metric, "value": float(value), "scale": [0, 1], "source": "callback"}
    if metric:
        return EventKind.FEEDBACK, {"name": metric, "value": number(value)}
    if row.get("inference_id"):
        message = _output(embedded(value))
        calls = message.get("tool_calls") or ()
        correction = message.get("content") or (canonical_json(calls[0]["arguments"]) if calls else "")
        return EventKind.FEEDBACK, {"name": "edit", "text": correction, "message": message, "annotator": "human"}
    return EventKind.FEEDBACK, {"name": "comment", "comment": flat_text(value) or "", "annotator": "human"}


READER = reader(
    "tensorzero", 3, "rows of TensorZero's tables", marks=_is_row, refusal="no row of a TensorZero table", read=_read
)
