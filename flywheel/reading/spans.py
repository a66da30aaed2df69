"""Spans of tracers other than OpenTelemetry: the events of model calls, tool calls and traces.

In: a `Run`, which is the span, and its input and output as they were logged. Out: events. A span that is neither a
model call nor a tool call may still name its trace's session and be the target of feedback: it becomes a request
without messages.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from flywheel.reading.events import Event, Source, answer_from, request
from flywheel.reading.messages import Message
from flywheel.reading.rollout import Rollout, rollout_events
from flywheel.reading.shapes import Asked, about_answer, answered, asked, unread
from flywheel.reading.shapes.returned import returned
from flywheel.reading.shapes.talks import Talk, talk_of
from flywheel.reading.status import FAILED, OK, UNKNOWN, error_type, tool_status
from flywheel.reading.values import embedded, literal, present, text
from flywheel.records import EventKind

PREPARING = "_prepare_chat_with_tools"  # LlamaIndex's step before each call, which instruments take for one
_OF_FUNCTIONS = {"args", "kwargs", "sanitize_inputs_outputs"}  # the last of smolagents' tools, as MLflow calls them


class Run(NamedTuple):
    """One span. `source` holds the columns of its events; `ended_well` is None where the log does not show it."""

    source: Source
    name: str | None
    started: datetime | None
    ended: datetime | None
    error: str | None = None
    ended_well: bool | None = None


def error_text(failure: Mapping[str, Any], kind: str) -> str:
    """Return an exception's type and message from an object that has them.

    Args:
        failure: the object.
        kind: its field with the type.
    """
    return ": ".join(part for name in (kind, "message") if (part := text(failure.get(name)))) or "error"


def model_call(
    run: Run,
    inputs: Any,
    output: Any,
    fields: Mapping[str, Any],
    *,
    model: str | None = None,
    system: str | None = None,
) -> Iterator[Event]:
    """Yield a model call; one that failed or never ended is only what the agent was asked.

    Args:
        run: the span.
        inputs: the input, in whatever shape it was logged.
        output: the output, likewise.
        fields: payload fields of the span itself, which outweigh those of the answer: tools, tokens, ...; and `model`.
        model: the model where neither names one.
        system: instructions where the input has none.
    """
    history, tools = asked(inputs) or Asked([], None)
    if system and not any(message["role"] == "system" for message in history):
        history = [{"role": "system", "content": system}, *history]
    answers = _answers(output)
    kept = present({"tools": tools} | about_answer(output) | present(fields))
    source = {**run.source, "ts": run.started, "model": kept.pop("model", None) or model}
    if not answers and (run.error or run.ended is None):
        offered = {"tools": kept["tools"]} if "tools" in kept else {}
        yield request(history, source, source.get("seq", 0), {"tags": ["call_failed"]} | offered)
        return
    payload = answer_from(answers, unread(output, answers)) | kept | _seconds(run)
    if history:
        payload["input"] = history
    response = kept.get("response_id")
    names = [*source.get("ids", ()), *([f"response:{response}"] if response else [])]
    yield {"seq": 0, **source, "ids": names, "kind": EventKind.MODEL_CALL, "payload": payload}


def _answers(output: Any) -> list[Message]:
    return [message for message in answered(output) if len(message) > 1]


def tool_use(run: Run, inputs: Any, result: Any, *, call_id: str | None = None) -> Iterator[Event]:
    """Yield a tool span as a call at its beginning and, once it ended, a result at its end.

    Args:
        run: the span.
        inputs: the arguments; None when they were not logged.
        result: what the tool returned; a framework's tool message has its call's id and its status.
        call_id: the id of the call in the model's message, where the span knows it.
    """
    answer = returned(result)
    columns = {"tool_name": run.name, "tool_call_id": answer.get("tool_call_id") or call_id}
    seq = run.source.get("seq", 0)
    arguments = _arguments(inputs)
    payload_of_call = {"arguments": arguments} if arguments is not None else {}
    yield {
        **run.source,
        **columns,
        "seq": seq,
        "kind": EventKind.TOOL_CALL,
        "ts": run.started,
        "payload": payload_of_call,
    }
    if result is None and not run.error and run.ended is None:
        return
    content = answer.get("content") or run.error or ""
    how = _how_it_ended(run, content, answer.get("status", UNKNOWN))
    payload: dict[str, Any] = {"content": content, "status": how, **_seconds(run)}
    kind = error_type(run.error) or error_type(content) if how == FAILED else None
    if kind:
        payload["error_type"] = kind
    ts = run.ended or run.started
    yield {**run.source, **columns, "seq": seq + 1, "kind": EventKind.TOOL_RESULT, "ts": ts, "payload": payload}


def _arguments(item: Any) -> dict[str, Any] | None:
    """Return a call's arguments; None unless they are an object: a tool's plain input is not what the model wrote.

    Old versions of LangChain wrote an object as Python's literal.
    """
    value = embedded(item)
    value = literal(value) if isinstance(value, str) else value
    if isinstance(value, dict) and isinstance(value.get("kwargs"), dict) and not (value.keys() - _OF_FUNCTIONS):
        value = value if value.get("args") else value["kwargs"]  # of a function, as a decorator logs it
    return value if isinstance(value, dict) else None


def _how_it_ended(run: Run, content: str, status: str) -> str:
    """A span that failed failed; one that ended well may still have returned an error as an ordinary result."""
    if run.error or run.ended_well is False:
        return FAILED
    stated = status if status != UNKNOWN else tool_status(content)
    return OK if stated == UNKNOWN and run.ended_well else stated


def _seconds(run: Run) -> dict[str, float]:
    if run.started is None or run.ended is None:
        return {}
    return {"latency_s": (run.ended - run.started).total_seconds()}


def place(run: Run) -> Event:
    """Return a request without messages: nothing but the names by which a trace is known."""
    return request([], {**run.source, "ts": run.started}, run.source.get("seq", 0), {})


def whole_task(
    run: Run, inputs: Any, output: Any, *, last: int, fields: Mapping[str, Any] | None = None
) -> Iterator[Event]:
    """Yield what a trace's outermost span was asked and answered: all there is where no model call was traced.

    An output that holds the whole talk, as an agent's state does, gives every act of it with its calls and results.

    Args:
        run: the span.
        inputs: its input.
        output: its output.
        last: position of the answer, after all other events of the trace.
        fields: totals of the span: tokens, cost, and `model`.
    """
    begun = asked(inputs) or Asked([], None)
    if (talk := talk_of(output, begun.messages)) is not None:
        yield from talk_events(run, talk, present({"tools": begun.tools} | dict(fields or {})))
    else:
        yield from _summary(run, begun.messages, _answers(output), last, fields)


def _summary(
    run: Run, history: list[Message], answers: list[Message], last: int, fields: Mapping[str, Any] | None
) -> Iterator[Event]:
    kept = present(fields)
    begins = {**run.source, "ts": run.started, "model": kept.pop("model", run.source.get("model"))}
    yield request(history, begins, run.source.get("seq", 0), {"summary": True})
    if answers and not run.error:
        payload = {"message": answers[0], "summary": True, "tags": ["reconstructed"], **kept, **_seconds(run)}
        ended = {"ts": run.ended or run.started, "seq": last}
        yield {**begins, **ended, "kind": EventKind.MODEL_CALL, "payload": payload}


def talk_events(run: Run, talk: Talk, fields: Mapping[str, Any]) -> Iterator[Event]:
    """Yield the events of a talk that a trace's outermost span holds, each part of a summary.

    Args:
        run: the span.
        talk: the talk.
        fields: `tools`, `model`, and totals of the span, which count with its last act where no message has its own.
    """
    whole = Rollout(str(run.source["conversation_id"]), talk.rest, facts=talk.facts, ids=run.source.get("ids", ()),
                    model=fields.get("model") or run.source.get("model"), started=run.started)  # fmt: skip
    events = list(rollout_events(whole))
    acts = [event for event in events if event["kind"] == EventKind.MODEL_CALL]
    own = {name for act in acts for name in act["payload"]}
    counted = {"input_tokens", "output_tokens"} if own & {"input_tokens", "output_tokens"} else set()
    totals = {k: v for k, v in fields.items() if k not in own | counted | {"tools", "model"}}
    acts[0]["payload"] |= present(input=talk.seen or None, tools=fields.get("tools"))
    acts[-1]["payload"] |= totals | _seconds(run)
    acts[-1]["ts"] = run.ended or acts[-1]["ts"]
    begins = run.source.get("seq", 0)
    for event in events:
        span = run.source.get("span_id") if event["kind"] == EventKind.MODEL_CALL else None
        columns = {"span_id": span, "seq": begins + event["seq"]}
        known = {name: value for name, value in event.items() if value is not None}
        yield {**run.source, **known, **columns, "payload": event["payload"] | {"summary": True}}


def outline(run: Run, inputs: Any, output: Any, fields: Mapping[str, Any] | None = None) -> Iterator[Event]:
    """Yield what a trace's outermost span was asked and answered, where those are words; else only its place."""
    begun = asked(inputs) or Asked([], None)
    if (talk := talk_of(output, begun.messages)) is not None:
        yield from talk_events(run, talk, present({"tools": begun.tools} | dict(fields or {})))
        return
    answers = _answers(output)
    words = [*begun.messages, *answers]
    if len(words) > 1 and all(map(is_worded, words)) and not run.error:
        yield from _summary(run, begun.messages, answers, run.source.get("seq", 0) + 1, fields)
    else:
        yield place(run)


def is_worded(message: Mapping[str, Any]) -> bool:
    """Whether a message is text or calls a tool; JSON that one program hands to another is not a conversation."""
    content = message.get("content")
    return bool(message.get("tool_calls")) or (bool(content) and not str(content).startswith(("{", "[")))
