"""From one record to rows of the events table: the reader's events, checked, redacted, and named by their content.

An event's id is the hash of what happened: conversation, kind, span or position, time, payload. File and line are no
part of it, so that the same event in two files is one. A reader that fails on a record costs that record, not the file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import chain
from typing import Any

import orjson

from flywheel.errors import where
from flywheel.extensions import BadRecordError, Reader
from flywheel.reading.values import as_list
from flywheel.records import ID_HEX, PART, EventKind, LogEvent, content_id, is_name
from flywheel.stages.ingest.attachments import with_references, without_contents
from flywheel.stages.ingest.detect import READER_FAULTS
from flywheel.stages.ingest.framing.framed import Bad, Record, Row
from flywheel.stages.ingest.framing.jsontext import dumps
from flywheel.stages.ingest.redaction.redact import Redactor

_SERIES = "series:"
_BY_USER = '"role":"user"'  # as canonical JSON writes it
_LATE = {EventKind.FEEDBACK, EventKind.OUTCOME}
_KINDS = {kind.value for kind in EventKind}
_MAX_SEQ = (1 << 63) - 1
_Known = dict[tuple[Any, ...], tuple[str | None, ...]]
_COLUMNS = list(LogEvent.model_fields)
_SHORT = ("span_id", "parent_id", "tool_call_id")
_SHARED = ("model", "policy", "task_key", "tool_name", "user")


class Normalizer:
    """Turns the records of one file into rows as the reader gave them; nothing of them may leave before `finished`.

    `beside` holds what the file's place gives for all its records: the columns that events take where they lack
    them (model, policy, task), the `scope` within which their conversation ids are unique, an `id` that all of them
    have, and the `series` of files of which each may hold all of the one before: each event is then a part of it.
    The `policy` that the user named comes before one that the place gives, and after one that the log names.
    """

    def __init__(self, reader: Reader, source_file: str, beside: Mapping[str, str], policy: str = "") -> None:
        self._reader, self._file = reader, source_file
        self._model, self._policy, self._named = beside.get("model"), beside.get("policy"), policy
        self._task = beside.get("task_key")
        shared = [beside["id"]] if is_name(beside.get("id")) else []
        self._ids = (*shared, f"{_SERIES}{beside['series']}") if beside.get("series") else tuple(shared)
        self._signed = beside.get("signed")
        self._scope = f"{beside['scope']}/" if beside.get("scope") else ""

    def rows(self, record: Record) -> list[Row] | Bad:
        """Return a record's raw rows, none if nothing of an agent is in it, or its refusal."""
        try:
            value, references = (record.value, {}) if record.plain else without_contents(record.value)
            read = self._events(value, record.number)
            return [self._raw(with_references(event, references), record) for event in read]
        except BadRecordError as error:
            return record.bad(error.reason, error.detail)
        except RecursionError:
            return record.bad("bad_record", "nested too deeply")

    def _events(self, value: Any, number: int) -> Iterable[dict[str, Any]]:
        try:
            return list(self._reader.read(value, number))
        except READER_FAULTS as error:
            raise BadRecordError("bad_record", f"reader {self._reader.name} fails: {where(error)}") from None

    def _policy_of(self, event: dict[str, Any]) -> Any:
        """Return who acted; a model, or AGENT/MODEL as readers compose it, is less than a name that the user gave."""
        logged = event.get("policy")
        if not self._named:
            return logged or self._policy
        model = event.get("model") or self._model
        composed = isinstance(logged, str) and model and (logged == model or logged.endswith(f"/{model}"))
        return self._named if not logged or composed else logged

    def _raw(self, event: dict[str, Any], record: Record) -> Row:
        conversation, kind, seq, ts = _checked(event)
        payload = event.get("payload")
        if record.tags and isinstance(payload, dict):
            items = [tag for tag in as_list(payload.get("tags")) if isinstance(tag, str)]
            payload = {**payload, "tags": sorted({*items, *record.tags})}
        body = payload if isinstance(payload, str) else dumps(payload)
        get = event.get
        return (
            "", ts, seq, self._scope + conversation, get("span_id"), get("parent_id"), kind,
            get("model") or self._model, self._policy_of(event), get("task_key") or self._task, get("user"),
            get("tool_name"), get("tool_call_id"), _ids(event, payload, self._ids), get("target"), body,
            self._reader.name, self._file, record.line, self._signed,
        )  # fmt: skip


def finished(rows: Sequence[Row], redactor: Redactor) -> list[Sequence[Any]]:
    """Return raw rows redacted and named, as columns."""
    columns: list[Sequence[Any]] = list(zip(*rows, strict=True)) if rows else [()] * len(_COLUMNS)
    at = dict(zip(_COLUMNS, columns, strict=True))
    for name in _SHORT:
        at[name] = [str(value) if value else None for value in at[name]]
    shared = (map(str, filter(None, at[name])) for name in _SHARED[:-1])  # of the last, a user, nothing is left
    shorts = filter(None, chain(at["conversation_id"], *(at[name] for name in _SHORT), *shared))
    at["payload"] = redactor.payloads(at["payload"], shorts, at["ids"])
    for name in _SHORT:
        at[name] = redactor.names(at[name], redactor.text)
    at["conversation_id"], at["target"] = redactor.names(at["conversation_id"]), redactor.names(at["target"])
    at |= dict(zip(_SHARED, _shared_columns([at[name] for name in _SHARED], redactor), strict=True))
    at["ids"] = [
        redactor.names(_parts(names, kind, seq, body, who)) if names else names
        for names, kind, seq, body, *who in zip(
            *(at[name] for name in ("ids", "kind", "seq", "payload", "model", "policy", "user")), strict=True
        )
    ]
    places = (span or seq for span, seq in zip(at["span_id"], at["seq"], strict=True))
    at["event_id"] = list(map(_event_id, at["conversation_id"], at["kind"], places, at["ts"], at["payload"]))
    return list(at.values())


def _parts(names: list[str], kind: str, seq: int, body: str, who: Sequence[str | None]) -> list[str]:
    """Return the names of an event, a series of files as this event's part of it: by its place, content and speakers.

    What the program itself gives the agent may change from file to file, and counts by its place alone.
    """
    body = "" if kind == EventKind.REQUEST.value and _BY_USER not in body else body
    return [
        f"{PART}{name.removeprefix(_SERIES)}:{content_id(kind, seq, body, *who)}" if name.startswith(_SERIES) else name
        for name in names
    ]


def _shared_columns(columns: list[Sequence[Any]], redactor: Redactor) -> list[Sequence[str | None]]:
    known: _Known = {}
    rows = [_shared(given, redactor, known) for given in zip(*columns, strict=True)]
    return list(zip(*rows, strict=True)) if rows else columns


def _shared(given: tuple[Any, ...], redactor: Redactor, known: _Known) -> tuple[str | None, ...]:
    """Return model, policy, task, tool and user redacted; many rows have them in common."""
    try:
        redacted = known.get(given)
    except TypeError:  # a reader gave something other than a text
        redacted = None
    if redacted is None:
        texts = [str(one) if one else None for one in given]
        *names, user = texts
        clean = tuple(redactor.text(one) if one else None for one in names)
        redacted = (*clean, redactor.user(user) if user else None)
        if list(clean) == names == list(given[:-1]):  # else it is counted every time
            known[given] = redacted
    return redacted


def _event_id(conversation: str, kind: str, place: str | int, ts: datetime | None, body: str) -> str:
    """Return `content_id` of an event's parts, by the fast writer: it writes the same bytes, a time in UTC too."""
    time = ts.isoformat() if ts is not None and ts.tzinfo is not UTC else ts
    try:
        text = orjson.dumps((conversation, kind, place, time, body))
    except TypeError:  # an integer beyond 64 bits, half an emoji
        return content_id(conversation, kind, place, ts.isoformat() if ts is not None else None, body)
    return hashlib.sha256(text).hexdigest()[:ID_HEX]


def _ids(event: Mapping[str, Any], payload: Any, shared: tuple[str, ...]) -> list[str]:
    """Return an event's other names; the response that a call is, and the trace it is in, go without saying."""
    named = [*(event.get("ids") or ()), *shared]
    if isinstance(payload, dict) and event["kind"] not in _LATE:
        for kind, key in (("response", "response_id"), ("trace", "trace_id")):
            if (value := payload.get(key)) and (name := f"{kind}:{value}") not in named:
                named.append(name)
    return named


def _checked(event: dict[str, Any]) -> tuple[str, str, int, datetime | None]:
    """Check what a reader promised; plugins are held to it like the built-in ones."""
    get = event.get
    conversation, kind, seq, ts = get("conversation_id"), get("kind"), get("seq", 0), get("ts")
    if not isinstance(conversation, str) or not conversation:
        raise BadRecordError("bad_record", "the reader gave no conversation_id")
    if not isinstance(kind, str) or kind not in _KINDS:
        raise BadRecordError("bad_record", "the reader gave no known kind")
    if not isinstance(seq, int) or not 0 <= seq <= _MAX_SEQ:
        raise BadRecordError("bad_record", "the reader gave no seq from 0")
    ids, target = get("ids"), get("target")
    if (ids and not all(map(is_name, ids))) or (target is not None and not is_name(target)):
        raise BadRecordError("bad_record", "the reader gave an id or a target that is not kind:id")
    if ts is not None and (not isinstance(ts, datetime) or ts.tzinfo is None):
        raise BadRecordError("bad_record", "the reader gave a ts that is not a time with a zone")
    return conversation, str(kind), seq, ts
