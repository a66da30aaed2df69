"""A table in one JSON object, as data frames write themselves: by columns, by lists, or split from its names.

In: an object. Out: its rows. pandas' `to_json` gives a column's cells by row (`{"name": {"0": "a", "1": "b"}}`, its
default), `orient="split"` the names apart from the rows (`{"columns": ["name"], "data": [["a"], ["b"]]}`), and
`to_dict("list")`, like `datasets`, a list a column (`{"name": ["a", "b"]}`). A null is a field that the row does not
have, as an empty cell of CSV is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

_SPLIT = ("data", "rows", "values")
_LEAST_COLUMNS = _LEAST_ROWS = 2
_NUMBER = re.compile(r"\d")


def rows_of(value: Any) -> list[dict[str, Any]]:
    """Return the rows of a table; none of an object that is not a table."""
    if not isinstance(value, Mapping):
        return []
    names, rows = value.get("columns"), next((value[name] for name in _SPLIT if name in value), None)
    if isinstance(names, list) and isinstance(rows, list):
        return _split(names, rows)
    columns = list(value.values())
    if len(columns) < _LEAST_COLUMNS or not columns[0]:
        return []
    if all(isinstance(column, list) for column in columns):
        return [_row(value, cells) for cells in zip(*columns, strict=True)] if _are_lists(columns) else []
    if all(isinstance(column, dict) and column.keys() == columns[0].keys() for column in columns):
        named = all(_NUMBER.search(name) for name in columns[0])  # rows by number or id, not by words as fields are
        return [_row(value, [column[name] for column in columns]) for name in columns[0]] if named else []
    return []


def _are_lists(columns: Sequence[list[Any]]) -> bool:
    """Whether lists are columns: as long as each other, of several rows, none of objects, one of plain values."""
    kinds = [{type(cell) for cell in column} for column in columns]
    as_long = {len(column) for column in columns}
    plain = any(kind.isdisjoint((list, dict)) for kind in kinds)
    return len(as_long) == 1 and as_long.pop() >= _LEAST_ROWS and plain and not any(dict in kind for kind in kinds)


def _split(names: list[Any], rows: list[Any]) -> list[dict[str, Any]]:
    """Return rows that are lists of cells, under names that are texts, or objects with a name."""
    named = [name.get("name") if isinstance(name, dict) else name for name in names]
    texts = [name for name in named if isinstance(name, str)]
    if not len(set(texts)) == len(texts) == len(named):
        return []
    if not all(isinstance(row, list) and len(row) == len(named) for row in rows):
        return []
    return [_row(texts, row) for row in rows]


def _row(names: Iterable[str], cells: Sequence[Any]) -> dict[str, Any]:
    return {name: cell for name, cell in zip(names, cells, strict=True) if cell is not None}
