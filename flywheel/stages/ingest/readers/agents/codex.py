"""Codex rollout files (`rollout-TIME-ID.jsonl`), one item a line: a session's model input and output as it happened.

In: `response_item` lines hold what the model was given and what it made; `event_msg` lines repeat most of it for the
screen and count only where they say something new (a turn that the user stopped, tokens). Lines after the first do not
name their session: the file does. Out: a reply is in pieces without an id, an item a piece. Text that the program
puts into a user's mouth is a system message.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Any

from flywheel.reading.events import Event, Source, request, tool_result
from flywheel.reading.feedback import feedback
from flywheel.reading.messages import (
    Message,
    arguments,
    flat_text,
    messages,
    result_message,
    tool_schemas,
)
from flywheel.reading.reader import reader
from flywheel.reading.status import FAILED, OK, UNKNOWN, stated_status
from flywheel.reading.usage import token_counts
from flywheel.reading.values import as_dict, as_list, embedded, first, ident, number, present, text, when
from flywheel.records import EventKind
from flywheel.stages.ingest.readers.agents.message_files import session_named

_TYPES = ("session_meta", "turn_context", "response_item", "event_msg", "compacted")
_EXIT = re.compile(r"^(?:Exit code:|Process exited with code) (-?\d+)\s*$", re.MULTILINE)
_FAILURES = ("apply_patch verification failed:", "execution error:", "failed in sandbox:")
_HEAD = 400  # characters of a result's text that may hold its exit code
_PROGRAM = (
    "<environment_context>", "<user_instructions>", "<permissions", "<turn_aborted>", "# AGENTS.md", "<skill",
    "<subagent_notification>", "<codex_internal_context", "<app-context>", "<model_switch>", "<collaboration_mode>",
    "<recommended_plugins>", "<user_shell_command>",
)  # fmt: skip
_CALLS = ("function_call", "custom_tool_call", "local_shell_call", "web_search_call", "tool_search_call")
_OUTPUTS = (
    "function_call_output", "custom_tool_call_output", "local_shell_call_output", "mcp_tool_call_output",
    "tool_search_output",
)  # fmt: skip


def _from_path(path: PurePath) -> Mapping[str, str]:
    """Return the session that a file holds: the id in its name, else the name."""
    return session_named(path) or {"scope": path.name.split(".json")[0]}


def _read(record: Any, line: int) -> Iterator[Event]:
    """Yield the events of one line."""
    payload, kind = as_dict(record.get("payload")), text(record.get("type")) or ""
    source: Source = {"conversation_id": "codex", "ts": when(record.get("timestamp"))}
    for event in _EVENTS[kind](payload, source, line) if kind in _EVENTS else ():
        yield {**event, "seq": line}


def _is_line(record: Any) -> bool:
    return as_dict(record).get("type") in _TYPES and "payload" in record and "timestamp" in record


def _meta(payload: Mapping[str, Any], source: Source, line: int) -> Iterator[Event]:
    """Yield what the session began with; it maps the file to the session's own id.

    A fork begins with its own line, and goes on with all lines of the session that it was forked from, that one's first
    line among them.
    """
    session = ident(payload.get("id"))
    if line > 1:
        yield request([], source, 0, present(forked_from=session))
        return
    value = first(payload, ("base_instructions", "instructions"))
    rules = text(as_dict(value).get("text")) if isinstance(value, dict) else text(value)
    tools = tool_schemas(payload.get("dynamic_tools"))
    ids = [f"session:{session}"] if session else []
    opening = [{"role": "system", "content": rules}] if rules else []
    yield request(opening, {**source, "ids": ids}, 0, present(tools=tools or None, forked_from=_forked_from(payload)))


def _forked_from(payload: Mapping[str, Any]) -> str | None:
    spawned = as_dict(as_dict(as_dict(payload.get("source")).get("subagent")).get("thread_spawn"))
    return ident(payload.get("forked_from_id")) or ident(spawned.get("forked_from_id"))


def _turn(payload: Mapping[str, Any], source: Source, line: int) -> Iterator[Event]:
    """Yield which model serves from here on: the lines of its replies do not say."""
    del line
    model = text(payload.get("model"))
    if model:
        yield request([], {**source, "model": model, "policy": f"codex/{model}"}, 0, {})


def _item(payload: Mapping[str, Any], source: Source, line: int) -> Iterator[Event]:
    kind = payload.get("type")
    if kind == "message" and payload.get("role") != "assistant":
        yield request([_incoming(payload)], source, 0, {})
    elif kind in _OUTPUTS:
        yield _result(payload, source)
    else:
        reply = _output(payload, line)
        if reply is not None:
            yield {**source, "kind": EventKind.MODEL_CALL, "payload": {"message": reply, "fragment": "block"}}
        if kind == "web_search_call" and reply is not None and payload.get("status") == "completed":
            fields = {"tool_call_id": reply["tool_calls"][0]["id"], "name": "web_search"}
            yield tool_result(result_message("", fields, status=OK), source, 0)


def _incoming(payload: Mapping[str, Any]) -> Message:
    (message,) = messages([{"role": payload.get("role"), "content": payload.get("content")}])
    if (message.get("content") or "").lstrip().startswith(_PROGRAM):
        message["role"] = "system"
    return message


def _output(payload: Mapping[str, Any], line: int) -> Message | None:
    """Return the message, or the piece of one, that the model made; None for other items."""
    kind = payload.get("type")
    if kind == "message":
        return messages([{"role": "assistant", "content": payload.get("content")}])[0]
    if kind == "reasoning":
        thought = flat_text(payload.get("content") or None) or _summary(payload)
        return {"role": "assistant", "reasoning": thought} if thought else None
    call_id = ident(first(payload, ("call_id", "id"))) or f"call-{line}"
    if kind not in _CALLS:
        return None
    name, inputs = _called(payload)
    return {"role": "assistant", "tool_calls": [{"id": call_id, "name": name or "", **arguments(inputs)}]}


def _summary(payload: Mapping[str, Any]) -> str:
    return "\n".join(t for t in (text(as_dict(part).get("text")) for part in as_list(payload.get("summary"))) if t)


def _called(payload: Mapping[str, Any]) -> tuple[str | None, Any]:
    """Return the tool and the arguments of a call; a custom tool takes a text, which is not meant to be JSON."""
    kind, action = payload.get("type"), as_dict(payload.get("action"))
    if kind == "function_call":
        return text(payload.get("name")), payload.get("arguments")
    if kind == "custom_tool_call":
        return text(payload.get("name")), {"input": payload.get("input")}
    if kind == "local_shell_call":
        return "local_shell", {name: value for name, value in action.items() if name != "type" and value is not None}
    if kind == "tool_search_call":
        return "tool_search", payload.get("arguments")
    return "web_search", dict(action)


def _result(payload: Mapping[str, Any], source: Source) -> Event:
    """Return a result: a text, a text that holds JSON with an exit code, parts, or an object with a flag."""
    output = payload.get("output", payload.get("result", payload.get("tools")))
    inner = as_dict(embedded(output))
    metadata = as_dict(inner.get("metadata"))
    content = flat_text(first(inner, ("output", "content"))) if metadata or "success" in inner else flat_text(output)
    items = [stated_status(metadata), stated_status(inner), _by_text(content or "")]
    status = next((one for one in items if one != UNKNOWN), None)
    message = result_message(content, {"tool_call_id": payload.get("call_id")}, status=status)
    event = tool_result(message, source, 0)
    seconds = number(metadata.get("duration_seconds"))
    if seconds is not None:
        event["payload"]["latency_s"] = seconds
    return event


def _by_text(content: str) -> str:
    if content.startswith(_FAILURES):
        return FAILED
    code = _EXIT.search(content[:_HEAD])
    return UNKNOWN if code is None else OK if int(code[1]) == 0 else FAILED


def _screen_event(payload: Mapping[str, Any], source: Source, line: int) -> Iterator[Event]:
    """Yield what only the screen's events report: interruptions and token counts."""
    del line
    if payload.get("type") == "turn_aborted" and payload.get("reason") in ("interrupted", None):
        yield feedback(source, {"name": "interrupt", "annotator": "implicit"})
    total = as_dict(as_dict(payload.get("info")).get("total_token_usage"))
    if payload.get("type") == "token_count" and total:
        yield request([], source, 0, {"usage_so_far": present(token_counts(total))})


def _compacted(payload: Mapping[str, Any], source: Source, line: int) -> Iterator[Event]:
    """Yield the history that replaces all before it, or at least the summary."""
    history: list[Message] = []
    for item in map(as_dict, as_list(payload.get("replacement_history"))):
        spoken = item.get("type") == "message" and item.get("role") != "assistant"
        message = _incoming(item) if spoken else _output(item, line)
        history += [message] if message is not None else []
    summary = text(payload.get("message"))
    replacement = history or ([{"role": "system", "content": summary}] if summary else [])
    yield request(replacement, source, 0, {"replaces_context": True, "tags": ["compacted"]})


_EVENTS = {
    "session_meta": _meta, "turn_context": _turn, "response_item": _item, "event_msg": _screen_event,
    "compacted": _compacted,
}  # fmt: skip

READER = reader("codex", 5, "rollout files of Codex", marks=_is_line, read=_read, from_path=_from_path)
