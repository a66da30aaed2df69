"""One event of a conversation, as the readers of transcripts take it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple


class Event(NamedTuple):
    """An event with its payload parsed."""

    event_id: str
    kind: str
    span_id: str | None
    parent_id: str | None
    tool_name: str | None
    tool_call_id: str | None
    payload: dict[str, Any]
    ids: Sequence[str] = ()
