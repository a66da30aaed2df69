"""A fourth set, written after the mends by the third, and measured before any by itself."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from benchmarks.exports.story import (
    MODEL,
    SYSTEM,
    TALKS,
    TASKS,
    Export,
    Files,
    Lines,
    Says,
    Talk,
    Told,
    at,
    calls_of,
    export,
    openai,
    paced,
    quiet,
    told,
    unix,
)


@export(4, "goose, an exported session")
def goose() -> Export:
    """`goose session export --format json`: requests and responses of tools are parts."""
    files: Files = {}
    for talk in TALKS:
        said: list[Any] = []
        for minute, turn in paced(talk):
            about = {"id": f"m{minute}", "created": unix(minute), "metadata": {"userVisible": True}}
            if isinstance(turn, str):
                said.append({**about, "role": "user", "content": [{"type": "text", "text": turn}]})
                continue
            parts: list[Any] = [{"type": "text", "text": turn.text}] if turn.text else []
            parts += [
                {
                    "type": "toolRequest",
                    "id": c.id,
                    "toolCall": {"status": "success", "value": {"name": c.name, "arguments": c.args}},
                }
                for c in turn.calls
            ]
            said.append({**about, "role": "assistant", "content": parts})
            answers = [
                {
                    "type": "toolResponse",
                    "id": c.id,
                    "toolResult": {"status": "error", "error": c.result}
                    if c.failed
                    else {"status": "success", "value": [{"type": "text", "text": c.result}]},
                }
                for c in turn.calls
            ]
            said += [{**about, "id": f"r{minute}", "role": "user", "content": answers}] if answers else []
        files[f"{talk.id}.json"] = {
            "id": talk.id,
            "working_dir": "/srv",
            "name": "Orders",
            "message_count": len(said),
            "created_at": at(0),
            "extension_data": {},
            "conversation": said,
        }
    return Export(files, told(TALKS))


@export(4, "Open Interpreter, a conversation")
def open_interpreter() -> Export:
    """A list of messages of several types: words, code, and what the computer prints."""
    files: Files = {}
    for talk in TASKS:
        said: list[Any] = []
        for turn in talk.turns:
            if isinstance(turn, str):
                said.append({"role": "user", "type": "message", "content": turn})
                continue
            if turn.text:
                said.append({"role": "assistant", "type": "message", "content": turn.text})
            for c in turn.calls:
                said.append({"role": "assistant", "type": "code", "format": "python", "content": f"{c.name}({c.args})"})
                said.append({"role": "computer", "type": "console", "format": "output", "content": c.result})
        files[f"{talk.id}.json"] = said
    right = [
        replace(
            t,
            steps=len(calls_of(talk)) + 1,
            calls=tuple(f'python{{"code": "{c.name}({c.args})"}}' for c in calls_of(talk)),
        )
        for t, talk in zip(told(TASKS), TASKS, strict=True)
    ]
    return Export(files, right)


@export(4, "Bot Framework, transcripts")
def bot_framework() -> Export:
    """`.transcript` files: activities, each from somebody with a role."""
    files: Files = {}
    talks = [_spoken(talk) for talk in TALKS]
    for talk in talks:
        files[f"{talk.id}.transcript"] = [
            {
                "type": "message",
                "id": f"a{minute}",
                "timestamp": at(minute),
                "channelId": "webchat",
                "from": {"id": "1", "role": "user" if isinstance(turn, str) else "bot"},
                "recipient": {"id": "2"},
                "conversation": {"id": talk.id},
                "textFormat": "plain",
                "text": turn if isinstance(turn, str) else turn.text,
            }
            for minute, turn in paced(talk)
        ]
    return Export(files, told(talks))


def _spoken(talk: Talk) -> Talk:
    """Return a talk with its words alone."""
    turns = tuple(u if isinstance(u, str) else u._replace(calls=()) for u in talk.turns if isinstance(u, str) or u.text)
    return replace(talk, turns=turns)


@export(4, "Humanloop, logs of a prompt")
def humanloop() -> Export:
    """A record a call: messages, the answer as a message, tokens."""
    rows = []
    for talk in TALKS:
        history: list[Any] = [{"role": "system", "content": SYSTEM}]
        messages = openai(talk)
        for turn, message in zip((t for t in talk.turns for t in _expanded(t)), messages, strict=True):
            if message["role"] == "assistant":
                rows.append(
                    {
                        "id": f"log_{talk.id}_{len(history)}",
                        "session_id": talk.id,
                        "messages": history,
                        "output_message": message,
                        "output": message["content"],
                        "prompt_tokens": turn.read,
                        "output_tokens": turn.wrote,
                        "provider_latency": 0.5,
                        "created_at": at(len(history)),
                        "prompt": {"path": "shop", "model": MODEL},
                        "finish_reason": "stop",
                    }
                )
            history = [*history, message]
    return Export({"logs.jsonl": Lines(rows)}, told(TALKS, Says(tokens=True, model=True)))


def _expanded(turn: Any) -> list[Any]:
    return [turn] if isinstance(turn, str) else [turn, *turn.calls]


@export(4, "PromptLayer, requests")
def promptlayer() -> Export:
    """A record a request with what the library was given and what it returned."""
    rows: list[Any] = []
    for talk in TALKS:
        history: list[Any] = []
        for turn, message in zip((t for t in talk.turns for t in _expanded(t)), openai(talk), strict=True):
            if message["role"] == "assistant":
                usage = {"prompt_tokens": turn.read, "completion_tokens": turn.wrote, "total_tokens": 1}
                rows.append(
                    {
                        "request_id": len(rows) + 1,
                        "provider_type": "acme",
                        "function_name": "chat.create",
                        "kwargs": {"model": MODEL, "messages": history},
                        "tags": [],
                        "price": 0.01,
                        "request_start_time": unix(len(rows)),
                        "request_end_time": unix(len(rows) + 1),
                        "metadata": {"session_id": talk.id},
                        "request_response": {
                            "id": f"c{len(rows)}",
                            "object": "chat.completion",
                            "model": MODEL,
                            "usage": usage,
                            "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
                        },
                    }
                )
            history = [*history, message]
    return Export({"requests.jsonl": Lines(rows)}, told(TALKS, Says(tokens=True, model=True)))


@export(4, "OpenAI evals, a log of a run")
def evals() -> Export:
    """Events of a run as lines: what was sampled of each sample, and whether it matched."""
    lines: list[Any] = [{"spec": {"completion_fns": [MODEL], "eval_name": "shop", "run_id": "run1"}}]
    for n, talk in enumerate(TASKS):
        base = {"run_id": "run1", "sample_id": f"shop.{n}", "created_by": "", "created_at": at(n)}
        lines.append(
            {
                **base,
                "event_id": 2 * n,
                "type": "sampling",
                "data": {
                    "prompt": [{"role": "system", "content": SYSTEM}, {"role": "user", "content": talk.asked}],
                    "sampled": [talk.answer],
                },
            }
        )
        lines.append(
            {
                **base,
                "event_id": 2 * n + 1,
                "type": "match",
                "data": {"correct": talk.solved, "expected": "x", "picked": "y", "sampled": talk.answer},
            }
        )
    lines.append({"final_report": {"accuracy": 0.5}})
    right = [Told(asked=t.asked, answered=t.answer, steps=1, outcomes=(float(t.solved),)) for t in TASKS]
    return Export({"run1_shop.jsonl": Lines(lines)}, right)


@export(4, "lm-eval, logged samples")
def lm_eval() -> Export:
    """`--log_samples`: a line a document with the request's arguments, the responses and a metric."""
    rows = [
        {
            "doc_id": n,
            "doc": {"question": t.asked},
            "target": "x",
            "arguments": {"gen_args_0": {"arg_0": t.asked}},
            "resps": [[t.answer]],
            "filtered_resps": [t.answer],
            "filter": "none",
            "metrics": ["exact_match"],
            "doc_hash": f"h{n}",
            "exact_match": float(t.solved),
        }
        for n, t in enumerate(TASKS)
    ]
    right = [
        Told(asked=t.asked, answered=t.answer, steps=1, outcomes=(float(t.solved),), task=f"lm-eval/h{n}")
        for n, t in enumerate(TASKS)
    ]
    return Export({"samples_shop.jsonl": Lines(rows)}, right)


@export(4, "ADK, an evaluation set")
def adk_evalset() -> Export:
    """Cases with invocations: what the user wrote, the tools in between, the last answer."""
    cases = []
    for talk in quiet(TASKS):
        invocation = {
            "invocation_id": f"i-{talk.id}",
            "user_content": {"parts": [{"text": talk.asked}], "role": "user"},
            "final_response": {"parts": [{"text": talk.answer}], "role": "model"},
            "creation_timestamp": float(unix(0)),
            "intermediate_data": {
                "tool_uses": [{"id": c.id, "name": c.name, "args": c.args} for c in calls_of(talk)],
                "tool_responses": [
                    {"id": c.id, "name": c.name, "response": {"result": c.result}} for c in calls_of(talk)
                ],
                "intermediate_responses": [],
            },
        }
        cases.append({"eval_id": talk.task, "conversation": [invocation], "session_input": {"app_name": "shop"}})
    right = told(quiet(TASKS), Says(task=True))
    return Export({"shop.evalset.json": {"eval_set_id": "shop", "eval_cases": cases}}, right)


@export(4, "TypingMind, exported chats")
def typingmind() -> Export:
    """All chats of the application in one document."""
    chats = [
        {
            "id": t.id,
            "chatID": t.id,
            "chatTitle": "Orders",
            "model": MODEL,
            "createdAt": at(0),
            "messages": openai(t),
            "tokenUsage": {"totalTokens": 9},
        }
        for t in TALKS
    ]
    return Export({"export.json": {"data": {"chats": chats, "folders": []}}}, told(TALKS, Says(model=True)))


@export(4, "Jan, messages of threads")
def jan() -> Export:
    """`threads/ID/messages.jsonl`: messages as the Assistants API has them."""
    files: Files = {}
    talks = [_spoken(talk) for talk in TALKS]
    for talk in talks:
        files[f"threads/{talk.id}/messages.jsonl"] = Lines(
            {
                "id": f"m{minute}",
                "object": "thread.message",
                "thread_id": talk.id,
                "status": "ready",
                "role": "user" if isinstance(turn, str) else "assistant",
                "created_at": unix(minute) * 1000,
                "completed_at": unix(minute) * 1000,
                "metadata": {},
                "content": [
                    {"type": "text", "text": {"value": turn if isinstance(turn, str) else turn.text, "annotations": []}}
                ],
            }
            for minute, turn in paced(talk)
        )
        files[f"threads/{talk.id}/thread.json"] = {
            "id": talk.id,
            "object": "thread",
            "title": "Orders",
            "assistants": [{"model": {"id": MODEL}}],
            "created": unix(0),
        }
    return Export(files, told(talks))
