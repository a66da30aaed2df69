"""Sessions of pi and of what is built on it (OpenClaw): entries of a tree, one a line, behind a line for the session.

In: messages, and entries for what the program did: a compaction, a branch that was left, a message that an extension
put in; of changes of model and other bookkeeping only the link to the entry before is kept. Out: one conversation a
file, which is a tree where a user went back (`threaded`); a call of the model that failed is a tag, not an answer.
Helpers that a tool ran, with their messages in its result, are conversations of their own. A compaction's summary
replaces what was before it; the newest messages that pi keeps next to it are not shown again, so such a session is for
statistics only (`history_missing`). Fields: https://github.com/badlogic/pi-mono, the coding agent's page on
sessions, version 3.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Any

from flywheel.extensions import BadRecordError, Sample
from flywheel.reading.events import Event, Source, request, tool_result
from flywheel.reading.feedback import feedback
from flywheel.reading.messages import flat_text, messages, result_message
from flywheel.reading.reader import reader, share
from flywheel.reading.rollout import Rollout, rollout_events
from flywheel.reading.shapes.chats import chat, is_chat
from flywheel.reading.shapes.notices import is_by_program
from flywheel.reading.status import FAILED, OK, stated_status
from flywheel.reading.values import as_dict, as_list, count, ident, number, present, text, when
from flywheel.records import EventKind
from flywheel.stages.ingest.readers.agents.message_files import session_named, within_file
from flywheel.stages.ingest.readers.apis._dialects.calls import LINE

_CHANGES = ("model_change", "thinking_level_change", "custom", "label", "session_info", "leaf")
_TOLD = ("compaction", "branch_summary", "custom_message")
_ROLES = ("user", "assistant", "toolResult", "bashExecution", "custom", "branchSummary", "compactionSummary")
_STOPS = ("stop", "length", "toolUse", "error", "aborted")
_INPUTS = ("input", "cacheRead", "cacheWrite")
_FAILED = "[assistant turn failed"  # what OpenClaw writes in the place of an answer
_BY_PROGRAM = ("A new session was started via /new", "<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>")
_FENCE = "```"
_ENVELOPE = re.compile(r"(?:[A-Z][\w ]{1,60} \(untrusted[\w ,]{0,60}\):\s{1,3}(?P<fence>```)(?:json)?|System: \[)")
_COMPACTED = {"replaces_context": True, "tags": ["compacted", "history_missing"]}


def _from_path(path: PurePath) -> Mapping[str, str]:
    """Return the session that a file holds: the id at the end of its name, else the file in its folders."""
    return session_named(path) or within_file(path)


def _sniff(sample: Sample) -> float:
    """Return how many records are entries, where the session's line or a reply that only pi writes is among them."""
    known = any(_is_session(record) or _is_reply(record) for record in sample.records)
    return share(sample.records, lambda record: _is_session(record) or _is_entry(record)) if known else 0.0


def _is_session(record: Any) -> bool:
    fields = as_dict(record)
    return (
        fields.get("type") == "session"
        and ident(fields.get("id")) is not None
        and {"cwd", "timestamp"} <= fields.keys()
    )


def _is_entry(record: Any) -> bool:
    fields = as_dict(record)
    if "timestamp" not in fields:
        return False
    held = as_dict(fields.get("message"))
    return fields.get("type") in (*_CHANGES, *_TOLD) or (fields.get("type") == "message" and held.get("role") in _ROLES)


def _is_reply(record: Any) -> bool:
    held = as_dict(as_dict(record).get("message"))
    return _is_entry(record) and held.get("role") == "assistant" and held.get("stopReason") in _STOPS


def _read(record: Any, line: int) -> Iterator[Event]:
    """Yield the events of one line.

    Raises:
        BadRecordError: it is not an entry, or a message without a role that pi has.
    """
    if _is_session(record):
        yield request([], {**_source(record), "ids": [f"session:{ident(record['id'])}"]}, line * LINE, {})
        return
    if not _is_entry(record):
        raise BadRecordError("bad_record", "no entry of a session")
    source = {**_source(record), "span_id": ident(record.get("id")), "parent_id": ident(record.get("parentId"))}
    for n, event in enumerate(_events(record, source)):
        about = {"threaded": True} if source["span_id"] and event["conversation_id"] == "pi" else {}
        yield {**event, "seq": line * LINE + n, "payload": event["payload"] | about}


def _source(record: Mapping[str, Any]) -> Source:
    return {"conversation_id": "pi", "ts": when(record.get("timestamp")), "model": None}


def _events(record: Mapping[str, Any], source: Source) -> Iterator[Event]:
    kind, held = record["type"], as_dict(record.get("message"))
    role = held.get("role")
    if kind == "compaction" or role == "compactionSummary":
        yield request(_told(text(record.get("summary") or held.get("summary"))), source, 0, _COMPACTED)
    elif kind == "message" and role == "assistant":
        by_program = held.get("provider") == "openclaw"  # what its gateway wrote, or only passed on
        yield from _reply(held, {**source, "model": None if by_program else text(held.get("model"))})
    elif kind == "message" and role == "toolResult":
        yield from _result(held, source)
    elif kind == "message" and role == "user":
        said = messages([{"role": "user", "content": held.get("content")}])
        yield request([part for message in said for part in _by_person(message)], source, 0, {})
    elif kind in _CHANGES or held.get("excludeFromContext") is True:
        yield request([], source, 0, {})
    else:
        yield request(_told(_between(record, held)), source, 0, {})


def _by_person(message: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what a person wrote, and as context what OpenClaw put around it."""
    words = (message.get("content") or "").strip()
    if message["role"] != "user" or words.startswith(_BY_PROGRAM) or is_by_program(words):
        return [{**message, "role": "system"}]
    around: list[str] = []
    while begun := _ENVELOPE.match(words):
        end = words.find(_FENCE, begun.end())
        line = words.find("\n", begun.end())
        until = (end + len(_FENCE) if end >= 0 else len(words)) if begun["fence"] else line if line >= 0 else len(words)
        around.append(words[:until].strip())
        words = words[until:].lstrip()
    own = {**message, "content": words}
    return [*([own] if words else []), *_told("\n".join(around))] if around else [message]


def _told(words: str | None) -> list[dict[str, Any]]:
    return [{"role": "system", "content": words}] if words else []


def _between(record: Mapping[str, Any], held: Mapping[str, Any]) -> str | None:
    """Return what the program put between the messages: an extension's words, a branch's summary, a user's command."""
    if held.get("role") == "bashExecution":
        return "\n".join(filter(None, (text(held.get("command")), text(held.get("output")))))
    place = held or record
    return flat_text(place.get("content") if place.get("summary") is None else place["summary"])


def _reply(held: Mapping[str, Any], source: Source) -> Iterator[Event]:
    """Yield an answer with its tokens; of a call that failed only these and a tag."""
    usage = as_dict(held.get("usage"))
    inputs = [n for name in _INPUTS if (n := count(usage.get(name))) is not None]
    used = present(
        input_tokens=sum(inputs) if inputs else None,
        output_tokens=count(usage.get("output")),
        cost_usd=number(as_dict(usage.get("cost")).get("total")),
    )
    made, _ = chat([{"role": "assistant", "content": held.get("content")}])
    said = made[-1] if made and any(made[-1].get(name) for name in ("content", "tool_calls", "reasoning")) else None
    by_gateway = held.get("model") == "gateway-injected"
    failed = {"tags": ["api_error"]} if held.get("stopReason") == "error" or by_gateway else {}
    used = used if any(used.values()) else {}
    if said is None or by_gateway or (failed and (said.get("content") or "").startswith(_FAILED)):
        yield request(_told(said.get("content")) if by_gateway and said else [], source, 0, failed | used)
    else:
        about = present(finish_reason=text(held.get("stopReason"))) | used
        about |= {"tags": ["api_error", "partial"]} if failed else {}
        yield {**source, "kind": EventKind.MODEL_CALL, "payload": {"message": said} | about}
    if held.get("stopReason") == "aborted":
        yield feedback(source, {"name": "interrupt", "annotator": "implicit"})


def _status(held: Mapping[str, Any]) -> str | None:
    """Return how a call ended: OpenClaw flags no error, and has it in the details."""
    flag, details = held.get("isError"), as_dict(held.get("details"))
    code = details.get("exitCode")
    if flag is True or stated_status(details) == FAILED or (type(code) is int and code != 0):
        return FAILED
    return OK if flag is False else None


def _result(held: Mapping[str, Any], source: Source) -> Iterator[Event]:
    """Yield what a tool gave, and the talks of the helpers that it ran."""
    call = ident(held.get("toolCallId"))
    status = _status(held)
    fields = {"tool_call_id": call, "name": text(held.get("toolName"))}
    yield tool_result(result_message(flat_text(held.get("content")), fields, status=status), source, 0)
    for n, helper in enumerate(as_list(as_dict(held.get("details")).get("results"))):
        items = as_dict(helper).get("messages")
        if is_chat(items):
            history, facts = chat(as_list(items))
            rollout = Rollout(f"pi/agent/{call or source['span_id']}/{n}", history, facts=facts, started=source["ts"])
            yield from ({**event, "span_id": None, "parent_id": None} for event in rollout_events(rollout))


READER = reader("pi", 2, "sessions of pi and OpenClaw", sniff=_sniff, read=_read, from_path=_from_path)
