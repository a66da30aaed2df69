"""Rows and conversations of chat applications: Langflow, AnythingLLM, FastGPT, RAGFlow, chat-ui, LibreChat."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from flywheel.extensions import BadRecordError
from flywheel.reading.feedback import Opinion
from flywheel.reading.values import as_dict, as_list, count, embedded, first, ident, number, present, text
from flywheel.stages.ingest.readers.agents._platforms.talk import (
    Shapes,
    Talk,
    Turn,
    call_ran,
    rating_of,
    thought_and_said,
    ways,
    with_calls,
    words_said,
)

_CALL_IN_WORDS = re.compile(r"\s*<tool_call>(.*?)</tool_call>\s*", re.DOTALL)  # of RAGFlow, with its result
_SPEAKERS = {"User": "user", "Machine": "assistant", "Human": "user", "AI": "assistant", "System": "system"}


def _langflow(record: Mapping[str, Any]) -> Talk:
    """Return a message of Langflow, after the tools in its steps; their other texts repeat request and answer."""
    own, at, role = str(record.get("id")), record.get("timestamp"), _SPEAKERS[record["sender"]]
    about = as_dict(embedded(record.get("properties")))
    model = text(as_dict(about.get("source")).get("source"))
    blocks = map(as_dict, as_list(embedded(record.get("content_blocks"))))
    used = [step for block in blocks for step in map(as_dict, as_list(block.get("contents")))]
    turns: list[Turn] = []
    for n, step in enumerate(step for step in used if step.get("type") == "tool_use"):
        failed = True if step.get("error") else None
        seen = step.get("error") if failed else step.get("output")
        given = step.get("tool_input")
        turns += call_ran(f"{own}/{n}", step.get("name"), given, seen, at, failed=failed, model=model)
    has_failed = role == "assistant" and str(record.get("error")).lower() in ("true", "1")  # a table has it as text
    broke = {"tags": ["call_failed"]} if has_failed else {}
    facts = present(named=own, model=model, **broke)
    turns += words_said(role, record.get("text"), at, **facts)
    opinions = rating_of(first(about, ("positive_feedback",)), of=own)
    return Talk(turns, ident(record.get("session_id")), opinions=opinions, is_piece=True)


def _anything(record: Mapping[str, Any]) -> Talk:
    """Return a question and its answer in AnythingLLM; without a thread, a user has one in each workspace."""
    own, answer = str(record.get("id")), as_dict(embedded(record.get("response")))
    measured = as_dict(answer.get("metrics"))
    facts = present(
        named=own,
        model=text(measured.get("model")),
        input_tokens=count(measured.get("prompt_tokens")),
        output_tokens=count(measured.get("completion_tokens")),
    )
    said = words_said("assistant", answer.get("text"), record.get("createdAt"), **facts)  # a row is made when both are
    turns = words_said("user", record.get("prompt"), record.get("createdAt")) + said if said else []
    place = (record.get("workspaceId"), record.get("user_id"), record.get("api_session_id"))
    thread = ident(record.get("thread_id")) or "/".join(str(name) for name in place if name is not None)
    opinions = rating_of(first(record, ("feedbackScore",)), of=own)
    return Talk(turns, f"thread {thread}", ident(record.get("user_id")), opinions, is_piece=True)


def _fastgpt(record: Mapping[str, Any]) -> Talk:
    """Return a message of FastGPT, whose parts are words, thoughts and calls with their results."""
    own, at, role = str(record.get("dataId")), record.get("time"), _SPEAKERS[record["obj"]]
    turns: list[Turn] = []
    thought = ""
    for part in map(as_dict, as_list(embedded(record.get("value")))):
        thought = text(as_dict(part.get("reasoning")).get("content")) or thought
        for tool in map(as_dict, [*as_list(part.get("tools")), *filter(None, [part.get("tool")])]):
            name, result = first(tool, ("functionName", "toolName")), tool.get("response")
            turns += call_ran(str(tool.get("id")), name, tool.get("params"), result or None, at)
        if words := text(as_dict(part.get("text")).get("content")):
            turns += thought_and_said(role, words, thought, at, named=own)
            thought = ""
    good, bad = (text(record.get(f"user{which}Feedback")) for which in ("Good", "Bad"))
    opinions = rating_of(True if good else False if bad else None, bad, of=own)
    return Talk(turns, ident(record.get("chatId")), opinions=opinions, is_piece=True)


def _ragflow(record: Mapping[str, Any]) -> Talk:
    """Return a conversation of RAGFlow; its greeting, before any request, is only seen.

    Raises:
        BadRecordError: a message names no speaker.
    """
    messages = list(map(as_dict, as_list(embedded(record.get("message")))))
    conversation = str(record.get("id"))
    turns: list[Turn] = []
    opinions = []
    for n, message in enumerate(messages):
        own, at, words = f"{conversation}/{n}", message.get("created_at"), str(message.get("content") or "")
        if message.get("role") not in ("user", "assistant"):
            raise BadRecordError("bad_record", "a message without a known role")
        if message["role"] == "user":
            turns += words_said("user", words, at)
            continue
        for k, written in enumerate(_CALL_IN_WORDS.findall(words)):
            call = as_dict(embedded(written))
            turns += call_ran(f"{own}/{k}", call.get("name"), call.get("args"), call.get("result"), at)
        turns += words_said("assistant", _CALL_IN_WORDS.sub("\n", words).strip(), at, named=own)
        opinions += rating_of(message.get("thumbup"), message.get("feedback"), of=own)
    greets = bool(messages) and messages[0].get("role") == "assistant"
    return Talk(turns, conversation, ident(record.get("user_id")), opinions, seen=int(greets))


def _chat_ui(record: Mapping[str, Any]) -> list[Talk]:
    """Return the ways down the tree of a conversation of chat-ui."""
    nodes = {str(message.get("id")): message for message in map(as_dict, as_list(record.get("messages")))}
    parents = {own: str(next(reversed(as_list(node.get("ancestors"))), "")) for own, node in nodes.items()}
    model = text(record.get("model"))

    def read(own: str) -> tuple[list[Turn], list[Opinion]]:
        score = number(nodes[own].get("score"))
        return list(_chat_ui_turns(nodes[own], own, model)), rating_of(score > 0 if score else None, of=own)

    return ways(parents, ident(first(record, ("_id", "id"))), read)


def _chat_ui_turns(message: Mapping[str, Any], own: str, model: str | None) -> Iterator[Turn]:
    at, role = message.get("createdAt"), str(message.get("from"))
    if role != "assistant":
        yield from words_said(role, message.get("content"), at)
        return
    by = text(as_dict(message.get("routerMetadata")).get("model")) or model
    tools = [step for step in map(as_dict, as_list(message.get("updates"))) if step.get("type") == "tool"]
    ended = {str(step.get("uuid")): step for step in tools if step.get("subtype") in ("result", "error")}
    for step in tools:
        if step.get("subtype") == "call":
            call, end = as_dict(step.get("call")), as_dict(ended.get(str(step.get("uuid"))))
            name, given = call.get("name"), first(step, ("argumentsRaw",)) or call.get("parameters")
            failed = end.get("subtype") == "error" or None
            yield from words_said("assistant", step.get("content"), at, **present(model=by))
            yield from call_ran(str(step.get("uuid")), name, given, _seen(end), at, failed=failed, model=by)
    facts = present(named=own, model=by)
    yield from thought_and_said(role, message.get("content"), text(message.get("reasoning")), at, **facts)


def _seen(end: Mapping[str, Any]) -> Any:
    """Return what a tool gave: the words of its outputs, or of its error."""
    outputs: Sequence[Any] = as_list(as_dict(end.get("result")).get("outputs"))
    given = [shown for output in outputs if (shown := first(as_dict(output), ("text", "content"))) is not None]
    return first(end, ("message",)) or ("\n".join(map(str, given)) if given else outputs or None)


def _libre_chat(record: Mapping[str, Any]) -> list[Talk]:
    """Return the ways down the tree of a conversation of LibreChat, exported as a tree or as a list."""
    nodes = {str(message["messageId"]): message for message in sorted(_libre_messages(record), key=_written_at)}
    parents = {own: str(node.get("parentMessageId")) for own, node in nodes.items()}

    def read(own: str) -> tuple[list[Turn], list[Opinion]]:
        given = as_dict(nodes[own].get("feedback"))
        thumb = {"thumbsUp": True, "thumbsDown": False}.get(str(given.get("rating")))
        return _libre_turns(nodes[own], own), rating_of(thumb, first(given, ("text", "tag")), of=own)

    return ways(parents, ident(record.get("conversationId")), read)


def _libre_messages(record: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the messages of an export, those of a tree too; [] where one is none."""
    waiting = [*as_list(record.get("messages")), *as_list(record.get("messagesTree"))]
    found: list[Mapping[str, Any]] = []
    while waiting:
        message = as_dict(waiting.pop())
        if not {"messageId", "parentMessageId", "isCreatedByUser"} <= message.keys():
            return []
        waiting += as_list(message.get("children"))
        found.append(message)
    return found


def _written_at(message: Mapping[str, Any]) -> str:
    return str(message.get("createdAt"))


def _libre_turns(message: Mapping[str, Any], own: str) -> list[Turn]:
    """Return the turns of a message, whose parts are words, thoughts and calls with their results."""
    at, model = message.get("createdAt"), text(message.get("model"))
    if message["isCreatedByUser"]:
        return words_said("user", message.get("text"), at)
    facts = present(named=own, model=model, **({"tags": ["call_failed"]} if message.get("error") is True else {}))
    turns: list[Turn] = []
    thought = ""
    for part in map(as_dict, as_list(message.get("content")) or [{"text": message.get("text")}]):
        call, said = as_dict(part.get("tool_call")), first(part, ("text", "error"))
        thought = text(part.get("think")) or thought
        if call:
            name, given, seen = (call.get(field) for field in ("name", "args", "output"))
            turns += call_ran(str(call.get("id")), name, given, seen, at, model=model)
        elif said:
            turns += thought_and_said("assistant", as_dict(said).get("value", said), thought, at, **facts)
            thought = ""
    return with_calls(turns)


def _is_libre_chat(record: Any) -> bool:
    fields = as_dict(record)
    return "conversationId" in fields and bool(_libre_messages(fields))


def _is_langflow(record: Any) -> bool:
    fields = as_dict(record)
    return {"sender", "session_id", "flow_id", "text"} <= fields.keys() and str(fields["sender"]) in _SPEAKERS


def _is_anything(record: Any) -> bool:
    fields = as_dict(record)
    return {"workspaceId", "prompt", "response"} <= fields.keys() and isinstance(embedded(fields["response"]), dict)


def _is_fastgpt(record: Any) -> bool:
    fields = as_dict(record)
    parts = embedded(fields.get("value"))
    return {"chatId", "dataId"} <= fields.keys() and str(fields.get("obj")) in _SPEAKERS and isinstance(parts, list)


def _is_ragflow(record: Any) -> bool:
    fields = as_dict(record)
    return {"dialog_id", "id"} <= fields.keys() and isinstance(embedded(fields.get("message")), list)


def _is_chat_ui(record: Any) -> bool:
    fields = as_dict(record)
    messages = as_list(fields.get("messages"))
    return "rootMessageId" in fields and bool(messages) and all("from" in as_dict(message) for message in messages)


SHAPES: Shapes = (
    (_is_langflow, _langflow),
    (_is_anything, _anything),
    (_is_fastgpt, _fastgpt),
    (_is_ragflow, _ragflow),
    (_is_chat_ui, _chat_ui),
    (_is_libre_chat, _libre_chat),
)
