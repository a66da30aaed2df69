"""Messages that are one object deeper than others: in enums, pairs, lines of parts, requests with their responses.

In: one item of a session: fields as .NET writes them, enums as Rust programs do (`{"Agent": {"content": [...]}}`), a
pair of what was asked and answered, a line of a part, a row whose parts are JSON text, an event with a source, or a
request with the rounds of calls that answered it. Out: its messages, as `chats` reads them; an item of none of these
alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import takewhile
from typing import Any

from flywheel.reading.messages import ROLES, flat_text
from flywheel.reading.shapes.actions import is_step
from flywheel.reading.shapes.acts import call_in, is_act, result_in, said_in
from flywheel.reading.shapes.beside import ABOUT, answered_calls, with_call
from flywheel.reading.shapes.editors import of_kiro, of_vscode
from flywheel.reading.shapes.entries import OF_WORKFLOW, entry_of, is_named
from flywheel.reading.shapes.narrated import narrated, of_n8n
from flywheel.reading.shapes.spoken import made_between
from flywheel.reading.shapes.turns import CALL_KINDS, ITEM_KINDS, RESULT_KINDS, is_turn, result_of
from flywheel.reading.values import as_dict, as_list, embedded, first, picked, present, text, words_of

Item = dict[str, Any]

_ENUMS = {"Text": "text", "Thinking": "thinking", "ToolUse": "tool_use", "tool_uses": "tool_use"}
_RESULTS = ("tool_results", "tool_use_results")
_AGENTS = {"agent", "assistant", "ai_agent", "human_agent_on_behalf_of_ai_agent"}
_ASKED = ("user_message", "userMessage", "user_input", "user_query", "human_message", "user", "human")
_ANSWERED = ("assistant", "bot", "ai", "response", "reply", "bot_response", "botResponse", "assistant_response",
             "ai_response", "agent_response", "assistant_message", "bot_message", "assistant_reply", "bot_reply",
             "agent_reply")  # fmt: skip
_NAMING = {"user", "human"}  # which hold a name where the words are in a field of their own
_IN_WORDS = ("message", "msg", "query", "question", "prompt", "text", "input", "utterance")
_HELD = {"toolsCalled", "tools_called"}  # of a message with a role; a row's parts are text
_STORED = ("message", "message_data", "messageData", "message_json")  # columns of a table that hold a message
_PARTS_AS_TEXT = ("content_json", "contentJson", "parts_json")  # and those that hold its parts
_BY_USER = ("isCreatedByUser", "is_user", "isUser", "from_user", "fromUser", "is_from_user", "isFromUser")
_SAID = ("text", "content", "message", "msg", "body")
_WRAPS = {*_HELD, *_BY_USER, *_ASKED, *_STORED, "parts", "user", "part", "source", "response", "toolCallStates",
          "finishReason", "author", "event_data", "payload", "versions",
          OF_WORKFLOW}  # fmt: skip
_TALKERS = ("user", "assistant")  # a tool's result in JSON is what the agent saw
_PARTS = {
    "text", "input_text", "output_text", "thinking", "redacted_thinking", "reasoning", "image", "image_url", "file",
    "document", "source", "step-start", "dynamic-tool", *CALL_KINDS, *RESULT_KINDS,
}  # fmt: skip
_SENT = ("messages", "input", "contents")  # of a request to a model, by its API
_SPEAKS = {"content", "tool_calls", "function_call"}
_LISTED = ("tool_calls", "tool_results")


def unwrapped(item: Any) -> list[Any]:
    """Return the messages in an item."""
    if not isinstance(item, dict):
        return [item]
    if is_act(item) and item.get("type") not in ITEM_KINDS and entry_of(item) is None and not is_step(item):
        return list(_acted(item))
    item = _by_ids(_with_parts(_opened_data(_held_message(item) or item)))
    if told := narrated(item) or of_n8n(item) or list(of_kiro(item)):
        return told
    plain = {name for name in ("author", "message") if isinstance(embedded(item.get(name)), str)}
    if len(item) > 1 and _WRAPS.isdisjoint(item.keys() - plain):
        return list(answered_calls(item)) or [with_call(item)]
    if "role" in item and not (_row_parts(item) or _HELD & item.keys()):
        return [item]
    messages = next((found for rule in _RULES if (found := list(rule(item)))), [])
    return messages or [item]


def _held_message(item: Item) -> Item | None:
    """Return the message that an object holds under a name of a program's own (`chatgptMessage`), with its time."""
    named = [name for name in item if name != "message" and name not in _WRAPS and "message" in words_of(name)]
    held = as_dict(item[named[0]]) if len(named) == 1 and "role" not in item else {}
    others = (other for name, other in item.items() if name not in (*named, "functions", "tools", "metadata"))
    if (
        not isinstance(held.get("role"), str)
        or _SPEAKS.isdisjoint(held)
        or any(isinstance(o, list | dict) for o in others)
    ):
        return None
    sent = next((value for name, value in item.items() if words_of(name) & {"time", "sent"}), None)
    return {**present(timestamp=sent), **held}


def asked_last(item: Any) -> Any:
    """Return an event of a LlamaIndex agent with what its model is asked now, without what it was given before.

    An agent that writes its calls is given their results once more as words.
    """
    given = as_list(as_dict(item).get("input")) if OF_WORKFLOW in as_dict(item) else []
    acts = [n for n, message in enumerate(given) if as_dict(message).get("role") not in ("system", "user")]
    asked = [message for message in given[acts[-1] + 1 :] if not _is_observed(as_dict(message))] if acts else given
    return {**item, "input": asked} if acts else item


def _is_observed(message: Mapping[str, Any]) -> bool:
    words = flat_text(message.get("blocks") or message.get("content")) or ""
    return words.startswith("Observation:")


def _given_to_agent(item: Item) -> Iterator[Item]:
    """Yield the messages that the model of a LlamaIndex agent is given."""
    if OF_WORKFLOW in item:
        yield from (message for message in as_list(item.get("input")) if isinstance(message, dict))


def _with_parts(item: Item) -> Item:
    """Return a message whose content is JSON text of its parts, as in a column of a database, with the parts."""
    named = next((held for name in _PARTS_AS_TEXT if isinstance(held := embedded(item.get(name)), list)), None)
    if named is not None and "content" not in item:
        return {**{name: held for name, held in item.items() if name not in _PARTS_AS_TEXT}, "content": named}
    content = item.get("content")
    if not isinstance(content, str) or str(item.get("role")) not in _TALKERS or '"type"' not in content:
        return item
    opened = embedded(content)
    parts = opened if isinstance(opened, list) else as_list(as_dict(opened).get("parts"))
    return {**item, "content": parts} if parts and all(map(_is_part, parts)) else item


def _by_ids(item: Item) -> Item:
    """Return a message whose calls and results are in objects by their ids with lists of them (fast-agent's)."""
    several = {name: held for name in _LISTED if isinstance(held := item.get(name), dict) and held
               and all(isinstance(one, dict) for one in held.values())}  # fmt: skip
    thoughts = as_dict(item.get("channels")).get("reasoning")
    if not several and not thoughts:
        return item
    listed = {name: [{**(as_dict(one.get("params")) or one), "id": own} for own, one in held.items()]
              for name, held in several.items()}  # fmt: skip
    return {**item, **listed, "channels": None, **present(reasoning=flat_text(thoughts))}


def _is_part(part: Any) -> bool:
    """Whether an object is a part of a message by its type, and not what a model wrote as JSON."""
    kind = as_dict(part).get("type")
    return isinstance(kind, str) and (kind in _PARTS or kind.startswith(("tool-", "data-")))


def _acted(item: Item) -> Iterator[Item]:
    """Yield a call that is an object of its own, and what came of it where the object shows it."""
    about = {name: item[name] for name in ABOUT if item.get(name) is not None}
    call, result = call_in(item), result_in(item)
    yield {"role": "assistant", "content": said_in(item), "tool_calls": [call], **about}
    if result is not None:
        yield {"role": "tool", "content": [result_of({**result, "tool_call_id": call and call["id"]})], **about}


def _ran(item: Item) -> Iterator[Item]:
    """Yield a message with its calls and what they gave next to it."""
    calls = [as_dict(call) for call in as_list(first(item, ("toolsCalled", "tools_called")))]
    if "role" in item and calls:
        own = item.get("order", "")
        made = [{"id": f"{own}/{n}", "name": call.get("name"), "status": "ran", "result": call.get("output"),
                 "args": first(call, ("inputParameters", "input_parameters", "arguments"))}
                for n, call in enumerate(calls)]  # fmt: skip
        yield {**item, "toolCalls": made, "toolsCalled": None, "tools_called": None}


def _stated(item: Item) -> Iterator[Item]:
    """Yield a message of an editor and what its calls gave, as their states say; `of_state` gives way to a message."""
    states = [as_dict(state) for state in as_list(item.get("toolCallStates"))]
    if isinstance(item.get("message"), dict) and any(state.get("output") for state in states):
        yield {**item, "toolCallStates": None}
        for state in (state for state in states if state.get("output")):
            words = [as_dict(part).get("content") for part in as_list(state["output"])]
            yield {"role": "tool", "tool_call_id": state.get("toolCallId"), "of_state": True,
                   "content": "\n".join(filter(None, words)), "is_error": state.get("status") == "errored"}  # fmt: skip


def _by_whom(item: Item) -> Iterator[Item]:
    """Yield a message that shows whether the user made it."""
    if isinstance(by_user := first(item, _BY_USER), bool) and "role" not in item:
        parts = [{**call, "type": "cli-tool", "result": call["output"], "status": "ran"}
                 if part.get("type") == "tool_call" and "output" in (call := as_dict(part.get("tool_call"))) else part
                 for part in map(as_dict, as_list(item.get("content")))]  # fmt: skip
        yield {**item, "role": "user" if by_user else "assistant", "content": parts or first(item, _SAID)}


def _versioned(item: Item) -> Iterator[Item]:
    """Yield the messages of the version that is shown, of LM Studio: an answer's steps are blocks of parts."""
    versions, shown = as_list(item.get("versions")), item.get("currentlySelected")
    version = as_dict(versions[shown]) if isinstance(shown, int) and 0 <= shown < len(versions) else {}
    if isinstance(version.get("content"), list):
        yield {"role": version.get("role"), "content": version["content"]}
    said: list[Item] = []
    about: Item = {}
    for block in map(as_dict, as_list(version.get("steps"))):
        is_thought = as_dict(block.get("style")).get("type") == "thinking"
        parts = [_of_version(as_dict(part), is_thought=is_thought) for part in as_list(block.get("content"))]
        results = [part for part in parts if part["type"] == "tool_result"]
        generated = as_dict(block.get("genInfo"))
        if said and (results or (generated and about)):
            yield {"role": version.get("role"), "content": said, **about}
            said, about = [], {}
        about = _generated(generated) or about
        said += [part for part in parts if part not in results]
        if results:
            yield {"role": "tool", "content": results}
    if said:
        yield {"role": version.get("role"), "content": said, **about}


def _of_version(part: Mapping[str, Any], *, is_thought: bool) -> Item:
    """Return a part of LM Studio's as a typed part; a result is JSON text of MCP's parts."""
    own = first(part, ("toolCallRequestId", "toolCallId"))
    if part.get("type") == "toolCallRequest":
        return {"type": "tool_call", "id": own, "name": part.get("name"), "arguments": part.get("parameters")}
    if part.get("type") == "toolCallResult":
        return {"type": "tool_result", "tool_call_id": own, "content": embedded(part.get("content"))}
    return {"type": "thinking", "thinking": part.get("text")} if is_thought else {"type": "text", **part}


def _generated(generated: Mapping[str, Any]) -> Item:
    """Return the model and the tokens of a block that was generated."""
    stats = as_dict(generated.get("stats"))
    counted = {"input_tokens": stats.get("promptTokensCount"), "output_tokens": stats.get("predictedTokensCount")}
    return present(model=generated.get("indexedModelIdentifier"), usage=present(counted) or None)


def _row(item: Item) -> Iterator[Item]:
    """Yield the message of a row whose parts have their fields in `data`."""
    if parts := _row_parts(item):
        opened = [{**as_dict(part.get("data")), "type": part["type"]} for part in parts if part["type"] != "finish"]
        yield {**item, "parts": None, "content": opened}


def _opened_data(item: Item) -> Item:
    """Return a message, or the one that a row of LlamaIndex' memory holds in `data` next to its role."""
    held = as_dict(embedded(item.get("data"))) if "role" in item else {}
    return {**picked(item, ABOUT), **held} if "role" in held and held["role"] == item["role"] else item


def _row_parts(item: Item) -> list[Any]:
    """Return the parts of a row, JSON text in its column or opened, each with a type and its fields in `data`."""
    held = item.get("parts")
    parts, needed = as_list(embedded(held)), {"type"} if isinstance(held, str) else {"type", "data"}
    return parts if parts and all(needed <= as_dict(part).keys() for part in parts) else []


def _conversational(item: Item) -> Iterator[Item]:
    """Yield the messages of an event in the memory of Bedrock AgentCore, which Strands fills with messages as JSON."""
    about = present(timestamp=item.get("eventTimestamp"))
    for payload in map(as_dict, as_list(item.get("payload"))):
        said = as_dict(payload.get("conversational"))
        words = as_dict(said.get("content")).get("text")
        held = as_dict(as_dict(embedded(words)).get("message"))
        if isinstance(words, str) and isinstance(said.get("role"), str):
            yield {**(held or {"role": said["role"].lower(), "content": words}), **about}


def _stored(item: Item) -> Iterator[Item]:
    """Yield the message in a column of a row: JSON text, or opened; in any record as LangChain's classes write it."""
    for name in _STORED:
        held = as_dict(embedded(item.get(name)))
        if is_turn(held) and (isinstance(item[name], str) or name != "message" or "role" not in held):
            yield {**{name: item[name] for name in ABOUT if item.get(name) is not None}, **held}
            return


def _authored(item: Item) -> Iterator[Item]:
    """Yield the message of an event of Google ADK, alone or in a column of a row: its content is Gemini's."""
    event = as_dict(embedded(item.get("event_data"))) or item
    content, author = as_dict(embedded(event.get("content"))), text(event.get("author"))
    if author is not None and as_list(content.get("parts")) and not event.get("partial"):
        about = {"timestamp": item["timestamp"]} if "timestamp" in item else {}
        usage = first(event, ("usage_metadata", "usageMetadata"))
        about |= present(usage=embedded(usage), model=first(event, ("model_version", "modelVersion")))
        yield {"role": "user" if author == "user" else "assistant", **present(**content), **about}


def _sdk_step(item: Item) -> Iterator[Item]:
    """Yield the answer of a step of the AI SDK, with its calls and what they gave: as parts, or in lists next to it.

    A step that answers a user has what was asked in the request that it sent; later ones have it there again.
    """
    if not is_sdk_step(item):
        return
    yield from _asked_of_step(item)
    response = as_dict(item.get("response"))
    about = present(usage=item.get("usage"), model=response.get("modelId"), timestamp=response.get("timestamp"))
    if isinstance(item.get("content"), list):
        yield {"role": "assistant", "content": item["content"], **about}
    else:
        yield {"role": "assistant", "content": item.get("text"), "tool_calls": item.get("toolCalls"),
               "tool_results": item.get("toolResults"), "reasoning": item.get("reasoning"), **about}  # fmt: skip


def _asked_of_step(item: Item) -> list[Item]:
    """Return the messages that a step of the AI SDK sent, where a user's are the last; [] for a later step."""
    sent = as_dict(embedded(as_dict(item.get("request")).get("body")))
    asked = [dict(as_dict(message)) for message in as_list(first(sent, _SENT))]
    return asked if asked and asked[-1].get("role") == "user" and not _is_given(asked[-1]) else []


def without_sent(item: Any, *, is_first: bool) -> Any:
    """Return a step of the AI SDK without what repeats the steps before it; anything else as it is.

    Args:
        item: a record of a file.
        is_first: nothing was before it, so that all that it sent is new.
    """
    if not is_sdk_step(item):
        return item
    asked = _asked_of_step(item)
    if not is_first:
        asked = list(takewhile(lambda message: message.get("role") == "user", reversed(asked)))[::-1]
    response = {name: held for name, held in as_dict(item.get("response")).items() if name != "messages"}
    return {**item, "response": response, "request": {"body": {"messages": asked}}}


def _is_given(message: Mapping[str, Any]) -> bool:
    """Whether a message in the user's place gives the agent a tool's result, as Anthropic's and Gemini's do."""
    parts = [as_dict(part) for name in ("content", "parts") for part in as_list(message.get(name))]
    return any(part.get("type") == "tool_result" or "functionResponse" in part for part in parts)


def is_sdk_step(item: Any) -> bool:
    """Whether an object is a step of the AI SDK, as `result.steps` and `onStepFinish` give it."""
    return (
        isinstance(item, dict)
        and "role" not in item
        and isinstance(item.get("finishReason"), str)
        and not is_named(item)
        and (isinstance(item.get("content"), list) or isinstance(item.get("toolCalls"), list))
    )


def _enum(item: Item) -> Iterator[Item]:
    """Yield the message of an enum that is named by its speaker, and the results that it holds."""
    if len(item) != 1:
        return
    (name, held), fields = next(iter(item.items())), as_dict(next(iter(item.values())))
    if isinstance(held, str) and name.lower() in ROLES:
        yield {"role": name.lower(), "content": held}
    if isinstance(held, dict) and name.lower() in ROLES and isinstance(held.get("content"), list):
        yield {**fields, "role": "assistant" if name.lower() in _AGENTS else name.lower(),
               "content": [_part(part) for part in held["content"]]}  # fmt: skip
        yield from _results(fields)


def _part(part: Any) -> Any:
    """Return a part of an enum as a typed one."""
    fields = as_dict(part)
    name = next(iter(fields), "")
    if len(fields) != 1 or name not in _ENUMS:
        return part
    held = fields[name]
    return {"type": _ENUMS[name], **(held if isinstance(held, dict) else {"text": held})}


def _results(held: Mapping[str, Any]) -> Iterator[Item]:
    """Yield the results in a list, or in an object by the ids of their calls."""
    several: Any = next((held[name] for name in _RESULTS if held.get(name)), [])
    for result in map(as_dict, several.values() if isinstance(several, dict) else as_list(several)):
        parts = [_part(part) for part in as_list(result.get("content")) or [result.get("content")]]
        failed = str(result.get("status")).lower() == "error" or result.get("is_error") is True
        shown = [first(as_dict(part), ("text", "Json")) if isinstance(part, dict) else part for part in parts]
        yield {"role": "tool", "tool_call_id": result.get("tool_use_id"), "name": result.get("tool_name"),
               "content": [{"type": "text", "text": s} if isinstance(s, str) else s for s in shown],
               "is_error": failed}  # fmt: skip


def _pair(item: Item) -> Iterator[Item]:
    """Yield what was asked, or which results came, and what was answered."""
    said, answered = item.get("user"), item.get("assistant")
    if not isinstance(said, dict) or not isinstance(answered, dict):
        return
    about = {name: said[name] for name in ABOUT if said.get(name) is not None}
    content = as_dict(said.get("content"))
    for held in map(as_dict, content.values()):
        if words := text(first(held, ("prompt", "text", "content"))):
            yield {"role": "user", "content": words, **about}
        yield from ({**result, **about} for result in _results(held))
    for held in map(as_dict, answered.values()):
        calls = [{"id": call.get("id"), "name": call.get("name"), "arguments": call.get("args")}
                 for call in map(as_dict, as_list(held.get("tool_uses")))]  # fmt: skip
        yield {"role": "assistant", "content": text(held.get("content")) or None, "tool_calls": calls, **about}


def _exchange(item: Item) -> Iterator[Item]:
    """Yield what a user wrote and what was answered, which are fields of one object, with the calls in between."""
    said, answered = first(item, _ASKED), [item[name] for name in _ANSWERED if name in item]
    answered = [answer for answer in answered if answer is not None] or answered[:1]  # none: it failed
    is_named = asked_as(item) in _NAMING and any(isinstance(item.get(name), str) for name in _IN_WORDS)
    if "role" in item or is_named or not isinstance(said, str):
        return
    if len(answered) != 1 or not isinstance(answered[0], str | None):
        return
    about = {name: item[name] for name in ABOUT if item.get(name) is not None}
    yield {"role": "user", "content": said, **about}
    yield from made_between(item, about)
    if answered[0] is not None:
        yield {"role": "assistant", "content": answered[0], **about}


def asked_as(item: Mapping[str, Any]) -> str | None:
    """Return the field with what a user wrote: `user` only where no other has it, for it may name the user."""
    return next((name for name in _ASKED if item.get(name) is not None), None)


def is_exchange(item: Any) -> bool:
    """Whether an object is what a user wrote and what was answered, in fields of its own."""
    return isinstance(item, dict) and any(_exchange(item))


def _line(item: Item) -> Iterator[Item]:
    """Yield the message of which a line is one part."""
    part = as_dict(item.get("part"))
    if part.get("type") in ("text", "tool", "reasoning"):
        yield {"role": "assistant", "parts": [part], **present(timestamp=item.get("timestamp"))}


def _sourced(item: Item) -> Iterator[Item]:
    """Yield the message of an event that names its source and kind."""
    source, kind, data = text(item.get("source")), item.get("kind"), as_dict(item.get("data"))
    if source is None or kind not in ("message", "tool") or not data:
        return
    about = {name: item[name] for name in ABOUT if item.get(name) is not None}
    about |= {"timestamp": item["creation_utc"]} if item.get("creation_utc") else {}
    role = "assistant" if source in _AGENTS else ROLES.get(source, source)
    calls = [_with_result(n, as_dict(call)) for n, call in enumerate(as_list(data.get("tool_calls")))]
    if calls:
        own = str(item.get("id") or "")
        yield {"role": "assistant", "content": "", **about,
               "toolCalls": [{**call, "id": f"{own}/{n}"} for n, call in enumerate(calls)]}  # fmt: skip
    elif (words := text(data.get("message"))) is not None:
        yield {"role": role, "content": words, **about}


def _with_result(position: int, call: Mapping[str, Any]) -> Item:
    result = as_dict(call.get("result"))
    name = (text(first(call, ("name", "tool_name", "tool_id"))) or "").rpartition(":")[2]
    return {"id": str(position), "name": name, "args": call.get("arguments"), "status": "ran",
            "result": result.get("data", call.get("result"))}  # fmt: skip


def _spoken(item: Item) -> Iterator[Item]:
    """Yield a message whose speaker is in the field of the user."""
    speaker, words = item.get("user"), item.get("text")
    if isinstance(words, str) and speaker in ("user", "assistant"):
        yield {**item, "role": speaker, "content": words}


_RULES = (
    _given_to_agent,
    _versioned,
    _authored,
    _sdk_step,
    _conversational,
    _stored,
    _row,
    _ran,
    _stated,
    _by_whom,
    _enum,
    _pair,
    _exchange,
    _line,
    _sourced,
    of_vscode,
    _spoken,
)
