"""LangSmith: runs and feedback, from `list_runs`, the runs query, a thread, or a bulk export's Parquet rows.

A record is one run, a page of runs, or one feedback. Runs of many traces come in any order; what belongs together is
joined by trace id. A run's `session_id` is its project: the conversation is in its metadata. Objects may be JSON
text (Parquet), run types and statuses may be upper-case (the second API).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from flywheel.reading.events import Event, Source
from flywheel.reading.feedback import Opinion, corrected_text, judgement
from flywheel.reading.messages import tool_schemas
from flywheel.reading.pairs import Pair, common_payload
from flywheel.reading.reader import reader
from flywheel.reading.span_map import packaged_span_maps
from flywheel.reading.spans import Run, model_call, outline, place, tool_use, whole_task
from flywheel.reading.values import as_dict, as_list, embedded, first, ident, number, text, when
from flywheel.records import content_id

_TYPES = {"llm", "chain", "tool", "retriever", "embedding", "prompt", "parser"}
_OF_FEEDBACK = {"feedback_source", "feedback_group_id", "comparative_experiment_id", "correction"}
_ANNOTATORS = {"app": "human", "model": "llm", "auto_eval": "llm"}
_MODEL = ("model_name", "model", "model_id")
_RUN = packaged_span_maps("flywheel.stages.ingest.readers.tracers")["langsmith"]


def _read(record: Any) -> Iterator[Event]:
    """Yield the events of a record's runs and their feedback."""
    if _is_feedback(record):
        yield from _feedback(record, None)
        return
    for run in _runs_of(record):
        yield from _run_events(run if "id" in run else {**run, "id": content_id(run)})  # which some exports leave out


def _is_known(record: Any) -> bool:
    return _is_feedback(record) or bool(_runs_of(record))


def _is_run(record: Any) -> bool:
    fields = as_dict(record)
    kind = fields.get("run_type")
    is_named = "id" in fields or ("parent_run_id" in fields and ident(fields.get("trace_id")) is not None)
    known = isinstance(kind, str) and kind.lower() in _TYPES and is_named
    return known and ("dotted_order" in fields or "trace_id" in fields)


def _runs_of(record: Any) -> list[Mapping[str, Any]]:
    """Return a record's runs: itself, or those of a page or a thread."""
    if _is_run(record):
        return [record]
    page = as_dict(record)
    runs = as_list(page.get("runs")) or as_list(page.get("data")) or as_list(page.get("items"))
    return runs if runs and all(map(_is_run, runs)) else []


def _is_feedback(record: Any) -> bool:
    fields = as_dict(record)
    return isinstance(fields.get("key"), str) and "run_id" in fields and bool(_OF_FEEDBACK & set(fields))


def _run_events(fields: Mapping[str, Any]) -> Iterator[Event]:
    run = {**fields, "inputs": embedded(fields.get("inputs")), "outputs": embedded(fields.get("outputs"))}
    extra = as_dict(embedded(run.get("extra")))
    metadata = {**as_dict(embedded(extra.get("metadata"))), **as_dict(embedded(run.get("metadata")))}
    what = str(run["run_type"]).lower()
    span = _span(run, metadata)
    if what == "llm":
        yield from _model_call(run, span, extra, metadata)
    elif what == "tool":
        yield from _tool_use(run, span, extra)
    elif what == "chain" and _has_no_children(run):
        yield from whole_task(span, run["inputs"], run["outputs"], last=1)
    elif what == "chain" and span.source["ids"][0] == f"trace:{span.source['span_id']}":
        yield from outline(span, run["inputs"], run["outputs"], _RUN.usage(run))
    elif what == "chain":
        yield place(span)
    yield from _judgements(run, span)
    for child in as_list(run.get("child_runs")):
        if _is_run(child):
            yield from _run_events({"trace_id": run.get("trace_id"), **child})


def _has_no_children(run: Mapping[str, Any]) -> bool:
    """Whether a trace is logged to be one run; most logs do not mention children."""
    children = [embedded(run.get(name)) for name in ("child_run_ids", "direct_child_run_ids")]
    return not run.get("parent_run_id") and [] in children and not any(children)


def _span(run: Mapping[str, Any], metadata: Mapping[str, Any]) -> Run:
    row = {**run, "id": ident(run["id"]), "metadata": metadata}
    source = _RUN.source(row, metadata) | {"seq": str(run.get("dotted_order") or "").count(".")}
    status = str(run.get("status") or "").lower()
    error = text(run.get("error")) or ("error" if status == "error" else None)
    return _RUN.span(row, source, error, ended_well=True if status == "success" else None)


def _model_call(
    run: Mapping[str, Any], span: Run, extra: Mapping[str, Any], metadata: Mapping[str, Any]
) -> Iterator[Event]:
    settings = as_dict(embedded(extra.get("invocation_params")))
    inputs = as_dict(run["inputs"])
    fields = {
        "tools": tool_schemas(first(settings, ("tools", "functions"))),
        **_RUN.usage({**run, "metadata": metadata}),
        **common_payload(Pair({**settings, **inputs}, {}, {"total_cost": run.get("total_cost")})),
    }
    model = span.source["model"] or _model(settings, inputs)
    yield from model_call(span, run["inputs"], run["outputs"], fields, model=model)


def _model(*places: Mapping[str, Any]) -> str | None:
    return next((name for place in places if (name := text(first(place, _MODEL)))), None)


def _tool_use(run: Mapping[str, Any], span: Run, extra: Mapping[str, Any]) -> Iterator[Event]:
    """A tool run; LangChain keeps its call's id next to the inputs."""
    inputs, outputs = as_dict(run["inputs"]), as_dict(run["outputs"])
    arguments = embedded(inputs["input"]) if set(inputs) == {"input"} else run["inputs"]
    result = outputs["output"] if set(outputs) == {"output"} else run["outputs"] or None
    yield from tool_use(span, arguments, result, call_id=ident(extra.get("tool_call_id")))


def _judgements(run: Mapping[str, Any], span: Run) -> Iterator[Event]:
    """Yield the feedback in a run's row: each one where the export has them, else their statistics."""
    each = [as_dict(item) for item in as_list(embedded(run.get("feedbacks")))]
    for item in each:
        if isinstance(item.get("key"), str):
            yield from _feedback({"run_id": run["id"], "trace_id": run.get("trace_id"), **item}, span)
    stats = {} if each else as_dict(embedded(run.get("feedback_stats")))
    for key, stat in sorted(stats.items()):
        fields = as_dict(stat)
        labels = list(as_dict(fields.get("values")))
        opinion = Opinion(
            key, _aim(ident(run["id"]), ident(run.get("trace_id"))) or "", number(fields.get("avg")),
            labels[0] if len(labels) == 1 else None, annotator=_annotator(as_list(fields.get("sources"))),
        )  # fmt: skip
        yield from judgement(opinion, {**_columns(span), "ts": None})


def _columns(span: Run) -> Source:
    """Return a judgement's columns: those of the run that say where it belongs."""
    return {name: span.source[name] for name in ("conversation_id", "policy", "task_key", "user", "ids")}


def _annotator(sources: list[Any]) -> str | None:
    names = {str(as_dict(s).get("type", s)) for s in sources}
    kinds = {_ANNOTATORS.get(name) for name in names}
    return kinds.pop() if len(kinds) == 1 else None


def _aim(run_id: str | None, trace: str | None) -> str | None:
    if run_id is None or run_id == trace:
        return f"trace:{trace}" if trace else None
    return f"span:{run_id}"


def _feedback(record: Mapping[str, Any], span: Run | None) -> Iterator[Event]:
    """Yield one feedback; a correction may put another text in the answer's place, or another score in this one's."""
    trace, thread = ident(record.get("trace_id")), ident(record.get("thread_id"))
    aim = _aim(ident(record.get("run_id")), trace) or (f"session:{thread}" if thread else None)
    if aim is None:
        return
    correction, origin = embedded(record.get("correction")), as_dict(embedded(record.get("feedback_source")))
    rescored = number(as_dict(correction).get("score"))
    score, value = number(record.get("score")), record.get("value")
    config = as_dict(embedded(record.get("feedback_config")))
    scale = [number(config.get("min")), number(config.get("max"))]
    opinion = Opinion(
        name=record["key"],
        aim=aim,
        value=rescored if rescored is not None else score if score is not None else number(value),
        label=text(value) if number(value) is None else None,
        comment=text(record.get("comment")),
        correction=corrected_text(correction) if rescored is None else None,
        annotator="human" if rescored is not None else _ANNOTATORS.get(str(origin.get("type"))),
        scale=[n for n in scale if n is not None] if None not in scale else None,
    )
    columns = _columns(span) if span else {"conversation_id": aim, "user": ident(origin.get("user_id"))}
    yield from judgement(opinion, {**columns, "ts": when(first(record, ("created_at", "modified_at")))})


READER = reader(
    "langsmith", 7, "LangSmith runs and feedback", marks=_is_known, refusal="neither a run nor feedback", read=_read
)
