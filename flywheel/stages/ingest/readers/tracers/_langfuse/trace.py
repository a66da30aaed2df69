"""A complete Langfuse trace: its observations in order, each model call once, tools known by their name.

In: a trace's row and the rows of its observations. Out: events. A framework's span and the SDK's generation inside it
are one call: the one with more content is kept and takes from the other what it lacks. A judge's observations are not
the agent's. A trace's own input and output are a summary, where they are words.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import orjson

from flywheel.reading.events import Event, request
from flywheel.reading.messages import flat_text
from flywheel.reading.shapes import exchange, instructions_around
from flywheel.reading.shapes.talks import talk_of
from flywheel.reading.spans import Run, is_worded, talk_events
from flywheel.reading.values import as_dict, as_list, first, ident, number, present, when
from flywheel.records import EventKind
from flywheel.stages.ingest.readers.tracers._langfuse.rows import (
    Row,
    Whole,
    attributes_of,
    event,
    is_tool,
    mapping,
    model_call,
    row_of,
    source,
    tool,
)
from flywheel.stages.ingest.readers.tracers._otel.aliases import aliases
from flywheel.stages.ingest.readers.tracers._otel.attributes import value_of

_START = datetime.min.replace(tzinfo=UTC)
_LANGFUSES = (  # environments of Langfuse's own model calls
    "langfuse-llm-as-a-judge", "langfuse-code-eval", "langfuse-natural-language-filter", "langfuse-in-app-agent",
)  # fmt: skip
_MEASURED = ("input_tokens", "output_tokens", "cost_usd", "latency_s")
_TASK = ("dataset_item_id", "experiment_item_id")


def observation_events(row: Row, of: Whole, seq: int = 0, called: Sequence[str] = ()) -> list[Event]:
    """Return the events of one observation; most kinds have none, and what Langfuse ran for itself has none."""
    if (row.get("environment") or of.trace.get("environment")) in _LANGFUSES:
        return []
    columns = source(row, of, seq)
    if row.get("type") == "GENERATION":
        call = model_call(row, columns)
        return [call] if call else []
    if row.get("type") == "EVALUATOR":  # its calls are rows of their own
        judge = {"messages": [], "judge": True}
        return [event({**columns, "model": None}, EventKind.REQUEST, judge, ts=when(row.get("start_time")))]
    return list(tool(row, columns)) if is_tool(row, called) else []


def whole(trace: Row, items: Sequence[Any], *, complete: bool = True) -> Iterator[Event]:
    """Yield the events of a trace that is in one record with its observations, all of them or some."""
    rows = sorted((row_of(o) for o in items), key=lambda r: when(r.get("start_time")) or _START)
    of = Whole(trace, task_of([trace, *rows]))
    uses = Counter(ident(row.get("id")) for row in rows)
    names = {name for name, count in uses.items() if name is not None and count == 1}  # which tell rows apart
    parents = {ident(r.get("id")): ident(r.get("parent_observation_id")) for r in rows}
    judges = {ident(row.get("id")) for row in rows if row.get("type") == "EVALUATOR"} & names
    rows = [row for row in rows if row.get("type") != "EVALUATOR" and not _beneath(row, parents, judges)]
    calls, by_name = _calls(rows, of, parents, names), {ident(row.get("id")): row for row in rows}
    for name, call in calls.items():
        _instruct(call, [by_name[above] for above in _above(name, parents) if above in by_name])
    called = sorted({c["name"] for e in calls.values() for c in _message(e).get("tool_calls") or ()})
    for seq, row in enumerate(rows):
        name = ident(row.get("id"))
        kept = [calls[name]] if name in calls else []
        merged = row.get("type") == "GENERATION" and name in names
        yield from kept if merged else observation_events(row, of, seq, called)
    if complete and not calls:
        yield from outline(trace, rows, of.task)


def trace_place(trace: Row, task: str | None = None) -> Event:
    """Return an event that only names what a trace belongs to."""
    row = {"trace_id": trace.get("id"), "metadata": trace.get("metadata")}
    columns = {**source(row, Whole(trace, task), 0), "model": None}
    return event(columns, EventKind.REQUEST, {"messages": []}, ts=when(first(trace, ("timestamp", "created_at"))))


def task_of(rows: Sequence[Row]) -> str | None:
    """Return the dataset item that an experiment of the SDK notes in the metadata of its trace or root span."""
    places = (mapping(row.get("metadata")) for row in rows)
    return next((name for place in places if (name := ident(first(place, _TASK)))), None)


def _instruct(call: Event, around: Sequence[Row]) -> None:
    """Put the system prompt that only a span around a call has before its messages, the nearest span's first."""
    history = call["payload"].get("input")
    if not history or history[0]["role"] != "user" or any(m["role"] == "system" for m in history):
        return
    noted = (flat_text(value_of(attributes_of(row), aliases().names.system)) for row in around)
    told = (instructions_around(row.get("input"), history) for row in around)
    instructions = next((text for pair in zip(noted, told, strict=True) for text in pair if text), None)
    if instructions:
        call["payload"]["input"] = [{"role": "system", "content": instructions}, *history]


def _ancestors(row: Row, parents: Mapping[str | None, str | None]) -> Iterator[str]:
    yield from _above(ident(row.get("id")), parents)


def _above(name: str | None, parents: Mapping[str | None, str | None]) -> Iterator[str]:
    seen: set[str | None] = set()
    name = parents.get(name)
    while name is not None and name not in seen:
        yield name
        seen.add(name)
        name = parents.get(name)


def _beneath(row: Row, parents: Mapping[str | None, str | None], places: set[str | None]) -> bool:
    return ident(row.get("id")) in places or any(name in places for name in _ancestors(row, parents))


def _calls(
    rows: Sequence[Row], of: Whole, parents: Mapping[str | None, str | None], names: Collection[str | None]
) -> dict[str | None, Event]:
    """Return the model calls of a trace by observation, each call once."""
    fields: dict[str | None, Event] = {}
    for seq, row in enumerate(rows):
        if row.get("type") == "GENERATION" and ident(row.get("id")) in names:
            fields |= {ident(row.get("id")): e for e in observation_events(row, of, seq)}
    inside: dict[str, list[str | None]] = {}
    for row in rows:
        outer = next((name for name in _ancestors(row, parents) if name in fields), None)
        if outer is not None and ident(row.get("id")) in fields:
            inside.setdefault(outer, []).append(ident(row.get("id")))
    for outer, inner in sorted(inside.items(), key=lambda item: -fields[item[0]]["seq"]):  # the innermost first
        if len(inner) > 1:
            del fields[outer]
        elif inner[0] in fields and _same_call(fields[outer], fields[inner[0]]):
            measured = {k: v for k, v in fields[inner[0]]["payload"].items() if k in _MEASURED}  # nearest to the call
            more = _content(fields[outer]) > _content(fields[inner[0]])
            keep, drop = (outer, inner[0]) if more else (inner[0], outer)
            fields[keep] = _joined(fields[keep], fields.pop(drop), measured)
    _drop_shared_ids(list(fields.values()))
    return fields


def _drop_shared_ids(calls: Sequence[Event]) -> None:
    """Take the response id from calls that share it but differ: some frameworks log the run's id instead."""
    answers: dict[str, list[Mapping[str, Any]]] = {}
    for call in calls:
        answers.setdefault(call["payload"].get("response_id") or "", []).append(_message(call))
    for call in calls:
        name = call["payload"].get("response_id")
        if name and any(message != answers[name][0] for message in answers[name]):
            del call["payload"]["response_id"]
            call["ids"] = [known for known in call["ids"] if known != f"response:{name}"]


def _message(made: Event) -> Mapping[str, Any]:
    return as_dict(made["payload"].get("message"))


def _same_call(one: Event, other: Event) -> bool:
    """Whether two events may be one call: their content is the same, or one of them has none."""
    texts = {t for t in (_message(one).get("content"), _message(other).get("content")) if t}
    calls = [[c["name"] for c in _message(e).get("tool_calls") or ()] for e in (one, other)]
    return len(texts) < 2 and (calls[0] == calls[1] or not all(calls))  # noqa: PLR2004


def _content(made: Event) -> tuple[int, ...]:
    """Return how much content an event has; of equal ones the inner one is kept."""
    history = as_list(made["payload"].get("input"))
    calls = sum(len(m.get("tool_calls") or ()) for m in history)
    message = _message(made)
    return len(message.get("tool_calls") or ()), bool(message.get("content")), calls, len(history)


def _joined(kept: Event, dropped: Event, measured: Mapping[str, Any]) -> Event:
    ids = [*kept["ids"], *(name for name in dropped["ids"] if name not in kept["ids"])]
    lacking = {
        k: v for k, v in dropped["payload"].items() if k not in ("tags", "message", "error_type", "other_choices")
    }
    return {**kept, "ids": ids, "payload": {**lacking, **kept["payload"], **measured}}


def outline(trace: Row, rows: Sequence[Row] = (), task: str | None = None) -> Iterator[Event]:
    """Yield what a trace's own input and output say, or its first observation's; without words, only its place."""
    ours = trace.get("environment") in _LANGFUSES
    for row in () if ours else (trace, *rows[:1]):
        output = _opened(row.get("output"))
        payload = exchange(_opened(row.get("input")), output)
        asked, answer = payload.pop("input", None), payload["message"]
        named = {**row, "trace_id": trace.get("id")} | ({"id": None} if row is trace else {})
        columns = {**source(named, Whole(trace, task), 0), "ts": when(first(row, ("start_time", "timestamp")))}
        ended = max((at for r in (row, *rows) if (at := when(r.get("end_time")))), default=None)
        whole = present(cost_usd=number(trace.get("total_cost")) or None, latency_s=number(trace.get("latency")))
        if (talk := talk_of(output, asked or ())) is not None:
            kept = present(tools=payload.get("tools")) | whole
            yield from talk_events(Run(columns, None, columns["ts"], ended), talk, kept)
            return
        if asked and all(map(is_worded, (*asked, answer))):
            opening = request(asked, columns, 0, {"summary": True})
            yield event(columns, EventKind.REQUEST, opening["payload"])
            payload |= {"summary": True, "tags": ["outline"]} | whole
            yield event({**columns, "ts": ended or columns["ts"], "seq": len(rows) + 1}, EventKind.MODEL_CALL, payload)
            return
    yield trace_place(trace, task)


def _opened(value: Any) -> Any:
    """Return the text inside a JSON string: the UI's download writes a trace's texts so."""
    if not isinstance(value, str) or not value.startswith('"'):
        return value
    try:
        content = orjson.loads(value)
    except orjson.JSONDecodeError:
        return value
    return content if isinstance(content, str) else value
