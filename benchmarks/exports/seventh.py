"""A seventh set, written after what present releases of much used frameworks wrote when they were run on a fake model.

Where a form was read exactly at once it is not here: these were wrong or refused at their first look.
"""

from __future__ import annotations

import json
from typing import Any

from benchmarks.exports.story import (
    MODEL,
    SERIAL,
    SYSTEM,
    TALKS,
    TASKS,
    Act,
    Call,
    Export,
    Lines,
    Says,
    Talk,
    at,
    export,
    openai,
    paced,
    quiet,
    told,
    unix,
)

COUNTED = Says(tokens=True, model=True)


def _items(talk: Talk) -> list[dict[str, Any]]:
    """Return a talk as items of the Responses API: a message and the calls of one answer are items of their own."""
    items: list[dict[str, Any]] = []
    for turn in talk.turns:
        if isinstance(turn, str):
            items.append({"role": "user", "content": turn})
            continue
        if turn.text:
            said = [{"type": "output_text", "text": turn.text, "annotations": []}]
            items.append(
                {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": said}
            )
        items += [{"type": "function_call", "id": f"fc_{c.id}", "call_id": c.id, "name": c.name, "arguments": c.text}
                  for c in turn.calls]  # fmt: skip
        items += [{"type": "function_call_output", "call_id": c.id, "output": c.result} for c in turn.calls]
    return items


@export(7, "OpenAI Agents SDK, items of a run")
def agents_items() -> Export:
    """`json.dump(result.to_input_list())`: a file a conversation."""
    return Export({f"{talk.id}.json": _items(talk) for talk in TALKS}, told(TALKS))


@export(7, "OpenAI Agents SDK, rows of its sessions")
def agents_rows() -> Export:
    """The table `agent_messages` of `SQLiteSession`: an item a row, as JSON text."""
    rows = [{"id": n, "session_id": talk.id, "message_data": json.dumps(item), "created_at": at(n)[:19].replace("T", " ")}
            for talk in TALKS for n, item in enumerate(_items(talk))]  # fmt: skip
    return Export({"agent_messages.jsonl": Lines(rows)}, told(TALKS))


def _langchain(turn: str | Act) -> list[dict[str, Any]]:
    """Return what `message_to_dict` makes of a turn."""
    if isinstance(turn, str):
        return [{"type": "human", "data": {"content": turn, "type": "human", "id": None}}]
    calls = [{"name": c.name, "args": c.args, "id": c.id, "type": "tool_call"} for c in turn.calls]
    usage = {"input_tokens": turn.read, "output_tokens": turn.wrote, "total_tokens": turn.read + turn.wrote}
    said = {"content": turn.text or "", "type": "ai", "tool_calls": calls, "invalid_tool_calls": [],
            "usage_metadata": usage, "response_metadata": {"model_name": MODEL}}  # fmt: skip
    results = [{"type": "tool", "data": {"content": c.result, "type": "tool", "name": c.name, "tool_call_id": c.id,
                                         "status": "error" if c.failed else "success"}} for c in turn.calls]  # fmt: skip
    return [{"type": "ai", "data": said}, *results]


@export(7, "LangChain, rows of a chat history")
def langchain_rows() -> Export:
    """The tables of `SQLChatMessageHistory` and `PostgresChatMessageHistory`: a message a row, as JSON text or object."""
    messages = [(talk.id, message) for talk in TALKS for turn in talk.turns for message in _langchain(turn)]
    rows = [{"id": n, "session_id": session, "message": json.dumps(message)} for n, (session, message) in
            enumerate(messages, 1)]  # fmt: skip
    return Export({"message_store.jsonl": Lines(rows)}, told(TALKS, COUNTED))


@export(7, "n8n, rows of its chat memory")
def n8n_rows() -> Export:
    """The table `n8n_chat_histories`: messages as objects without their wrapper, without tokens."""
    rows: list[dict[str, Any]] = []
    for talk in TALKS:
        for message in (m for turn in talk.turns for m in _langchain(turn)):
            held = {k: v for k, v in message["data"].items() if k not in ("usage_metadata", "response_metadata")}
            rows.append({"id": len(rows) + 1, "session_id": talk.id, "message": held})
    return Export({"n8n_chat_histories.json": rows}, told(TALKS))


@export(7, "LangGraph, inputs and outputs of a graph")
def graph_runs() -> Export:
    """What went into `graph.invoke` next to the state that came out, which begins with it."""
    rows = [
        {
            "input": {"messages": [{"role": "user", "content": talk.asked}]},
            "output": {"messages": [m["data"] for turn in talk.turns for m in _langchain(turn)]},
        }
        for talk in TALKS
    ]
    return Export({"runs.jsonl": Lines(rows)}, told(TALKS, COUNTED))


@export(7, "Pydantic AI, histories of version 2")
def pydantic_ai() -> Export:
    """`ModelMessagesTypeAdapter.dump_json`: requests repeat the instructions, results have outcomes."""
    return Export({f"{talk.id}.json": _pydantic_ai(talk) for talk in TALKS}, told(TALKS, COUNTED))


def _pydantic_ai(talk: Talk) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    for n, turn in paced(talk):
        request = {"kind": "request", "instructions": SYSTEM, "timestamp": at(n), "run_id": "r", "state": "complete"}
        if isinstance(turn, str):
            messages.append({**request, "parts": [{"content": turn, "timestamp": at(n), "part_kind": "user-prompt"}]})
            continue
        words = [{"content": turn.text, "id": None, "part_kind": "text"}] if turn.text else []
        calls = [{"tool_name": c.name, "args": c.text, "tool_call_id": c.id, "part_kind": "tool-call"}
                 for c in turn.calls]  # fmt: skip
        usage = {"input_tokens": turn.read, "output_tokens": turn.wrote, "cache_read_tokens": 0, "details": {}}
        messages.append({"kind": "response", "parts": [*words, *calls], "usage": usage, "model_name": MODEL,
                         "timestamp": at(n), "state": "complete"})  # fmt: skip
        results = [{"tool_name": c.name, "content": c.result.removeprefix("Error: "), "tool_call_id": c.id,
                    "outcome": "retried" if c.failed else "success", "part_kind": "tool-return"}
                   for c in turn.calls]  # fmt: skip
        messages += [{**request, "parts": results}] if results else []
    return messages


def _sdk_usage(act: Act) -> dict[str, int]:
    return {"inputTokens": act.read, "outputTokens": act.wrote, "totalTokens": act.read + act.wrote}


@export(7, "AI SDK, steps of generateText")
def sdk_steps() -> Export:
    """`result.steps` next to the prompt: a step's calls and what they gave are parts; of a failed call an error is."""
    rows = [{"chatId": talk.id, "prompt": talk.asked, "text": talk.answer, "steps": list(map(_sdk_step, talk.acts))}
            for talk in TASKS]  # fmt: skip
    return Export({"finished.jsonl": Lines(rows)}, told(TASKS, COUNTED))


def _sdk_step(act: Act) -> dict[str, Any]:
    content: list[dict[str, Any]] = [{"type": "text", "text": act.text}] if act.text else []
    content += [{"type": "tool-call", "toolCallId": c.id, "toolName": c.name, "input": c.args} for c in act.calls]
    for c in act.calls:
        ended = {"type": "tool-error", "error": c.result} if c.failed else {"type": "tool-result", "output": c.result}
        content.append({**ended, "toolCallId": c.id, "toolName": c.name, "input": c.args})
    return {"content": content, "finishReason": "tool-calls" if act.calls else "stop", "usage": _sdk_usage(act),
            "warnings": [], "request": {}, "response": {"id": "r", "timestamp": at(1), "modelId": MODEL}}  # fmt: skip


def _sdk_messages(talk: Talk) -> list[dict[str, Any]]:
    """Return UI messages; what the server knows of an answer is in its metadata."""
    messages: list[dict[str, Any]] = []
    for n, turn in paced(talk):
        if isinstance(turn, str):
            messages.append({"id": f"u{n}", "role": "user", "parts": [{"type": "text", "text": turn}]})
            continue
        if messages[-1]["role"] == "user":
            messages.append({"id": f"a{n}", "role": "assistant", "parts": [], "metadata": {
                "createdAt": unix(n) * 1000, "model": MODEL, "totalUsage": {"inputTokens": 0, "outputTokens": 0}}})  # fmt: skip
        answer = messages[-1]
        usage = answer["metadata"]["totalUsage"]
        answer["metadata"]["totalUsage"] = {name: usage[name] + _sdk_usage(turn)[name] for name in usage}
        answer["parts"] += [{"type": "step-start"}, *_sdk_parts(turn)]
    return messages


def _sdk_parts(act: Act) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = [{"type": "text", "text": act.text, "state": "done"}] if act.text else []
    for c in act.calls:
        ended = {"errorText": c.result, "state": "output-error"} if c.failed else {"output": c.result}
        parts.append(
            {"type": f"tool-{c.name}", "toolCallId": c.id, "input": c.args, "state": "output-available", **ended}
        )
    return parts


@export(7, "AI SDK, chats whose answers have times")
def sdk_chats() -> Export:
    """`onFinish` of `toUIMessageStream`, with metadata: the user's messages have no time."""
    return Export({f"{t.id}.json": {"id": t.id, "messages": _sdk_messages(t)} for t in TALKS}, told(TALKS, COUNTED))


@export(7, "AI SDK, rows of a chat's messages")
def sdk_rows() -> Export:
    """The table of Vercel's chatbot template: `chatId` names the chat."""
    rows = [
        {
            "id": m["id"],
            "chatId": talk.id,
            "role": m["role"],
            "parts": m["parts"],
            "attachments": [],
            "createdAt": at(n),
        }
        for talk in TALKS
        for n, m in enumerate(_sdk_messages(talk))
    ]
    return Export({"Message_v2.jsonl": Lines(rows)}, told(TALKS))


@export(7, "smolagents, a step that failed")
def smolagents() -> Export:
    """`RunResult.dict()`: a call that raised is in the model's message alone, and its step has an error."""
    files = {f"{talk.id}.json": {"output": talk.answer, "state": "success", "steps": _memory(talk)} for talk in SERIAL}
    acts = [[*(act.calls for act in talk.acts[:-1]), (_final(talk),)] for talk in SERIAL]
    right = told(SERIAL, Says(tokens=True), answered="")
    calls = [tuple(f"{c.name}{json.dumps(c.args, sort_keys=True)}" for (c,) in made) for made in acts]
    return Export(files, [type(one)(**{**vars(one), "calls": made, "results": len(made)})
                          for one, made in zip(right, calls, strict=True)])  # fmt: skip


def _final(talk: Talk) -> Call:
    return Call("call_f", "final_answer", {"answer": talk.answer}, talk.answer)


def _memory(talk: Talk) -> list[dict[str, Any]]:
    steps: list[dict[str, Any]] = [{"task": talk.asked, "task_images": None}]
    for n, act in enumerate(talk.acts, 1):
        (call,) = act.calls or (_final(talk),)
        words = act.text if act.calls else None
        made = [{"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.args}}]
        usage = {"input_tokens": act.read, "output_tokens": act.wrote}
        error = {"type": "AgentToolExecutionError", "message": f"Error executing tool: {call.result}"}
        steps.append({
            "step_number": n, "tool_calls": [] if call.failed else made, "error": error if call.failed else None,
            "model_output_message": {"role": "assistant", "content": words, "tool_calls": made, "token_usage": usage},
            "model_output": words, "observations": None if call.failed else call.result, "token_usage": usage,
            "is_final_answer": not act.calls})  # fmt: skip
    return steps


@export(7, "AutoGen, messages as lines")
def autogen() -> Export:
    """`model_dump_json` of each message of a run: words before calls are an event of their own."""
    return Export({f"{talk.id}.jsonl": Lines(_autogen(talk)) for talk in TALKS}, told(TALKS, Says(tokens=True)))


def _autogen(talk: Talk) -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = []
    for n, turn in paced(talk):
        about: dict[str, Any] = {
            "id": f"{talk.id}-{n}",
            "source": "desk",
            "models_usage": None,
            "metadata": {},
            "created_at": at(n),
        }
        if isinstance(turn, str):
            lines.append({**about, "source": "user", "content": turn, "type": "TextMessage"})
            continue
        usage = {"models_usage": {"prompt_tokens": turn.read, "completion_tokens": turn.wrote}}
        if not turn.calls:
            lines.append({**about, **usage, "content": turn.text, "type": "TextMessage"})
            continue
        lines += [{**about, "content": turn.text, "type": "ThoughtEvent"}] if turn.text else []
        calls = [{"id": c.id, "arguments": c.text, "name": c.name} for c in turn.calls]
        results = [{"content": c.result, "name": c.name, "call_id": c.id, "is_error": c.failed} for c in turn.calls]
        lines.append({**about, **usage, "content": calls, "type": "ToolCallRequestEvent"})
        lines.append({**about, "content": results, "type": "ToolCallExecutionEvent"})
    return lines


@export(7, "Google ADK, rows of events")
def adk_rows() -> Export:
    """The table `events` of `DatabaseSessionService`: an event a row, as JSON text."""
    rows = [{"id": f"{talk.id}-{n}", "app_name": "desk", "user_id": "u", "session_id": talk.id, "timestamp": at(n + k / 9),
             "event_data": json.dumps(event)} for talk in TALKS for n, turn in paced(talk)
            for k, event in enumerate(_adk(turn))]  # fmt: skip
    return Export({"events.jsonl": Lines(rows)}, told(TALKS, COUNTED))


def _adk(turn: str | Act) -> list[dict[str, Any]]:
    if isinstance(turn, str):
        return [{"author": "user", "content": {"role": "user", "parts": [{"text": turn}]}}]
    parts: list[dict[str, Any]] = [{"text": turn.text}] if turn.text else []
    parts += [{"function_call": {"id": c.id, "name": c.name, "args": c.args}} for c in turn.calls]
    usage = {"prompt_token_count": turn.read, "candidates_token_count": turn.wrote}
    said = {
        "author": "desk",
        "model_version": MODEL,
        "usage_metadata": usage,
        "content": {"role": "model", "parts": parts},
    }
    shown = [{"function_response": {"id": c.id, "name": c.name, "response": {"error" if c.failed else "result": c.result}}}
             for c in turn.calls]  # fmt: skip
    return [said, *([{"author": "desk", "content": {"role": "user", "parts": shown}}] if shown else [])]


@export(7, "Haystack, messages with reasoning")
def haystack() -> Export:
    """`ChatMessage.to_dict()` of a chat: a result repeats its call, a thought is a part."""
    return Export({f"{talk.id}.json": _haystack(talk) for talk in TALKS}, told(TALKS, COUNTED))


def _haystack(talk: Talk) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    for turn in talk.turns:
        if isinstance(turn, str):
            messages.append({"role": "user", "meta": {}, "name": None, "content": [{"text": turn}]})
            continue
        calls = [{"tool_name": c.name, "arguments": c.args, "id": c.id, "extra": None} for c in turn.calls]
        parts: list[dict[str, Any]] = [{"reasoning": {"reasoning_text": "It is an order.", "extra": {}}}]
        parts += [{"text": turn.text}] if turn.text else []
        usage = {"prompt_tokens": turn.read, "completion_tokens": turn.wrote}
        messages.append({"role": "assistant", "meta": {"model": MODEL, "usage": usage}, "name": None,
                         "content": [*parts, *({"tool_call": call} for call in calls)]})  # fmt: skip
        messages += [{"role": "tool", "meta": {}, "name": None, "content": [
            {"tool_call_result": {"result": c.result, "origin": call, "error": c.failed}}]}
            for c, call in zip(turn.calls, calls, strict=True)]  # fmt: skip
    return messages


@export(7, "DSPy, trajectories of ReAct")
def dspy() -> Export:
    """`prediction.toDict()` next to the question: fields of a step end in its number."""
    rows = []
    for talk in SERIAL:
        steps: dict[str, Any] = {}
        for n, act in enumerate(talk.acts[:-1]):
            (call,) = act.calls
            steps |= {f"thought_{n}": act.text, f"tool_name_{n}": call.name, f"tool_args_{n}": call.args}
            steps[f"observation_{n}"] = f"Execution error in {call.name}: late" if call.failed else call.result
        rows.append({"question": talk.asked, "trajectory": steps, "reasoning": "All is known.", "answer": talk.answer})
    return Export({"predictions.json": rows}, told(SERIAL))


@export(7, "Gemini CLI, messages that grow")
def gemini() -> Export:
    """Lines of a session: a message is written again when its tokens, and when its results are known."""
    return Export({f"session-{talk.id}.jsonl": Lines(_gemini(talk)) for talk in TALKS}, told(TALKS, COUNTED))


def _gemini(talk: Talk) -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = [{"sessionId": talk.id, "projectHash": "h", "startTime": at(0), "kind": "main"}]
    for n, turn in paced(talk):
        own = {"id": f"{talk.id}-{n}", "timestamp": at(n)}
        if isinstance(turn, str):
            lines += [{**own, "type": "user", "content": [{"text": turn}]}, {"$set": {"lastUpdated": at(n)}}]
            continue
        said: dict[str, Any] = {
            **own,
            "type": "gemini",
            "content": turn.text or "",
            "thoughts": [],
            "tokens": None,
            "model": MODEL,
        }
        counted = {**said, "tokens": {"input": turn.read, "output": turn.wrote, "total": turn.read + turn.wrote}}
        calls = [{"id": c.id, "name": c.name, "args": c.args, "status": "error" if c.failed else "success",
                  "timestamp": at(n), "result": [{"functionResponse": {
                      "id": c.id, "name": c.name, "response": {"error" if c.failed else "output": c.result}}}]}
                 for c in turn.calls]  # fmt: skip
        lines += [said, counted, *({**counted, "toolCalls": calls[:k]} for k in range(1, len(calls) + 1))]
    return lines


@export(7, "Cline, calls with the id of their response")
def cline() -> Export:
    """`api_conversation_history.json`: a call names its response too; model and tokens are in objects of their own."""
    files = {f"tasks/{talk.task}/api_conversation_history.json": _cline(talk) for talk in TALKS}
    return Export(files, told(TALKS, Says(tokens=True, model=True, task=True)))


def _cline(talk: Talk) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    for n, turn in paced(talk):
        if isinstance(turn, str):
            messages.append({"role": "user", "content": [{"type": "text", "text": turn}], "ts": unix(n) * 1000})
            continue
        words = [{"type": "text", "text": turn.text}] if turn.text else []
        calls = [
            {"type": "tool_use", "id": c.id, "name": c.name, "input": c.args, "call_id": f"fc_{n}"} for c in turn.calls
        ]
        messages.append({
            "role": "assistant", "content": [*words, *calls], "ts": unix(n) * 1000, "id": f"gen-{n}",
            "modelInfo": {"modelId": MODEL, "providerId": "cline", "mode": "act"},
            "metrics": {"tokens": {"prompt": turn.read, "completion": turn.wrote, "cached": 0}, "cost": 0.01}})  # fmt: skip
        results = [{"type": "tool_result", "tool_use_id": c.id, "content": [{"type": "text", "text": c.result}]}
                   for c in turn.calls]  # fmt: skip
        messages += [{"role": "user", "content": results, "ts": unix(n + 0.5) * 1000}] if results else []
    return messages


@export(7, "Turns of a session without times")
def turns() -> Export:
    """A line holds what one turn of the user added, under the session's id, without any time."""
    rows = []
    for talk in quiet(TALKS):
        asks = [n for n, turn in enumerate(talk.turns) if isinstance(turn, str)]
        ends = [*asks[1:], len(talk.turns)]
        parts = [Talk(talk.id, talk.task, talk.turns[n:end], talk.solved) for n, end in zip(asks, ends, strict=True)]
        rows += [{"session_id": talk.id, "messages": openai(part, system=SYSTEM)} for part in parts]
    return Export({"turns.jsonl": Lines(rows)}, told(quiet(TALKS)))
