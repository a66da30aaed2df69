"""Sessions of Claude's Managed Agents: events as the API lists and streams them, one a record, or a page of them.

In: events (`agent.message`, `agent.tool_use`, `user.message`, `span.model_request_end`, ...), alone or in a page under
`data`; the session's own object, which has model, instructions and tools. Events name no session: the file does. Those
of a sub-agent's thread name it, and are a conversation of their own. Out: a reply is in pieces without an id, an event
a piece, and its tokens follow behind it; a call that a user denied, an interruption, and what the grader of an outcome
found. Event types: https://platform.claude.com/docs/en/managed-agents/reference (Managed Agents, 2026-04-01).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from flywheel.extensions import BadRecordError, Sample
from flywheel.reading.events import Event, Source, request, tool_result
from flywheel.reading.feedback import feedback, outcome
from flywheel.reading.messages import arguments, flat_text, messages, result_message, tool_schemas
from flywheel.reading.reader import reader, share
from flywheel.reading.status import FAILED, OK
from flywheel.reading.usage import APART, token_counts
from flywheel.reading.values import as_dict, as_list, first, ident, present, text, when
from flywheel.records import EventKind
from flywheel.stages.ingest.readers.agents.message_files import within_file

_USES = ("agent.tool_use", "agent.mcp_tool_use", "agent.custom_tool_use")
_RESULTS = ("agent.tool_result", "agent.mcp_tool_result", "user.custom_tool_result", "user.tool_result")
_CALLS = ("tool_use_id", "mcp_tool_use_id", "custom_tool_use_id")
_NEEDS = {
    **dict.fromkeys(_USES, ("name", "input")), "agent.message": ("content",), "user.message": ("content",),
    "agent.thread_message_received": ("content",), "agent.thread_message_sent": ("content",),
    "system.message": ("content",), "user.define_outcome": ("description",),
    "user.tool_confirmation": ("tool_use_id", "result"), "span.model_request_end": ("model_usage",),
    "span.outcome_evaluation_end": ("result",),
}  # fmt: skip
_MARKERS = ("agent.", "user.", "session.", "span.", "system.", "event_")
_PAGES = ("data", "events")
_BETWEEN = ("agent.thread_message_received", "agent.thread_message_sent", "system.message")
# A grader that finds the rubric out of place (`failed`), or is interrupted, has not looked at the work.
_VERDICTS = {"satisfied": 1.0, "needs_revision": 0.0, "max_iterations_reached": 0.0}
_PAGE = 1_000_000  # more events than a record has
_AROUND = ("raw", "event")  # of what a program's own lines hold an event in


def _sniff(sample: Sample) -> float:
    """Return how many records are whole events of a session or pages of them, where an agent acts in one."""
    events = [event for record in sample.records for event in _events(record)]
    acts = any(event["type"] in (*_USES, "agent.message") for event in events)
    fits = share(sample.records, lambda record: bool(_events(record)) or _is_session(record))
    return fits if acts and all(map(_is_whole, events)) else 0.0


def _read(record: Any, line: int) -> Iterator[Event]:
    """Yield the events of one record.

    Raises:
        BadRecordError: there are none in it, or one lacks what its type has.
    """
    about = next((held for held in (as_dict(record.get("session")), record) if _is_session(held)), {})
    session, events = ident(about.get("id")) or ident(record.get("session_id")), _events(record)
    if not events and not about:
        raise BadRecordError("bad_record", "no event of a session")
    if not all(map(_is_whole, events)):
        raise BadRecordError("bad_record", "an event lacks what its type has: content, name, input or the call's id")
    if about:
        yield _opening(about, _source(about, session, line * _PAGE))
    for n, event in enumerate(events, 1):
        yield from _of_event(event, _source(event, ident(event.get("session_id")) or session, line * _PAGE + n))


def _events(record: Any) -> list[Mapping[str, Any]]:
    """Return the events of a session in a record; none where it holds anything else."""
    fields = as_dict(record)
    for held in (fields, *(as_dict(fields.get(name)) for name in _AROUND)):
        if _is_event(held):
            return [held]
    page = next((listed for name in _PAGES if (listed := as_list(fields.get(name)))), [])
    return list(page) if all(map(_is_event, page)) else []


def _is_event(value: Any) -> bool:
    kind = as_dict(value).get("type")
    return isinstance(kind, str) and kind.startswith(_MARKERS)


def _is_whole(event: Mapping[str, Any]) -> bool:
    """Whether an event has what its type has; programs of other makes name theirs alike."""
    kind = event["type"]
    calls = [ident(event.get("id"))] if kind in _USES else [ident(first(event, _CALLS))] if kind in _RESULTS else []
    return None not in calls and all(event.get(name) is not None for name in _NEEDS.get(kind, ()))


def _is_session(record: Any) -> bool:
    fields = as_dict(record)
    return fields.get("type") == "session" and isinstance(fields.get("agent"), dict)


def _source(event: Mapping[str, Any], session: str | None, seq: int) -> Source:
    thread = ident(event.get("session_thread_id"))
    return {
        "conversation_id": "/".join(filter(None, ("session", thread))),
        "ts": when(first(event, ("processed_at", "created_at"))),
        "ids": [f"session:{session}"] if session else [],
        "seq": seq,
    }


def _opening(session: Mapping[str, Any], source: Source) -> Event:
    """Return what a session begins with: instructions, tools and model of its agent, whose version names the policy."""
    agent = as_dict(session.get("agent"))
    held = agent.get("model")
    model = text(as_dict(held).get("id") if isinstance(held, dict) else held)
    named = "-".join(filter(None, (text(agent.get("name")), ident(agent.get("version")))))
    rules = text(agent.get("system"))
    opening = [{"role": "system", "content": rules}] if rules else []
    source = {**source, "model": model, "policy": "/".join(filter(None, (named, model))) or None, "ts": None}
    return request(opening, source, source["seq"], present(tools=tool_schemas(agent.get("tools")) or None))


def _of_event(event: Mapping[str, Any], source: Source) -> Iterator[Event]:
    kind, seq = str(event["type"]), source["seq"]
    if kind in _RESULTS:
        yield _result(event, source)
    elif (reply := _piece(kind, event)) is not None:
        yield {**source, "kind": EventKind.MODEL_CALL, "payload": {"message": reply, "fragment": "block"}}
    elif kind in ("user.message", "user.define_outcome", *_BETWEEN):
        role = "system" if kind in _BETWEEN else "user"
        said = event.get("description") if kind == "user.define_outcome" else event.get("content")
        rubric = flat_text(as_dict(event.get("rubric")).get("content"))
        wanted = [{"role": "system", "content": rubric}] if rubric else []
        yield request([*messages([{"role": role, "content": said}]), *wanted], source, seq, {})
    elif kind == "agent.thread_context_compacted":
        yield request([], source, seq, {"replaces_context": True, "tags": ["compacted"]})
    elif kind == "span.model_request_end":
        yield request([], source, seq, present(token_counts(as_dict(event["model_usage"]), cached=APART)))
    elif kind == "session.error":
        yield request([], source, seq, {"tags": ["api_error"]})
    else:
        yield from _opinions(kind, event, source)


def _piece(kind: str, event: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the piece of a reply that an event is; None for another event, and for a thought that is not shown."""
    if kind in _USES:
        call = {"id": ident(event.get("id")), "name": text(event["name"]) or "", **arguments(event["input"])}
        return {"role": "assistant", "tool_calls": [call]}
    if kind == "agent.message":
        return messages([{"role": "assistant", "content": event["content"]}])[-1]
    thought = flat_text(first(event, ("content", "thinking"))) if kind == "agent.thinking" else None
    return {"role": "assistant", "reasoning": thought} if thought else None


def _result(event: Mapping[str, Any], source: Source) -> Event:
    call, flag = ident(first(event, _CALLS)), event.get("is_error")
    status = (FAILED if flag else OK) if isinstance(flag, bool) else None
    said = flat_text(first(event, ("content", "result")))
    return tool_result(result_message(said, {"tool_call_id": call}, status=status), source, source["seq"])


def _opinions(kind: str, event: Mapping[str, Any], source: Source) -> Iterator[Event]:
    """Yield a call that was denied, an interruption, and what an outcome's grader found."""
    if kind == "user.tool_confirmation" and event["result"] == "deny":
        aim = {"target": "call", "target_id": ident(event["tool_use_id"]) or ""}
        told = present(comment=text(event.get("deny_message")))
        yield feedback(source, {"name": "reject", "annotator": "human", **aim, **told})
    elif kind == "user.interrupt":
        yield feedback(source, {"name": "interrupt", "annotator": "implicit"})
    elif kind == "span.outcome_evaluation_end":
        if (value := _VERDICTS.get(text(event["result"]) or "")) is not None:
            yield outcome(source, "outcome_evaluation", value, scale=(0, 1), by="recorded")
        if why := text(event.get("explanation")):  # which the agent is given
            yield request([{"role": "system", "content": why}], source, source["seq"], {})


READER = reader(
    "managed_agents", 1, "sessions of Claude's Managed Agents", sniff=_sniff, read=_read, from_path=within_file
)
