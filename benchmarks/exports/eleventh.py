"""An eleventh set: an audit of 53 systems' real files, of whose causes these were mended; written after them."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

from benchmarks.exports.clients import vscode_chat
from benchmarks.exports.story import (
    MODEL,
    SERIAL,
    SYSTEM,
    TALKS,
    Act,
    Call,
    Export,
    Lines,
    Says,
    Talk,
    Told,
    answered,
    at,
    export,
    openai,
    paced,
    quiet,
    told,
    unix,
)


@export(11, "claude-trace, requests with what was streamed")
def claude_trace() -> Export:
    """What a proxy wrote of Claude Code: the text of the stream is the answer's `body_raw`."""
    rows: list[Any] = []
    for talk in TALKS:
        history: list[dict[str, Any]] = []
        for minute, turn in paced(talk):
            if isinstance(turn, str):
                history.append({"role": "user", "content": turn})
                continue
            request = {"model": MODEL, "max_tokens": 512, "system": SYSTEM, "stream": True, "messages": [*history]}
            rows.append({
                "request": {"timestamp": unix(minute), "method": "POST", "url": "https://api.anthropic.com/v1/messages",
                            "headers": {"x-app": "cli"}, "body": request},
                "response": {"timestamp": unix(minute) + 2, "status_code": 200, "headers": {},
                             "body_raw": _streamed(turn, f"msg_{talk.id}{minute}")},
                "logged_at": at(minute),
            })  # fmt: skip
            history.append({"role": "assistant", "content": _blocks(turn)})
            if turn.calls:
                gave = [{"type": "tool_result", "tool_use_id": c.id, "content": c.result, "is_error": c.failed}
                        for c in turn.calls]  # fmt: skip
                history.append({"role": "user", "content": gave})
    return Export({"log-1.jsonl": Lines(rows)}, told(TALKS, Says(tokens=True, model=True)))


def _blocks(act: Act) -> list[dict[str, Any]]:
    said: list[dict[str, Any]] = [{"type": "text", "text": act.text}] if act.text else []
    return said + [{"type": "tool_use", "id": c.id, "name": c.name, "input": c.args} for c in act.calls]


def _streamed(act: Act, own: str) -> str:
    """Return an answer as the API streams it."""
    usage = {"input_tokens": act.read, "output_tokens": 1}
    begun = {"id": own, "type": "message", "role": "assistant", "model": MODEL, "content": [], "usage": usage}
    events: list[dict[str, Any]] = [{"type": "message_start", "message": begun}]
    for n, block in enumerate(_blocks(act)):
        is_text = block["type"] == "text"
        nothing: dict[str, Any] = {"text": ""} if is_text else {"input": {}}
        empty = {**block, **nothing}
        delta = {"type": "text_delta", "text": block["text"]} if is_text else {
            "type": "input_json_delta", "partial_json": json.dumps(block["input"])}  # fmt: skip
        events += [{"type": "content_block_start", "index": n, "content_block": empty},
                   {"type": "content_block_delta", "index": n, "delta": delta},
                   {"type": "content_block_stop", "index": n}]  # fmt: skip
    reason = "tool_use" if act.calls else "end_turn"
    events += [{"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": act.wrote}},
               {"type": "message_stop"}]  # fmt: skip
    return "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)


@export(11, "Copilot in VS Code, results as trees")
def trees() -> Export:
    """Newer tools give elements instead of text, and edits of files are shown next to the words."""
    files = {}
    for talk in TALKS:
        chat = vscode_chat(talk)
        for request in chat["requests"]:
            results = request["result"]["metadata"]["toolCallResults"]
            for result in results.values():
                result["content"] = [{"$mid": 22, "value": {"node": _tree(result["content"][0]["value"])}}]
            edits = [[{"text": f"order_{n} = shipped  # by now", "range": {"startLineNumber": n}}]
                     for n in range(2)]  # fmt: skip
            request["response"].append({"kind": "textEditGroup", "uri": {"path": "/a.py"}, "edits": edits})
        files[f"{talk.id}/chat.json"] = chat
    return Export(files, told(TALKS, Says(), model=f"copilot/{MODEL}"))


def _tree(words: str) -> dict[str, Any]:
    half = len(words) // 2
    children = [{"type": 2, "text": part, "lineBreakBefore": False} for part in (words[:half], words[half:])]
    return {"type": 1, "ctor": 2, "ctorName": "mm", "children": children, "props": {}, "references": []}


@export(11, "A bot's own lines of question and answer")
def lines() -> Export:
    """A row has an id of its own and what a classifier made of the question."""
    rows = [
        {"id": f"r-{n}", "timestamp": at(n), "user_msg": asked, "intent": "order", "response": answer, "model": MODEL,
         "latency_ms": 40 + n, "risk_flag": False, "extra": {}}
        for n, (asked, answer) in enumerate(answered(TALKS))
    ]  # fmt: skip
    right = [Told(asked=asked, answered=answer, steps=1, model=MODEL) for asked, answer in answered(TALKS)]
    return Export({"chatlogs.jsonl": Lines(rows)}, right)


@export(11, "A bot's own table of question and answer")
def table() -> Export:
    """What is certain of such a log is its time."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(["time", "question", "response", "response_time_seconds"])
    writer.writerows([at(n), asked, answer, 0.01] for n, (asked, answer) in enumerate(answered(TALKS)))
    right = [Told(asked=asked, answered=answer, steps=1) for asked, answer in answered(TALKS)]
    return Export({"chat_logs.csv": "\ufeff" + text.getvalue()}, right)


@export(11, "Requests of a loop, each with all before it")
def requests() -> Export:
    """What the loop reports of itself differs in each of them, and its one question is asked again at the end."""
    runs = {}
    for talk in quiet(SERIAL):
        history = openai(Talk(talk.id, talk.task, (*talk.turns, talk.asked), talk.solved))
        cuts = [n for n, message in enumerate(history) if n and message["role"] == "assistant"]
        sent = [[*history[:cut], {"role": "user", "content": talk.asked}] for cut in cuts[1:]] + [history]
        runs[at(0) if talk.id.endswith("a") else at(60)] = {
            str(n): [{"role": "system", "content": f"You have {9 - n} commands left. Take care."}, *messages]
            for n, messages in enumerate(sent, 1)
        }
    return Export({"request.json": runs}, told(quiet(SERIAL)))


@export(11, "Callbacks of LangChain without ids")
def callbacks() -> Export:
    """A call is in an answer and begins in a line of its own, and nothing shows that the two are one: refused."""
    rows: list[Any] = []
    for talk in SERIAL:
        for minute, turn in paced(talk):
            if isinstance(turn, str):
                rows.append({"time": at(minute), "event": "llm_start", "prompts": [f"System: {SYSTEM}\nHuman: {turn}"]})
                continue
            calls = [{"tool": c.name, "args": c.args} for c in turn.calls]
            rows.append({"time": at(minute), "event": "llm_end", "response": turn.text, "tool_calls": calls})
            rows += [row for c in turn.calls for row in _ran(c, minute)]
    return Export({"traces.jsonl": Lines(rows)}, [])


def _ran(call: Call, minute: int) -> list[dict[str, Any]]:
    return [{"time": at(minute), "event": "tool_start", "tool": call.name, "input": str(call.args)},
            {"time": at(minute), "event": "tool_end", "output": f"content={call.result!r} name={call.name!r}"}]  # fmt: skip
