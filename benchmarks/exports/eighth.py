"""An eighth set, written after real files of public repositories, and what present releases wrote on a fake model.

Where a form was read exactly at once it is not here: these were wrong or refused at their first look.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from benchmarks.exports.story import (
    ASKS,
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
    Told,
    at,
    calls_of,
    export,
    openai,
    quiet,
    solved,
    told,
    unix,
)
from flywheel.records import content_id

COUNTED = Says(tokens=True, model=True)


def _goose(talk: Talk) -> list[dict[str, Any]]:
    """Return messages whose results are MCP's, with a flag of their own inside."""
    messages: list[dict[str, Any]] = []
    for turn in talk.turns:
        if isinstance(turn, str):
            messages.append({"role": "user", "created": unix(0), "content": [{"type": "text", "text": turn}]})
            continue
        words = [{"type": "text", "text": turn.text}] if turn.text else []
        calls = [{"type": "toolRequest", "id": c.id, "toolCall": {
            "status": "success", "value": {"name": c.name, "arguments": c.args}}} for c in turn.calls]  # fmt: skip
        results = [{"type": "toolResponse", "id": c.id, "toolResult": {"status": "success", "value": {
            "content": [{"type": "text", "text": c.result}], "isError": c.failed}}} for c in turn.calls]  # fmt: skip
        messages.append({"role": "assistant", "created": unix(0), "content": [*words, *calls]})
        messages += [{"role": "user", "created": unix(0), "content": results}] if results else []
    return messages


@export(8, "goose, rows of its database")
def goose_rows() -> Export:
    """`sqlite3 -json sessions.db 'select * from messages'`: the parts of a message are JSON text in a column."""
    rows = [{"id": n, "message_id": f"m{n}", "session_id": talk.id, "role": message["role"], "tokens": None,
             "content_json": json.dumps(message["content"]), "created_timestamp": unix(n), "metadata_json": "{}"}
            for n, (talk, message) in enumerate((t, m) for t in TALKS for m in _goose(t))]  # fmt: skip
    return Export({"messages.json": rows}, told(TALKS))


@export(8, "goose, exported sessions")
def goose_export() -> Export:
    """`goose session export --format json`: the model is in an object, the tokens of the whole next to the last ones."""
    files = {
        f"{talk.id}.json": {
            "id": talk.id, "name": "Orders", "input_tokens": 9, "output_tokens": 3,
            "accumulated_input_tokens": sum(a.read for a in talk.acts),
            "accumulated_output_tokens": sum(a.wrote for a in talk.acts), "provider_name": "acme",
            "model_config": {"model_name": MODEL, "context_limit": 9000}, "conversation": _goose(talk)}
        for talk in TALKS}  # fmt: skip
    return Export(files, told(TALKS, COUNTED))


def _completion(act: Act, own: str) -> dict[str, Any]:
    calls = [{"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.text}} for c in act.calls]
    message = {"role": "assistant", "content": act.text, **({"tool_calls": calls} if calls else {})}
    usage = {"prompt_tokens": act.read, "completion_tokens": act.wrote}
    return {"id": own, "object": "chat.completion", "model": MODEL, "choices": [{"index": 0, "message": message}],
            "usage": usage}  # fmt: skip


def _claude(act: Act, own: str) -> dict[str, Any]:
    words = [{"type": "text", "text": act.text}] if act.text else []
    calls = [{"type": "tool_use", "id": c.id, "name": c.name, "input": c.args} for c in act.calls]
    usage = {"input_tokens": act.read, "output_tokens": act.wrote}
    return {"id": own, "type": "message", "role": "assistant", "model": MODEL, "content": [*words, *calls],
            "usage": usage, "stop_reason": "tool_use" if calls else "end_turn"}  # fmt: skip


def _claude_history(talk: Talk) -> Iterator[tuple[Act, list[dict[str, Any]]]]:
    """Yield each act with what the model was given."""
    history: list[dict[str, Any]] = []
    for turn in talk.turns:
        if isinstance(turn, str):
            history.append({"role": "user", "content": turn})
            continue
        yield turn, list(history)
        history.append({"role": "assistant", "content": _claude(turn, "m")["content"]})
        results = [{"type": "tool_result", "tool_use_id": c.id, "content": c.result, "is_error": c.failed}
                   for c in turn.calls]  # fmt: skip
        history += [{"role": "user", "content": results}] if results else []


def _items(turns: Sequence[str | Act]) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    for turn in turns:
        if isinstance(turn, str):
            items.append({"role": "user", "content": turn})
            continue
        items += _output(turn)
        items += [{"type": "function_call_output", "call_id": c.id, "output": c.result} for c in turn.calls]
    return items


def _output(act: Act) -> list[dict[str, Any]]:
    said: list[Any] = [{"type": "output_text", "text": act.text, "annotations": []}]
    words = [{"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": said}]
    calls = [{"type": "function_call", "id": f"fc_{c.id}", "call_id": c.id, "name": c.name, "arguments": c.text}
             for c in act.calls]  # fmt: skip
    return [*(words if act.text else []), *calls]


def _response(items: list[dict[str, Any]], act: Act, own: str) -> dict[str, Any]:
    usage = {"input_tokens": act.read, "output_tokens": act.wrote, "total_tokens": act.read + act.wrote}
    return {"id": own, "object": "response", "status": "completed", "model": MODEL, "output": items, "usage": usage}


@export(8, "A gateway, calls of three APIs in a file")
def gateway() -> Export:
    """Request and response in the same two fields, as they went over the wire: in any one API's words a third."""
    rows: list[dict[str, Any]] = []
    for api in ("chat", "claude", "responses"):
        for talk in TALKS:
            about = {"session_id": f"{api}-{talk.id}"}
            for n, turn in ((n, turn) for n, turn in enumerate(talk.turns) if isinstance(turn, Act)):
                own, before = f"{api}-{talk.id}-{n}", replace(talk, turns=talk.turns[:n])
                given = next(held for act, held in _claude_history(talk) if act is turn)
                wire: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
                    "chat": ({"messages": openai(before)}, _completion(turn, own)),
                    "claude": ({"messages": given, "max_tokens": 99}, _claude(turn, own)),
                    "responses": ({"input": _items(before.turns)}, _response(_output(turn), turn, own)),
                }
                request, response = wire[api]
                rows.append(
                    {**about, "request": {"model": MODEL, **request}, "response": response, "ts": at(len(rows))}
                )
    return Export({"gateway.jsonl": Lines(rows)}, told(TALKS, COUNTED) * 3)


@export(8, "OpenAI Responses, a chain with hosted tools")
def hosted() -> Export:
    """A chain: tools that are searched for, code that runs twice, a call of MCP's that one person allows, one denies."""
    code = [{"type": "code_interpreter_call", "id": f"ci_{n}", "status": "completed", "code": f"print({n})",
             "container_id": "c", "outputs": [{"type": "logs", "logs": f"{n}\n"}]} for n in (1, 2)]  # fmt: skip
    search: list[dict[str, Any]] = [{"type": "tool_search_call", "id": "ts_1", "call_id": None, "arguments": {"paths": ["refund"]}},
              {"type": "tool_search_output", "id": "to_1", "call_id": None, "tools": [{"name": "refund"}]}]  # fmt: skip
    asked = [{"type": "mcp_approval_request", "id": f"ap_{n}", "name": "refund", "server_label": "shop",
              "arguments": json.dumps({"id": n})} for n in (1, 2)]  # fmt: skip
    ran = {"type": "mcp_call", "id": "mcp_1", "approval_request_id": "ap_1", "name": "refund", "server_label": "shop",
           "arguments": '{"id": 1}', "output": "refunded", "error": None}  # fmt: skip
    verdicts = [{"type": "mcp_approval_response", "approval_request_id": f"ap_{n}", "approve": n == 1} for n in (1, 2)]
    acts = [Act(None, (), 50, 5), Act("One is refunded.", (), 80, 8)]
    first = _response([*search, *code, *asked], acts[0], "resp_1")
    second = _response([ran, *_output(acts[1])], acts[1], "resp_2")
    rows = [
        {"request": {"model": MODEL, "input": ASKS[2], "store": True}, "response": first},
        {"request": {"model": MODEL, "input": verdicts, "previous_response_id": "resp_1"}, "response": second},
    ]
    right = Told(
        asked=ASKS[2], answered="One is refunded.", steps=5, results=5, tokens=(130, 13), model=MODEL,
        calls=('tool_search{"paths": ["refund"]}', 'code_interpreter{"code": "print(1)"}',
               'code_interpreter{"code": "print(2)"}', 'refund{"id": 1}', 'refund{"id": 2}'))  # fmt: skip
    return Export({"responses.jsonl": Lines(rows)}, [right])


@export(8, "OpenAI Assistants, steps of hosted tools")
def assistants() -> Export:
    """Run steps of a code interpreter, of a search in files and of a tool of an OpenAPI service (Azure's)."""
    tools = [
        {"id": "s1", "type": "code_interpreter",
         "code_interpreter": {"input": "print(42)", "outputs": [{"type": "logs", "logs": "42"}]}},
        {"id": "s2", "type": "file_search", "file_search": {"results": [{"file_name": "a.md", "score": 0.9, "content": [
            {"type": "text", "text": "Refunds take thirty days."}]}]}},
        {"id": "s3", "type": "openapi",
         "function": {"name": "get_order", "arguments": '{"id": 7}', "output": "shipped"}},
    ]  # fmt: skip
    base = {"object": "thread.run.step", "run_id": "run_1", "thread_id": "thread_1", "status": "completed"}
    usage = {"prompt_tokens": 60, "completion_tokens": 7}
    steps = [{**base, "id": "step_1", "created_at": unix(1), "type": "tool_calls", "usage": usage,
              "step_details": {"type": "tool_calls", "tool_calls": tools}},
             {**base, "id": "step_2", "created_at": unix(2), "type": "message_creation", "usage": usage,
              "step_details": {"type": "message_creation", "message_creation": {"message_id": "msg_2"}}}]  # fmt: skip
    words = {"msg_1": ("user", ASKS[0], 0), "msg_2": ("assistant", "It is on its way.", 2)}
    messages = [{"id": own, "object": "thread.message", "thread_id": "thread_1", "role": role, "created_at": unix(n),
                 "content": [{"type": "text", "text": {"value": said, "annotations": []}}]}
                for own, (role, said, n) in words.items()]  # fmt: skip
    files = {
        "t/messages.json": {"object": "list", "data": messages[::-1]},
        "t/run_steps.json": {"object": "list", "data": steps[::-1]},
    }
    calls = ('code_interpreter{"input": "print(42)"}', "file_search{}", 'get_order{"id": 7}')
    right = Told(asked=ASKS[0], answered="It is on its way.", steps=2, calls=calls, results=3, tokens=(120, 14))
    return Export(files, [right])


@export(8, "SWE-agent, tokens of a run")
def swe_agent() -> Export:
    """`.traj` of version 1: tokens are those of the whole run, in its last part; its file has the instance's name."""
    files = {f"runs/shop/{talk.task}/{talk.task}.traj": _traj(talk) for talk in SERIAL}
    read = zip(SERIAL, told(SERIAL, Says(tokens=True)), strict=True)
    return Export(files, [replace(t, task=talk.task, model="") for talk, t in read])


def _traj(talk: Talk) -> dict[str, Any]:
    history: list[dict[str, Any]] = [
        {"role": "system", "content": SYSTEM, "agent": "main", "message_type": "system_prompt"}
    ]
    steps: list[dict[str, Any]] = []
    for turn in talk.turns:
        if isinstance(turn, str):
            history.append({"role": "user", "content": turn, "agent": "main", "message_type": "observation"})
            continue
        calls = [
            {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.text}} for c in turn.calls
        ]
        history.append({"role": "assistant", "content": turn.text, "agent": "main", "message_type": "action",
                        "tool_calls": calls})  # fmt: skip
        history += [{"role": "tool", "content": c.result, "agent": "main", "message_type": "observation",
                     "tool_call_ids": [c.id]} for c in turn.calls]  # fmt: skip
        steps.append({"action": "", "observation": "", "response": turn.text, "thought": turn.text, "state": {}})
    stats = {"tokens_sent": sum(a.read for a in talk.acts), "tokens_received": sum(a.wrote for a in talk.acts),
             "api_calls": len(talk.acts), "instance_cost": 0.1}  # fmt: skip
    return {"environment": "main", "trajectory": steps, "history": history,
            "info": {"exit_status": "submitted_late", "model_stats": stats}}  # fmt: skip


@export(8, "Inspect, a log without events")
def inspect() -> Export:
    """Of a sample without its events only the last call's tokens are known, from its output."""
    samples = [
        {"id": talk.task, "epoch": 1, "input": talk.asked, "target": "x", "uuid": f"u-{talk.id}",
         "messages": [_inspected(m) for m in openai(talk)],
         "output": {"model": MODEL, "usage": {"input_tokens": talk.acts[-1].read, "output_tokens": talk.acts[-1].wrote}},
         "scores": {"match": {"value": "C" if talk.solved else "I"}}} for talk in quiet(TASKS)]  # fmt: skip
    log = {"version": 2, "eval": {"task": "shop", "model": f"acme/{MODEL}"}, "plan": {}, "samples": samples}
    right = told(quiet(TASKS), Says(model=True, outcomes=solved(TASKS)))
    return Export({"log.json": log}, [
        replace(t, tokens=(talk.acts[-1].read, talk.acts[-1].wrote), task=f"inspect/{talk.task}/{content_id([['user', talk.asked]])[:12]}")
        for t, talk in zip(right, quiet(TASKS), strict=True)])  # fmt: skip


def _inspected(message: dict[str, Any]) -> dict[str, Any]:
    if message["role"] == "tool":
        failed = message["content"].startswith("Error: ")
        error = {"error": {"type": "unknown", "message": message["content"].removeprefix("Error: ")}} if failed else {}
        return {**message, "function": "f", "content": "" if failed else message["content"], **error}
    calls = [{"id": c["id"], "function": c["function"]["name"], "arguments": json.loads(c["function"]["arguments"])}
             for c in message.get("tool_calls", ())]  # fmt: skip
    return {**message, "content": message["content"] or "", **({"tool_calls": calls} if calls else {})}


@export(8, "Continue, sessions with logs of prompts")
def continue_sessions() -> Export:
    """`sessions/ID.json`: an answer also holds the prompt that it answered, as it was rendered."""
    talks = _spoken(TALKS)
    files = {f"sessions/{talk.id}.json": {"sessionId": talk.id, "title": "Orders", "history": _logged(talk)}
             for talk in talks}  # fmt: skip
    return Export(files, told(talks, Says(model=True)))


def _spoken(talks: Sequence[Talk]) -> tuple[Talk, ...]:
    """Return talks without calls."""
    return tuple(
        replace(t, turns=tuple(turn for turn in t.turns if isinstance(turn, str) or not turn.calls)) for t in talks
    )


def _logged(talk: Talk) -> list[dict[str, Any]]:
    history: list[dict[str, Any]] = []
    for turn in talk.turns:
        if isinstance(turn, str):
            history.append(
                {"message": {"role": "user", "content": [{"type": "text", "text": turn}]}, "contextItems": []}
            )
            continue
        log = {"modelTitle": "Acme", "prompt": f"<|im_start|>system\n{SYSTEM} {SYSTEM}<|im_end|>", "completion": turn.text,
               "completionOptions": {"model": MODEL, "maxTokens": 99}}  # fmt: skip
        history.append(
            {"message": {"role": "assistant", "content": turn.text}, "contextItems": [], "promptLogs": [log]}
        )
    return history


@export(8, "Continue, development data")
def continue_data() -> Export:
    """`dev_data/0.2.0/chatInteraction.jsonl`: the messages are tagged, and each piece of a streamed answer is."""
    talks, rows = _spoken(TALKS), []
    for talk in talks:
        for n, turn in ((n, turn) for n, turn in enumerate(talk.turns) if isinstance(turn, Act)):
            said = [("system", SYSTEM), *(("assistant", t.text or "") if isinstance(t, Act) else ("user", t)
                                          for t in talk.turns[:n])]  # fmt: skip
            pieces = [f"<assistant>\n{word}\n\n" for word in (turn.text or "").replace(" ", " \0").split("\0")]
            rows.append({"eventName": "chatInteraction", "schema": "0.2.0", "timestamp": at(n), "sessionId": talk.id,
                         "modelName": MODEL, "modelProvider": "acme", "tools": ["refund"], "completion": "".join(pieces),
                         "prompt": "".join(f"<{role}>\n{words}\n\n" for role, words in said)})  # fmt: skip
    return Export({"chatInteraction.jsonl": Lines(rows)}, told(talks, Says(model=True)))


def _break(words: str, mark: str) -> str:
    return "".join(f"{mark} {line}  \n" for line in words.split("\n"))


@export(8, "Aider, a history of chats")
def aider_chats() -> Export:
    """`.aider.chat.history.md`: what was typed, shown and answered; commands are not requests."""
    talks, text = _spoken(TALKS), ""
    for minute, talk in enumerate(talks):
        text += f"\n# aider chat started at 2026-10-01 09:0{minute}:00\n\n"
        text += _break("Aider v0.86.1", ">") + _break(f"Main model: {MODEL} with diff edit format", ">")
        for turn in talk.turns:
            if isinstance(turn, str):
                text += "\n" + _break("/add orders.py", "####") + _break("Added orders.py to the chat", ">")
                text += "\n" + _break(turn, "####")
            else:
                text += f"\n{turn.text}\n\n" + _break("Tokens: 2.1k sent, 12 received.", ">")
    return Export({"aider.chat.history.md": text}, told(talks, Says(model=True)))


@export(8, "Aider, a log of calls")
def aider_calls() -> Export:
    """`--llm-history-file`: each message's lines behind its role; a call without an answer was none."""
    talks = _spoken(TASKS)
    text = ""
    for talk in talks:
        asked = "\n".join(f"SYSTEM {line}" for line in (SYSTEM, "", "Be brief."))
        text += f"TO LLM 2026-10-01T09:00:00\n-------\n{asked}\n-------\nUSER {talk.asked}\n"
        text += f"LLM RESPONSE 2026-10-01T09:00:09\nASSISTANT {talk.answer}\n"
    return Export({"aider.llm.history": text}, told(talks))


@export(8, "OpenHands, a resolver of issues")
def resolver() -> Export:
    """`output.jsonl`: actions and observations of which only their own fields are kept."""
    rows = []
    for n, talk in enumerate(SERIAL):
        events: list[dict[str, Any]] = [
            {"content": talk.asked, "images_urls": None, "wait_for_response": False, "action": "message"}
        ]
        for act in talk.acts[:-1]:
            (call,) = act.calls
            events.append({"command": call.text, "thought": act.text, "keep_prompt": True, "action": "run"})
            events.append({"content": call.result, "command_id": -1, "command": call.text, "observation": "run",
                           "exit_code": int(call.failed)})  # fmt: skip
        events.append({"outputs": {}, "thought": talk.answer, "action": "finish"})
        rows.append({"issue": {"owner": "acme", "repo": "shop", "number": n + 1, "title": "x"}, "history": events,
                     "success": talk.solved, "git_patch": "", "instruction": talk.asked})  # fmt: skip
    right = [
        replace(t, task=f"acme/shop/{n}", outcomes=(float(talk.solved),),
                calls=tuple(f"run{json.dumps({'command': c.text})}" for c in calls_of(talk)))
        for n, (t, talk) in enumerate(zip(told(SERIAL), SERIAL, strict=True), 1)]  # fmt: skip
    return Export({"output.jsonl": Lines(rows)}, right)


@export(8, "OpenHands, completions of models without calls")
def completions() -> Export:
    """Logs of single calls: the messages that the model got have calls as words, those before have calls."""
    files: dict[str, Any] = {}
    for talk in SERIAL:
        for n, turn in ((n, turn) for n, turn in enumerate(talk.turns) if isinstance(turn, Act)):
            before = openai(replace(talk, turns=talk.turns[:n]))
            words = [{"role": "assistant" if m["role"] == "assistant" else "user", "content": f"<function=x>{m}"}
                     for m in before]  # fmt: skip
            own = f"{talk.id}-{n}"
            files[f"logs/{own}.json"] = {"messages": words, "raw_messages": before, "response": _completion(turn, own),
                                         "timestamp": unix(n + 60 * (talk.id[-1] == "b")), "cost": 0.0}  # fmt: skip
    return Export(files, told(SERIAL, COUNTED))


@export(8, "promptfoo, prompts that are chats, and calls")
def promptfoo() -> Export:
    """Two prompts of one test; an answer may be calls; a test that ended in an error is not an attempt."""
    order = Call("call_1", "get_order", {"id": 7}, "")
    made = [{"id": order.id, "type": "function", "function": {"name": order.name, "arguments": order.text}}]
    chat = json.dumps([{"role": "system", "content": SYSTEM}, {"role": "user", "content": ASKS[0]}])
    rows = [_tested(0, chat, made, "ok"), _tested(1, ASKS[0], "It is late.", "bad"), _tested(1, ASKS[0], None, "error")]
    document = {"evalId": "eval-1", "results": {"version": 3, "timestamp": at(0), "results": rows}, "config": {}}
    task = f"promptfoo/{content_id({'q': '7'}, None, None)[:16]}"
    shared = Told(asked=ASKS[0], steps=1, tokens=(30, 10), model=f"acme:{MODEL}", task=task)
    right = [replace(shared, calls=('get_order{"id": 7}',), outcomes=(1.0,)),
             replace(shared, answered="It is late.", outcomes=(0.0, 0.5)),
             Told(model=f"acme:{MODEL}", task=task)]  # fmt: skip
    return Export({"results.json": document}, right)


def _tested(prompt: int, raw: str, output: Any, ended: str) -> dict[str, Any]:
    response = (
        {"error": "500"} if output is None else {"output": output, "tokenUsage": {"prompt": 30, "completion": 10}}
    )
    score = {"ok": 1.0, "bad": 0.5, "error": 0.0}[ended]
    return {"id": f"{prompt}{ended}", "promptIdx": prompt, "testIdx": 0, "prompt": {"raw": raw, "label": "x"},
            "vars": {"q": "7"}, "provider": {"id": f"acme:{MODEL}", "label": ""}, "success": ended == "ok", "score": score,
            "failureReason": {"ok": 0, "bad": 1, "error": 2}[ended], "response": response, "namedScores": {},
            "testCase": {"vars": {"q": "7"}}}  # fmt: skip


@export(8, "lm-eval, samples of chats")
def lm_eval() -> Export:
    """Two filters read one answer: a line each, of the same attempt."""
    chat = json.dumps([{"role": "user", "content": ASKS[0]}])
    base = {"doc_id": 0, "doc": {}, "target": "x", "doc_hash": "h", "resps": [["On its way."]], "filtered_resps": ["x"],
            "arguments": {"gen_args_0": {"arg_0": chat, "arg_1": {"until": []}}}, "metrics": ["exact_match"]}  # fmt: skip
    rows = [{**base, "filter": "strict", "exact_match": 0.0}, {**base, "filter": "flexible", "exact_match": 1.0}]
    right = Told(asked=ASKS[0], answered="On its way.", steps=1, outcomes=(0.0, 1.0), task="lm-eval/h")
    return Export({"samples_shop.jsonl": Lines(rows)}, [right])
