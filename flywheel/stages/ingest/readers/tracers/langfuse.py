"""Langfuse: traces downloaded in the UI, replies of the public API (v1 to v3), blob-storage and UI table exports.

A record is a trace with its observations, one row (an observation, a trace, a score, a session, an item of a dataset
run), or a page of rows. A conversation is the session, else the trace. Generations are model calls, whatever framework
shaped their input and output, tools are calls and results, scores and corrections are feedback. A trace's row shows
what belongs together; its own input and output repeat its observations', and count only where no model call of it is
logged.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flywheel.extensions import BadRecordError
from flywheel.reading.events import Event
from flywheel.reading.reader import reader
from flywheel.reading.values import as_dict, as_list, ident, lowered
from flywheel.records import EventKind
from flywheel.stages.ingest.readers.tracers._langfuse.rows import OBSERVATIONS, Row, Whole, kind_of, mapping, row_of
from flywheel.stages.ingest.readers.tracers._langfuse.scores import comments, flattened, score
from flywheel.stages.ingest.readers.tracers._langfuse.trace import observation_events, outline, task_of, whole


def _read(record: Any) -> Iterator[Event]:
    """Yield the events of one record; rows of other kinds, such as comments, give nothing."""
    row = row_of(record)
    kind = kind_of(row)
    if kind == "page":
        yield from _page([row_of(inner) for inner in row["data"]])
    elif kind in ("export", "full"):
        yield from _trace(row_of(row["trace"]) if kind == "export" else row, row["observations"])
    elif kind == "session":
        yield from _session(row)
    else:
        yield from _row(row, kind, as_dict(record))


def _is_known(record: Any) -> bool:
    return bool(kind_of(row_of(record)))


def _page(rows: list[Row]) -> Iterator[Event]:
    """Yield a page's events; what it holds of one trace is put together."""
    traces: dict[str | None, list[Row]] = {}
    for seq, row in enumerate(rows):
        kind = kind_of(row)
        if kind == "observation":
            traces.setdefault(ident(row.get("trace_id")), []).append(row)
        elif kind in ("export", "full"):
            yield from _trace(row, as_list(row.get("observations")))
        else:
            yield from _row(row, kind, row, seq)
    for name, found in traces.items():
        yield from whole({"id": name}, found, complete=False)


def _trace(trace: Row, observations: list[Any]) -> Iterator[Event]:
    """Yield a trace's events and its scores; in a list of traces, observations and scores are only ids."""
    rows = [o for o in observations if isinstance(o, dict)]
    if rows or not observations:
        yield from whole(trace, rows)
    else:
        yield from outline(trace)
    conversation = ident(trace.get("session_id")) or ident(trace.get("id"))
    for given in (*as_list(trace.get("scores")), *as_list(trace.get("corrections"))):
        if isinstance(given, dict):
            yield from score({"trace_id": trace.get("id"), **row_of(given)}, conversation)


def _session(row: Row) -> Iterator[Event]:
    """Yield the traces of a session, and its comments."""
    name = ident(row.get("id"))
    for trace in filter(as_dict, as_list(row.get("traces"))):
        yield from outline({**row_of(trace), "session_id": name})
    if name:
        yield from comments(row, f"session:{name}")


def _row(row: Row, kind: str, value: Any, seq: int = 0) -> Iterator[Event]:
    trace = ident(row.get("id" if kind == "trace" else "trace_id"))
    if not kind and (row.get("type") in OBSERVATIONS or as_list(row.get("observations")) or as_list(row.get("data"))):
        raise BadRecordError("bad_record", "observations without an id, a trace and a time")
    if kind == "score":
        yield from score(row)
    elif kind == "observation":
        events = observation_events(
            row, Whole({"id": row.get("trace_id"), "metadata": mapping(row.get("trace_metadata"))}), seq
        )
        task = task_of([row])
        yield from events or ([_item(task, trace)] if task and trace else [])
    elif kind == "trace":
        yield from outline(row)
    elif kind == "item" and trace:
        yield _item(ident(row.get("dataset_item_id")), trace)
    if kind in ("trace", "observation") and isinstance(row.get("comments"), list):
        yield from _notes(row, kind, trace, value)


def _item(task: str | None, trace: str) -> Event:
    """Return the task of a trace: the dataset item that a run gave it."""
    return {
        "kind": EventKind.REQUEST, "conversation_id": trace, "ids": [f"trace:{trace}"], "seq": 0, "ts": None,
        "task_key": task, "payload": {"messages": [], "trace_id": trace},
    }  # fmt: skip


def _notes(row: Row, kind: str, trace: str | None, value: Any) -> Iterator[Event]:
    """Yield the score columns and comments of a UI table row.

    A row of the newer events table repeats its trace's scores next to its own: there they are the trace's, once.
    """
    name = ident(row.get("id"))
    own = f"trace:{trace}" if kind == "trace" else f"span:{lowered(name)}" if name else None
    shared = f"trace:{trace}" if "latency_ms" in row and trace else own
    if own and shared:
        yield from flattened(row, value, shared)
        yield from comments(row, own)


READER = reader("langfuse", 9, "Langfuse's exports", marks=_is_known, needs=row_of, read=_read)
