"""Langfuse's scores, corrections and comments: what was judged, by whom, and how.

In: score rows of any API version and export, and the score columns and comments of UI table exports. Out: feedback
events with a target. A correction is a text that somebody wrote instead of the output; a score of a whole dataset run
says nothing of a conversation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from flywheel.records import EventKind
from flywheel.stages.ingest.readers._events import Event
from flywheel.stages.ingest.readers._langfuse import Row
from flywheel.stages.ingest.readers._values import as_dict, as_list, first, ident, lowered, number, text, when

__all__ = ["comments", "flattened", "score"]

_ANNOTATORS = {"ANNOTATION": "human", "EVAL": "llm"}
_LISTS = {  # columns that are no scores, though they may hold lists
    "tags", "traceTags", "comments", "userIds", "toolCalls", "toolCallNames", "toolDefinitions", "scores", "input",
    "output", "metadata",
}  # fmt: skip


def score(row: Row, conversation: str | None = None) -> Iterator[Event]:
    """Yield a score as feedback.

    Args:
        row: the score.
        conversation: where the score stands inside its trace, the trace's conversation.
    """
    aim = _aim(row)
    value = _value(row)
    if aim is None or not value:
        return
    target, payload = _event(aim, value)
    name = "edit" if "text" in value else text(row.get("name")) or "score"
    annotator = _ANNOTATORS.get(str(row.get("source")))
    comment = text(row.get("comment"))
    extra = {"comment": comment, "annotator": annotator}
    payload |= {"name": name} | {k: v for k, v in extra.items() if v is not None and k not in payload}
    trace = ident(row.get("trace_id")) or ident(as_dict(row.get("subject")).get("traceId"))
    known = conversation or (aim[1] if aim[0] in {"trace", "session"} else trace)
    yield {
        "kind": EventKind.FEEDBACK,
        "conversation_id": known or target,
        "target": target,
        "ts": when(first(row, ("timestamp", "created_at"))),
        "seq": 0,
        "payload": payload,
    }


def _event(aim: tuple[str, str], value: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    kind, name = aim
    name = lowered(name) if kind == "span" else name
    return f"{kind}:{name}", {**value, "target": "call" if kind == "span" else kind, "target_id": name}


def _aim(row: Row) -> tuple[str, str] | None:
    """Return what is judged: the most specific id that there is."""
    subject = as_dict(row.get("subject"))
    kinds = {"observation": "span", "trace": "trace", "session": "session"}
    if subject:
        kind, name = kinds.get(str(subject.get("kind"))), ident(subject.get("id"))
        return (kind, name) if kind and name else None
    named = ((kinds[kind], ident(row.get(f"{kind}_id"))) for kind in kinds)
    return next(((kind, name) for kind, name in named if name), None)


def _value(row: Row) -> dict[str, Any]:
    """Return a score's value by its type; a category's number means something only where a config gave it."""
    kind, value = row.get("data_type"), number(row.get("value"))
    said = text(first(row, ("string_value", "long_string_value"))) or text(row.get("value"))
    if kind is None and said:  # the API's own clients leave the type out
        kind = "BOOLEAN" if said in ("True", "False") else "CATEGORICAL"
    if kind == "CORRECTION":
        return {"text": said} if said else {}
    if kind == "TEXT":
        return {"comment": said} if said else {}
    if kind == "CATEGORICAL":
        numbered = {"value": value} if value is not None and ident(row.get("config_id")) else {}
        return ({"label": said} if said else {}) | numbered
    labelled = {"label": said} if said and kind == "BOOLEAN" and number(said) is None else {}
    return ({"value": value} if value is not None else {}) | labelled


def flattened(row: Row, given: Mapping[str, Any], target: str) -> Iterator[Event]:
    """Yield the scores of a UI table row: one column a name, with the list of its values, and no more.

    Args:
        row: the row in snake_case.
        given: the row as it stands, whose score columns keep their names.
        target: what the row's scores judge.
    """
    kind, _, name = target.partition(":")
    columns = {**as_dict(row.get("scores")), **{k: v for k, v in given.items() if k not in _LISTS}}
    for column, values in columns.items():
        for value in as_list(values):
            if isinstance(value, str | int | float) and not isinstance(value, bool):
                told = {"label": value} if isinstance(value, str) else {"value": float(value)}
                payload = _event((kind, name), told)[1] | {"name": column}
                yield {
                    "kind": EventKind.FEEDBACK, "conversation_id": target, "target": target, "ts": None, "seq": 0,
                    "payload": payload,
                }  # fmt: skip


def comments(row: Row, target: str) -> Iterator[Event]:
    """Yield what people wrote beside a row."""
    kind, _, name = target.partition(":")
    for item in map(as_dict, as_list(row.get("comments"))):
        said = text(item.get("content"))
        if said:
            payload = _event((kind, name), {"comment": said})[1] | {"name": "comment", "annotator": "human"}
            yield {
                "kind": EventKind.FEEDBACK, "conversation_id": target, "target": target,
                "ts": when(item.get("created_at")), "seq": 0, "payload": payload,
            }  # fmt: skip
