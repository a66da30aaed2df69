"""Documents as tables in a notebook: what a plan, a status or a report holds, field by field.

In: a document. Out: HTML, every text of it escaped: log text may be in any of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from html import escape
from typing import Any

from pydantic import BaseModel

_MOST_ROWS = 40
_LONGEST = 400


def as_html(document: BaseModel) -> str:
    """Return a document as a table: a row a field, its description as the name's title, lists of records in tables."""
    rows = "".join(
        f'<tr><th title="{escape(field.description or "")}">{escape(name)}</th><td>{_cell(value)}</td></tr>'
        for name, field in type(document).model_fields.items()
        if (value := getattr(document, name)) not in (None, "", [], {})
    )
    return f"<table>{rows}</table>"


def _cell(value: Any) -> str:
    """Return a value: a table for a record, a mapping or a list of records, else a text; counts of nothing left out."""
    if isinstance(value, BaseModel):
        return as_html(value)
    if isinstance(value, Mapping) and all(type(item) in {int, float} for item in value.values()):
        return ", ".join(f"{_text(name)} {_text(item)}" for name, item in value.items() if item)
    if isinstance(value, Mapping):
        rows = "".join(f"<tr><th>{_text(name)}</th><td>{_cell(item)}</td></tr>" for name, item in value.items())
        return f"<table>{rows}</table>" if rows else ""
    if isinstance(value, Sequence) and not isinstance(value, str):
        shown = value[:_MOST_ROWS]
        more = f"<p>and {len(value) - _MOST_ROWS:,} more</p>" if len(value) > _MOST_ROWS else ""
        if shown and isinstance(shown[0], BaseModel):
            return _records([item for item in shown if isinstance(item, BaseModel)]) + more
        return ", ".join(map(_cell, shown)) + more
    return _text(value)


def _records(records: Sequence[BaseModel]) -> str:
    names = [name for name in type(records[0]).model_fields if any(_cell(getattr(one, name)) for one in records)]
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    rows = "".join(
        "<tr>" + "".join(f"<td>{_cell(getattr(one, name))}</td>" for name in names) + "</tr>" for one in records
    )
    return f"<table><tr>{head}</tr>{rows}</table>"


def _text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return f"{value:,}" if isinstance(value, int) else f"{value:.6g}"
    text = value.isoformat() if isinstance(value, datetime) else str(value)
    return escape(text if len(text) <= _LONGEST else f"{text[:_LONGEST]}...")
