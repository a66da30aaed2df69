"""Items of OpenAI's Responses API as messages: one turn of the agent is several items.

In: a list of items, as input or output, or one item among a framework's messages. Out: messages in normal form: items
of the agent in a row are one assistant message, and a tool that the API itself ran gives its call, its result and then
the next message.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from flywheel.reading.messages import (
    Message,
    arguments,
    flat_text,
    messages,
    name_results,
    result_message,
)
from flywheel.reading.status import FAILED, OK, UNKNOWN, tool_status
from flywheel.reading.values import as_dict, as_list, first, ident, picked, present, text

_RESULTS = ("output", "outputs", "results", "result")
_GIVEN = ("action", "operation")
_FIELDS = ("code", "queries", "query", "prompt", "input")
_RUN_ELSEWHERE = ("function_call", "custom_tool_call", "mcp_approval_request")  # their results come as later items
_NAMED = (*_RUN_ELSEWHERE, "mcp_call")  # of other calls, the kind is the tool
_CLIENT_RUN = ("computer_call", "local_shell_call", "shell_call", "apply_patch_call", "tool_search_call", "program")
_STATES = {"completed": OK, "failed": FAILED}


IDS = ("call_id", "callId", "toolCallId", "toolUseId", "tool_call_id", "tool_use_id", "toolUseID", "id",
       "request_id", "tool_id")  # fmt: skip
TOOLS = ("toolName", "tool_name", "name")


def messages_of_item(item: Mapping[str, Any]) -> list[Message]:
    """Return the messages of one item: none for an item that is not part of a conversation."""
    turns = _Turns()
    turns.take(item)
    return turns.turns


def item_messages(items: Any, *, asked: Iterable[str] = ()) -> list[Message]:
    """Return items as messages; a text is the user's. Other items than those of a conversation are left out.

    Args:
        items: the items.
        asked: ids of calls before these items that a person had to approve.
    """
    if isinstance(items, str):
        return [{"role": "user", "content": items}]
    turns = _Turns(asked)
    for item in as_list(items):
        turns.take({"role": "user", "content": item} if isinstance(item, str) else as_dict(item))
    name_results(turns.turns)
    return turns.turns


class _Turns:
    """Puts items together to messages."""

    def __init__(self, asked: Iterable[str] = ()) -> None:
        self.turns: list[Message] = []
        self._asked = set(asked)  # calls that a person had to approve: they were made when they were asked for
        self._latest: dict[str, str] = {}  # id of the latest call of each kind

    def take(self, item: Mapping[str, Any]) -> None:
        """Add one item to the turn that it is part of."""
        kind = item.get("type")
        kind = kind if isinstance(kind, str) else "message"
        if "role" in item or kind == "message":
            self._message(item)
        elif kind == "reasoning":
            self._thought(item)
        elif kind.endswith("_output"):
            called = item.get("call_id") or self._latest.get(kind.removesuffix("_output"))  # of a hosted tool
            shown = {"tools": item["tools"]} if "tools" in item else first(item, ("output", "results", "result"))
            self.turns.append(_result(shown, {**item, **present(call_id=called)}))
        elif kind == "mcp_approval_response":
            if item.get("approve") is False:
                denied = {"denied": True, "reason": item.get("reason")}
                self.turns.append(result_message(flat_text(denied), {"call_id": item.get("approval_request_id")}))
        elif kind == "program" or kind.endswith(("_call", "_approval_request")):
            self._called(kind, item)

    def _message(self, item: Mapping[str, Any]) -> None:
        turns = messages([{"role": "assistant", **item}])
        if turns and turns[-1]["role"] == "assistant":
            content = turns[-1].get("content")
            if content is not None:
                message = self._open()
                message["content"] = f"{message['content']}\n{content}" if "content" in message else content
        else:
            self.turns += turns

    def _thought(self, item: Mapping[str, Any]) -> None:
        thought = thoughts_of(item)
        message = self._open()
        if thought:
            before = message.get("reasoning")
            message["reasoning"] = f"{before}\n{thought}" if before else thought

    def _called(self, kind: str, item: Mapping[str, Any]) -> None:
        approved = ident(item.get("approval_request_id"))
        is_made = approved in self._asked
        call_id = approved if approved and is_made else ident(first(item, IDS)) or ""
        name = text(first(item, TOOLS)) or ("" if kind in _NAMED else kind.removesuffix("_call"))
        self._latest[kind.removesuffix("_call")] = call_id
        if kind.endswith("_approval_request"):
            self._asked.add(call_id)
        if not is_made:
            self._open().setdefault("tool_calls", []).append({"id": call_id, "name": name, **_arguments(kind, item)})
        if kind in _RUN_ELSEWHERE or kind in _CLIENT_RUN:
            return
        result = first(item, _RESULTS)
        error = item.get("error")
        stated = FAILED if error else _STATES.get(str(item.get("status")), UNKNOWN)
        if stated == UNKNOWN and "error" in item and result is not None:
            stated = OK
        self.turns.append(
            result_message(flat_text(result if result is not None else error), {"call_id": call_id}, status=stated)
        )

    def _open(self) -> Message:
        """Return the assistant message that is not complete yet."""
        if not self.turns or self.turns[-1]["role"] != "assistant":
            self.turns.append({"role": "assistant"})
        return self.turns[-1]


def thoughts_of(item: Mapping[str, Any]) -> str:
    """Return the summary, or the thoughts themselves where a server shows them; what is encrypted has none."""
    value = next((item[name] for name in ("content", "summary", "text") if item.get(name)), None)
    value = value.get("text") if isinstance(value, dict) else value
    texts = (text(as_dict(part).get("text")) for part in value) if isinstance(value, list) else [flat_text(value)]
    return "\n".join(t for t in texts if t)


def _arguments(kind: str, item: Mapping[str, Any]) -> dict[str, Any]:
    """Return a call's arguments; a custom tool is given a text, other built-in tools have fields of their own."""
    if kind == "custom_tool_call":
        return {"arguments": {"input": item.get("input")}}
    if "arguments" in item:
        return arguments(item["arguments"])
    whole = as_dict(first(item, _GIVEN)) or {name: item.get(name) for name in _FIELDS}
    return arguments(present(whole))


def _result(output: Any, item: Mapping[str, Any]) -> Message:
    """Return a tool's result; a shell gives one outcome a command."""
    content = flat_text(output)
    outcomes = [as_dict(as_dict(part).get("outcome")) for part in as_list(output)]
    codes = [outcome.get("exit_code") for outcome in outcomes if outcome]
    fields = present(call_id=first(item, IDS), name=first(item, TOOLS)) | picked(item, ("error", "is_error", "isError"))
    if codes:
        return result_message(content, fields, status=OK if all(code == 0 for code in codes) else FAILED)
    status = FAILED if item.get("status") == "failed" else tool_status(content, fields)
    return result_message(content, fields, status=status)


def text_part(part: Any) -> Any:
    """Return a part whose text the Assistants API wraps once more under its text, another as it is."""
    value = as_dict(as_dict(part).get("text")).get("value")
    return {"type": "text", "text": value} if isinstance(value, str) else part
