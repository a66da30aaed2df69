"""Messages as mini-swe-agent writes them: what a reply did, and how its command ended.

In: one message of any version. Out: the reply in normal form, its command, a result's status, and the usage of a call.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from flywheel.reading.messages import Message, flat_text, messages
from flywheel.reading.status import FAILED, OK, UNKNOWN
from flywheel.reading.usage import token_counts
from flywheel.reading.values import as_dict, as_list, ident, number, present, text

NOT_RUN = "action was not executed"
_BLOCK = re.compile(r"```(?:bash|mswea_bash_command)[^\S\n]*\n(.*?)\n```", re.DOTALL)
RETURNED = re.compile(r"\s*<returncode>(-?\d+)</returncode>")
_TIMED_OUT = "The last command <command>"


def reply_of(turn: Mapping[str, Any]) -> Message:
    """Return an assistant message, also where it is a response of items."""
    items = [as_dict(item) for item in as_list(turn.get("output"))]
    if not items:
        return messages([{**turn, "role": "assistant"}])[0]
    contents = [part for item in items if item.get("type") == "message" for part in as_list(item.get("content"))]
    thought = [flat_text(item.get("summary")) for item in items if item.get("type") == "reasoning"]
    entries = [{**item, "id": item.get("call_id")} for item in items if item.get("type") == "function_call"]
    reply = {"role": "assistant", "content": contents or None, "tool_calls": entries}
    return messages([reply | {"reasoning": "\n".join(t for t in thought if t)}])[0]


def command_of(message: Message, extra: Mapping[str, Any]) -> str | None:
    """Return the command of a reply in plain text: as it was parsed, else its only code block."""
    actions = as_list(extra.get("actions"))
    items = [text(as_dict(action).get("command")) for action in actions]
    if not actions:
        items = [block.strip() for block in _BLOCK.findall(message.get("content") or "")]
    return items[0] if len(items) == 1 else None


def status_of(turn: Mapping[str, Any], extra: Mapping[str, Any]) -> str:
    """Return how a command ended: by its return code, which older files only have in the message's text."""
    if extra.get("exception_info") == NOT_RUN:
        return UNKNOWN
    content = flat_text(turn.get("content")) or ""
    shown = RETURNED.match(content)
    code = number(extra.get("returncode")) if "returncode" in extra else number(shown[1]) if shown else None
    if code is not None:
        return FAILED if code else OK
    return FAILED if content.startswith(_TIMED_OUT) else UNKNOWN


def refused_reply(extra: Mapping[str, Any]) -> Message | None:
    """Return the reply that could not be parsed."""
    for choice in as_list(as_dict(extra.get("response")).get("choices")):
        return reply_of(as_dict(as_dict(choice).get("message")))
    if as_list(as_dict(extra.get("response")).get("output")):
        return reply_of(as_dict(extra["response"]))
    written = text(extra.get("model_response"))
    return {"role": "assistant", "content": written} if written else None


def usage_of(extra: Mapping[str, Any]) -> dict[str, Any]:
    response = as_dict(extra.get("response"))
    usage = as_dict(response.get("usage"))
    choice = as_dict(next(iter(as_list(response.get("choices"))), None))
    return present(
        response_id=ident(response.get("id")),
        finish_reason=text(choice.get("finish_reason")),
        **token_counts(usage),
        cost_usd=number(extra.get("cost")),
    )
