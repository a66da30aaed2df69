"""A tenth set, after files of agent frameworks, tracers and benchmarks that were never looked at before.

Where a form was read exactly at once it is not here: these were wrong or refused at their first look.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from benchmarks.exports.story import (
    MODEL,
    SERIAL,
    SYSTEM,
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
    quiet,
    told,
    unix,
)

COUNTED = Says(tokens=True, model=True)


@export(10, "TapeAgents, tapes")
def tapes() -> Export:
    """Steps that name their kind: a thought, an action with fields of its own, what was observed, a node's end."""
    files: dict[str, Any] = {}
    for talk in SERIAL:
        steps: list[Any] = [{"kind": "question", "content": talk.asked, "filename": None}]
        for act in talk.acts[:-1]:
            (call,) = act.calls
            steps += [{"kind": "reasoning_thought", "reasoning": act.text},
                      {"kind": f"{call.name}_action", **call.args}, {"kind": "set_next_node", "next_node": "act"},
                      {"kind": f"{call.name}_observation", "text": call.result, "error": call.failed or None}]  # fmt: skip
        steps.append({"kind": "assistant", "content": talk.answer})
        for n, step in enumerate(steps):
            step["metadata"] = {"id": f"{talk.id}-{n}", "agent": "desk", "node": "", "prompt_id": ""}
        files[f"{talk.id}.json"] = {"metadata": {"id": talk.id, "author": "desk", "error": None, "result": None},
                                    "context": None, "steps": steps}  # fmt: skip
    return Export(files, told(SERIAL))


def _stream(talk: Talk) -> Iterator[dict[str, Any]]:
    """Yield the events of a talk as Agent TARS streams them: a call is there again when it begins."""
    for n, turn in enumerate(talk.turns):
        about = {"id": f"{talk.id}-{n}", "timestamp": unix(n) * 1000}
        if isinstance(turn, str):
            yield {**about, "type": "user_message", "content": turn}
            run = {"sessionId": talk.id, "runOptions": {"input": turn, "stream": True}, "model": MODEL}
            yield {**about, "id": f"{talk.id}-{n}r", "type": "agent_run_start", **run}
            continue
        calls = [{"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.text}}
                 for c in turn.calls]  # fmt: skip
        yield {**about, "type": "assistant_message", "content": turn.text or "", "rawContent": turn.text or "",
               "finishReason": "tool_calls" if calls else "stop", **({"toolCalls": calls} if calls else {})}  # fmt: skip
        for call in turn.calls:
            begun = {**about, "toolCallId": call.id, "name": call.name}
            yield {**begun, "id": f"{call.id}-b", "type": "tool_call", "arguments": call.args, "startTime": unix(n)}
            failed = {"error": call.result} if call.failed else {}
            yield {
                **begun,
                "id": f"{call.id}-e",
                "type": "tool_result",
                "content": call.result,
                "elapsedMs": 9,
                **failed,
            }
    yield {"id": f"{talk.id}-end", "type": "agent_run_end", "sessionId": talk.id, "iterations": 2, "status": "ok"}


@export(10, "Agent TARS, streams of events")
def agent_tars() -> Export:
    """`{"events": [...]}`, in which the request is repeated in the run's options, and each call when it begins."""
    return Export({f"{t.id}.json": {"events": list(_stream(t))} for t in quiet(TASKS)}, told(quiet(TASKS)))


@export(10, "ToolTalk, conversations")
def tooltalk() -> Export:
    """A turn of the assistant has next to its words the calls that they came of, each with its response."""
    files: dict[str, Any] = {}
    for talk in quiet(TALKS[1:]):
        turns: list[Any] = []
        calls: list[Any] = []
        for turn in talk.turns:
            if isinstance(turn, Act) and turn.calls:
                calls += [{"request": {"api_name": c.name, "parameters": c.args}, "response": json.loads(c.result),
                           "exception": None} for c in turn.calls]  # fmt: skip
                continue
            said = turn if isinstance(turn, str) else turn.text
            role = "user" if isinstance(turn, str) else "assistant"
            turns.append({"index": len(turns), "role": role, "text": said, **({"apis": calls} if calls else {})})
            calls = []
        files[f"{talk.id}.json"] = {"name": talk.id, "conversation_id": talk.id, "conversation": turns,
                                    "suites_used": ["Shop"], "apis_used": ["refund"], "user": {"username": "ann"},
                                    "metadata": {"location": "Bern"}}  # fmt: skip
    return Export(files, told(quiet(TALKS[1:])))


@export(10, "fast-agent, saved histories")
def fast_agent() -> Export:
    """Calls and results are objects by the ids of the calls, a call as MCP asks for it, thoughts in a channel."""
    files: dict[str, Any] = {}
    for talk in TASKS:
        messages: list[Any] = []
        for turn in talk.turns:
            if isinstance(turn, str):
                messages.append({"role": "user", "content": [{"type": "text", "text": turn}], "is_template": False})
                continue
            words = [{"type": "text", "text": turn.text}] if turn.text else []
            calls = {
                c.id: {"method": "tools/call", "params": {"name": c.name, "arguments": c.args}} for c in turn.calls
            }
            thought = {"reasoning": [{"type": "text", "text": "Let me think about this first."}]}
            messages.append({"role": "assistant", "content": words, "channels": thought, "is_template": False,
                             **({"tool_calls": calls} if calls else {})})  # fmt: skip
            if turn.calls:
                gave = {c.id: {"content": [{"type": "text", "text": c.result}], "isError": c.failed}
                        for c in turn.calls}  # fmt: skip
                messages.append({"role": "user", "content": [], "tool_results": gave, "is_template": False})
        files[f"{talk.id}.json"] = {"messages": messages}
    return Export(files, told(TASKS))


@export(10, "any-agent, spans of a trace")
def any_agent() -> Export:
    """Operations and attributes of its own: `call_llm`, `gen_ai.output`, `gen_ai.tool.args`; an input at first alone."""
    files: dict[str, Any] = {}
    for t, talk in enumerate(quiet(TASKS), 1):
        spans: list[Any] = []
        for n, act in enumerate(talk.acts):
            made = [{"tool.name": c.name, "tool.args": c.text} for c in act.calls]
            begun = {} if n else {"gen_ai.input.messages": json.dumps(openai(talk, system=SYSTEM)[:2])}
            spans.append(_span(t, f"call_llm {MODEL}", n, {
                "gen_ai.operation.name": "call_llm", "gen_ai.request.model": MODEL, **begun,
                "gen_ai.output": json.dumps(made) if made else act.text, "gen_ai.usage.input_tokens": act.read,
                "gen_ai.usage.output_tokens": act.wrote}))  # fmt: skip
            for k, call in enumerate(act.calls, 1):
                spans.append(_span(t, f"execute_tool {call.name}", n + k / 10, {
                    "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": call.name,
                    "gen_ai.tool.args": call.text, "gen_ai.output": call.result}, failed=call.failed))  # fmt: skip
        agent = {"gen_ai.operation.name": "invoke_agent", "gen_ai.request.model": MODEL}
        files[f"{talk.id}.json"] = {"spans": [*spans, _span(t, "invoke_agent", 9, agent)], "final_output": talk.answer}
    return Export(files, told(quiet(TASKS), COUNTED))


def _span(trace: int, name: str, minute: float, attributes: dict[str, Any], *, failed: bool = False) -> dict[str, Any]:
    """Return a span as any-agent dumps it."""
    start = int(unix(0) + minute * 60) * 10**9
    place = {"trace_id": trace, "span_id": trace * 1000 + int(minute * 10), "is_remote": False}
    return {"name": name, "kind": "internal", "parent": {"trace_id": trace, "span_id": trace * 1000 + 90},
            "start_time": start, "end_time": start + 10**9, "context": place, "attributes": attributes, "links": [],
            "status": {"status_code": "error" if failed else "ok"}, "events": [], "resource": {}}  # fmt: skip


@export(10, "A home-made trace, spans with failures in attributes")
def failures() -> Export:
    """Spans name no trace, only the span above; that a tool failed is in its attributes, as exceptions are noted."""
    rows: list[Any] = []
    for talk in quiet(SERIAL):
        rows.append({"spanId": f"{talk.id}-top", "name": "agent", "attributes": _noted({"openinference.span.kind":
                     "CHAIN"}), "startTimeUnixNano": str(unix(0) * 10**9)})  # fmt: skip
        for n, act in enumerate(talk.acts):
            history = openai(talk)[: 2 * n + 1]
            said = openai(talk)[2 * n + 1]
            rows.append(_row(talk, f"llm-{n}", n, {
                "openinference.span.kind": "LLM", "llm.model_name": MODEL, "input.value": json.dumps(history),
                "output.value": json.dumps(said)}))  # fmt: skip
            for call in act.calls:
                gave = {"exception.message": call.result} if call.failed else {"output.value": call.result}
                rows.append(_row(talk, call.name, n + 0.5, {"openinference.span.kind": "TOOL", "tool.name": call.name,
                                                            "input.value": call.text, **gave}))  # fmt: skip
    return Export({"trace.json": {"resourceSpans": [{"scopeSpans": [{"spans": rows}]}]}},
                  told(quiet(SERIAL), Says(model=True)))  # fmt: skip


def _row(talk: Talk, name: str, minute: float, attributes: dict[str, Any]) -> dict[str, Any]:
    start = int((unix(0) + minute * 60) * 10**9)
    return {"spanId": f"{talk.id}-{name}-{minute}", "parentSpanId": f"{talk.id}-top", "name": name,
            "attributes": _noted(attributes), "startTimeUnixNano": str(start),
            "endTimeUnixNano": str(start + 10**9)}  # fmt: skip


def _noted(attributes: dict[str, str]) -> list[dict[str, Any]]:
    return [{"key": name, "value": {"stringValue": held}} for name, held in attributes.items()]


@export(10, "NeMo Agent Toolkit, scopes that begin and end")
def scopes() -> Export:
    """What a model was asked is a list of messages in some lines, its answers are in others: not to be parted."""
    rows: list[Any] = []
    for talk in TALKS[1:]:
        for n, turn in enumerate(talk.turns):
            if isinstance(turn, Act):
                said = openai(talk)[n] if n < 2 else openai(talk)[-1]
                sides = (
                    ("start", {"model": MODEL, "messages": openai(talk)[: n + 1]}),
                    ("end", {"id": f"m{n}", **said}),
                )
                rows += [{"kind": "scope", "scope_category": side, "category": "llm", "uuid": f"u{n}", "name": MODEL,
                          "timestamp": at(n), "data": data, "attributes": []} for side, data in sides]  # fmt: skip
    return Export({"trace.jsonl": Lines(rows)}, [])


@export(10, "AutoGen, calls recorded for a replay")
def replay() -> Export:
    """`response` answers the last message next to it, in few words or many: else it would be a chat without answers."""
    files: dict[str, Any] = {}
    for talk in TASKS:
        calls: list[Any] = []
        for n, turn in enumerate(talk.turns):
            if isinstance(turn, Act) and not turn.calls:
                asked = [{"type": "SystemMessage", "content": SYSTEM},
                         {"type": "UserMessage", "source": "User", "content": [talk.asked, f"Step {n}."]}]  # fmt: skip
                usage = {"prompt_tokens": turn.read, "completion_tokens": turn.wrote}
                response = {"finish_reason": "stop", "content": turn.text, "usage": usage, "cached": False}
                calls.append({"mode": "create", "messages": asked, "response": response, "stream": []})
        files[f"{talk.id}/session.json"] = calls
    right = [
        replace(t, asked=f"{t.asked}\nStep {len(talk.turns) - 1}.", steps=1, calls=(), results=0, failed=0,
                tokens=(talk.acts[-1].read, talk.acts[-1].wrote))
        for t, talk in zip(told(TASKS), TASKS, strict=True)
    ]  # fmt: skip
    return Export(files, right)


@export(10, "A home-made log of calls, answers in lists")
def listed() -> Export:
    """`n` answers were asked for, one as a rule: what is next to the messages is a list of texts."""
    rows: list[Any] = []
    for talk in TALKS:
        for n, turn in enumerate(talk.turns):
            if isinstance(turn, Act) and not turn.calls:
                history = [{"role": "user" if isinstance(t, str) else "assistant", "content": t if isinstance(t, str)
                            else t.text} for t in talk.turns[:n] if isinstance(t, str) or not t.calls]  # fmt: skip
                rows.append({"timestamp": at(n), "model_name": MODEL, "n": 1, "messages": history,
                             "output": [turn.text], "session_id": talk.id})  # fmt: skip
    right = [
        replace(t, steps=sum(not act.calls for act in talk.acts), calls=(), results=0, failed=0)
        for t, talk in zip(told(TALKS, Says(model=True)), TALKS, strict=True)
    ]
    return Export({"llm_calls.jsonl": Lines(rows)}, right)


@export(10, "Claude Code, results of calls made at once in a line")
def at_once() -> Export:
    """The line has one id for all of its results: none is a copy of another."""
    talk = TASKS[0]
    lines: list[Any] = []
    for n, turn in enumerate(talk.turns):
        about = {"sessionId": talk.id, "timestamp": at(n), "parentUuid": lines[-1]["uuid"] if lines else None}
        if isinstance(turn, str):
            lines.append({"type": "user", "uuid": f"u{n}", **about, "message": {"role": "user", "content": turn}})
            continue
        said: list[Any] = [{"type": "text", "text": turn.text}] if turn.text else []
        said += [{"type": "tool_use", "id": c.id, "name": c.name, "input": c.args} for c in turn.calls]
        lines.append({"type": "assistant", "uuid": f"a{n}", **about, "message": {"role": "assistant", "content": said}})
        if turn.calls:
            gave = [{"type": "tool_result", "tool_use_id": c.id, "content": c.result, "is_error": c.failed}
                    for c in turn.calls]  # fmt: skip
            back = {**about, "parentUuid": f"a{n}"}
            lines.append({"type": "user", "uuid": f"r{n}", **back, "message": {"role": "user", "content": gave}})
    return Export({"talk.jsonl": Lines(lines)}, told([talk]))


@export(10, "Claude's agent SDK, both sides of its stream")
def sdk_cassette() -> Export:
    """What the program sent names the session `default`: a request apart from its answer, if read line by line."""
    talk = TALKS[1]
    about = {"parent_tool_use_id": None, "session_id": "s-1"}
    lines: list[Any] = [
        {"direction": "send", "message": {"type": "user", "message": {"role": "user", "content": talk.asked},
                                          "parent_tool_use_id": None, "session_id": "default"}},
        {"direction": "recv", "message": {"type": "system", "subtype": "init", "session_id": "s-1", "model": MODEL}},
        {"direction": "recv", "message": {"type": "assistant", **about, "uuid": "u1", "message": {
            "id": "m1", "type": "message", "role": "assistant", "model": MODEL,
            "content": [{"type": "text", "text": talk.answer}]}}},
    ]  # fmt: skip
    return Export({"cassette.json": {"metadata": {"cli_version": "1.0"}, "messages": lines}}, [])
