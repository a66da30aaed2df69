"""What command lines and editors with agents write."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from benchmarks.exports.story import (
    MODEL,
    TALKS,
    TASKS,
    Call,
    Export,
    Lines,
    Says,
    Talk,
    at,
    export,
    paced,
    told,
    unix,
)

SHELL = "ls /srv/orders"


@export(1, "Cursor CLI, stream of JSON")
def cursor() -> Export:
    """`cursor-agent -p --output-format stream-json`: calls are started and completed; tokens are of the whole run."""
    right = told(TASKS, Says(tokens=True, model=True))
    return Export({f"{talk.id}.jsonl": Lines(_cursor(talk)) for talk in TASKS}, right)


def _cursor(talk: Talk) -> list[Any]:
    session = {"session_id": talk.id}
    lines: list[Any] = [{"type": "system", "subtype": "init", "apiKeySource": "login", "cwd": "/srv", "model": MODEL,
                         "permissionMode": "default", **session}]  # fmt: skip
    for minute, turn in paced(talk):
        stamp = {"timestamp_ms": unix(minute) * 1000}
        if isinstance(turn, str):
            said = {"role": "user", "content": [{"type": "text", "text": turn}]}
            lines.append({"type": "user", "message": said, **session})
            continue
        lines += [
            {"type": "thinking", "subtype": "delta", "text": part, **session, **stamp} for part in ("Let ", "me.")
        ]
        lines.append({"type": "thinking", "subtype": "completed", **session, **stamp})
        made = {"model_call_id": f"mc-{minute}", **session, **stamp}
        if turn.text:
            said = {"role": "assistant", "content": [{"type": "text", "text": turn.text}]}
            lines.append({"type": "assistant", "message": said, **made})
        for ended in (False, True):
            lines += [{"type": "tool_call", "subtype": "completed" if ended else "started", "call_id": c.id,
                       "tool_call": {"mcpToolCall": _cursor_tool(c, ended=ended)}, **made}
                      for c in turn.calls]  # fmt: skip
    usage = {"inputTokens": sum(a.read for a in talk.acts), "outputTokens": sum(a.wrote for a in talk.acts)}
    lines.append({"type": "result", "subtype": "success", "duration_ms": 4889, "is_error": False,
                  "result": talk.answer, "request_id": f"req-{talk.id}", "usage": usage, **session})  # fmt: skip
    return lines


def _cursor_tool(call: Call, *, ended: bool) -> dict[str, Any]:
    asked = {"name": f"shop-{call.name}", "args": call.args, "toolCallId": call.id, "providerIdentifier": "shop",
             "toolName": call.name}  # fmt: skip
    if not ended:
        return {"args": asked}
    if call.failed:
        return {"args": asked, "result": {"error": {"error": call.result}}}
    return {"args": asked, "result": {"success": {"content": [{"text": {"text": call.result}}], "isError": False}}}


@export(1, "Codex, exec --json")
def codex() -> Export:
    """Items of one turn, started and completed; the request is not among them."""
    right = [replace(t, calls=(*t.calls, f'command_execution{{"command": "{SHELL}"}}'), results=t.results + 1,
                     steps=t.steps + 1) if t.steps == 3 else t
             for t in told(TASKS, Says(tokens=True), asked="")]  # fmt: skip
    right[0] = replace(right[0], calls=(*right[0].calls[:3], right[0].calls[3]))
    return Export({f"{talk.id}.jsonl": Lines(_codex(talk)) for talk in TASKS}, right)


def _codex(talk: Talk) -> list[Any]:
    lines: list[Any] = [{"type": "thread.started", "thread_id": talk.id}, {"type": "turn.started"}]
    n = 0
    for act in talk.acts:
        lines.append(
            {"type": "item.completed", "item": {"id": f"item_{n}", "type": "reasoning", "text": "Let me see."}}
        )
        if act.text and not act.calls and not talk.solved:  # the last act of the first talk has a command before it
            ran = {"id": f"item_{n + 1}", "type": "command_execution", "command": SHELL}
            began = {"aggregated_output": "", "exit_code": None, "status": "in_progress"}
            done = {"aggregated_output": "7.json\n", "exit_code": 0, "status": "completed"}
            lines += [{"type": "item.started", "item": ran | began}, {"type": "item.completed", "item": ran | done}]
        if act.text:
            said = {"id": f"item_{n + 2}", "type": "agent_message", "text": act.text}
            lines.append({"type": "item.completed", "item": said})
        for ended in (False, True):
            kind = "item.completed" if ended else "item.started"
            lines += [{"type": kind, "item": _codex_tool(c, f"item_{n + 3 + i}", ended=ended)}
                      for i, c in enumerate(act.calls)]  # fmt: skip
        n += 6
    usage = {"input_tokens": sum(a.read for a in talk.acts), "cached_input_tokens": 20,
             "output_tokens": sum(a.wrote for a in talk.acts)}  # fmt: skip
    return [*lines, {"type": "turn.completed", "usage": usage}]


def _codex_tool(call: Call, item: str, *, ended: bool) -> dict[str, Any]:
    made = {"id": item, "type": "mcp_tool_call", "server": "shop", "tool": call.name, "arguments": call.args}
    if not ended:
        return {**made, "result": None, "error": None, "status": "in_progress"}
    if call.failed:
        return {**made, "result": None, "error": {"message": call.result}, "status": "failed"}
    content = [{"type": "text", "text": call.result}]
    return {**made, "result": {"content": content, "structured_content": None}, "error": None, "status": "completed"}


@export(1, "Copilot CLI, events of a session")
def copilot() -> Export:
    """`~/.copilot/session-state/ID/events.jsonl`: input tokens are only in the event of its end."""
    right = told(TALKS, Says(tokens=True, model=True))
    return Export({f"{talk.id}/events.jsonl": Lines(_copilot(talk)) for talk in TALKS}, right)


def _copilot(talk: Talk) -> list[Any]:
    events: list[tuple[float, str, dict[str, Any]]] = [
        (0, "session.start", {"sessionId": talk.id, "version": 1, "producer": "copilot-agent", "copilotVersion": "0.0.4",
                              "startTime": at(0), "context": {"cwd": "/srv", "branch": "main"}}),
        (0, "session.model_change", {"newModel": MODEL}),
    ]  # fmt: skip
    number = 0
    for minute, turn in paced(talk):
        if isinstance(turn, str):
            changed = f"<current_datetime>{at(minute)}</current_datetime>\n\n{turn}"
            events.append((minute, "user.message", {"content": turn, "transformedContent": changed, "attachments": []}))
            continue
        events.append((minute, "assistant.turn_start", {"turnId": str(number)}))
        asked = [{"toolCallId": c.id, "name": c.name, "arguments": c.args, "type": "function"} for c in turn.calls]
        events.append((minute, "assistant.message", {"messageId": f"m-{minute}", "content": turn.text or "",
                                                     "toolRequests": asked, "outputTokens": turn.wrote}))  # fmt: skip
        events += [(minute, "tool.execution_start", {"toolCallId": c.id, "toolName": c.name, "arguments": c.args})
                   for c in turn.calls]  # fmt: skip
        events += [(minute + 0.1, "tool.execution_complete", {"toolCallId": c.id, "success": not c.failed, **_ended(c)})
                   for c in turn.calls]  # fmt: skip
        events.append((minute + 0.2, "assistant.turn_end", {"turnId": str(number)}))
        number += 1
    usage = {"inputTokens": sum(a.read for a in talk.acts), "outputTokens": sum(a.wrote for a in talk.acts),
             "cacheReadTokens": 0, "cacheWriteTokens": 0}  # fmt: skip
    metrics = {MODEL: {"requests": {"count": number, "cost": 1}, "usage": usage}}
    events.append((99, "session.shutdown", {"shutdownType": "routine", "modelMetrics": metrics, "currentModel": MODEL}))
    return [{"type": kind, "data": data, "id": f"e-{talk.id}-{n}", "timestamp": at(minute),
             "parentId": f"e-{talk.id}-{n - 1}" if n else None}
            for n, (minute, kind, data) in enumerate(events)]  # fmt: skip


def _ended(call: Call) -> dict[str, Any]:
    if call.failed:
        return {"error": {"message": call.result, "code": "failure"}}
    return {"result": {"content": call.result, "detailedContent": call.result}}


@export(2, "Gemini CLI, stream of JSON")
def gemini() -> Export:
    """`gemini -o stream-json`: words come in pieces; tokens are of the whole run."""
    return Export({f"{t.id}.jsonl": Lines(_gemini(t)) for t in TASKS}, told(TASKS, Says(tokens=True, model=True)))


def _gemini(talk: Talk) -> list[Any]:
    lines: list[Any] = [{"type": "init", "timestamp": at(0), "session_id": talk.id, "model": MODEL}]
    for minute, turn in paced(talk):
        stamp = {"timestamp": at(minute)}
        if isinstance(turn, str):
            lines.append({"type": "message", **stamp, "role": "user", "content": turn})
            continue
        half = len(turn.text or "") // 2
        pieces = [turn.text[:half], turn.text[half:]] if turn.text else []
        lines += [{"type": "message", **stamp, "role": "assistant", "content": p, "delta": True} for p in pieces]
        lines += [{"type": "tool_use", **stamp, "tool_name": c.name, "tool_id": c.id, "parameters": c.args}
                  for c in turn.calls]  # fmt: skip
        lines += [{"type": "tool_result", **stamp, "tool_id": c.id, "status": "error" if c.failed else "success",
                   "output": c.result, **({"error": {"type": "failed", "message": c.result}} if c.failed else {})}
                  for c in turn.calls]  # fmt: skip
    stats = {"total_tokens": 999, "input_tokens": sum(a.read for a in talk.acts),
             "output_tokens": sum(a.wrote for a in talk.acts), "duration_ms": 900, "tool_calls": 2}  # fmt: skip
    return [*lines, {"type": "result", "timestamp": at(99), "status": "success", "stats": stats}]


@export(2, "Claude Code, stream of JSON")
def claude() -> Export:
    """`claude -p --output-format stream-json`: a line a block of a message; the request is not among them."""
    right = told(TASKS, Says(tokens=True, model=True), asked="")
    return Export({f"{t.id}.jsonl": Lines(_claude(t)) for t in TASKS}, right)


def _claude(talk: Talk) -> list[Any]:
    about = {"session_id": talk.id, "parent_tool_use_id": None}
    lines: list[Any] = [{"type": "system", "subtype": "init", "cwd": "/srv", "session_id": talk.id, "tools": ["Bash"],
                         "model": MODEL, "permissionMode": "default", "uuid": f"u-{talk.id}"}]  # fmt: skip
    for n, act in enumerate(talk.acts):
        blocks: list[Any] = [{"type": "text", "text": act.text}] if act.text else []
        blocks += [{"type": "tool_use", "id": c.id, "name": c.name, "input": c.args} for c in act.calls]
        usage = {"input_tokens": act.read, "output_tokens": act.wrote, "cache_read_input_tokens": 0}
        for i, block in enumerate(blocks):
            message = {"id": f"msg_{talk.id}_{n}", "type": "message", "role": "assistant", "model": MODEL,
                       "content": [block], "stop_reason": None, "usage": usage}  # fmt: skip
            lines.append({"type": "assistant", "message": message, "uuid": f"a-{talk.id}-{n}-{i}", **about})
        for c in act.calls:
            result = {"type": "tool_result", "tool_use_id": c.id, "content": c.result, "is_error": c.failed}
            message = {"role": "user", "content": [result]}
            lines.append({"type": "user", "message": message, "uuid": f"r-{c.id}", **about})
    usage = {"input_tokens": sum(a.read for a in talk.acts), "output_tokens": sum(a.wrote for a in talk.acts)}
    return [*lines, {"type": "result", "subtype": "success", "is_error": False, "duration_ms": 99, "num_turns": 3,
                     "result": talk.answer, "session_id": talk.id, "total_cost_usd": 0.01, "usage": usage,
                     "uuid": f"z-{talk.id}"}]  # fmt: skip


@export(2, "VS Code, exported chat of Copilot")
def vscode() -> Export:
    """`Chat: Export Chat`: requests with their responses for the screen, and the rounds of calls in metadata."""
    right = told(TALKS, Says(), model=f"copilot/{MODEL}")
    return Export({f"{t.id}/chat.json": vscode_chat(t) for t in TALKS}, right)


def vscode_chat(talk: Talk) -> dict[str, Any]:
    """Return a talk as the editor exports it."""
    requests: list[Any] = []
    for minute, turn in paced(talk):
        if isinstance(turn, str):
            meta: dict[str, Any] = {"toolCallRounds": [], "toolCallResults": {}}
            requests.append({"requestId": f"request_{minute}", "message": {"text": turn, "parts": [
                {"kind": "text", "text": turn}]}, "variableData": {"variables": []}, "response": [],
                "result": {"timings": {"totalElapsed": 900}, "metadata": meta}, "modelId": f"copilot/{MODEL}",
                "timestamp": unix(minute) * 1000, "agent": {"id": "github.copilot.editsAgent"}})  # fmt: skip
            continue
        shown, meta = requests[-1]["response"], requests[-1]["result"]["metadata"]
        shown += [{"value": turn.text, "supportThemeIcons": False}] if turn.text else []
        shown += [{"kind": "toolInvocationSerialized", "toolId": c.name, "toolCallId": c.id, "isComplete": True,
                   "invocationMessage": {"value": f"Running {c.name}"}} for c in turn.calls]  # fmt: skip
        meta["toolCallRounds"].append({"response": turn.text or "", "id": f"round-{minute}", "toolInputRetry": 0,
                                       "toolCalls": [{"name": c.name, "arguments": c.text, "id": c.id}
                                                     for c in turn.calls]})  # fmt: skip
        for c in turn.calls:
            meta["toolCallResults"][c.id] = {"$mid": 20, "content": [{"$mid": 21, "value": c.result}]}
    return {"requesterUsername": "u", "responderUsername": "GitHub Copilot", "initialLocation": "panel",
            "requests": requests}  # fmt: skip


@export(2, "Zed, a thread of its agent")
def zed() -> Export:
    """A thread as its database keeps it: enums as objects of one field, results by the id of their call."""
    return Export({f"{t.id}.json": _zed(t) for t in TALKS}, told(TALKS, Says(model=True)))


def _zed(talk: Talk) -> dict[str, Any]:
    messages: list[Any] = []
    for minute, turn in paced(talk):
        if isinstance(turn, str):
            messages.append({"User": {"id": f"m-{minute}", "content": [{"Text": turn}]}})
            continue
        content: list[Any] = [{"Text": turn.text}] if turn.text else []
        content += [{"ToolUse": {"id": c.id, "name": c.name, "raw_input": c.text, "input": c.args,
                                 "is_input_complete": True}} for c in turn.calls]  # fmt: skip
        results = {c.id: {"tool_use_id": c.id, "tool_name": c.name, "is_error": c.failed,
                          "content": {"Text": c.result}, "output": None} for c in turn.calls}  # fmt: skip
        messages.append({"Agent": {"content": content, "tool_results": results}})
    return {"version": "0.3.0", "title": "Orders", "updated_at": at(9), "messages": messages, "profile": "write",
            "model": {"provider": "acme", "model": MODEL}, "cumulative_token_usage": {}, "detailed_summary": None}  # fmt: skip


@export(2, "Amazon Q CLI, a saved conversation")
def amazon_q() -> Export:
    """`/save`: pairs of what the user's side wrote and what the agent answered."""
    return Export({f"{t.id}.json": _amazon_q(t) for t in TALKS}, told(TALKS, Says(model=True)))


def _amazon_q(talk: Talk) -> dict[str, Any]:
    history: list[Any] = []
    said: dict[str, Any] = {}
    for minute, turn in paced(talk):
        if isinstance(turn, str):
            said = {"content": {"Prompt": {"prompt": turn}}, "timestamp": at(minute), "images": None}
            continue
        uses = [{"id": c.id, "name": c.name, "orig_name": c.name, "args": c.args, "orig_args": c.args}
                for c in turn.calls]  # fmt: skip
        made = {"message_id": f"m-{minute}", "content": turn.text or ""}
        answer = {"ToolUse": {**made, "tool_uses": uses}} if uses else {"Response": made}
        history.append({"user": said, "assistant": answer, "request_metadata": {"request_id": f"r-{minute}"}})
        results = [{"tool_use_id": c.id, "content": [{"Text": c.result}], "status": "Error" if c.failed else "Success"}
                   for c in turn.calls]  # fmt: skip
        said = {"content": {"ToolUseResults": {"tool_use_results": results}}, "timestamp": at(minute), "images": None}
    return {"conversation_id": talk.id, "next_message": None, "history": history, "valid_history_range": [0, 9],
            "transcript": [f"> {talk.asked}", talk.answer], "tools": {}, "model_info": {"model_id": MODEL}}  # fmt: skip


@export(2, "Crush, rows of its messages")
def crush() -> Export:
    """The table `messages` as lines: parts are JSON text."""
    rows = [row for talk in TALKS for row in _crush(talk)]
    return Export({"messages.jsonl": Lines(rows)}, told(TALKS, Says(model=True)))


def _crush(talk: Talk) -> list[Any]:
    rows: list[Any] = []
    for minute, turn in paced(talk):
        common = {"session_id": talk.id, "created_at": unix(minute), "updated_at": unix(minute), "provider": "acme"}
        if isinstance(turn, str):
            parts: list[Any] = [{"type": "text", "data": {"text": turn}}]
            rows.append({"id": f"m{minute}", "role": "user", "parts": json.dumps(parts), "model": None, **common})
            continue
        parts = [{"type": "text", "data": {"text": turn.text}}] if turn.text else []
        parts += [{"type": "tool_call", "data": {"id": c.id, "name": c.name, "input": c.text, "finished": True}}
                  for c in turn.calls]  # fmt: skip
        parts.append({"type": "finish", "data": {"reason": "tool_use" if turn.calls else "end_turn", "time": 1}})
        rows.append({"id": f"m{minute}", "role": "assistant", "parts": json.dumps(parts), "model": MODEL, **common})
        if turn.calls:
            parts = [{"type": "tool_result", "data": {"tool_call_id": c.id, "name": c.name, "content": c.result,
                                                      "is_error": c.failed}} for c in turn.calls]  # fmt: skip
            rows.append({"id": f"r{minute}", "role": "tool", "parts": json.dumps(parts), "model": None, **common})
    return rows


@export(2, "opencode, run --format json")
def opencode() -> Export:
    """Events of a run: parts of messages, each step with its tokens; the request is not among them."""
    right = told(TASKS, Says(tokens=True), asked="")
    return Export({f"{t.id}.jsonl": Lines(_opencode(t)) for t in TASKS}, right)


def _opencode(talk: Talk) -> list[Any]:
    lines: list[Any] = []
    for n, act in enumerate(talk.acts):
        common = {"timestamp": unix(n) * 1000, "sessionID": talk.id}
        part = {"sessionID": talk.id, "messageID": f"msg_{talk.id}_{n}"}
        lines.append({"type": "step_start", **common, "part": {"id": f"p{n}s", **part, "type": "step-start"}})
        if act.text:
            lines.append({"type": "text", **common, "part": {"id": f"p{n}t", **part, "type": "text",
                                                            "text": act.text}})  # fmt: skip
        for c in act.calls:
            state = {"status": "error" if c.failed else "completed", "input": c.args,
                     **({"error": c.result} if c.failed else {"output": c.result, "title": "", "metadata": {}})}  # fmt: skip
            lines.append({"type": "tool_use", **common, "part": {"id": f"p{c.id}", **part, "type": "tool",
                                                                "callID": c.id, "tool": c.name, "state": state}})  # fmt: skip
        tokens = {"input": act.read, "output": act.wrote, "reasoning": 0, "cache": {"read": 0, "write": 0}}
        lines.append({"type": "step_finish", **common, "part": {"id": f"p{n}f", **part, "type": "step-finish",
                                                               "reason": "stop", "cost": 0.01, "tokens": tokens}})  # fmt: skip
    return lines
