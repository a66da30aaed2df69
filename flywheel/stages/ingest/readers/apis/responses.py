"""OpenAI's Responses API: logged pairs, also streamed, and bare responses.

A call that continues `previous_response_id` or a `conversation` gives its new input as a request and its answer as a
call without input, in the conversation of the response before; each call is also known by its own response's id, so
that a chain is one conversation. Tools that the API itself ran give their results.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flywheel.reading.events import Event
from flywheel.reading.pairs import Pair, pair_of
from flywheel.reading.reader import reader
from flywheel.reading.values import as_dict
from flywheel.stages.ingest.readers.apis._dialects.calls import call_events
from flywheel.stages.ingest.readers.apis._dialects.responses import ENDS, RESPONSES, is_response
from flywheel.stages.ingest.readers.apis._dialects.which import as_answered


def _read(record: Any, line: int) -> Iterator[Event]:
    """Yield the events of one call; of a stream's events that are records each, only the last counts."""
    if _is_event(record):
        if record["type"] in ENDS:
            yield from call_events(Pair({}, as_dict(record.get("response")), {}), RESPONSES, line)
        return
    yield from call_events(*as_answered(record, _pair(record), RESPONSES), line)


def _pair(record: Any) -> Pair:
    if "input" in as_dict(record) and is_response(record):
        return Pair(record, record, record)
    return pair_of(record, RESPONSES.fields)


def _is_call(record: Any) -> bool:
    return bool(RESPONSES.completed(_pair(record).response)) or _is_event(record)


def _is_event(record: Any) -> bool:
    kind = as_dict(record).get("type")
    return isinstance(kind, str) and kind.startswith("response.")


READER = reader("responses", 11, "logs of the Responses API", marks=[(0.97, _is_call)], read=_read)
