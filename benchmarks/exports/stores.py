"""The seventh set goes on: messages in columns of databases, and what programs log of SDKs."""

from __future__ import annotations

import json
from typing import Any

from benchmarks.exports.story import (
    MODEL,
    TALKS,
    TASKS,
    Act,
    Export,
    Lines,
    Says,
    Talk,
    at,
    export,
    openai,
    paced,
    told,
)

COUNTED = Says(tokens=True, model=True)


def _anthropic(turn: str | Act) -> list[tuple[str, list[dict[str, Any]]]]:
    """Return the roles and blocks of Claude's messages in a turn."""
    if isinstance(turn, str):
        return [("user", [{"type": "text", "text": turn}])]
    words = [{"type": "text", "text": turn.text}] if turn.text else []
    calls = [{"type": "tool_use", "id": c.id, "name": c.name, "input": c.args} for c in turn.calls]
    results = [
        {"type": "tool_result", "tool_use_id": c.id, "content": c.result, "is_error": c.failed} for c in turn.calls
    ]
    return [("assistant", [*words, *calls]), *([("user", results)] if results else [])]


@export(7, "Rows of messages whose content is JSON text")
def written_blocks() -> Export:
    """A table with a column of text for what the API has as a list of blocks."""
    messages = [(talk.id, said) for talk in TALKS for turn in talk.turns for said in _anthropic(turn)]
    rows = [{"id": n, "conversation_id": talk, "role": role, "content": json.dumps(blocks)}
            for n, (talk, (role, blocks)) in enumerate(messages)]  # fmt: skip
    return Export({"messages.jsonl": Lines(rows)}, told(TALKS))


@export(7, "Chats of messages whose content is JSON text")
def written_chats() -> Export:
    """The same, a chat a record."""
    rows = [{"conversation_id": talk.id, "messages": [{"role": role, "content": json.dumps(blocks)}
             for turn in talk.turns for role, blocks in _anthropic(turn)]} for talk in TALKS]  # fmt: skip
    return Export({"chats.jsonl": Lines(rows)}, told(TALKS))


@export(7, "Mastra, rows of its messages")
def mastra() -> Export:
    """The table `mastra_messages`: content is JSON text of parts, in which a call has its result."""
    rows: list[dict[str, Any]] = []
    for talk in TALKS:
        for n, message in enumerate(_mastra(talk)):
            content = json.dumps({"format": 2, "parts": message["parts"]})
            rows.append({"id": f"{talk.id}-{n}", "thread_id": talk.id, "content": content, "role": message["role"],
                         "type": "v2", "createdAt": at(n), "resourceId": "u"})  # fmt: skip
    return Export({"mastra_messages.jsonl": Lines(rows)}, told(TALKS))


def _mastra(talk: Talk) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    for turn in talk.turns:
        if isinstance(turn, str):
            messages.append({"role": "user", "parts": [{"type": "text", "text": turn}]})
            continue
        if messages[-1]["role"] == "user":
            messages.append({"role": "assistant", "parts": []})
        words = [{"type": "text", "text": turn.text}] if turn.text else []
        calls = [{"type": "tool-invocation", "toolInvocation": {
            "state": "result", "step": 0, "toolCallId": c.id, "toolName": c.name, "args": c.args, "result": c.result}}
            for c in turn.calls]  # fmt: skip
        messages[-1]["parts"] += [{"type": "step-start"}, *words, *calls]
    return messages


@export(7, "Bedrock AgentCore, events of its memory")
def agentcore() -> Export:
    """A page of `list_events` of two sessions; Strands writes its messages as JSON into the words."""
    events = []
    for talk in TALKS:
        blocks = [said for turn in talk.turns for said in _bedrock(turn)]
        for n, message in enumerate(blocks):
            words = json.dumps({"message": message, "message_id": n, "redact_message": None})
            role = "USER" if message["role"] == "user" else "ASSISTANT"
            said = {"conversational": {"role": role, "content": {"text": words}}}
            events.append({"memoryId": "m", "actorId": "u", "sessionId": talk.id, "eventId": f"{n}",
                           "eventTimestamp": at(n), "payload": [said]})  # fmt: skip
    return Export({"events.json": {"events": events}}, told(TALKS))


def _bedrock(turn: str | Act) -> list[dict[str, Any]]:
    if isinstance(turn, str):
        return [{"role": "user", "content": [{"text": turn}]}]
    words: list[dict[str, Any]] = [{"text": turn.text}] if turn.text else []
    calls = [{"toolUse": {"toolUseId": c.id, "name": c.name, "input": c.args}} for c in turn.calls]
    results = [{"toolResult": {"toolUseId": c.id, "status": "error" if c.failed else "success",
                               "content": [{"text": c.result}]}} for c in turn.calls]  # fmt: skip
    return [
        {"role": "assistant", "content": [*words, *calls]},
        *([{"role": "user", "content": results}] if results else []),
    ]


@export(7, "Claude's agent SDK, messages as lines")
def claude_sdk() -> Export:
    """Dataclasses with the names of their classes: blocks have no types, and tokens are of a whole run."""
    return Export({f"{talk.id}.jsonl": Lines(_claude_sdk(talk)) for talk in TASKS}, told(TASKS, COUNTED, asked=""))


def _claude_sdk(talk: Talk) -> list[dict[str, Any]]:
    begun = {"type": "system", "subtype": "init", "session_id": talk.id, "model": MODEL}
    lines: list[dict[str, Any]] = [{"type": "SystemMessage", "subtype": "init", "data": begun}]
    for act in talk.acts:
        blocks: list[dict[str, Any]] = [{"text": act.text}] if act.text else []
        blocks += [{"id": c.id, "name": c.name, "input": c.args} for c in act.calls]
        lines.append({"type": "AssistantMessage", "content": blocks, "model": MODEL, "parent_tool_use_id": None})
        results = [{"tool_use_id": c.id, "content": c.result, "is_error": c.failed} for c in act.calls]
        lines += [{"type": "UserMessage", "content": results, "parent_tool_use_id": None}] if results else []
    usage = {"input_tokens": sum(a.read for a in talk.acts), "output_tokens": sum(a.wrote for a in talk.acts)}
    lines.append({"type": "ResultMessage", "subtype": "success", "is_error": False, "session_id": talk.id,
                  "usage": usage, "result": talk.answer})  # fmt: skip
    return lines


@export(7, "OpenAI Agents SDK, traces of one group")
def agents_traces() -> Export:
    """A trace a turn of the user, of one group: the traces differ in nothing but their ids."""
    rows: list[dict[str, Any]] = []
    for talk in TALKS:
        history: list[dict[str, Any]] = []
        for n, turn in paced(talk):
            if isinstance(turn, str):
                trace = f"trace_{talk.id}_{n}"
                rows.append(
                    {"object": "trace", "id": trace, "workflow_name": "Desk", "group_id": talk.id, "metadata": None}
                )
                history.append({"role": "user", "content": turn})
                continue
            said = openai(Talk("", "", (turn,), solved=True))
            data = {"type": "generation", "input": list(history), "output": said[:1], "model": MODEL,
                    "usage": {"input_tokens": turn.read, "output_tokens": turn.wrote}}  # fmt: skip
            rows.append(_span(trace, f"{n}", at(n), data))
            rows += [_span(trace, f"{n}/{k}", at(n + 0.5), {"type": "function", "name": c.name, "input": c.text,
                                                           "output": c.result}) for k, c in enumerate(turn.calls)]  # fmt: skip
            history += said
    return Export({"traces.jsonl": Lines(rows)}, told(TALKS, COUNTED))


def _span(trace: str, name: str, when: str, data: dict[str, Any]) -> dict[str, Any]:
    return {"object": "trace.span", "id": f"{trace}/{name}", "trace_id": trace, "parent_id": None, "started_at": when,
            "ended_at": when, "span_data": data, "error": None}  # fmt: skip
