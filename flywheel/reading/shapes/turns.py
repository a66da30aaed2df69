"""Messages of any framework, and their parts, in the form that `flywheel.reading.messages` reads.

In: a message as LangChain, LangGraph, Pydantic AI, LlamaIndex, AutoGen, BeeAI, Koog, Semantic Kernel, the Vercel AI
SDK, Gemini, Bedrock, smolagents, OpenInference, LiveKit or the OpenAI Responses API write it. Out: plain dicts with
role, content (a text or typed parts: {"type": "text" | "thinking" | "tool_call" | "tool_result", ...}) and tool_calls.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from flywheel.reading.memo import cached_by_content
from flywheel.reading.messages import ROLES, flat_text, is_mcp_result
from flywheel.reading.shapes.acts import call_in, result_in, tool_in
from flywheel.reading.shapes.items import IDS, TOOLS, messages_of_item, thoughts_of
from flywheel.reading.shapes.reprs import fields_of_repr
from flywheel.reading.status import FAILED, tool_status
from flywheel.reading.values import as_dict, as_list, embedded, first, ident, picked, present, text

Turn = dict[str, Any]

_SPOKEN = ("contents", "content", "parts", "blocks", "items", "text")  # fields that may hold a message's text
_KNOWN = set(ROLES.values())
_BLOCKS = ("text", "tool_use", "tool_result")  # that may be alone, without the list around it
_SAYING = {*_SPOKEN, "tool_calls", "function_call", "function_call_name", "json"}
_OTHER_CALLS = ("tool_use", "tool_call", "tool-call", "toolCall")
_OTHER_RESULTS = (
    "tool_result", "tool-result", "tool_call_response", "tool_response", "function_result", "tool-error",
    "function_response",
)  # fmt: skip
CALL_KINDS = (*_OTHER_CALLS, "function_call", "custom_tool_call", "mcp_call")
RESULT_KINDS = (*_OTHER_RESULTS, "function_call_output", "custom_tool_call_output")
ITEM_KINDS = ("message", "reasoning", *CALL_KINDS, *RESULT_KINDS)
_SDK_KINDS = ("text", "json", "content", "error-text", "error-json", "execution-denied")
_CALLS = ("functionCall", "function_call", "toolUse", "tool_call")  # what an untyped part is called by
_GIVEN = ("arguments", "args", "input", "tool_kwargs", "parameters", "params_as_json", "tool_args", "tool_input",
          "tool_arguments", "params", "kwargs")  # fmt: skip
_USES = ("toolUseId", "tool_use_id")  # where an entry of a log has a number of its own
_SIGNATURES = {"thought_signature", "thoughtSignature"}
_RESULTS = ("functionResponse", "function_response", "toolResult", "tool_call_result")
OF_CALL = ("tool_call_id", "toolCallId", "tool_use_id", "call_id", "callId", "toolUseId", "tool-call-id")
# How a call ended.
_ENDED = ("is_error", "isError", "status", "error", "success", "ok", "failed", "exit_code", "exitCode")
_GAVE = ("output", "result", "response", "content", "toolResult", "result_value", "tool_return", "error")
_ANSWERED = ("output", "result")  # what only a result of the AI SDK has
_PYDANTIC_RESULTS = ("tool-return", "builtin-tool-return")
_PYDANTIC_SAID = {"system-prompt": "system", "user-prompt": "user", "speech": "user", "compaction": "user"}
_EXTENSIONS_AI = "Microsoft.Extensions.AI."  # whose parts are named by class, or by `$type`
_CLASSES = {
    "TextContent": "text", "TextReasoningContent": "reasoning", "FunctionCallContent": "function_call",
    "FunctionResultContent": "function_result", "functionCall": "function_call", "functionResult": "function_result",
}  # fmt: skip


def is_turn(value: Any) -> bool:
    """Whether a value is a message of some framework."""
    if isinstance(value, str):
        value = fields_of_repr(value)
    item = _unwrapped(as_dict(value))
    if isinstance(item.get("role"), str):
        return not _SAYING.isdisjoint(item) or item.keys() <= {"role", "finish_reason"}
    if item.get("role") is None and _makes_calls(item):
        return True
    return _typed_role(item) is not None or item.get("type") in ITEM_KINDS or _is_pydantic_ai(item)


def _makes_calls(item: Mapping[str, Any]) -> bool:
    """Whether a message without a role calls tools, as only the assistant does."""
    parts = (*as_list(item.get("parts")), *as_list(item.get("content")))
    return bool(as_list(item.get("tool_calls"))) or any(as_dict(part).get("type") in CALL_KINDS for part in parts)


def turns_of(items: Sequence[Any], role: str = "user") -> list[Turn]:
    """Return the messages of a list whose items are messages, items of a response, or plain texts.

    Args:
        items: the list.
        role: the role of items that name none.
    """
    entries: list[Turn] = []
    for item in instructed_once(items):
        for turn in map(dict, _messages_in((role, item))):
            _settle(turn, entries)
            if _continues(item, turn, entries):
                _join(entries[-1], turn)
            else:
                entries.append(turn)
    return entries


def instructed_once(items: Sequence[Any], *, behind: bool = False) -> list[Any]:
    """Return messages of Pydantic AI, each of whose requests repeats the instructions, with those of the first alone.

    Args:
        items: messages.
        behind: whether others are before them.
    """
    kept: list[Any] = []
    for item in items:
        repeats = behind and isinstance(item, dict) and "instructions" in item and "parts" in item
        kept.append({**item, "instructions": None} if repeats else item)
        behind = behind or bool(as_dict(item).get("instructions"))
    return kept


@cached_by_content
def _messages_in(said: tuple[str, Any]) -> list[Turn]:
    """Return the messages in an item."""
    return list(_turns(*said))


def _turns(role: str, value: Any) -> Iterator[Turn]:
    item = value
    if isinstance(item, str):
        item = fields_of_repr(item) or {"role": role, "content": item}
    elif isinstance(item, list):
        item = pair_of_texts(item) or {"role": role, "content": item}
    item = _unwrapped(as_dict(item))
    if _is_pydantic_ai(item):
        yield from _pydantic_ai(item)
    elif item.get("type") in ITEM_KINDS and "role" not in item:
        yield from _item(item)
    elif (typed := _typed_role(item)) is not None:
        yield _message(typed, _fields(item))
    elif item:
        named = item.get("role")
        if isinstance(named, str):  # also as a class writes itself: `MessageRole.USER`
            role = _role(named.rpartition(".")[2] if named.replace(".", "_").isidentifier() else named)
        elif _makes_calls(item):
            role = "assistant"
        yield _message(role, item)


def _unwrapped(item: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the message in an item that wraps one, as OpenInference's do."""
    inner = embedded(item.get("message")) if "role" not in item else None
    return inner if isinstance(inner, dict) and isinstance(inner.get("role"), str) else item


def pair_of_texts(item: Any) -> Turn | None:
    """Return a message that is written as a pair of role and text."""
    pair = item if isinstance(item, list) and all(isinstance(word, str) for word in item) else []
    if len(pair) == len(("role", "text")) and pair[0].lower() in ROLES:
        return {"role": pair[0], "content": pair[1]}
    return None


def _fields(item: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the fields of a LangChain message, which may be wrapped once."""
    return as_dict(item.get("kwargs")) or as_dict(item.get("data")) or item


def _typed_role(item: Mapping[str, Any]) -> str | None:
    """Return the role of a message that has a class instead: LangChain's and AutoGen's."""
    path = as_list(item.get("id"))
    kind = path[-1] if path and "kwargs" in item else item.get("type")
    if not isinstance(kind, str) or ("role" in item and "kwargs" not in item):
        return None
    known = kind.endswith(("Message", "MessageChunk", "Event")) or kind in ROLES or kind in ("chat", "AIMessageChunk")
    fields = _fields(item)
    if not known or ("content" not in fields and not fields.get("tool_calls")):
        return None
    name = kind.removesuffix("Chunk").removesuffix("Message").removesuffix("Event").lower()
    if name in ROLES:
        return name
    if name == "chat":
        return _role(str(fields.get("role") or "user"))
    return "user" if fields.get("source", "user") == "user" else "assistant"


def _role(named: str) -> str:
    """Return a known role in small letters; another as it is: a key in its place is found by its case."""
    return named.lower() if named.lower() in ROLES else named


def _message(role: str, item: Mapping[str, Any]) -> Turn:
    """Return a message with a role of some kind; its calls may be in five places and count once."""
    content = first(item, _SPOKEN)
    content = [content] if as_dict(content).get("type") in _BLOCKS else content
    gave = result_in(item) if content is None and ROLES.get(role) == "tool" else None
    if gave is not None and not isinstance(gave["result"], list):
        return {"role": "tool", "content": [result_of({**present(tool_name=tool_in(item)), **item, **gave})]}
    calls_in_text = koogs_calls(role, content)
    if calls_in_text:
        return {"role": "assistant", "content": None, "tool_calls": calls_in_text}
    turn: Turn = {"role": ROLES.get(role, role)}
    calls = _calls(item)
    parts = parts_of(content) if isinstance(content, list) else None
    if parts == [] and content and role == "tool":  # nothing but approvals
        return {"role": "user", "content": None}
    if parts is not None and calls:
        parts = [p for p in parts if as_dict(p).get("type") not in ("tool_use", "tool_call")]
    turn["content"] = content if parts is None else parts
    if role == "tool" and not flat_text(turn["content"]) and text(item.get("error")):  # what the agent was shown
        turn["content"] = item["error"]
    if calls:
        turn["tool_calls"] = calls
    beside = {**as_dict(item.get("additional_kwargs")), **item}
    told_flags = {k: item[k] for k in (*_ENDED, "tool_call_error") if k in item}
    flags = told_flags if turn["role"] not in {"system", "user", "assistant"} else {}
    if flags.get("tool_call_error") is not None:
        flags["is_error"] = bool(flags.pop("tool_call_error"))
    return (
        turn
        | present(
            reasoning=text(first(beside, ("reasoning_content", "reasoning", "thinking", "thought"))),
            tool_call_id=ident(first(beside, OF_CALL)),
            name=text(first(beside, ("name", "tool_name", "toolName"))) if turn["role"] != "assistant" else None,
            function_call=item.get("function_call") or _numbered_call(item),
        )
        | flags
    )


def _numbered_call(item: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the only call of a message as OpenInference flattens it."""
    name = text(item.get("function_call_name"))
    return {"name": name, "arguments": item.get("function_call_arguments_json")} if name else None


def koogs_calls(role: str, content: Any) -> list[Any]:
    """Return the calls that Koog writes as JSON text into the content, in a history even under the role of a tool.

    A tracer may have opened the text.
    """
    is_text = isinstance(content, str) and '"function"' in content
    if role not in ("assistant", "tool") or not (is_text or isinstance(content, list)):
        return []
    items = as_list(embedded(content))
    calls = [c for c in items if as_dict(as_dict(c).get("function")).get("name") and "id" in c]
    return calls if len(calls) == len(items) else []


def _calls(item: Mapping[str, Any]) -> list[Any]:
    extra = as_dict(item.get("additional_kwargs"))
    for place in (item, extra):
        value = embedded(first(place, ("tool_calls", "toolCalls", "tools_used")))
        if isinstance(value, list) and value:
            return [call_of(c) for c in value] + [call_of(c) for c in as_list(item.get("invalid_tool_calls"))]
    bad = [call_of(c) for c in as_list(item.get("invalid_tool_calls"))]
    legacy = extra.get("function_call")
    return bad or ([legacy] if isinstance(legacy, dict) else [])


def _item(item: Mapping[str, Any]) -> list[Turn]:
    """Return the messages of an item that has no role: of the Responses API, or a framework's call or result."""
    kind = item["type"]
    if kind == "message":
        return [_message("assistant", item)]
    if kind in _OTHER_CALLS:
        return [{"role": "assistant", "content": None, "tool_calls": [call_of(item)]}]
    if kind in _OTHER_RESULTS:
        return [{"role": "tool", "content": [result_of(item)]}]
    return messages_of_item(item)


def _continues(item: Any, turn: Turn, items: Sequence[Turn]) -> bool:
    """Whether a piece belongs to the message before it: the Responses API splits one answer into items."""
    if not items or turn["role"] != "assistant" or items[-1]["role"] != "assistant":
        return False
    kind = as_dict(item).get("type")
    return kind in ITEM_KINDS and (kind != "message" or not items[-1].get("tool_calls"))


def _join(before: Turn, turn: Turn) -> None:
    texts = [t for t in (flat_text(before.get("content")), flat_text(turn.get("content"))) if t]
    before["content"] = "\n".join(texts) if texts else None
    thoughts = [t for t in (before.get("reasoning"), turn.get("reasoning")) if t]
    if thoughts:
        before["reasoning"] = "\n".join(thoughts)
    calls = [*before.get("tool_calls", ()), *turn.get("tool_calls", ())]
    if calls:
        before["tool_calls"] = calls


def _settle(turn: Turn, before: Sequence[Turn]) -> None:
    """Give an unknown role a known one, and a result right behind a single call that call's id."""
    if turn["role"] not in _KNOWN:
        called = next((name for name in _called(before) if name.lower() == turn["role"].lower()), None)
        turn |= {"role": "tool", "name": called} if called else {}
    latest = as_list(before[-1].get("tool_calls")) if before and turn["role"] == "tool" else []
    if len(latest) == 1 and isinstance(turn.get("content"), str):
        turn.setdefault("tool_call_id", as_dict(latest[0]).get("id"))


def _called(turns: Sequence[Turn]) -> Iterator[str]:
    """Yield the names of the tools that were called."""
    for call in (as_dict(c) for turn in turns for c in as_list(turn.get("tool_calls"))):
        name = text(call.get("name")) or text(as_dict(call.get("function")).get("name"))
        if name:
            yield name


def _is_pydantic_ai(item: Mapping[str, Any]) -> bool:
    parts = as_list(item.get("parts"))
    return bool(parts) and all("part_kind" in as_dict(p) for p in parts)


def _pydantic_ai(item: Mapping[str, Any]) -> Iterator[Turn]:
    """Yield the messages of a ModelRequest or ModelResponse of Pydantic AI."""
    if item.get("kind") == "response" or any(p["part_kind"] in ("text", "tool-call") for p in item["parts"]):
        parts = [_pydantic_ai_part(p) for p in item["parts"]]
        yield {"role": "assistant", "content": parts}
        return
    if instructions := text(item.get("instructions")):
        yield {"role": "system", "content": instructions}
    for part in item["parts"]:
        kind, content = str(part["part_kind"]), first(part, ("content", "transcript"))
        if kind in _PYDANTIC_RESULTS or (kind == "retry-prompt" and part.get("tool_name")):
            ended = FAILED if kind == "retry-prompt" else part.get("outcome")
            yield {"role": "tool", "content": [result_of({**part, "id": None, **_pydantic_ended(ended)})]}
        elif content is not None and kind in _PYDANTIC_SAID:
            yield {"role": _PYDANTIC_SAID[kind], "content": parts_of(content) if isinstance(content, list) else content}
        elif kind.startswith("retry-"):  # what the framework writes of an answer that is of no use
            yield {"role": "context", "name": kind, "content": flat_text(content)}


def _pydantic_ended(outcome: Any) -> dict[str, Any]:
    """Return how a call ended as a flag, where its outcome shows it; one denied or interrupted gave nothing."""
    return {} if outcome is None else {"is_error": outcome != "success"}


def _pydantic_ai_part(part: Mapping[str, Any]) -> dict[str, Any]:
    kind = part["part_kind"]
    if kind in ("tool-call", "builtin-tool-call"):
        return {"type": "tool_call", **call_of(part)}
    if kind in _PYDANTIC_RESULTS:
        return result_of({**part, "id": None, **_pydantic_ended(part.get("outcome"))})
    if kind == "thinking":
        return {"type": "thinking", "thinking": part.get("content")}
    return {"type": "text", "text": flat_text(first(part, ("content", "transcript"))) or ""}


def parts_of(items: Iterable[Any]) -> list[Any]:
    """Return the parts of a message as typed parts, without approvals, hidden parts and signatures."""
    return [_part(item) for item in items if not _is_hidden(as_dict(item))]


def is_part(value: Any) -> bool:
    """Whether a value is a part of an answer, which needs no message around it: a text, a thought, a tool call."""
    part = as_dict(value)
    return part.get("type") in ("text", "tool_use", "thinking", "reasoning") or _is_sdk_call(part)


def _is_sdk_call(part: Mapping[str, Any]) -> bool:
    """Whether an object is a tool call of the AI SDK, which its spans log without a type."""
    named = isinstance(part.get("toolName", 0), str | None)
    return named and "toolCallId" in part and part.keys().isdisjoint(_ANSWERED)


def has_untyped_parts(items: Iterable[Mapping[str, Any]]) -> bool:
    """Whether messages have parts with neither a type nor a text, as Gemini, Bedrock and Haystack write calls."""
    parts = (as_dict(part) for item in items for part in as_list(item.get("content")))
    return any(part.keys().isdisjoint(("type", "text")) for part in parts if part)


def _is_hidden(part: Mapping[str, Any]) -> bool:
    approval = str(part.get("type")).startswith("tool-approval-")
    return approval or part.get("visible") is False or (bool(part) and part.keys() <= _SIGNATURES)


def _part(value: Any) -> Any:
    part = _plain(as_dict(as_dict(value).get("message_content")) or as_dict(value))
    value = part or value
    kind = first(part, ("type", "part_kind", "kind", "block_type", "content_type"))
    if kind is None:
        return _untyped(part, value)
    if kind in CALL_KINDS:
        return {"type": "tool_call", **call_of(part)} if "function" not in part else value
    if kind in RESULT_KINDS:
        return result_of(part)
    if kind == "reasoningContent":  # of Bedrock, in a part as OpenTelemetry has it
        return {"type": "thinking", "thinking": flat_text(as_dict(part.get("content")).get("reasoningText"))}
    if kind in ("reasoning", "thinking") and ("summary" in part or isinstance(part.get("content"), dict)):
        return {"type": "thinking", "thinking": thoughts_of(part)}
    return value if "type" in part else {**part, "type": kind}


def _plain(part: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a part of Microsoft.Extensions.AI under the names of other frameworks; others as they are."""
    kind = first(part, ("type", "$type"))
    if not isinstance(kind, str) or not (kind.startswith(_EXTENSIONS_AI) or "$type" in part):
        return part
    name = kind.removeprefix(_EXTENSIONS_AI)
    inner = part.get("content")
    fields = {**part, **inner} if isinstance(inner, dict) else dict(part)
    fields.pop("$type", None)
    return {**fields, "type": _CLASSES.get(name, name)}


def _untyped(part: Mapping[str, Any], value: Any) -> Any:
    """Return a part of Gemini or Bedrock, or a call or result of AutoGen: they are known by their fields."""
    thoughts = as_dict(part.get("reasoningContent")).get("reasoningText")
    thoughts = thoughts or as_dict(part.get("reasoning")).get("reasoning_text")  # Bedrock's, Haystack's
    thoughts = thoughts or (part.get("thinking") if "signature" in part else None)  # a block of Claude's agent SDK
    if part.get("thought") is True or thoughts:
        return {"type": "thinking", "thinking": flat_text(thoughts) or part.get("text")}
    if (
        as_dict(first(part, _CALLS))
        or {"arguments", "name"} <= part.keys()
        or _is_bare_call(part)
        or _is_sdk_call(part)
    ):
        return {"type": "tool_call", **call_of(part)}
    answered = ("content" in part and not {"call_id", "tool_use_id"}.isdisjoint(part)) or (
        "toolCallId" in part and first(part, _ANSWERED) is not None
    )
    answer = as_dict(first(part, _RESULTS)) or (part if answered else {})
    if answer:
        return result_of(answer)
    if isinstance(part.get("text"), str):
        return {"type": "text", "text": part["text"]}
    if "json" in part and len(part) == 1:
        return flat_text(part["json"]) or ""
    return {"type": _media(part)} if _media(part) else value


def _is_bare_call(part: Mapping[str, Any]) -> bool:
    """Whether a part names a tool and a call without words or a result: its arguments were not logged."""
    return {"id", "name"} <= part.keys() and part.keys().isdisjoint(("text", "content", "output", "result"))


def _media(part: Mapping[str, Any]) -> str | None:
    names = ("inlineData", "inline_data", "fileData", "file_data", "image", "document", "video", "executableCode")
    return next((name for name in names if part.get(name) is not None), None)


def call_of(value: Any) -> Any:
    """Return a call under names that `_messages.call` knows."""
    item = as_dict(embedded(value))
    item = as_dict(first(item, _CALLS)) or item
    name = first(item, ("toolName", "tool_name", "function_name", "functionName"))
    if name is None and "function" in item and isinstance(item["function"], dict):
        return item
    plugin = text(first(item, ("plugin_name", "pluginName")))
    known = text(name) or text(item.get("name"))
    if known is None and (made := call_in(item)) is not None:
        return made
    return {
        "id": _call_id(item),
        "name": f"{plugin}-{known}" if plugin and known and "-" not in known else known,
        "arguments": first(item, _GIVEN),
    }


def _call_id(item: Mapping[str, Any]) -> Any:
    """Return a call's id; Microsoft's framework writes a path whose last part it is."""
    names = (*_USES, "id", *IDS) if item.get("type") == "tool_use" else IDS  # Cline's have a response's `call_id` too
    value = first(item, names)
    return value[-1] if isinstance(value, list) and value else value


def result_of(item: Mapping[str, Any]) -> dict[str, Any]:
    """Return a result as a typed part."""
    item = {**item, **as_dict(item.get("origin")), **as_dict(item.get("run"))}  # Haystack's call, Amp's result
    if item.get("type") == "tool-error":  # of the AI SDK
        item["is_error"] = True
    value = first(item, _GAVE)
    wrapped = as_dict(embedded(value))
    if wrapped.get("type") in RESULT_KINDS and "result" in wrapped:  # Microsoft's framework logs its own object as text
        value = wrapped["result"]
    flags = picked(item, _ENDED)
    if flags.get("status") == "completed":  # of the item, not of the tool
        del flags["status"]
    if is_mcp_result(value):
        value, flags = value["content"], flags | ({"is_error": True} if value.get("isError") is True else {})
    if is_sdk_output(value):
        value, status = _sdk_output(value["type"], value)
        flags |= status
    return (
        present(
            type="tool_result",
            tool_call_id=_call_id(item),
            name=first(item, TOOLS),
            content=parts_of(value) if isinstance(value, list) and _are_parts(value) else value,
        )
        | flags
    )


def is_sdk_output(value: Any) -> bool:
    """Whether a value is what a tool gave, as messages of the AI SDK for a model wrap it."""
    kind = as_dict(value).get("type")
    return isinstance(kind, str) and kind in _SDK_KINDS


def _sdk_output(kind: str, output: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return what the AI SDK wrapped; its type shows errors, except those that were returned as a result."""
    if kind == "execution-denied":
        return {"denied": True, "reason": output.get("reason")}, {}
    value = output.get("value")
    return value, {"is_error": kind.startswith("error") or tool_status(flat_text(value)) == FAILED}


def _are_parts(items: list[Any]) -> bool:
    return all(isinstance(p, dict) and ("type" in p or set(p) <= {"text", "json", "image"}) for p in items)
