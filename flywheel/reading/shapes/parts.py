"""Parts of a message, tool calls and tool results under the names that each framework gives them.

In: a part or a call of any of them. Out: typed parts ({"type": "text" | "thinking" | "tool_call" | "tool_result", ...})
and calls with id, name and arguments, as `_messages` reads them. Used by `turns`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from flywheel.reading.messages import flat_text
from flywheel.reading.status import FAILED, tool_status
from flywheel.reading.values import as_dict, embedded, first, picked, present, text

CALL_KINDS = ("tool_use", "tool_call", "tool-call", "function_call", "custom_tool_call", "mcp_call")
RESULT_KINDS = (
    "tool_result", "tool-result", "tool_call_response", "function_result", "function_call_output",
    "custom_tool_call_output",
)  # fmt: skip
_SDK_KINDS = ("text", "json", "content", "error-text", "error-json", "execution-denied")
_IDS = ("call_id", "toolCallId", "toolUseId", "tool_call_id", "tool_use_id", "id")
_CALLS = ("functionCall", "function_call", "toolUse", "tool_call")  # what an untyped part is called by
_SIGNATURES = {"thought_signature", "thoughtSignature"}
_RESULTS = ("functionResponse", "function_response", "toolResult")


def parts_of(given: Iterable[Any]) -> list[Any]:
    """Return the parts of a message as typed parts, without those that nobody said."""
    return [_part(item) for item in given if not _unsaid(as_dict(item))]


def _unsaid(part: Mapping[str, Any]) -> bool:
    approval = str(part.get("type")).startswith("tool-approval-")
    return approval or part.get("visible") is False or (bool(part) and part.keys() <= _SIGNATURES)


def _part(given: Any) -> Any:
    part = as_dict(as_dict(given).get("message_content")) or as_dict(given)
    given = part or given
    kind = first(part, ("type", "part_kind", "kind", "block_type", "content_type"))
    if kind is None:
        return _untyped(part, given)
    if kind in CALL_KINDS:
        return {"type": "tool_call", **call_of(part)} if "function" not in part else given
    if kind in RESULT_KINDS:
        return result_of(part)
    if kind in ("reasoning", "thinking") and "summary" in part:
        return {"type": "thinking", "thinking": thoughts_of(part)}
    return given if "type" in part else {**part, "type": kind}


def thoughts_of(item: Mapping[str, Any]) -> str:
    """Return the text of a reasoning item, whose parts have types of their own."""
    given = first(item, ("summary", "content", "text"))
    texts = (text(as_dict(part).get("text")) for part in given) if isinstance(given, list) else [flat_text(given)]
    return "\n".join(t for t in texts if t)


def _untyped(part: Mapping[str, Any], given: Any) -> Any:
    """Return a part of Gemini or Bedrock, or a call or result of AutoGen: they are known by their fields."""
    thoughts = as_dict(part.get("reasoningContent")).get("reasoningText")
    if part.get("thought") is True or thoughts:
        return {"type": "thinking", "thinking": flat_text(thoughts) or part.get("text")}
    if as_dict(first(part, _CALLS)) or ("arguments" in part and "name" in part):
        return {"type": "tool_call", **call_of(part)}
    answer = as_dict(first(part, _RESULTS)) or (part if "call_id" in part and "content" in part else {})
    if answer:
        return result_of(answer)
    if isinstance(part.get("text"), str):
        return {"type": "text", "text": part["text"]}
    if "json" in part and len(part) == 1:
        return flat_text(part["json"]) or ""
    return {"type": _media(part)} if _media(part) else given


def _media(part: Mapping[str, Any]) -> str | None:
    names = ("inlineData", "inline_data", "fileData", "file_data", "image", "document", "video", "executableCode")
    return next((name for name in names if part.get(name) is not None), None)


def call_of(given: Any) -> Any:
    """Return a call under names that `_messages.call` knows."""
    item = as_dict(embedded(given))
    item = as_dict(first(item, _CALLS)) or item
    name = first(item, ("toolName", "tool_name", "function_name"))
    if name is None and "function" in item and isinstance(item["function"], dict):
        return item
    plugin = text(item.get("plugin_name"))
    known = text(name) or text(item.get("name"))
    return {
        "id": _call_id(item),
        "name": f"{plugin}-{known}" if plugin and known and "-" not in known else known,
        "arguments": first(item, ("arguments", "args", "input", "tool_kwargs", "parameters")),
    }


def _call_id(item: Mapping[str, Any]) -> Any:
    """Return a call's id; Microsoft's framework writes a path whose last part it is."""
    given = first(item, _IDS)
    return given[-1] if isinstance(given, list) and given else given


def result_of(item: Mapping[str, Any]) -> dict[str, Any]:
    """Return a result as a typed part."""
    given = first(item, ("output", "result", "response", "content", "toolResult"))
    flags = picked(item, ("is_error", "isError", "status", "error"))
    if flags.get("status") == "completed":  # of the item, not of what it tells
        del flags["status"]
    kind = as_dict(given).get("type")
    if isinstance(kind, str) and kind in _SDK_KINDS:
        given, told = _sdk_output(kind, as_dict(given))
        flags |= told
    part = {
        "type": "tool_result",
        "tool_call_id": _call_id(item),
        "name": first(item, ("toolName", "tool_name", "name")),
        "content": parts_of(given) if isinstance(given, list) and _are_parts(given) else given,
    }
    return present(part) | flags


def _sdk_output(kind: str, output: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return what the AI SDK wrapped: its type says whether it is an error, except for one returned as a result."""
    if kind == "execution-denied":
        return {"denied": True, "reason": output.get("reason")}, {}
    value = output.get("value")
    return value, {"is_error": kind.startswith("error") or tool_status(flat_text(value)) == FAILED}


def _are_parts(given: list[Any]) -> bool:
    return all(isinstance(p, dict) and ("type" in p or set(p) <= {"text", "json", "image"}) for p in given)
