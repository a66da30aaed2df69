"""Claude Code session files, one event a line, and its `stream-json` output, which has fewer fields.

In: lines of a session; a reply has one line a content block, under one message id. Out: pieces of replies, results
with their status, what users wrote, and what they did without words: refused a call, changed a patch, interrupted.
What they wrote while the agent worked is only in an attachment of the queue. Sub-agents (sidechains) are conversations
of their own. Text that the program put into a user's mouth is a system message. The summary of a compaction replaces
all messages before it. Messages name the one before them, and form a tree where a user went back (`threads.py`); of
titles, snapshots, queues and other bookkeeping only that link is kept. The first lines of a fork, and of an agent that
answers a question aside, are copies of their session. System prompt and tools are never logged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from flywheel.extensions import BadRecordError, Sample
from flywheel.reading.events import Event, Source, request, tool_result
from flywheel.reading.feedback import feedback
from flywheel.reading.messages import Message, messages
from flywheel.reading.reader import reader, share
from flywheel.reading.shapes.notices import is_by_program
from flywheel.reading.status import FAILED, OK, UNKNOWN, stated_status
from flywheel.reading.usage import APART, token_counts
from flywheel.reading.values import as_dict, as_list, first, ident, number, present, text, version, when
from flywheel.records import EventKind

_TOLD = ("user", "assistant")
_BOOKKEEPING = {
    "summary": "leafUuid", "file-history-snapshot": "snapshot", "queue-operation": "sessionId", "system": "sessionId",
    "custom-title": "sessionId", "progress": "sessionId", "attachment": "sessionId", "last-prompt": "sessionId",
}  # fmt: skip
UNNAMED = "default"  # the session of what its SDK sends
_COMPACTED = {"replaces_context": True, "tags": ["compacted"]}
_INTERRUPTED = "[Request interrupted by user"
_REJECTED = ("The user doesn't want to proceed with this tool use", "User rejected tool use")
# A command that begins with <command-message> asks the agent, in a user's place; the others act by themselves.
_PROGRAM = (
    "<command-name>", "<local-command-", "<bash-", "Caveat: The messages below", "<task-notification>",
    "<teammate-message",
)  # fmt: skip
_ASIDE = "<system-reminder>This is a side question from the user."
_BY_PEOPLE = ("human", "channel")  # origins of messages; others are tasks in the background, and other sessions
_QUEUED, _PROMPT = "queued_command", "prompt"  # what came while the agent worked, and that it is a message


def _sniff(sample: Sample) -> float:
    """Return how many records have what only these files have; none where a program's own side of a stream is kept.

    What its SDK sends names no session but `default`, and would be a talk apart from what is answered.
    """
    if any(_is_message(record) and as_dict(record).get("session_id") == UNNAMED for record in sample.records):
        return 0.0
    if not any(map(_is_message, sample.records)):
        return 0.9 * share(sample.records, _is_bookkeeping)
    return share(sample.records, lambda record: _is_message(record) or _is_bookkeeping(record))


def _read(record: Any, line: int) -> Iterator[Event]:
    """Yield the events of one line."""
    session, kind = ident(first(record, ("sessionId", "session_id"))), record.get("type")
    if session is None:
        if kind in _TOLD:
            raise BadRecordError("bad_record", "no session id")
        return
    waited = list(_queued(record, session))
    if waited:
        yield from (_copied(_threaded({**event, "seq": line}), record) for event in waited)
        return
    if kind not in _TOLD:
        compacted = record.get("subtype") == "compact_boundary"
        told = _COMPACTED if compacted else _totals(record) if kind == "result" else {}
        if told or ident(record.get("uuid")):  # a link of the chain, at least
            yield _threaded(request([], _source(record, {}, session), line, told))
        return
    message = record.get("message")
    if not isinstance(message, dict):
        raise BadRecordError("bad_record", "no message")
    source = _source(record, message, session)
    events = _reply(message, source) if kind == "assistant" else _incoming(record, message, source)
    for event in events:
        yield _copied(_threaded({**event, "seq": line}), record)


def _totals(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a run of the command line took in all, by its last line: a proxy may log no tokens of replies."""
    used = token_counts(as_dict(record.get("usage")), cached=APART)
    totals = present(**used, cost_usd=number(record.get("total_cost_usd")))
    return {"usage_so_far": totals} if any(totals.values()) else {}


def _threaded(event: Event) -> Event:
    """Say that an event follows the message named as its parent: edits and rewinds fork the chain."""
    return {**event, "payload": event["payload"] | {"threaded": True}} if event["span_id"] else event


def _copied(event: Event, record: Mapping[str, Any]) -> Event:
    """Say that a line was copied from the session that this one was forked from: its tokens are counted there."""
    copied = ident(as_dict(record.get("forkedFrom")).get("sessionId")) is not None
    return {**event, "payload": event["payload"] | {"copied": True}} if copied else event


def _is_message(record: Any) -> bool:
    """Whether it is a line of talk: a session's with its place in the tree, or one of the stream."""
    fields = as_dict(record)
    message = fields.get("type") in _TOLD and "content" in as_dict(fields.get("message"))
    session = "sessionId" in fields and "parentUuid" in fields
    stream = "session_id" in fields and "parent_tool_use_id" in fields
    return message and (session or stream)


def _is_bookkeeping(record: Any) -> bool:
    fields = as_dict(record)
    kind = fields.get("type")
    stream = kind in ("system", "result") and "session_id" in fields
    named = _BOOKKEEPING.get(kind) if isinstance(kind, str) else None
    return (
        stream
        or (named is not None and named in fields)
        or (kind not in _TOLD and "sessionId" in fields and "parentUuid" in fields)
    )


def _source(record: Mapping[str, Any], message: Mapping[str, Any], session: str) -> Source:
    side = ident(first(record, ("agentId", "parent_tool_use_id")))
    aside = record.get("isSidechain") is True or side is not None
    release, model = version(record.get("version")), text(message.get("model"))
    agent = "claude-code" + (f"-{release}" if release else "")
    names = {"message": ident(record.get("uuid")), "request": ident(record.get("requestId"))}
    return {
        "conversation_id": f"{session}/agent-{side or 'sidechain'}" if aside else session,
        "ts": when(record.get("timestamp")),
        "model": model,
        "policy": f"{agent}/{model}" if model else None,
        "span_id": names["message"],
        "parent_id": ident(first(record, ("parentUuid", "logicalParentUuid"))),
        "ids": [f"{kind}:{name}" for kind, name in names.items() if name],
    }


def _reply(message: Mapping[str, Any], source: Source) -> Iterator[Event]:
    """Yield a piece of a reply; what the program itself wrote in the model's place is none.

    Raises:
        BadRecordError: it holds a tool's result.
    """
    if source["model"] == "<synthetic>":
        yield request([], {**source, "model": None, "policy": None}, 0, {"tags": ["api_error"]})
        return
    response, usage = ident(message.get("id")), as_dict(message.get("usage"))
    reply = messages([{"role": "assistant", "content": message.get("content")}])[-1]
    if reply["role"] != "assistant":
        raise BadRecordError("bad_record", "a reply that is a tool's result")
    payload = {"message": reply} | present(
        response_id=response,
        fragment="block" if response else None,
        finish_reason=text(message.get("stop_reason")),
        **token_counts(usage, cached=APART),
    )
    ids = [*source["ids"], *([f"response:{response}"] if response else [])]
    yield {**source, "ids": ids, "kind": EventKind.MODEL_CALL, "payload": payload}


def _incoming(record: Mapping[str, Any], message: Mapping[str, Any], source: Source) -> Iterator[Event]:
    """Yield what a user line holds: results, words, or both."""
    flags = {ident(as_dict(b).get("tool_use_id")): as_dict(b).get("is_error") for b in as_list(message.get("content"))}
    for said in messages([{"role": "user", "content": message.get("content")}]):
        if said["role"] == "tool":
            yield from _result(said, flags.get(said.get("tool_call_id")), record, source)
        elif said.get("content"):
            yield from _words(said["content"], record, source)


def _result(said: Message, flag: Any, record: Mapping[str, Any], source: Source) -> Iterator[Event]:
    result = first(record, ("toolUseResult", "tool_use_result"))
    refused = any(words in place for words in _REJECTED for place in (said["content"], str(result)[:100]))
    status = UNKNOWN if refused else _status(flag, result, said["status"])
    yield tool_result({**said, "status": status}, source, 0)
    aim = {"annotator": "human", "target": "call", "target_id": said.get("tool_call_id") or ""}
    if refused:
        yield feedback(source, {"name": "reject", **aim})
    if as_dict(result).get("userModified") is True:
        yield feedback(source, {"name": "edit", "label": "modified", **aim})


def _status(flag: Any, result: Any, seems: str) -> str:
    """Return how a call ended: the block's flag, then the structured result, which only a call that worked has."""
    if isinstance(flag, bool):
        return FAILED if flag else OK
    if isinstance(result, dict):
        status = stated_status(result)
        return FAILED if result.get("interrupted") is True or status == FAILED else OK
    return seems


def _queued(record: Mapping[str, Any], session: str) -> Iterator[Event]:
    """Yield what was sent while the agent worked: no other line holds it."""
    waited = as_dict(record.get("attachment"))
    if waited.get("type") != _QUEUED:
        return
    about = {"isMeta": waited.get("commandMode", _PROMPT) != _PROMPT, "origin": waited.get("origin")}
    for said in messages([{"role": "user", "content": waited.get("prompt")}]):
        if said.get("content"):
            yield from _words(said["content"], about, _source(record, {}, session))


def _is_program(written: str, record: Mapping[str, Any]) -> bool:
    """Whether the program wrote the words in a user's place, by its own marks or by how they begin."""
    origin = as_dict(record.get("origin")).get("kind")
    marked = record.get("isMeta") is True or record.get("isSynthetic") is True or record.get("promptSource") == "system"
    by_another = origin is not None and origin not in _BY_PEOPLE
    return marked or by_another or is_by_program(written) or written.startswith(_PROGRAM)


def _is_aside(record: Mapping[str, Any]) -> bool:
    """Whether a line is of an agent that answers one question aside: before it, its file has the session's lines."""
    return str(record.get("agentId")).startswith("aside_question")


def _words(written: str, record: Mapping[str, Any], source: Source) -> Iterator[Event]:
    compacted = _COMPACTED if record.get("isCompactSummary") is True else {}
    stopped = written.startswith(_INTERRUPTED)
    program = bool(compacted) or stopped or _is_program(written, record)
    begins = {"begins_here": True} if _is_aside(record) and written.startswith(_ASIDE) else {}
    yield request([{"role": "system" if program else "user", "content": written}], source, 0, compacted | begins)
    if stopped:
        yield feedback(source, {"name": "interrupt", "annotator": "implicit"})


READER = reader("claude_code", 6, "session files of Claude Code", sniff=_sniff, read=_read)
