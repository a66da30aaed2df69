"""Events of AG-UI, the protocol between an agent and its user interface, put together to the messages of their talk.

In: the events of a file, in order: a line each, a list, or a server's stream (https://docs.ag-ui.com/concepts/events).
Out: messages with role, content, thoughts, calls and results, each with its thread, numbered by their first event, and
the events that are none of the talk (state, steps, activities), passed over with a reason. What a run was given, or a
snapshot of its messages, counts once: messages are known by their ids.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from flywheel.reading.values import as_dict, as_list, first, ident, present, text
from flywheel.stages.ingest.framing.framed import Framed, Passed, Raw, Record

_MARKS = (b'"type":"RUN_STARTED"', b'"type":"TEXT_MESSAGE_START"', b'"type":"TOOL_CALL_START"')  # without blanks
_PROBED = 8_000  # bytes
_PASSED = "an event of AG-UI, not of the talk"
_ENDS = {"RUN_FINISHED", "RUN_ERROR", "RUN_STARTED"}
_THOUGHTS = {"THINKING_TEXT_MESSAGE_CONTENT", "REASONING_MESSAGE_CONTENT", "REASONING_MESSAGE_CHUNK"}
_NAMES = {
    "thread": ("threadId", "thread_id"), "message": ("messageId", "message_id"), "call": ("toolCallId", "tool_call_id"),
    "tool": ("toolCallName", "tool_call_name"), "parent": ("parentMessageId", "parent_message_id"),
}  # fmt: skip


@dataclass
class _Reply:
    """One message of the agent, as far as it has come."""

    line: int
    ts: Any
    own: str | None = None
    words: list[str] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)
    calls: dict[str, dict[str, Any]] = field(default_factory=dict)

    def message(self) -> dict[str, Any]:
        """Return it, or {} where nothing came."""
        calls = [{**call, "arguments": "".join(call["arguments"])} for call in self.calls.values()]
        if not (self.words or calls):
            return {}
        told = present(reasoning="".join(self.thoughts) or None, tool_calls=calls or None, ts=self.ts, id=self.own)
        return {"role": "assistant", "content": "".join(self.words) or None, **told}


class _Talk:
    """The talk of a file: which thread is on, which messages are open, and which were there before."""

    def __init__(self) -> None:
        self.thread: str | None = None
        self.tools: Any = None
        self._reply: _Reply | None = None
        self._others: dict[str, tuple[int, dict[str, Any]]] = {}  # messages of a user, by id
        self._known: set[str] = set()

    def take(self, record: Record) -> Iterator[Framed]:
        """Yield the messages that an event ends, or the event as passed over."""
        event = as_dict(record.value)
        kind = text(event.get("type")) or ""
        if kind in _ENDS or not kind:
            yield from self.end()
        self.thread = ident(first(event, _NAMES["thread"])) or self.thread
        given = as_dict(event.get("input")) if kind == "RUN_STARTED" else event if not kind else {}
        self.tools = given.get("tools") or self.tools
        if given or kind == "MESSAGES_SNAPSHOT":
            yield from self._history(record.line, as_list(first(given or event, ("messages",))))
        elif kind.startswith("TEXT_MESSAGE") or kind in _THOUGHTS:
            yield from self._said(record.line, kind, event)
        elif kind == "TOOL_CALL_RESULT":
            yield from self.end()
            yield from self._told(record.line, {"role": "tool", "content": event.get("content") or "",
                                                "tool_call_id": ident(first(event, _NAMES["call"])),
                                                "id": ident(first(event, _NAMES["message"])),
                                                **present(ts=event.get("timestamp"))})  # fmt: skip
        elif kind.startswith("TOOL_CALL"):
            self._call(record.line, event)
        else:
            yield Passed(record.line, _PASSED)

    def end(self) -> Iterator[Framed]:
        """Yield what has come of the agent's message and of others'."""
        for line, message in self._others.values():
            yield from self._told(line, message)
        reply, self._reply, self._others = self._reply, None, {}
        if reply is not None and (message := reply.message()):
            yield from self._told(reply.line, message)

    def _told(self, line: int, message: Mapping[str, Any]) -> Iterator[Framed]:
        """Yield a message as a record, unless it is known."""
        own = ident(message.get("id"))
        calls = [str(as_dict(call).get("id")) for call in as_list(message.get("tool_calls"))]
        names = {own, *calls} - {None} if message.get("role") != "tool" else {f"of {message.get('tool_call_id')}"}
        if names and names <= self._known:
            return
        self._known |= {name for name in names if name is not None}
        tools = present(tools=self.tools) if message["role"] == "user" else {}
        yield Record(line, present(thread_id=self.thread) | dict(message) | tools, None, (), line)

    def _history(self, line: int, messages: Iterable[Any]) -> Iterator[Framed]:
        """Yield the messages that a run was given, or that a snapshot has."""
        yield from self.end()
        for message in map(as_dict, messages):
            calls = as_list(first(message, ("toolCalls", "tool_calls")))
            of_call = ident(first(message, _NAMES["call"]))
            rest = {name: message[name] for name in ("id", "role", "content", "name") if name in message}
            if text(rest.get("role")):
                yield from self._told(line, rest | present(tool_calls=calls or None, tool_call_id=of_call))

    def _said(self, line: int, kind: str, event: Mapping[str, Any]) -> Iterator[Framed]:
        """Take words or thoughts, of the agent's message or of another's."""
        own, delta = ident(first(event, _NAMES["message"])), text(event.get("delta")) or ""
        if text(event.get("role")) not in (None, "assistant") and own is not None:
            self._others[own] = (line, {"role": event["role"], "content": "", "id": own,
                                        **present(ts=event.get("timestamp"))})  # fmt: skip
        if own in self._others:
            self._others[own][1]["content"] += delta
            return
        is_next = self._reply is not None and bool(self._reply.calls) and own != self._reply.own
        if is_next and not kind.endswith("_END"):
            yield from self.end()
        reply = self._begun(line, event)
        if kind in _THOUGHTS:
            reply.thoughts.append(delta)
        elif not kind.endswith("_END"):
            reply.own = reply.own or own
            reply.words += ["\n"] if reply.words and own != reply.own and delta else []
            reply.own = own or reply.own
            reply.words += [delta] if delta else []

    def _call(self, line: int, event: Mapping[str, Any]) -> None:
        """Take the beginning of a call, or a piece of its arguments."""
        own = ident(first(event, _NAMES["call"]))
        if own is None:
            return
        reply = self._begun(line, event)
        reply.own = reply.own or ident(first(event, _NAMES["parent"]))
        call = reply.calls.setdefault(own, {"id": own, "name": "", "arguments": []})
        call["name"] = call["name"] or text(first(event, _NAMES["tool"])) or ""
        call["arguments"] += [delta] if (delta := text(event.get("delta"))) else []

    def _begun(self, line: int, event: Mapping[str, Any]) -> _Reply:
        self._reply = self._reply or _Reply(line, event.get("timestamp"))
        return self._reply


def talk_messages(records: Iterable[Framed]) -> Iterator[Framed]:
    """Yield the messages of a file's events, each where it ends."""
    talk = _Talk()
    for framed in records:
        one = framed.parse() if isinstance(framed, Raw) else framed
        if isinstance(one, Record):
            yield from talk.take(one)
        else:
            yield one
    yield from talk.end()


def is_agui(head: bytes) -> bool:
    """Whether a file begins as one of these."""
    begun = head[:_PROBED].replace(b" ", b"").replace(b"\n", b"").replace(b"\r", b"")
    return any(mark in begun for mark in _MARKS)
