"""Databases whose records are in several tables: Phoenix's spans, n8n's executions.

In: the tables of a database, with their columns. Out: the query that puts a record together, under the table's name,
and the tables that it has read. What n8n keeps as `flatted`, a list in which each value is at a place of its own and
named by it, becomes an object again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

_LARGEST = 1_000_000  # values of an object: one may be named many times

Row = dict[str, Any]


@dataclass(frozen=True)
class Joined:
    """A table with what other tables have of its rows: the columns that there must be, and the query."""

    name: str
    needs: Mapping[str, tuple[str, ...]]
    query: str
    shown: Callable[[Row], Row] = lambda row: row


def unflattened(value: Any) -> Any:
    """Return the object that a `flatted` list holds; any other value, or one that refers to itself, as it is."""
    if not isinstance(value, list) or not value or not isinstance(value[0], dict | list):
        return value
    try:
        whole, _ = _at(value, 0, {}, frozenset())
    except (ValueError, IndexError, RecursionError):
        return value
    return whole


def _at(flat: list[Any], place: int, known: dict[int, tuple[Any, int]], above: frozenset[int]) -> tuple[Any, int]:
    """Return what is at a place, and how many values it has.

    Raises:
        ValueError: it refers to itself, to no place, or is too large.
    """
    if place not in known:
        if place in above or place < 0:
            raise ValueError("a circle, or no place")
        known[place] = _opened(flat, flat[place], known, above | {place})
    return known[place]


def _opened(flat: list[Any], held: Any, known: dict[int, tuple[Any, int]], above: frozenset[int]) -> tuple[Any, int]:
    if not isinstance(held, dict | list):
        return held, 1
    size = 1

    def inner(value: Any) -> Any:
        nonlocal size
        whole, values = _at(flat, int(value), known, above) if isinstance(value, str) else (value, 1)
        size += values
        if size > _LARGEST:
            raise ValueError("too large")
        return whole

    if isinstance(held, dict):
        return {name: inner(value) for name, value in held.items()}, size
    return [inner(value) for value in held], size


def _execution(row: Row) -> Row:
    return row | {"data": unflattened(row.get("data"))}


_SPAN = ("id", "span_id", "parent_id", "trace_rowid", "span_kind", "attributes")
_JUDGED = """a.name, a.annotator_kind, a.label AS "result.label", a.score AS "result.score",
    a.explanation AS "result.explanation", a.created_at, a.updated_at"""
_JOINED = (
    Joined(
        "spans",
        {"spans": _SPAN, "traces": ("id", "trace_id")},
        'SELECT s.*, t.trace_id AS "context.trace_id", s.span_id AS "context.span_id" FROM spans s '
        "JOIN traces t ON t.id = s.trace_rowid ORDER BY s.id",
    ),
    Joined(
        "span_annotations",
        {"spans": _SPAN, "span_annotations": ("span_rowid", "annotator_kind", "label", "score", "explanation")},
        f"SELECT s.span_id, {_JUDGED} FROM span_annotations a JOIN spans s ON s.id = a.span_rowid ORDER BY a.id",  # noqa: S608 - constants
    ),
    Joined(
        "trace_annotations",
        {"spans": _SPAN, "traces": ("id", "trace_id"), "trace_annotations": ("trace_rowid", "annotator_kind", "label")},
        f"SELECT t.trace_id, {_JUDGED} FROM trace_annotations a JOIN traces t ON t.id = a.trace_rowid ORDER BY a.id",  # noqa: S608 - constants
    ),
    Joined(
        "execution_data",
        {"execution_entity": ("id", "status", "startedAt"), "execution_data": ("executionId", "data")},
        "SELECT e.*, d.* FROM execution_data d JOIN execution_entity e ON e.id = d.executionId ORDER BY e.id",
        _execution,
    ),
)


def joined_tables(columns: Mapping[str, set[str]]) -> Iterator[Joined]:
    """Yield the tables of a database that are read with others.

    Args:
        columns: of each table.
    """
    for one in _JOINED:
        if all(columns.get(table, set()) >= {*needed} for table, needed in one.needs.items()):
            yield one
