"""Langfuse's scores, corrections and comments, as feedback.

In: score rows of any API version and export, and the score columns and comments of UI table exports. Out: feedback
events with a target. A correction is a text that a person wrote instead of the output. A score of a complete dataset
run has no conversation and is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from flywheel.reading.events import Event
from flywheel.reading.feedback import Opinion
from flywheel.reading.values import as_dict, as_list, first, ident, lowered, number, text, when
from flywheel.records import EventKind
from flywheel.stages.ingest.readers.tracers._langfuse.rows import Row

_ANNOTATORS = {"ANNOTATION": "human", "EVAL": "llm"}
_LISTS = {  # columns that may hold lists and are not scores
    "tags", "traceTags", "comments", "userIds", "toolCalls", "toolCallNames", "toolDefinitions", "scores", "input",
    "output", "metadata",
}  # fmt: skip


def score(row: Row, conversation: str | None = None) -> Iterator[Event]:
    """Yield a score as feedback.

    Args:
        row: the score.
        conversation: of a score inside its trace, the trace's conversation.
    """
    aim, values = _aim(row), _value(row)
    if aim is None or not values:
        return
    opinion = Opinion(
        name="edit" if "correction" in values else text(row.get("name")) or "score",
        aim=aim,
        annotator=_ANNOTATORS.get(str(row.get("source"))),
        **{"comment": text(row.get("comment"))} | values,
    )
    kind, _, target = aim.partition(":")
    trace = ident(row.get("trace_id")) or ident(as_dict(row.get("subject")).get("traceId"))
    known = conversation or (target if kind in {"trace", "session"} else trace)
    yield _feedback(opinion, known or aim, when(first(row, ("timestamp", "created_at"))))


def _feedback(opinion: Opinion, conversation: str | None, ts: datetime | None) -> Event:
    return {
        "kind": EventKind.FEEDBACK, "conversation_id": conversation, "target": opinion.aim, "ts": ts, "seq": 0,
        "payload": opinion.payload(),
    }  # fmt: skip


def _aim(row: Row) -> str | None:
    """Return a score's target as kind:id: the most specific id that there is."""
    kinds = {"observation": "span", "trace": "trace", "session": "session"}
    subject = as_dict(row.get("subject"))
    if subject:
        named = [(kinds.get(str(subject.get("kind"))), ident(subject.get("id")))]
    else:
        named = [(kinds[kind], ident(row.get(f"{kind}_id"))) for kind in kinds]
    kind, name = next(((kind, name) for kind, name in named if kind and name), (None, ""))
    return f"{kind}:{lowered(name) if kind == 'span' else name}" if kind and name else None


def _value(row: Row) -> dict[str, Any]:
    """Return a score's value by its type; a category's number means something only where a config gave it."""
    kind, value = row.get("data_type"), number(row.get("value"))
    content = text(first(row, ("string_value", "long_string_value"))) or text(row.get("value"))
    if kind is None and content:  # the API's own clients leave the type out
        kind = "BOOLEAN" if content in ("True", "False") else "CATEGORICAL"
    if kind == "CORRECTION":
        return {"correction": content} if content else {}
    if kind == "TEXT":
        return {"comment": content} if content else {}
    if kind == "CATEGORICAL":
        numbered = {"value": value} if value is not None and ident(row.get("config_id")) else {}
        return ({"label": content} if content else {}) | numbered
    if content is None and value is not None and (kind == "BOOLEAN" or isinstance(row.get("value"), bool)):
        kind, content = "BOOLEAN", str(bool(value))
    labelled = {"label": content} if content and kind == "BOOLEAN" and number(content) is None else {}
    return ({"value": value} if value is not None else {}) | labelled


def flattened(row: Row, fields: Mapping[str, Any], target: str) -> Iterator[Event]:
    """Yield the scores of a UI table row: one column a name, with the list of its values, and no more.

    Args:
        row: the row in snake_case.
        fields: the row as it was logged, whose score columns keep their names.
        target: what the row's scores are about.
    """
    columns = {**as_dict(row.get("scores")), **{k: v for k, v in fields.items() if k not in _LISTS}}
    for column, values in columns.items():
        for value in as_list(values):
            if isinstance(value, str):
                yield _feedback(Opinion(column, target, label=value), target, None)
            elif isinstance(value, int | float) and not isinstance(value, bool):
                yield _feedback(Opinion(column, target, float(value)), target, None)


def comments(row: Row, target: str) -> Iterator[Event]:
    """Yield the comments of a row."""
    for item in map(as_dict, as_list(row.get("comments"))):
        content = text(item.get("content"))
        if content:
            opinion = Opinion("comment", target, comment=content, annotator="human")
            yield _feedback(opinion, target, when(item.get("created_at")))
