"""The events of one record: its messages, its step, what it used and what users thought of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from flywheel.extensions import BadRecordError
from flywheel.reading.events import Event, Source, request, source_of
from flywheel.reading.feedback import JUDGING, MESSAGE_IDS, feedback, judgements, opinions_in, outcome, ratings
from flywheel.reading.rollout import Rollout, rollout_events
from flywheel.reading.shapes.actions import are_steps, earned, goal_of, is_step
from flywheel.reading.shapes.chats import chat, is_call_alone, is_piece, speaks
from flywheel.reading.shapes.entries import Entry, entry_of, run_totals
from flywheel.reading.shapes.heard import as_heard, is_silent
from flywheel.reading.shapes.items import thoughts_of
from flywheel.reading.shapes.spelling import lowered
from flywheel.reading.shapes.whole import whole
from flywheel.reading.shapes.wrapped import asked_last, unwrapped, without_sent
from flywheel.reading.shapes.written import as_written
from flywheel.reading.usage import token_counts
from flywheel.reading.values import as_dict, count, first, ident, number, present, words_of
from flywheel.records import ATTEMPT_DONE, ATTEMPT_STEP, EventKind, content_id
from flywheel.stages.ingest.readers.agents._messages.record import (
    BODIES,
    RUNS,
    added_messages,
    is_notice,
    is_other,
    named_by,
    partner_of,
    source_of_record,
    step_counts,
    unwrapped_message,
)
from flywheel.stages.ingest.readers.apis._dialects.calls import LINE

_UNKNOWN_CALL = "a tool's call or result in a shape that no reader knows"
_WITHIN = ("parentToolCallId", "parent_tool_use_id", "parent_tool_call_id")  # the call of which a helper speaks
_COSTS = ("cost_usd", "total_cost_usd", "cost", "total_cost")
_KINDS = ("type", "event", "kind", "event_type")  # what a program calls its lines
_OF_SESSIONS = {"session", "summary", "total", "totals", "metrics", "end", "final", "run"}
_HEADERS = {"_meta", "meta", "metadata", "header", "session"}
_BEGINS = {"init", "start", "started", "begin", "header", "meta", "opened", "new", "created"}
_BEGUN = {"session", "run", "chat", "conversation", "trace", "thread", "stream", "log"}
_STEP_NUMBERS = ("step", "step_idx", "step_index", "step_id", "timestep", "t")


def of_file(record: Mapping[str, Any], line: int, *, is_written: bool = False) -> Iterator[Event]:
    """Yield the events of a record of a file that is one chat, whatever single lines of it name."""
    for event in _read(record, line, is_written=is_written):
        whole, _, within = str(event["conversation_id"]).partition("/")
        ids = [] if whole == "chat" else [f"session:{whole}"]
        conversation = "/".join(filter(None, ("chat", within)))
        yield {**event, "conversation_id": conversation, "ids": [*event.get("ids", ()), *ids]}


def of_written(record: Mapping[str, Any], line: int) -> Iterator[Event]:
    """Yield the events of a record of a file that is one chat whose calls are written in words."""
    yield from of_file(record, line, is_written=True)


def of_heard(record: Mapping[str, Any], line: int) -> Iterator[Event]:
    """Yield the events of a record of a file that is one chat, as one of its agents heard it."""
    heard = as_heard(record, line)
    if not is_silent(heard):
        yield from of_file(heard, line)


def of_rows(record: Mapping[str, Any], line: int) -> Iterator[Event]:
    """Yield the events of a record of a table of messages; a line of a program's log that names no chat makes none."""
    is_named = named_by(record) is not None
    if is_named or not is_other(record):
        yield from _read(record if is_named else {**present(session_id=partner_of(record)), **record}, line)


def _read(record: Mapping[str, Any], line: int, *, is_written: bool = False) -> Iterator[Event]:
    """Yield the events of one record; a thought that is encrypted makes none."""
    record = without_sent(asked_last(unwrapped_message(lowered(record))), is_first=line == 1)
    if record.get("type") == "reasoning" and "role" not in record and not thoughts_of(record):
        return
    source = source_of_record(record)
    body = next((held for name in BODIES if (held := as_dict(record.get(name)))), record)
    within = ident(first(record, _WITHIN) or first(body, _WITHIN))
    source["conversation_id"] = "/".join(filter(None, (source["conversation_id"] or "chat", within)))
    if counts := step_counts(record):
        yield request([], source, line * LINE, counts)
        return
    if totals := run_totals(record):
        yield request([], source, line * LINE, {"usage_so_far": present(token_counts(totals))})
    entry = entry_of(record)
    if speaks(record) is None and not (added := added_messages(record)):
        _refuse_unknown(record)
        for seq, rating in enumerate(ratings(record)):
            yield feedback({**source, "seq": line * LINE + seq}, rating)
        told = _used(record) | present(opens=_opens(record))
        if (source["model"] or told) and not totals:
            yield request([], source, line * LINE, told)
        return
    if entry is None or entry.kind != "passing":
        said = [record] if speaks(record) is not None else added
        place = _Place(source, line, is_written=is_written)
        yield from whole(record, _spoken(record, said, entry, place))


def _used(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tokens and the cost of a model's call, or of all of a session, in a line without words."""
    used = {**present(token_counts(record)), **present(cost_usd=number(first(record, _COSTS)))}
    if not used.keys() >= {"input_tokens", "output_tokens"}:
        return {}
    kind = next((words_of(record[name]) for name in _KINDS if isinstance(record.get(name), str)), frozenset())
    return used if kind.isdisjoint(_OF_SESSIONS) else {"usage_so_far": used}


def _opens(record: Mapping[str, Any]) -> str | None:
    """Return the session whose first line a record is, by its kind or as a header alone; None where it is none."""
    kind = next((words_of(record[name]) for name in _KINDS if isinstance(record.get(name), str)), frozenset())
    inner = as_dict(next(iter(record.values()))) if len(record) == 1 and not _HEADERS.isdisjoint(record) else {}
    if not inner and (kind.isdisjoint(_BEGINS) or not kind <= _BEGINS | _BEGUN):
        return None
    opened = inner or record
    return source_of(opened)["conversation_id"] or ident(first(opened, RUNS))


def _refuse_unknown(record: Mapping[str, Any]) -> None:
    """Refuse what is a message or a call and cannot be read as one.

    Raises:
        BadRecordError: it is.
    """
    if {"content", "parts"} & (record.keys() | as_dict(record.get("message")).keys()):
        raise BadRecordError("bad_record", "a message without a known role")
    if "tool" in str(record.get("type")):
        raise BadRecordError("bad_record", _UNKNOWN_CALL)
    if not is_notice(record):
        whole(record, ())


class _Place(NamedTuple):
    """Where a record is: the columns of its chat, its number in its file, and whether calls are written in words."""

    source: Source
    line: int
    is_written: bool


def _spoken(record: Mapping[str, Any], items: list[Any], entry: Entry | None, place: _Place) -> Iterator[Event]:
    """Yield the events of a record's messages; a call that its result repeats is a span."""
    source, line = place.source, place.line
    history, facts = chat(items, before=_steps_before(record, line))
    if place.is_written:
        history = [as_written(message, line) for message in history]
    kind = str(first(record, ("type", "kind")))
    if "tool" in kind and not any(m.get("tool_calls") or m["role"] == "tool" for m in history):
        raise BadRecordError("bad_record", _UNKNOWN_CALL)
    of = ident(as_dict(record.get("part")).get("messageID")) or _reply_of(record)
    own = _own_id(record) if entry is None and history and history[-1]["role"] == "assistant" else None
    position = count(record.get("message_id")) if "message_id" in record else None
    rollout = Rollout(
        conversation=str(source["conversation_id"]),
        messages=history,
        task=source["task_key"],
        policy=source["policy"],
        facts=facts,
        first=(line if position is None else position) * LINE,
        started=source["ts"],
    )
    held = unwrapped(record)[0]
    is_part = (entry is not None and entry.kind in ("words", "thought", "call")) or _is_streamed(record)
    is_part = is_part or is_piece(held) or is_call_alone(held)
    piece = "delta" if record.get("delta") is True else "block" if is_part or _reply_of(record) else None
    if record.get("type") == "gemini" and sum(message["role"] == "assistant" for message in history) == 1:
        piece, of = "revision", ident(record.get("id"))  # Gemini CLI writes a message again whenever it grows
    for event in rollout_events(rollout):
        if entry is not None and entry.call is not None and event["kind"] == EventKind.MODEL_CALL:
            yield _span(event, entry.call)
            continue
        if (piece or of) and event["kind"] == EventKind.MODEL_CALL:
            about = {"fragment": piece or "block"} | present(response_id=of)
            event = {**event, "payload": {**event["payload"], **about}}  # noqa: PLW2901 - a piece of it
        if piece == "revision" and event["kind"] == EventKind.TOOL_RESULT:  # once for all revisions
            event = {**event, "span_id": event.get("tool_call_id")}  # noqa: PLW2901
        yield {**_numbered(event, record), "user": source["user"], "ids": [f"response:{own}"] if own else []}
    yield from _around_step(record, source, rollout)
    if own:
        yield from judgements(record, {**source, "conversation_id": rollout.conversation}, own)


def _numbered(event: Event, record: Mapping[str, Any]) -> Event:
    """Return an act with its number where its record is a step that names its task, and neither its attempt nor run."""
    number = count(first(record, _STEP_NUMBERS)) if is_step(record) else None
    is_named = event.get("task_key") is None or event["conversation_id"] != event["task_key"]
    if number is None or is_named or event["kind"] != EventKind.MODEL_CALL:
        return event
    ended = {ATTEMPT_DONE: True} if record.get("done") is True else {}
    return {**event, "payload": event["payload"] | {ATTEMPT_STEP: number, **ended}}


def _own_id(record: Mapping[str, Any]) -> str | None:
    """Return the id of a message of the agent; of one with a rating in any case, by its content."""
    is_rated = any(record[name] is not None for name in JUDGING & record.keys()) or bool(opinions_in(record))
    is_rated = is_rated and not is_step(record)
    return ident(first(record, MESSAGE_IDS)) or (f"rated-{content_id(record)[:16]}" if is_rated else None)


def _steps_before(record: Mapping[str, Any], line: int) -> int:
    """Return how many steps are before that of a record: by its own number, where a file has several attempts."""
    own = count(first(record, _STEP_NUMBERS)) if is_step(record) else None
    return line - 1 if own is None else own


def _around_step(record: Mapping[str, Any], source: Source, rollout: Rollout) -> Iterator[Event]:
    """Yield what was to be done, with the first of the steps that repeat it, and what a step has earned.

    Of an attempt the sum of what its steps earned counts. A last step without anything counts only where a file has
    several attempts: a program with a file for each scores the whole elsewhere.
    """
    if not are_steps([record]):
        return
    number, goal = count(first(record, _STEP_NUMBERS)), goal_of(record)
    if goal is not None and " " in goal and number is not None and number <= 1:
        yield request([{"role": "user", "content": goal}], {**source, "ts": None}, 0, {})
    is_of_several = named_by(record) is not None or rollout.task is not None
    reward = earned([record], whole=is_of_several and record.get("done") is True)
    if reward is not None:
        place = {"seq": rollout.first + len(rollout.messages)}
        event = outcome({**rollout.columns(), **place}, "reward", reward, by="recorded")
        yield {**event, "payload": {**event["payload"], "adds": True}}


def _span(event: Event, call: Mapping[str, Any]) -> Event:
    """Return a call that has its result: it was mostly logged before, when it began."""
    (made,) = event["payload"]["message"]["tool_calls"]
    payload = {name: made[name] for name in ("arguments", "arguments_raw") if name in made}
    columns = {"kind": EventKind.TOOL_CALL, "tool_name": made["name"], "tool_call_id": call["id"], "payload": payload}
    return {**event, **columns}


def _reply_of(record: Mapping[str, Any]) -> str | None:
    """Return the id of the reply of which a line of Claude's stream has one block, with the tokens of the whole."""
    held = as_dict(record.get("message"))
    is_block = record.get("type") == "assistant" and held.get("type") == "message"
    return ident(held.get("id")) if is_block else None


def _is_streamed(record: Mapping[str, Any]) -> bool:
    """Whether a record is a line of a command line's output: a message without an id, of a session."""
    held = as_dict(record.get("message"))
    kind = first(record, ("type", "kind", "event"))
    return kind == "assistant" and "session_id" in record and not {"id", "uuid"} & {*held, *record}
