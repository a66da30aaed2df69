"""What Cline and Roo Code show on the screen, `ui_messages.json`: entries of a task, put together to its messages.

In: the entries of a file, in order. Out: messages with role, content, calls, time, model and tokens, numbered by their
first entry, and the entries that are none of the talk (`checkpoint_created`, `api_req_retried`, ...), passed over with
a reason. A request to the model begins a reply; words, thoughts, tools and commands up to the next one are the reply's.
What a tool gave is there where the screen shows it: outputs of commands, answers of MCP servers, listings.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from flywheel.reading.values import as_dict, embedded, picked, text
from flywheel.stages.ingest.framing.framed import Framed, Passed, Raw, Record

MARKS = (b'"type":"say","say":"', b'"type":"ask","ask":"')  # without blanks
_PROBED = 8_000  # bytes
_PASSED = "an entry of a screen, not of the talk"
_WORDS = ("text", "completion_result")
_LISTING = {"listFilesTopLevel", "listFilesRecursive", "listCodeDefinitionNames", "searchFiles", "webFetch"}
_USERS = ("user_feedback", "user_feedback_diff", "task")
_SHOWN = ("content", "operationIsLocatedInWorkspace", "isProtected", "isOutsideWorkspace", "tool")
_GAVE = ("command_output", "mcp_server_response", "browser_action_result")
_COUNTS = {"tokensIn": "input_tokens", "tokensOut": "output_tokens"}


@dataclass
class _Reply:
    """What belongs to one answer of the model."""

    line: int
    message: dict[str, Any]
    words: list[str] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)
    calls: list[dict[str, Any]] = field(default_factory=list)
    results: dict[str, tuple[int, list[str]]] = field(default_factory=dict)  # by call: its first entry, and its words

    def call(self, entry: int, name: str, given: Any, gave: str | None = None) -> None:
        own = f"call_{entry}"
        self.calls.append({"id": own, "name": name, "arguments": given})
        if gave is not None:
            self.results[own] = (entry, [gave])

    def shows(self, entry: int, words: str) -> None:
        """Add to what the last call gave."""
        if self.calls:
            self.results.setdefault(self.calls[-1]["id"], (entry, []))[1].append(words)

    def messages(self) -> Iterator[tuple[int, dict[str, Any]]]:
        if not (self.words or self.calls):
            return
        told = {"reasoning": "\n".join(self.thoughts)} if self.thoughts else {}
        made = {"tool_calls": self.calls} if self.calls else {}
        yield self.line, {**self.message, "content": "\n".join(self.words) or None, **told, **made}
        for call in self.calls:
            if call["id"] in self.results:
                line, gave = self.results[call["id"]]
                said = {"role": "tool", "tool_call_id": call["id"], "name": call["name"], "content": "\n".join(gave)}
                yield line, said


def shown_messages(entries: Iterable[Framed]) -> Iterator[Framed]:
    """Yield the messages of a task, what is passed over, and refusals as they are."""
    reply: _Reply | None = None
    for raw in entries:
        entry = raw.parse() if isinstance(raw, Raw) else raw
        if not isinstance(entry, Record):
            yield entry
            continue
        fields, kind = as_dict(entry.value), _kind(as_dict(entry.value))
        words = text(fields.get("text")) or ""
        if kind in _USERS or (kind == "text" and entry.line == 1):
            yield from _told(reply, entry)
            reply = None
            yield entry._replace(value={"role": "user", "content": words, **picked(fields, ("ts",))}, raw=None)
        elif kind == "api_req_started":
            yield from _told(reply, entry)
            reply = _begun(entry, fields)
        elif fields.get("partial") is True or not _adds(reply := reply or _begun(entry, {}), entry.line, kind, words):
            yield Passed(entry.line, _PASSED)
    yield from _told(reply, None)


def _kind(fields: Mapping[str, Any]) -> str:
    return str(fields.get("say") if fields.get("type") == "say" else fields.get("ask"))


def _begun(entry: Record, fields: Mapping[str, Any]) -> _Reply:
    request, about = as_dict(embedded(fields.get("text"))), as_dict(as_dict(entry.value).get("modelInfo"))
    counts = {name: request[own] for own, name in _COUNTS.items() if isinstance(request.get(own), int)}
    told = {"model": text(about.get("modelId")), "cost": request.get("cost"), "usage": counts or None}
    held = {name: value for name, value in told.items() if value is not None}
    return _Reply(entry.line, {"role": "assistant", **picked(as_dict(entry.value), ("ts",)), **held})


def _adds(reply: _Reply, entry: int, kind: str, words: str) -> bool:
    """Add an entry to a reply; return whether it is of one."""
    held = as_dict(embedded(words)) if words.lstrip().startswith("{") else {}
    if kind in _WORDS or (kind in ("followup", "plan_mode_respond") and words):
        said = text(held.get("question")) or text(held.get("response")) if kind not in _WORDS else None
        reply.words += [said or words] if words else []
    elif kind == "reasoning":
        reply.thoughts += [words] if words else []
    elif kind == "tool" and held.get("tool"):
        name = str(held["tool"])
        is_listing = name in _LISTING
        given = {k: v for k, v in held.items() if k not in _SHOWN or (k == "content" and _is_written(name))}
        reply.call(entry, name, given, str(held.get("content") or "") if is_listing else None)
    elif kind == "command":
        reply.call(entry, "execute_command", {"command": words})
    elif kind == "use_mcp_server" and held:
        name = text(held.get("toolName")) or text(held.get("type")) or kind
        reply.call(entry, name, embedded(held.get("arguments")) or {"uri": held.get("uri")})
    elif kind in ("browser_action", "browser_action_launch"):
        reply.call(entry, "browser_action", held or {"url": words})
    elif kind in _GAVE:
        reply.shows(entry, text(held.get("logs")) or "" if kind == "browser_action_result" else words)
    else:
        return False
    return bool(words)


def _is_written(tool: str) -> bool:
    return tool in ("newFileCreated", "editedExistingFile", "appliedDiff", "insertContent")


def _told(reply: _Reply | None, at: Record | None) -> Iterator[Framed]:
    for line, message in reply.messages() if reply is not None else ():
        yield Record(line, message, None, at.tags if at is not None else (), line)


def is_shown(head: bytes) -> bool:
    """Whether a file begins as one of these: a list of entries, each with its kind."""
    begun = head[:_PROBED].replace(b" ", b"").replace(b"\n", b"")
    return any(mark in begun for mark in MARKS)
