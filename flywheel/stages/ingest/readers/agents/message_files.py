"""Messages that are records of their own: a file that is one chat, and tables of messages of many chats.

A file without ids is one conversation, in the order of its records: the tasks of Cline and Roo, message lists of
Pydantic AI, LangChain and AutoGen, chats of the Vercel AI SDK, sessions of Gemini CLI and goose. Rows of a table
name theirs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Any, NamedTuple

from flywheel.extensions import BadRecordError, Sample
from flywheel.reading.events import Event, Source, request, source_of
from flywheel.reading.feedback import JUDGING, feedback, judgements, outcome, ratings
from flywheel.reading.reader import reader
from flywheel.reading.rollout import Rollout, rollout_events
from flywheel.reading.shapes.actions import are_steps, earned, goal_of, is_step
from flywheel.reading.shapes.acts import is_act, said_in
from flywheel.reading.shapes.chats import chat, is_begun, is_call_alone, is_piece, speaks
from flywheel.reading.shapes.entries import Entry, entry_of, run_totals
from flywheel.reading.shapes.facts import facts_of
from flywheel.reading.shapes.heard import as_heard, is_silent, people_in
from flywheel.reading.shapes.items import IDS, thoughts_of
from flywheel.reading.shapes.spelling import lowered
from flywheel.reading.shapes.spoken import answered_field, asked_field, is_tested
from flywheel.reading.shapes.turns import ITEM_KINDS
from flywheel.reading.shapes.whole import is_other_line, whole
from flywheel.reading.shapes.wrapped import asked_as, asked_last, is_exchange, unwrapped
from flywheel.reading.shapes.written import as_written, with_written_calls
from flywheel.reading.usage import token_counts
from flywheel.reading.values import (
    as_dict,
    as_list,
    count,
    embedded,
    first,
    ident,
    number,
    picked,
    present,
    text,
    words_of,
)
from flywheel.records import ATTEMPT_DONE, ATTEMPT_STEP, THREAD, EventKind, content_id
from flywheel.stages.ingest.prompts import is_prompt
from flywheel.stages.ingest.readers.agents.claude_code import UNNAMED
from flywheel.stages.ingest.readers.apis._dialects.calls import LINE

_CALLED = ("tool", "tool_name", "toolName", "name")
_CONFIDENCE = 0.6
_SURER = 0.05  # than of a chat in words alone
_UNKNOWN_CALL = "a tool's call or result in a shape that no reader knows"
_ANSWERED = {"user", "tool"}  # one of whom speaks next to the agent
_WITHIN = ("parentToolCallId", "parent_tool_use_id", "parent_tool_call_id")  # the call of which a helper speaks
_BODIES = ("data", "message", "item", "payload", "session")
_COSTS = ("cost_usd", "total_cost_usd", "cost", "total_cost")
_KINDS = ("type", "event", "kind", "event_type")  # what a program calls its lines
_OF_SESSIONS = {"session", "summary", "total", "totals", "metrics", "end", "final", "run"}
_HEADERS = {"_meta", "meta", "metadata", "header", "session"}
_BEGINS = {"init", "start", "started", "begin", "header", "meta", "opened", "new", "created"}
_BEGUN = {"session", "run", "chat", "conversation", "trace", "thread", "stream", "log"}
_FOLDERS = 4  # that name a chat with its file
_SESSION_ID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\Z")
_NUMBERED = re.compile(r"[a-z]*(?:message|msg|event|turn|entry)[_-]?\d+\Z", re.IGNORECASE)
_COUNTED = re.compile(r"(?<!\d)\d{1,5}\Z")
_TELLING_APART = {
    "id", "user", "channel", "phone", "session", "conversation", "chat", "thread", "dialog", "dialogue", "uuid", "guid",
    "key", "hash", "ticket", "room", "call",
}  # fmt: skip
_PARTNERS = ("user_id", "userId", "customer_id", "customerId", "client_id", "phone", "phone_number", "chat_user_id")
_SUBJECTS = ("item_id", "itemId", "product_id", "listing_id", "order_id", "ticket_id", "topic_id")
_RUNS = ("run_id", "runId", "episode_id", "episodeId", "rollout_id", "trajectory_id", "episode", "telegram_id", "wa_id")
_STEP_NUMBERS = ("step", "step_idx", "step_index", "step_id", "timestep", "t")
_TRACES = ("trace_id", "traceId")
_PUT_IN = {"input", "inputs", "request"}
_RIGHT = {"ground_truth", "gold"}
_NODES = 4  # nodes of a graph that may add to its state at once


def _rows_share(sample: Sample) -> float:
    """Return the confidence in rows that name their chats, or else whom the agent speaks with."""
    are_named = all(_named(record) or _is_other(record) for record in sample.records)
    return _share(sample) * (are_named or _are_with_partners(sample))


def _are_with_partners(sample: Sample) -> bool:
    """Whether rows are of several users who each speak with the agent, and none names a chat."""
    spoken = [(role, as_dict(record)) for record in sample.records if (role := speaks(record))]
    partners: dict[str | None, set[str]] = {}
    for role, record in spoken:
        partners.setdefault(_partner(record), set()).add(role)
    both = sum({"user", "assistant"} <= roles for roles in partners.values())
    return (
        None not in partners and len(partners) > 1 and both * 2 > len(partners) and not any(map(_named, sample.records))
    )


def _partner(record: Mapping[str, Any]) -> str | None:
    """Return whom the agent speaks with in a row, and about what; with one user alone it may have several chats."""
    names = (ident(first(record, _PARTNERS)), ident(first(record, _SUBJECTS)))
    return "/".join(filter(None, names)) if all(names) else None


def _file_share(sample: Sample) -> float:
    if len(sample.records) == 1 and _is_numbered(sample):
        return _CONFIDENCE * (speaks(_unwrapped(sample.records[0])) is not None)
    spoken = [(role, as_dict(record)) for record in sample.records if (role := speaks(record))]
    are_several = _are_several(spoken) or _are_decisions(spoken)
    return _share(sample) * (not any(_named(record) for _, record in spoken)) * (not are_several)


def _are_decisions(spoken: Sequence[tuple[str, Mapping[str, Any]]]) -> bool:
    """Whether messages are acts without a question, each next to what is right: tested apart."""
    is_tested = bool(spoken) and all(not _RIGHT.isdisjoint(record) for _, record in spoken)
    return is_tested and {role for role, _ in spoken} == {"assistant"}


def _are_several(spoken: Sequence[tuple[str, Mapping[str, Any]]]) -> bool:
    """Whether messages are of several chats: under an id of each that flywheel does not know, two speak or more."""
    named = [{name for name, held in record.items() if held is not None} for _, record in spoken]
    common = set.intersection(*named) if named else set()
    for name in (name for name in common if words_of(name) & _TELLING_APART):
        by_value: dict[str, set[str]] = {}
        for role, record in spoken:
            by_value.setdefault(str(record[name]), set()).add(role)
        if len(by_value) > 1 and all({"user", "assistant"} <= roles for roles in by_value.values()):
            return True
    return False


def _written_share(sample: Sample) -> float:
    """Return the confidence that a file is one chat whose calls are written in words, each with its observation."""
    share = _file_share(sample)
    if not share or any(speaks(record) is None for record in sample.records):
        return 0.0
    history = chat(sample.records)[0]
    return share + _SURER if with_written_calls(history) is not history else 0.0


def _heard_share(sample: Sample) -> float:
    """Return the confidence that a file is one chat of agents by name, as one of them heard it."""
    if people_in(sample.records) is None or any(_named(as_dict(record)) for record in sample.records):
        return 0.0
    heard = [as_heard(as_dict(record), n) for n, record in enumerate(sample.records)]
    return (_CONFIDENCE + 2 * _SURER) * ({"user", "assistant"} <= {speaks(message) for message in heard})


def _is_numbered(sample: Sample) -> bool:
    """Whether a file is one message of a chat that is a folder, by its name."""
    return _NUMBERED.match(PurePath(sample.file_name).name.split(".json")[0]) is not None


def _share(sample: Sample) -> float:
    """Return the confidence that records are messages of which some are the agent's and some those of others."""
    added = [speaks(message) for record in sample.records for message in _added(record)]
    if added and all("event" in as_dict(record) or _added(record) for record in sample.records):
        return _CONFIDENCE * ("assistant" in added)
    spoken = [role for record in sample.records if (role := speaks(record)) is not None]
    others = sum(speaks(record) is None and not _is_beside(record) for record in sample.records)
    is_said = any(_is_said(record) for record in sample.records)
    is_answered = bool(_ANSWERED & set(spoken)) or are_steps(sample.records) or any(map(_step_counts, sample.records))
    is_read = is_said and is_answered and others <= len(spoken) and not _is_doubled(sample.records)
    is_read = is_read and not is_prompt(sample.records)
    return _CONFIDENCE if is_read else 0.0


def _is_doubled(records: Sequence[Any]) -> bool:
    """Whether calls are logged when asked for and when they begin, and no id shows that the two are one."""
    named: tuple[set[str], set[str]] = set(), set()
    for record in records:
        entry = entry_of(record)
        calls = entry.turn.get("tool_calls", ()) if entry is not None else as_list(as_dict(record).get("tool_calls"))
        begins = entry is not None and entry.kind == "call"
        alone = (as_dict(call) for call in calls)
        without_id = (first(call, _CALLED) for call in alone if not ident(first(call, IDS)))
        named[begins].update(name for name in without_id if isinstance(name, str) and name)
    return not named[False].isdisjoint(named[True])


def _is_notice(record: Any) -> bool:
    """Whether a record is one of a stream's that shows how the run goes on."""
    fields = as_dict(record)
    return "." in str(fields.get("type")) or "subtype" in fields or isinstance(fields.get("part"), dict)


def _is_beside(record: Any) -> bool:
    """Whether a record is one of a program that logs more than a talk."""
    return _is_notice(record) or is_other_line(record)


def _is_other(record: Any) -> bool:
    return speaks(record) is None and is_other_line(record)


def _is_said(record: Any) -> bool:
    """Whether the agent speaks in a record, and does not only call."""
    entry = entry_of(record)
    if is_exchange(record):  # one with an id or a time of its own may be alone, and not one of a chat; so is a test's
        is_timed = _source(record)["ts"] is not None and bool(asked_field(record) and answered_field(record))
        is_alone = is_timed or any(str(name).lower().endswith("id") for name in record)
        return not is_tested(record) and (_named(record) is not None or not is_alone)
    if entry is not None:
        return entry.kind == "words"
    is_bare = is_act(record) and record.get("type") not in ITEM_KINDS and said_in(record) is None
    return speaks(record) == "assistant" and not is_bare


def _named(record: Any) -> str | None:
    conversation: str | None = _source(as_dict(record))["conversation_id"]
    return conversation


def _source(record: Mapping[str, Any]) -> Source:
    """Return the columns that a record gives; a trace is of one answer, and names no chat of messages."""
    body = next((held for name in _BODIES if (held := as_dict(record.get(name)))), record)
    places = (as_dict(embedded(record.get("metadata"))), record, body)
    unnamed = (*_TRACES, "user") if is_exchange(record) and asked_as(record) == "user" else _TRACES
    source = source_of(*({k: v for k, v in place.items() if k not in unnamed} for place in places))
    if source["conversation_id"] == UNNAMED and "parent_tool_use_id" in {*body, *record}:
        source["conversation_id"] = None
    if source["conversation_id"] is None and ("event" in record or is_step(record)):
        source["conversation_id"] = ident(first(record, _RUNS)) or (source["task_key"] if is_step(record) else None)
    return {**source, "model": source["model"] or text(first(body, ("newModel", "currentModel", "selectedModel")))}


def session_named(path: PurePath) -> Mapping[str, str]:
    """Return the session whose id ends the name of a file; {} where none does."""
    match = _SESSION_ID.search(path.name.split(".json")[0])
    return {"scope": match[0], "id": f"session:{match[0]}"} if match else {}


def within_file(path: PurePath) -> Mapping[str, str]:
    """Return the file as the conversation, within the folders of its task, run, model and the like.

    Of a file that is one message its folder is, with the folders of its session and agent. Fewer folders would take
    `model-a/task-1/messages.json` and `model-b/task-1/messages.json` for one chat. Files of a folder with a number at
    the end of their names are a series, each of which may hold all of the one before.
    """
    stem, folders = path.name.split(".json")[0], path.parent.parts[-_FOLDERS:]
    if _NUMBERED.match(stem):
        return {"scope": "/".join(folders)}
    series = {"series": "/".join(folders)} if _COUNTED.search(stem) else {}
    return {"scope": "/".join((*folders, stem)), **series}


def _streamed(record: Any) -> Mapping[str, str]:
    """Return the thread that a stream of `codex exec --json` begins with: harnesses keep one under several names."""
    fields = as_dict(record)
    thread = ident(fields.get("thread_id")) if fields.get("type") == "thread.started" else None
    return {"series": f"{THREAD}{content_id(thread)[:16]}"} if thread else {}


def _of_file(record: Mapping[str, Any], line: int, *, is_written: bool = False) -> Iterator[Event]:
    """Yield the events of a record of a file that is one chat, whatever single lines of it name."""
    for event in _read(record, line, is_written=is_written):
        whole, _, within = str(event["conversation_id"]).partition("/")
        ids = [] if whole == "chat" else [f"session:{whole}"]
        conversation = "/".join(filter(None, ("chat", within)))
        yield {**event, "conversation_id": conversation, "ids": [*event.get("ids", ()), *ids]}


def _of_written(record: Mapping[str, Any], line: int) -> Iterator[Event]:
    """Yield the events of a record of a file that is one chat whose calls are written in words."""
    yield from _of_file(record, line, is_written=True)


def _of_heard(record: Mapping[str, Any], line: int) -> Iterator[Event]:
    """Yield the events of a record of a file that is one chat, as one of its agents heard it."""
    heard = as_heard(record, line)
    if not is_silent(heard):
        yield from _of_file(heard, line)


def _of_rows(record: Mapping[str, Any], line: int) -> Iterator[Event]:
    """Yield the events of a record of a table of messages; a line of a program's log that names no chat makes none."""
    is_named = _named(record) is not None
    if is_named or not _is_other(record):
        yield from _read(record if is_named else {**present(session_id=_partner(record)), **record}, line)


def _read(record: Mapping[str, Any], line: int, *, is_written: bool = False) -> Iterator[Event]:
    """Yield the events of one record; a thought that is encrypted makes none."""
    record = asked_last(_unwrapped(lowered(record)))
    if record.get("type") == "reasoning" and "role" not in record and not thoughts_of(record):
        return
    source = _source(record)
    body = next((held for name in _BODIES if (held := as_dict(record.get(name)))), record)
    within = ident(first(record, _WITHIN) or first(body, _WITHIN))
    source["conversation_id"] = "/".join(filter(None, (source["conversation_id"] or "chat", within)))
    if counts := _step_counts(record):
        yield request([], source, line * LINE, counts)
        return
    if totals := run_totals(record):
        yield request([], source, line * LINE, {"usage_so_far": present(token_counts(totals))})
    entry = entry_of(record)
    if speaks(record) is None and not (added := _added(record)):
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
    return source_of(opened)["conversation_id"] or ident(first(opened, _RUNS))


def _step_counts(record: Any) -> dict[str, Any]:
    """Return the tokens of a step that ended, where a line of its own has them; {} for any other line."""
    record = as_dict(record)
    part, response = as_dict(record.get("part")), as_dict(record.get("response"))
    ended = part if part.get("type") == "step-finish" else response if record.get("type") == "response.done" else {}
    told = facts_of(ended)
    return picked(told, ("input_tokens", "output_tokens", "cost_usd"))


def _refuse_unknown(record: Mapping[str, Any]) -> None:
    """Refuse what is a message or a call and cannot be read as one.

    Raises:
        BadRecordError: it is.
    """
    if {"content", "parts"} & (record.keys() | as_dict(record.get("message")).keys()):
        raise BadRecordError("bad_record", "a message without a known role")
    if "tool" in str(record.get("type")):
        raise BadRecordError("bad_record", _UNKNOWN_CALL)
    if not _is_notice(record):
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
    is_rated = any(record[name] is not None for name in JUDGING & record.keys()) and not is_step(record)
    return ident(record.get("id")) or (f"rated-{content_id(record)[:16]}" if is_rated else None)


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
    is_of_several = _named(record) is not None or rollout.task is not None
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


def _unwrapped(record: Any) -> Any:
    """Return a message of Strands with its place in the chat; what was redacted later is as it was then redacted."""
    held = as_dict(as_dict(record).get("redact_message")) or as_dict(as_dict(record).get("message"))
    return {**record, **held} if "message_id" in as_dict(record) and "role" in held else record


def _added(record: Any) -> list[Any]:
    """Return the messages that a record of a graph's stream adds to its state, or the whole state so far."""
    fields = as_dict(record)
    data = as_dict(fields.get("data")) if "event" in fields else fields
    is_run = not _PUT_IN.isdisjoint(fields) or any(isinstance(held, str) for held in fields.values())
    if data is fields and is_run:  # what was put in, or words next to it: no nodes' updates
        return []
    places = [data] if "event" in fields else []
    places += map(as_dict, data.values()) if len(data) <= _NODES else []
    lists = [held for place in places if isinstance(held := place.get("messages"), list) and is_begun(held)]
    return [message for held in lists for message in held]


FILES = reader(
    "message_files", 19, "files that are one chat, a message a record", sniff=_file_share, surest=_CONFIDENCE,
    read=_of_file, from_path=within_file, from_opening=_streamed,
)  # fmt: skip
WRITTEN = reader(
    "written_files", 9, "files that are one chat, whose calls are written in words (ReAct)", sniff=_written_share,
    surest=_CONFIDENCE + _SURER, read=_of_written, from_path=within_file,
)  # fmt: skip
HEARD = reader(
    "heard_files", 1, "files that are one chat of agents by name, as one of them heard it (AutoGen, AG2)",
    sniff=_heard_share, surest=_CONFIDENCE + 2 * _SURER, read=_of_heard, from_path=within_file,
)  # fmt: skip
ROWS = reader("message_rows", 16, "tables of messages that name their chats", sniff=_rows_share, surest=_CONFIDENCE,
              read=_of_rows)  # fmt: skip
