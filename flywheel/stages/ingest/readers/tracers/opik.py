"""Opik: the files of `opik export`, one trace with its spans each, and rows of traces or spans as the API gives them.

A trace's `thread_id` is its session. The integrations put the messages into input and output, and all else that was
sent and came back (model, tools, sampling, id) into the metadata; a result other than an object is under `output`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from flywheel.extensions import BadRecordError
from flywheel.reading.events import Event, Source
from flywheel.reading.feedback import Opinion, judgement
from flywheel.reading.pairs import Pair, common_payload
from flywheel.reading.reader import reader
from flywheel.reading.shapes import about_answer, schemas
from flywheel.reading.span_map import SpanMap, packaged_span_maps
from flywheel.reading.spans import Run, error_text, model_call, outline, place, tool_use, whole_task
from flywheel.reading.values import as_dict, as_list, count, embedded, first, ident, number, present, text, when

_TYPES = ("general", "tool", "llm", "guardrail")
_NOT_THE_AGENTS = ("evaluator",)  # who made a trace
_ANNOTATORS = {"ui": "human", "online_scoring": "llm"}
_ROW = {"id", "start_time"}
_OF_A_ROW = {"project_id", "project_name", "error_info", "feedback_scores"}  # the SDK leaves out what was never set
_OF_A_SPAN = {"parent_span_id", "total_estimated_cost", "usage", "source"}
_OF_A_TRACE = {"thread_id", "span_count", "llm_span_count"}
_MAPS = packaged_span_maps("flywheel.stages.ingest.readers.tracers")
_TRACE, _SPAN = _MAPS["opik_trace"], _MAPS["opik_span"]


def _read(record: Any) -> Iterator[Event]:
    """Yield a trace's events, and the scores and comments of it and its spans."""
    opened = _opened(record)
    if opened is None:
        raise BadRecordError("bad_record", "neither a trace with spans nor a row of one")
    trace, spans = opened
    if trace is not None and trace.get("source") in _NOT_THE_AGENTS:
        return
    known = _source(trace, _TRACE) if trace is not None else {}
    if trace is not None:
        yield from _trace(trace, spans, known)
    for seq, span in enumerate(spans):
        if span.get("source") not in _NOT_THE_AGENTS:
            yield from _span(span, {**(known or _source(span, _SPAN)), "seq": 2 * seq + 1})


def _opened(record: Any) -> tuple[Mapping[str, Any] | None, list[Mapping[str, Any]]] | None:
    """Return a record's trace, if it holds one, and its spans."""
    fields = as_dict(record)
    trace, spans = as_dict(fields.get("trace")), fields.get("spans")
    if isinstance(spans, list) and "id" in trace and "start_time" in trace:
        return trace, [as_dict(span) for span in spans]
    if not fields.keys() >= _ROW or _OF_A_ROW.isdisjoint(fields):
        return None
    if "trace_id" in fields and fields.get("type") in _TYPES:
        return None if _OF_A_SPAN.isdisjoint(fields) else (None, [fields])
    return None if "trace_id" in fields or _OF_A_TRACE.isdisjoint(fields) else (fields, [])


def _source(row: Mapping[str, Any], columns: SpanMap) -> Source:
    return columns.source(row, as_dict(embedded(row.get("metadata"))))


def _run(row: Mapping[str, Any], source: Source) -> Run:
    failure = as_dict(row.get("error_info"))
    run = _SPAN.span(row, source)
    well = True if run.ended is not None and "error_info" in row and not failure else None
    return run._replace(error=error_text(failure, "exception_type") if failure else None, ended_well=well)


def _trace(trace: Mapping[str, Any], spans: list[Mapping[str, Any]], source: Source) -> Iterator[Event]:
    run = _run(trace, {**source, "seq": 0, "span_id": ident(trace.get("id"))})
    counted = count(trace.get("llm_span_count"))
    traced = any(span.get("type") == "llm" for span in spans) or not (spans or counted == 0)
    inputs, output = embedded(trace.get("input")), embedded(trace.get("output"))
    if not traced:
        yield from whole_task(run, inputs, output, last=2 * len(spans) + 1)
    elif spans:
        yield place(run)
    else:
        yield from outline(run, inputs, output, _SPAN.usage(trace))
    yield from _judgements(trace, source["ids"][0], source)


def _span(span: Mapping[str, Any], source: Source) -> Iterator[Event]:
    span_id = ident(span.get("id"))
    own = {"span_id": span_id, "parent_id": ident(span.get("parent_span_id"))}
    run = _run(span, {**source, **own, "ids": [source["ids"][0], *([f"span:{span_id}"] if span_id else [])]})
    inputs, output = embedded(span.get("input")), embedded(span.get("output"))
    called = span.get("type") in ("llm", "tool")
    if span.get("type") == "llm":
        yield from _model_call(span, run, inputs, output)
    elif called:
        yield from tool_use(run, inputs, output["output"] if set(as_dict(output)) == {"output"} else output)
    yield from _judgements(span, f"span:{span_id}" if called and span_id else source["ids"][0], source)


def _model_call(span: Mapping[str, Any], run: Run, inputs: Any, output: Any) -> Iterator[Event]:
    metadata = as_dict(embedded(span.get("metadata")))
    beside = about_answer({k: metadata.get(k) for k in ("id", "model", "usage", "finish_reason")})
    fields = {
        **beside,
        **common_payload(Pair({**metadata, **as_dict(inputs)}, {}, {})),
        "model": beside.get("model") or text(span.get("model")) or about_answer(output).get("model"),
        "tools": schemas(first(metadata, ("tools", "functions"))),
        **_SPAN.usage(span),
    }
    yield from model_call(run, inputs, output, fields)


def _judgements(fields: Mapping[str, Any], aim: str, source: Source) -> Iterator[Event]:
    """Yield scores, one an author where several gave one, and comments."""
    shared = {name: value for name, value in source.items() if name != "seq"}
    for score in map(as_dict, as_list(embedded(fields.get("feedback_scores")))):
        authors = as_dict(score.get("value_by_author"))
        each = [as_dict(entry) for _, entry in sorted(authors.items())] if len(authors) > 1 else [{}]
        for entry in each:
            columns = {**score, **present(entry)}
            ts = when(first(columns, ("last_updated_at", "created_at")))
            yield from judgement(_opinion(columns, aim), {**shared, "ts": ts})
    for comment in map(as_dict, as_list(embedded(fields.get("comments")))):
        opinion = Opinion("comment", aim, comment=text(comment.get("text")), annotator="human")
        yield from judgement(opinion, {**shared, "ts": when(first(comment, ("last_updated_at", "created_at")))})


def _opinion(fields: Mapping[str, Any], aim: str) -> Opinion:
    return Opinion(
        name=text(fields.get("name")) or "score",
        aim=aim,
        value=number(fields.get("value")),
        label=text(fields.get("category_name")),
        comment=text(fields.get("reason")),
        annotator=_ANNOTATORS.get(str(fields.get("source"))),
    )


READER = reader("opik", 6, "Opik traces", marks=_opened, read=_read)
