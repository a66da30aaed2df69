"""What frameworks write as a model call's input and output, as messages that `_messages` understands.

In: a list of messages, a request or response body, a chat context, a text; parts of the AI SDK, of Gemini, of
OpenInference. Out: messages in normal form. Telling them apart needs no framework's name: each has keys of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from flywheel.extensions import BadRecordError
from flywheel.stages.ingest.readers._messages import Message, call, flat_text, messages, tool_schemas
from flywheel.stages.ingest.readers._status import FAILED, tool_status
from flywheel.stages.ingest.readers._values import as_dict, as_list, embedded, first, text

__all__ = ["call_in", "messages_in", "schemas_in"]

_CUT = re.compile(r'\s*(?:\[\s*(?:\{\s*(?:"|\Z)|\Z)|\{\s*(?:"|\Z))')  # begins as JSON does
_LISTS = ("messages", "contents", "items", "choices", "candidates", "generations", "input", "output")
_TYPE_ROLES = {
    "human": "user", "HumanMessage": "user", "ai": "assistant", "AIMessage": "assistant", "AIMessageChunk": "assistant",
    "system": "system", "SystemMessage": "system", "tool": "tool", "ToolMessage": "tool",
}  # fmt: skip
_SCHEMA_LISTS = ("tools", "function_tools", "output_tools", "function_declarations", "functionDeclarations")


def messages_in(given: Any, role: str) -> list[Message]:
    """Return the messages in a call's input or output; what is no message is one message of the given role.

    Raises:
        BadRecordError: the text was cut off, or a message has a role that nobody knows.
    """
    found = embedded(given)
    if isinstance(found, str):
        if _CUT.match(found):
            raise BadRecordError("truncated", "a span's messages are cut off; raise the SDK's attribute length limit")
        return [{"role": role, "content": found}]
    return messages(list(_found(found, role)))


def _found(given: Any, role: str) -> Iterator[dict[str, Any]]:
    if isinstance(given, list):
        nested = given and isinstance(given[0], list)  # LangChain: a batch, of which a span is one
        for item in given[0] if nested else given:
            yield from _found(item, role)
    elif isinstance(given, dict):
        yield from _object(given, role)
    elif given is not None:
        yield {"role": role, "content": flat_text(given)}


def _object(given: Mapping[str, Any], role: str) -> Iterator[dict[str, Any]]:
    """An object is a message, wraps one, or holds a list of them."""
    inner = _wrapped(given)
    content = as_dict(given.get("content"))
    if inner:
        yield from _found({"type": _class_of(given), **inner}, role)
    elif "parts" in content:  # Gemini's response
        yield from _found(content, role)
    elif _role(given) or text(given.get("type")) in _ITEMS:
        yield _message(given, _role(given) or role)
    elif any(isinstance(embedded(given.get(name)), list) for name in _LISTS):
        yield from _instructions(given)
        name = next(n for n in _LISTS if isinstance(embedded(given.get(n)), list))
        yield from _found(embedded(given[name]), role)
    elif "parts" in given or "tool_calls" in given or "content" in given:
        yield _message(given, role)
    else:
        told = first(given, ("text", "prompt", "completion", "input", "output"))
        said = told if isinstance(told, str) else text(as_dict(told).get("text"))
        yield {"role": role, "content": said or flat_text(dict(given))}


def _wrapped(given: Mapping[str, Any]) -> Mapping[str, Any]:
    kind = given.get("type")
    if kind == "constructor":
        return as_dict(given.get("kwargs"))
    if isinstance(kind, str) and kind in _TYPE_ROLES and "content" not in given:
        return as_dict(given.get("data"))
    return as_dict(embedded(given.get("message")))


def _class_of(given: Mapping[str, Any]) -> Any:
    names = as_list(given.get("id"))
    return names[-1] if names else given.get("type")


def _role(given: Mapping[str, Any]) -> str | None:
    kind = given.get("type")
    return text(given.get("role")) or (_TYPE_ROLES.get(kind) if isinstance(kind, str) else None)


def _instructions(given: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """A request body may keep its system prompt beside the messages."""
    config = as_dict(given.get("config"))
    names = ("system", "instructions", "system_instruction", "systemInstruction")
    said = first(given, names) or first(config, names)
    if said is not None:
        parts = as_dict(said).get("parts")
        yield {"role": "system", "content": _parts(parts if isinstance(parts, list) else as_list(said)) or said}


def _message(given: Mapping[str, Any], role: str) -> dict[str, Any]:
    item = _ITEMS.get(str(given.get("type")))
    if item is not None:
        return item(given)
    message = {**given, "role": role}
    name = "parts" if "content" not in given and "contents" not in given else "content"
    parts = first(given, ("contents", "content", "parts"))
    if isinstance(parts, list):
        message[name] = [p for p in _parts(parts) if not _said_twice(p, given)]
        if role == "tool" and parts and not message[name]:
            message = {"role": "user", "content": None}
    calls = [call_in(c) for c in as_list(embedded(given.get("tool_calls")))]
    calls = calls or [call_in(c) for c in as_list(as_dict(given.get("additional_kwargs")).get("tool_calls"))]
    if calls:
        message["tool_calls"] = calls
    legacy = text(given.get("function_call_name"))
    if legacy:
        message["function_call"] = {"name": legacy, "arguments": given.get("function_call_arguments_json")}
    return message


def _function_call(given: Mapping[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "tool_calls": [{**given, "id": first(given, ("call_id", "id"))}]}


def _function_output(given: Mapping[str, Any]) -> dict[str, Any]:
    content = flat_text(given.get("output"))
    return {**given, "role": "tool", "id": None, "tool_call_id": given.get("call_id"), "content": content}


def _reasoning(given: Mapping[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "reasoning": flat_text(given.get("summary"))}


# Of LiveKit's chat contexts and of the Responses API.
_ITEMS = {"function_call": _function_call, "function_call_output": _function_output, "reasoning": _reasoning}


def _said_twice(part: Any, message: Mapping[str, Any]) -> bool:
    """OpenInference may tell a call in the parts and in `tool_calls`."""
    return as_dict(part).get("type") == "tool_use" and bool(message.get("tool_calls"))


def _parts(given: list[Any]) -> list[Any]:
    return [part for item in given if (part := _part(item)) is not None]


def _part(given: Any) -> Any:
    """Return a part as GenAI conventions write it; None for what nobody said."""
    if not isinstance(given, dict):
        return given
    part = as_dict(given.get("message_content")) or given
    kind = str(part.get("type") or "").replace("-", "_")
    if part.get("visible") is False or kind.startswith("tool_approval_"):
        return None
    if kind == "tool_call":
        return {"type": kind, **call_in(part)}
    if kind == "tool_result" and "toolCallId" in part:
        return _sdk_result(part)
    if not kind:
        return _gemini(part)
    return {**part, "type": kind}


def _gemini(part: Mapping[str, Any]) -> dict[str, Any] | None:
    made = as_dict(first(part, ("function_call", "functionCall")))
    if made:
        return {"type": "tool_call", **made}
    answered = as_dict(first(part, ("function_response", "functionResponse")))
    if answered:
        return {"type": "tool_call_response", **answered}
    if part.get("thought") is True:
        return {"type": "reasoning", "content": part.get("text")}
    if set(part) <= {"thought_signature", "thoughtSignature"}:
        return None
    return dict(part)


def _sdk_result(part: Mapping[str, Any]) -> dict[str, Any]:
    """The AI SDK's results say in their type whether they are errors."""
    output = as_dict(part.get("output"))
    kind = output.get("type")
    value = output.get("value") if "value" in output else first(part, ("output", "result"))
    made = {"type": "tool_call_response", "id": part.get("toolCallId"), "name": part.get("toolName"), "response": value}
    if kind == "execution-denied":
        return made | {"response": {"denied": True, "reason": output.get("reason")}}
    flag = kind in {"error-text", "error-json"} if isinstance(kind, str) else part.get("isError")
    if flag is False and tool_status(flat_text(value)) == FAILED:
        flag = True
    return made | ({"is_error": flag} if isinstance(flag, bool) else {})


def call_in(given: Any) -> dict[str, Any]:
    """Return a call with the names that `_messages.call` knows."""
    outer = as_dict(given)
    found = as_dict(outer.get("tool_call")) or outer
    if "toolName" not in found:
        return dict(found)
    arguments = embedded(first(found, ("input", "args")))
    return {"id": found.get("toolCallId"), "name": found["toolName"], "arguments": arguments}


def schemas_in(given: Any) -> list[dict[str, Any]] | None:
    """Return the tool schemas in a list of them, or in a request that has one."""
    return tool_schemas(list(_schemas(given))) if given is not None else None


def _schemas(given: Any) -> Iterator[dict[str, Any]]:
    found = embedded(given)
    if isinstance(found, list):
        for item in found:
            yield from _schemas(item)
        return
    item = as_dict(found)
    inner = [as_dict(embedded(item[name])) or embedded(item[name]) for name in _SCHEMA_LISTS if item.get(name)]
    wrapped = first(as_dict(item.get("tool")) or item, ("json_schema",))
    if inner:
        for more in inner:
            yield from _schemas(more)
    elif isinstance(as_dict(item.get("config")).get("tools"), list):
        yield from _schemas(item["config"]["tools"])
    elif wrapped is not None:
        yield from _schemas(wrapped)
    elif call(item) is not None:
        parameters = first(item, ("parameters_json_schema", "parametersJsonSchema"))
        yield {**item, "parameters": parameters} if parameters is not None else dict(item)
