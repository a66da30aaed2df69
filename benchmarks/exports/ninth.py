"""A ninth set, after runs of benchmarks, logs of gateways and states of frameworks that were never looked at before.

Where a form was read exactly at once it is not here: these were wrong or refused at their first look.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
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
    calls_of,
    export,
    openai,
    quiet,
    solved,
    told,
)
from flywheel.records import content_id

COUNTED = Says(tokens=True, model=True)


@export(9, "AgentBench, runs with what they earned")
def agentbench() -> Export:
    """`outputs/.../runs.jsonl`: the outcome is called as what holds it is, and the agent's role is `agent`."""
    rows = []
    for n, talk in enumerate(quiet(TASKS)):
        history = [{"role": "agent" if m["role"] == "assistant" else "user", "content": m["content"] or "Act: look"}
                   for m in openai(talk)]  # fmt: skip
        rows.append({"index": n, "error": None, "info": None, "time": {"timestamp": n, "str": "2026-10-01 09:00:00"},
                     "output": {"index": n, "status": "completed", "result": {"result": talk.solved},
                                "history": history}})  # fmt: skip
    right = [replace(t, calls=(), results=0, failed=0) for t in told(TASKS, Says(outcomes=solved(TASKS)))]
    return Export({"outputs/shop-std/runs.jsonl": Lines(rows)}, right)


@export(9, "ToolBench, a search that found nothing")
def toolbench() -> Export:
    """`answer/.../7_DFS.json`: of a task that was not done there is only its tree: neither a chat nor a mere result."""
    leaf = {"node_type": "Action Input", "description": '{"id": 7}', "observation": '{"error": "", "response": "late"}'}
    tree = {"node_type": "Thought", "description": "", "children": [
        {"node_type": "Action", "description": "get_order", "children": [leaf]}]}  # fmt: skip
    answer = {"valid_data": False, "query_count": 4, "total_tokens": 99, "final_answer": "", "chain": [],
              "query": TASKS[0].asked, "finish_type": "give_answer"}  # fmt: skip
    shared = {"win": False, "forward_args": {"beam": 2}, "compare_candidates": [], "answer_generation": answer}
    trys = [{"chain": [{"node_type": "Action", "description": "get_order"}, leaf], "win": False}]
    return Export({"answer/7_DFS.json": {**shared, "tree": {"size": 3, "tree": tree}},
                   "answer/7_CoT.json": {**shared, "try_count": 1, "trys": trys}}, [])  # fmt: skip


@export(9, "A home-made log, with blocks as Python shows them")
def shown() -> Export:
    """`str(block)` of an answer, and each of its calls once more: read as words, an answer would be several acts."""
    messages: list[Any] = [{"role": "user", "content": SERIAL[0].asked}]
    for act in SERIAL[0].acts[:-1]:
        (call,) = act.calls
        block = f"ToolUseBlock(id='{call.id}', input={call.args!r}, name='{call.name}', type='tool_use')"
        messages += [{"role": "assistant", "content": [block]},
                     {"role": "tool_call", "tool": call.name, "input": call.args},
                     {"role": "tool_result", "tool": call.name, "result": {"value": call.result}}]  # fmt: skip
    return Export(
        {"trace.json": {"session_id": "s", "model": MODEL, "conversations": [{"conversation": messages}]}}, []
    )


@export(9, "OpenHands, a folder of its SDK")
def openhands_sdk() -> Export:
    """`base_state.json` names the model and what the agent took; `events/` holds the talk, one event a file."""
    files: dict[str, Any] = {}
    for talk in SERIAL:
        used = {name: sum(getattr(act, field) for act in talk.acts)
                for name, field in (("prompt_tokens", "read"), ("completion_tokens", "wrote"))}  # fmt: skip
        other = {"model_name": "acme-small", "accumulated_token_usage": {"prompt_tokens": 9, "completion_tokens": 1}}
        stats = {"usage_to_metrics": {"agent": {"model_name": MODEL, "accumulated_token_usage": used},
                                      "condenser": other}}  # fmt: skip
        updates = []
        if talk is SERIAL[0]:
            files[f"{talk.id}/base_state.json"] = {
                "id": talk.id, "agent": {"kind": "Agent", "llm": {"model": MODEL, "usage_id": "agent"}},
                "workspace": {"kind": "LocalWorkspace"}, "execution_status": "finished", "stats": stats}  # fmt: skip
        else:  # as its server streams it
            updates = [{"kind": "ConversationStateUpdateEvent", "source": "environment", "key": "stats",
                        "value": stats}] * 2  # fmt: skip
        for n, event in enumerate([*_events(talk), *updates]):
            files[f"{talk.id}/events/event-{n:05}-{n}.json"] = {"id": f"e{n}", "timestamp": at(n), **event}
    return Export(files, told(SERIAL, COUNTED))


def _events(talk: Talk) -> Iterator[dict[str, Any]]:
    """Yield the events of a talk, as OpenHands' SDK keeps them."""
    yield {"kind": "ConversationStateUpdateEvent", "source": "environment", "key": "execution_status", "value": "idle"}
    for n, turn in enumerate(talk.turns):
        if isinstance(turn, str):
            message = {"role": "user", "content": [{"type": "text", "text": turn}]}
            yield {"kind": "MessageEvent", "source": "user", "llm_message": message}
            continue
        for call in turn.calls:
            made = {"id": call.id, "name": call.name, "arguments": call.text, "origin": "completion"}
            thought = [{"type": "text", "text": turn.text}]
            yield {"kind": "ActionEvent", "source": "agent", "thought": thought, "tool_call": made,
                   "tool_name": call.name, "tool_call_id": call.id, "llm_response_id": f"r{n}",
                   "action": {"kind": "ShopAction", **call.args}}  # fmt: skip
            seen = {"kind": "ShopObservation", "content": [{"type": "text", "text": call.result}],
                    "is_error": call.failed}  # fmt: skip
            yield {"kind": "ObservationEvent", "source": "environment", "tool_name": call.name,
                   "tool_call_id": call.id, "observation": seen}  # fmt: skip
        if not turn.calls:
            message = {"role": "assistant", "content": [{"type": "text", "text": turn.text}]}
            yield {"kind": "MessageEvent", "source": "agent", "llm_message": message, "llm_response_id": f"r{n}"}


def _requests(talk: Talk) -> Iterator[tuple[int, Act, list[dict[str, Any]], dict[str, Any]]]:
    """Yield the calls of a talk's model: place, act, messages that it was given, and its response."""
    for n, turn in enumerate(talk.turns):
        if isinstance(turn, Act):
            (said, *_) = openai(replace(talk, turns=(turn,)))
            usage = {"prompt_tokens": turn.read, "completion_tokens": turn.wrote}
            choice = {"index": 0, "message": said, "finish_reason": "stop"}
            response = {"id": f"{talk.id}-{n}", "object": "chat.completion", "model": MODEL, "choices": [choice],
                        "usage": usage}  # fmt: skip
            yield n, turn, openai(replace(talk, turns=talk.turns[:n]), system=SYSTEM), response


@export(9, "Cloudflare's AI gateway, pushed logs")
def cloudflare() -> Export:
    """`ai_gateway_events`: bodies as JSON text, in columns with capitals."""
    rows = [
        {"Endpoint": "chat/completions", "Gateway": "g", "LogId": f"{talk.id}{n}", "Model": MODEL, "Provider": "acme",
         "RequestBody": json.dumps({"model": MODEL, "messages": asked}), "ResponseBody": json.dumps(response),
         "StatusCode": 200, "Cached": False, "Metadata": "{}"}
        for talk in TALKS for n, _, asked, response in _requests(talk)
    ]  # fmt: skip
    return Export({"events.jsonl": Lines(rows)}, told(TALKS, COUNTED))


@export(9, "Laminar, spans")
def laminar() -> Export:
    """Rows of the spans of a trace: models, tools, and the agent around them."""
    rows: list[Any] = []
    for talk in TALKS:
        shared = {"traceId": f"t-{talk.id}", "status": ""}
        named = {"lmnr.association.properties.session_id": talk.id}
        for n, act, asked, response in _requests(talk):
            usage = {"gen_ai.request.model": MODEL, "gen_ai.response.model": MODEL}
            rows.append({**shared, "spanId": f"{talk.id}-{n}", "parentSpanId": f"{talk.id}-top", "spanType": "LLM",
                         "name": "acme.chat", "startTime": at(n), "endTime": at(n + 0.2), "input": asked,
                         "output": [response["choices"][0]["message"]], "attributes": {**named, **usage},
                         "inputTokens": act.read, "outputTokens": act.wrote, "model": MODEL})  # fmt: skip
            for k, call in enumerate(act.calls):
                rows.append({**shared, "spanId": f"{talk.id}-{n}-{k}", "parentSpanId": f"{talk.id}-top",
                             "spanType": "TOOL", "name": call.name, "startTime": at(n + 0.3), "endTime": at(n + 0.4),
                             "input": call.args, "output": call.result, "attributes": named,
                             "status": "error" if call.failed else ""})  # fmt: skip
        rows.append({**shared, "spanId": f"{talk.id}-top", "parentSpanId": None, "spanType": "DEFAULT", "name": "agent",
                     "startTime": at(0), "endTime": at(9), "input": {"q": "x"}, "output": None,
                     "attributes": named})  # fmt: skip
    return Export({"spans.jsonl": Lines(rows)}, told(TALKS, COUNTED))


@export(9, "OpenAI Agents, states of runs")
def run_state() -> Export:
    """`RunState.to_json()`: what was asked, the items that came of it, and the tokens of the run."""
    files: dict[str, Any] = {}
    for talk in quiet(TASKS):
        items: list[Any] = []
        for n, act in enumerate(talk.acts):
            if act.text:
                words = [{"type": "output_text", "text": act.text, "annotations": []}]
                raw = {"id": f"m{n}", "type": "message", "role": "assistant", "status": "completed", "content": words}
                items.append({"type": "message_output_item", "agent": {"name": "Desk"}, "raw_item": raw})
            for call in act.calls:
                raw = {"id": f"f{n}", "type": "function_call", "call_id": call.id, "name": call.name,
                       "arguments": call.text}  # fmt: skip
                items.append({"type": "tool_call_item", "agent": {"name": "Desk"}, "raw_item": raw,
                              "tool_name": call.name})  # fmt: skip
                if call.name == "refund":
                    items.append({"type": "tool_approval_item", "agent": {"name": "Desk"}, "raw_item": raw})
            for call in act.calls:
                raw = {"type": "function_call_output", "call_id": call.id, "output": call.result}
                items.append({"type": "tool_call_output_item", "agent": {"name": "Desk"}, "raw_item": raw,
                              "output": call.result})  # fmt: skip
        usage = {"requests": len(talk.acts), "input_tokens": sum(a.read for a in talk.acts),
                 "output_tokens": sum(a.wrote for a in talk.acts)}  # fmt: skip
        files[f"{talk.id}.json"] = {
            "$schemaVersion": "1.9", "current_turn": 2, "current_agent": {"name": "Desk"}, "original_input": talk.asked,
            "model_responses": [], "context": {"usage": usage, "approvals": {}, "context": {}}, "max_turns": 10,
            "generated_items": items, "session_items": [], "last_model_response": None, "current_step": None,
            "conversation_id": None, "trace": {"object": "trace", "id": f"trace_{talk.id}"}}  # fmt: skip
    return Export(files, told(quiet(TASKS), Says(tokens=True)))


@export(9, "CrewAI, ReAct with observations in the agent's words")
def crewai() -> Export:
    """`CrewOutput`: the framework appends what a tool gave to the message in which the agent called it."""
    tasks = []
    for talk in SERIAL:
        messages: list[Any] = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": talk.asked}]
        for act in talk.acts[:-1]:
            (call,) = act.calls
            written = f"Thought: {act.text}\nAction: {call.name}\nAction Input: {call.text}\nObservation: {call.result}"
            messages.append({"role": "assistant", "content": written})
        messages.append({"role": "assistant", "content": f"Thought: I know.\nFinal Answer: {talk.answer}"})
        tasks.append({"description": talk.asked, "name": talk.task, "expected_output": "a line", "raw": talk.answer,
                      "agent": "Desk", "messages": messages})  # fmt: skip
    right = [replace(t, answered=f"Thought: I know.\nFinal Answer: {t.answered}") for t in told(SERIAL)]
    return Export({"crew.json": {"raw": TASKS[1].answer, "tasks_output": tasks, "token_usage": {}}}, right)


@export(9, "BFCL, prompted, turns with steps")
def bfcl() -> Export:
    """`result/MODEL/...`: calls as Python text, decoded by its handler; tokens and latencies by turn and step."""
    rows: list[Any] = []
    for talk in TALKS:
        log: list[Any] = [[{"role": "state_info", "class_name": "Shop", "content": {}}]]
        read: list[list[int]] = []
        wrote: list[list[int]] = []
        for turn in talk.turns:
            if isinstance(turn, str):
                log.append({"begin_of_turn_query": [{"role": "user", "content": turn}]})
                read.append([])
                wrote.append([])
                continue
            steps: Any = log[-1]
            steps[f"step_{len(read[-1])}"] = list(_bfcl_step(turn))
            read[-1].append(turn.read)
            wrote[-1].append(turn.wrote)
        rows.append({"id": f"multi_turn_{talk.task}", "result": [], "inference_log": log, "input_token_count": read,
                     "output_token_count": wrote, "latency": [[0.5]]})  # fmt: skip
    right = [replace(t, model=f"acme_{MODEL}", task=f"bfcl/multi_turn_{talk.task}")
             for t, talk in zip(told(quiet(TALKS), COUNTED), TALKS, strict=True)]  # fmt: skip
    return Export({f"result/acme_{MODEL}/multi_turn/BFCL_v4_multi_turn_base_result.json": Lines(rows)}, right)


def _bfcl_step(act: Act) -> Iterator[dict[str, Any]]:
    written = [f"{call.name}({', '.join(f'{name}={value!r}' for name, value in call.args.items())})"
               for call in act.calls]  # fmt: skip
    yield {"role": "assistant", "content": f"[{', '.join(written)}]" if written else act.text}
    if written:
        yield {"role": "handler_log", "content": "Successfully decoded model response.",
               "model_response_decoded": written}  # fmt: skip
    else:
        yield {"role": "handler_log", "content": "Error decoding the model response. Proceed to next turn."}
    for call in act.calls:
        yield {"role": "tool", "content": call.result}


@export(9, "LlamaIndex, events of an agent's workflow")
def llamaindex() -> Export:
    """Events as lines, in the order of their stream: inputs and outputs of the model, calls, and their results."""
    files: dict[str, Any] = {}
    for talk in quiet(TASKS):
        rows: list[Any] = []
        made: list[Any] = []
        said: dict[str, Any] = {}
        for _, act, asked, _ in _requests(talk):
            seen = [{"role": m["role"], "blocks": [{"block_type": "text", "text": m["content"] or ""}],
                     "additional_kwargs": {}} for m in asked]  # fmt: skip
            rows.append({"type": "AgentInput", "input": seen, "current_agent_name": "Desk"})
            said = {"role": "assistant", "additional_kwargs": {},
                    "blocks": [{"block_type": "text", "text": act.text}] if act.text else []}  # fmt: skip
            calls = [{"tool_id": c.id, "tool_name": c.name, "tool_kwargs": c.args} for c in act.calls]
            made = calls or made
            rows.append({"type": "AgentOutput", "response": said, "structured_response": None,
                         "current_agent_name": "Desk", "tool_calls": calls, "retry_messages": []})  # fmt: skip
            rows += [{"type": "ToolCall", **one} for one in calls]
            for call, one in zip(act.calls, calls, strict=True):
                output = {"blocks": [{"block_type": "text", "text": call.result}], "tool_name": call.name,
                          "raw_input": {"kwargs": call.args}, "raw_output": call.result,
                          "is_error": call.failed}  # fmt: skip
                rows.append({"type": "ToolCallResult", **one, "tool_output": output, "return_direct": False})
        rows.append(
            {"type": "StopEvent", "result": {"response": said, "current_agent_name": "Desk", "tool_calls": made}}
        )
        files[f"{talk.id}.jsonl"] = Lines(rows)
    return Export(files, told(quiet(TASKS)))


@export(9, "Inspect, an agent that is a tool of another")
def inspect_sub() -> Export:
    """The inner agent's calls are in events of spans within that of the call; its answer is the call's result."""
    order = Call("call_h1", "get_order", {"id": 7}, '{"state": "shipped"}')
    delegated = Call("call_m1", "clerk", {"input": "Look up order 7."}, "It has shipped.")
    outer = Talk("s1", "s1", (TASKS[0].asked, Act("", (delegated,), 50, 5), Act("It is on its way.", (), 60, 6)), True)
    inner = Talk("s1h", "", ("Look up order 7.", Act("", (order,), 20, 3), Act("It has shipped.", (), 30, 4)), True)
    messages, helped = (list(_inspected(talk)) for talk in (outer, inner))
    places = [{"event": "span_begin", "id": own, "span_id": own, "parent_id": above, "type": kind, "name": name}
              for own, above, kind, name in (
                  ("a", None, "agent", "react"), ("t", "a", "tool", "clerk"), ("h", "t", "agent", "clerk"))]  # fmt: skip
    events = [*places, _sampled("a", messages, 1, MODEL, (50, 5)), _sampled("h", helped, 1, "acme-small", (20, 3)),
              _sampled("h", helped, 3, "acme-small", (30, 4)), _sampled("a", messages, 3, MODEL, (60, 6))]  # fmt: skip
    sample = {"id": "s1", "epoch": 1, "uuid": "u1", "input": outer.asked, "target": "x", "messages": messages,
              "output": {"model": MODEL}, "scores": {"includes": {"value": "C"}}, "events": events}  # fmt: skip
    document = {"version": 2, "status": "success", "eval": {"task": "shop", "model": MODEL}, "plan": {},
                "samples": [sample]}  # fmt: skip
    shared = told([outer, inner], Says(tokens=True))
    task = _task_of(outer)
    right = [replace(shared[0], task=task, outcomes=(1.0,), model=MODEL), replace(shared[1], model="acme-small")]
    return Export({"logs/shop.json": document}, right)


def _task_of(talk: Talk) -> str:
    return f"inspect/{talk.id}/{content_id([['user', talk.asked]])[:12]}"


def _inspected(talk: Talk) -> Iterator[dict[str, Any]]:
    """Yield the messages of a talk, each with its id."""
    for n, m in enumerate(openai(talk)):
        calls = [{"id": c["id"], "function": c["function"]["name"], "arguments": json.loads(c["function"]["arguments"])}
                 for c in m.get("tool_calls", ())]  # fmt: skip
        named = (
            {"function": calls_of(talk)[0].name, "tool_call_id": calls_of(talk)[0].id} if m["role"] == "tool" else {}
        )
        yield {"id": f"{talk.id}-{n}", "role": m["role"], "content": m["content"] or "", **named,
               **({"source": "generate"} if m["role"] == "assistant" else {}),
               **({"tool_calls": calls} if calls else {})}  # fmt: skip


def _sampled(span: str, messages: Sequence[dict[str, Any]], place: int, model: str, tokens: tuple[int, int]) -> Any:
    """Return the event of a model's call that made the message at a place."""
    usage = {"input_tokens": tokens[0], "output_tokens": tokens[1]}
    choice = {"message": {**messages[place], "model": model}, "stop_reason": "stop"}
    return {"event": "model", "span_id": span, "model": model, "input": list(messages[:place]), "tools": [],
            "output": {"model": model, "choices": [choice], "usage": usage}, "timestamp": at(place)}  # fmt: skip
