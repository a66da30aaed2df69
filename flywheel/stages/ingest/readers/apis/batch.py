"""Batch files of OpenAI, Anthropic and servers like theirs: the lines that were sent, and the lines that came back.

Both carry the `custom_id` that names the conversation, because each file knows only its half: an input line gives what
was asked, an output line the answer, an error line a call that failed. The ids are often no more than "request-1", so
that they count within their folder only: keep the files of one batch together, and those of two batches apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Any

from flywheel.reading.events import Event, request
from flywheel.reading.pairs import Pair
from flywheel.reading.reader import reader
from flywheel.reading.values import as_dict, embedded, ident
from flywheel.stages.ingest.readers.apis._dialects.calls import Dialect, call_events, source_of_pair
from flywheel.stages.ingest.readers.apis._dialects.chat import CHAT
from flywheel.stages.ingest.readers.apis._dialects.claude import CLAUDE
from flywheel.stages.ingest.readers.apis._dialects.gateways import dialect_of
from flywheel.stages.ingest.readers.apis._dialects.responses import RESPONSES

_ASKED = ("body", "params")
_ENDED = ("succeeded", "errored", "canceled", "expired")  # how a request of an Anthropic batch ended
_FOLDERS = 2  # names of a path that tell batches apart


def _from_path(path: PurePath) -> Mapping[str, str]:
    """Return the folder as the scope of custom ids."""
    folders = [name for name in path.parent.parts if name.strip("/\\.")]
    return {"scope": "/".join(folders[-_FOLDERS:])}


def _read(record: Any, line: int) -> Iterator[Event]:
    """Yield the events of one line; lines of other endpoints (embeddings, moderation) have none."""
    pair = Pair(_request(record), _response(record), record)
    dialect = _dialect(record, pair)
    for event in _events(pair, dialect, line):
        yield {**event, "conversation_id": f"batch/{_custom_id(record)}"}


def _events(pair: Pair, dialect: Dialect | None, line: int) -> Iterator[Event]:
    if dialect is not None and dialect.completed(pair.response):
        yield from call_events(pair, dialect, line)
    elif _failed(pair.envelope):
        yield request([], {}, 0, {"tags": ["call_failed"]})
    elif dialect is not None:
        history = dialect.history(pair.request)
        source = source_of_pair(pair, history, {}) | {"ids": []}
        tools = dialect.tools(pair.request, {})
        yield request(history, source, 0, {"tools": tools} if tools else {})


def _custom_id(record: Any) -> str | None:
    return ident(as_dict(record).get("custom_id"))


def _is_line(record: Any) -> bool:
    outer = as_dict(record)
    if not _custom_id(record):
        return False
    sent = isinstance(embedded(outer.get("body")), dict) and "url" in outer
    back = "response" in outer and ("error" in outer or "body" in as_dict(outer.get("response")))
    claude = isinstance(outer.get("params"), dict) or as_dict(outer.get("result")).get("type") in _ENDED
    return sent or back or claude


def _request(record: Mapping[str, Any]) -> Mapping[str, Any]:
    return next((fields for name in _ASKED if (fields := as_dict(embedded(record.get(name))))), {})


def _response(record: Mapping[str, Any]) -> Mapping[str, Any]:
    response = as_dict(embedded(record.get("response")))
    return as_dict(as_dict(record.get("result")).get("message")) or as_dict(embedded(response.get("body")))


def _failed(record: Mapping[str, Any]) -> bool:
    ended = as_dict(record.get("result")).get("type")
    response = as_dict(embedded(record.get("response")))
    body = as_dict(embedded(response.get("body")))
    return bool(record.get("error") or body.get("error")) or (ended in _ENDED and ended != "succeeded")


def _dialect(record: Mapping[str, Any], pair: Pair) -> Dialect | None:
    dialect = dialect_of(pair.response)
    if dialect is not None or not pair.request:
        return dialect
    if "params" in record:
        return CLAUDE
    url = str(record.get("url"))
    return RESPONSES if "/responses" in url else CHAT if "/completions" in url else None


READER = reader(
    "batch",
    7,
    "the input, output and error files of batch APIs",
    marks=_is_line,
    needs=_custom_id,
    refusal="no object with a custom_id",
    read=_read,
    from_path=_from_path,
)
