"""Sessions of Google Antigravity: the steps of a session, one a line (`brain/SESSION/.system_generated/logs/`).

In: steps with who made them (`USER_EXPLICIT`, `MODEL`, `SYSTEM`) and of what type they are. A `PLANNER_RESPONSE` is an
answer with its calls, whose arguments are JSON within texts; every other step of the model is what a tool gave, behind
the times at which it ran. Results name no call and follow in the order of the calls. Out: what a user wrote, without
what the program added to it, which is context; the model that the user chose. `transcript.jsonl` and its longer copy
`transcript_full.jsonl` are one session: of two versions of a step one counts. Steps are numbered (`position`): where
a number comes again later, the user went back to it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Any

from flywheel.extensions import BadRecordError
from flywheel.reading.events import Event, Source, request, tool_result
from flywheel.reading.messages import result_message
from flywheel.reading.reader import has, reader
from flywheel.reading.status import FAILED, OK
from flywheel.reading.values import as_dict, as_list, count, embedded, present, text, when
from flywheel.records import EventKind
from flywheel.stages.ingest.readers.agents.message_files import within_file

_ANSWER, _ASKED = "PLANNER_RESPONSE", "USER_INPUT"
_SOURCES = ("USER_EXPLICIT", "USER_IMPLICIT", "MODEL", "SYSTEM")
_ID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_OPENS, _CLOSES = "<USER_REQUEST>", "</USER_REQUEST>"
_CHOSE = re.compile(r"`Model Selection` from [^\n]{0,80}? to ([^\n]{1,80}?)(?:\. |\.?$)", re.MULTILINE)
_RAN = re.compile(r"(?:(?:Created|Completed) At: [^\n]{0,40}\n){1,2}")
_HEAD = 400  # characters of a result that may show how its command ended
_ENDED = re.compile(r"^\s*The command (?:(failed) with exit code|completed successfully)", re.MULTILINE)
_ERRORS = ("ERROR", "ERRORED", "CANCELED", "CANCELLED", "INVALID")


def _from_path(path: PurePath) -> Mapping[str, str]:
    """Return the session that a file is of: the folder with an id in its path, else the file."""
    session = next((part for part in reversed(path.parts) if _ID.fullmatch(part)), None)
    return {"scope": session, "id": f"session:{session}"} if session else within_file(path)


def _is_step(record: Any) -> bool:
    fields = as_dict(record)
    return "step_index" in fields and "type" in fields and fields.get("source") in _SOURCES


def _read(record: Mapping[str, Any]) -> Iterator[Event]:
    """Yield the events of a step.

    Raises:
        BadRecordError: its number or its type is none.
    """
    number, kind = count(record.get("step_index")), text(record.get("type"))
    if number is None or kind is None:
        raise BadRecordError("bad_record", "a step without a number or a type")
    at = when(record.get("created_at"))
    span = f"step_{number}" + (f"@{at.isoformat()}" if at else "")  # no line: a copy with all has others
    source: Source = {"conversation_id": "antigravity", "ts": at, "seq": number * 10, "span_id": span}
    for event in _events(record, kind, source):
        yield {**event, "payload": event["payload"] | {"position": number}}


def _events(record: Mapping[str, Any], kind: str, source: Source) -> Iterator[Event]:
    content = text(record.get("content")) or ""
    if kind == _ANSWER:
        yield from _answer(record, content, source)
    elif record["source"] == "MODEL":
        yield _result(record, content, source)
    elif kind == _ASKED:
        yield from _asked(content, source)
    elif content:
        yield request([{"role": "system", "content": content}], source, source["seq"], {})


def _asked(content: str, source: Source) -> Iterator[Event]:
    """Yield what a user wrote, what the program added to it, and the model that answers from here on."""
    chosen = _CHOSE.search(content)
    if chosen:
        yield request([], {**source, "model": chosen[1]}, source["seq"], {})
    before, opens, rest = content.partition(_OPENS)
    wrote, _, behind = rest.partition(_CLOSES) if opens else (content, "", "")
    wrote, added = wrote.strip(), f"{before}{behind}".strip() if opens else ""
    said = [{"role": "user", "content": wrote}, *([{"role": "system", "content": added}] if added else [])]
    yield request(said if wrote else said[1:], source, source["seq"] + 1, {})


def _answer(record: Mapping[str, Any], content: str, source: Source) -> Iterator[Event]:
    calls = [
        {"id": f"{source['span_id']}_{n}", "name": text(call.get("name")) or "", "arguments": _opened(call.get("args"))}
        for n, call in enumerate(map(as_dict, as_list(record.get("tool_calls"))))
    ]
    message = {"role": "assistant", "content": content or None, **({"tool_calls": calls} if calls else {})}
    message |= present(reasoning=text(record.get("thinking")) or None)
    if content or calls or "reasoning" in message:
        payload = {"message": message, "fragment": "revision", "response_id": source["span_id"]}
        yield {**source, "kind": EventKind.MODEL_CALL, "payload": payload}


def _opened(arguments: Any) -> dict[str, Any]:
    """Return the arguments of a call, each a text that holds its JSON."""
    return {name: _value(held) for name, held in as_dict(arguments).items()}


def _value(held: Any) -> Any:
    """Return what a text holds as JSON; any other text, and what is none, as it is."""
    opened = embedded(f"[{held}]") if isinstance(held, str) else None
    return opened[0] if isinstance(opened, list) and len(opened) == 1 else held


def _result(record: Mapping[str, Any], content: str, source: Source) -> Event:
    shown = _RAN.sub("", content, count=1)
    ended = _ENDED.search(shown[:_HEAD])
    status = (FAILED if ended[1] else OK) if ended else None
    status = FAILED if record.get("status") in _ERRORS else status
    return tool_result(result_message(shown, {}, status=status), source, source["seq"])


READER = reader(
    "antigravity", 1, "sessions of Google Antigravity", marks=_is_step, read=_read, from_path=_from_path,
    needs=has("step_index", "source", "type"),
)  # fmt: skip
