"""A twelfth set: runs of benchmarks, as their own programs keep them; written after the mends by real ones."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from typing import Any

from benchmarks.exports.story import (
    MODEL,
    SERIAL,
    SYSTEM,
    TASKS,
    Export,
    Lines,
    Says,
    Told,
    at,
    calls_of,
    export,
    openai,
    quiet,
    solved,
    told,
)


@export(12, "A CTF harness, messages with their times")
def timed() -> Export:
    """Each message is a pair with its time, the challenge is an object; one run ended before its agent spoke."""
    files = {}
    for talk in TASKS:
        files[f"logs/{talk.id}/conversation.1.json"] = {
            "args": {"model": MODEL, "max_rounds": 30, "api_key": None},
            "messages": [[at(n), message] for n, message in enumerate(openai(talk, system=SYSTEM))],
            "challenge": {"name": talk.task, "category": "shop", "flag": f"flag-of-{talk.id}"},
            "solved": talk.solved, "rounds": len(talk.acts), "start_time": at(0), "finish_reason": "give_up",
        }  # fmt: skip
    crashed = TASKS[1]
    files[f"logs/{crashed.id}/conversation.2.json"] = {
        "args": {"model": MODEL}, "messages": [[at(0), message] for message in openai(crashed, system=SYSTEM)[:2]],
        "challenge": {"name": crashed.task, "category": "shop"}, "solved": False, "rounds": 0,
        "exception_info": {"exception_type": "RateLimitError",
                           "exception_message": "Error code: 429 - you exceeded your quota, please check your plan"},
    }  # fmt: skip
    right = told(TASKS, Says(task=True, model=True, outcomes=solved(TASKS)))
    return Export(files, [*right, Told(task=crashed.task, outcomes=(0.0,), model=MODEL)])


@export(12, "A harness with its own notes of what its model wrote")
def noted() -> Export:
    """The messages of the model are all there is; notes of each call, by steps and by rounds, repeat them."""
    files = {}
    for talk in TASKS:
        steps: list[dict[str, Any]] = []
        nothing = {"content": None, "tool_arguments": None, "tool_result": None, "tool_name": None}
        for n, act in enumerate(talk.acts):
            for c in act.calls:
                made = {"step": n, "message_type": "tool_call", "tool_name": c.name, "tool_arguments": c.args}
                gave = {"step": n, "message_type": "tool_result", "tool_name": c.name, "tool_result": c.result}
                steps += [nothing | made, nothing | gave]
        steps.append(nothing | {"step": len(talk.acts), "message_type": "llm_response", "content": talk.answer})
        rounds = [
            {"round_number": n, "reasoning": act.text, "tools_executed": len(act.calls),
             "executions": [{"tool": c.name, "success": not c.failed, "parameters": c.args, "result": c.result}
                            for c in act.calls]}
            for n, act in enumerate(talk.acts, 1) if act.calls
        ]  # fmt: skip
        number = TASKS.index(talk)
        trace = {"task_id": str(number), "messages": openai(talk, system=SYSTEM), "steps": steps, "rounds": rounds,
                 "final_response": talk.answer, "total_steps": len(talk.acts)}  # fmt: skip
        files[f"traces/shop_{number}.json"] = {
            "benchmark": "shop", "task_id": str(number), "question": talk.asked, "trace": trace, "error": None,
            "eval_result": {"pass": talk.solved},
        }  # fmt: skip
    right = told(TASKS, Says(outcomes=solved(TASKS)))
    return Export(files, [replace(one, task=f"shop/{n}") for n, one in enumerate(right)])


@export(12, "LangChain's results as Python shows them, in a table")
def shown() -> Export:
    """A cell is what `str` made of a result: its actions are objects."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(["query", "function_calls", "full_response", "error"])
    for talk in quiet(SERIAL):
        steps = ", ".join(
            f"(AgentAction(tool={c.name!r}, tool_input={c.args!r}, log='Invoking: `{c.name}`'), {c.result!r})"
            for c in calls_of(talk)
        )
        response = f"{{'input': {talk.asked!r}, 'output': {talk.answer!r}, 'intermediate_steps': [{steps}]}}"
        calls = [f"{c.name}.func({', '.join(f'{k}={v!r}' for k, v in c.args.items())})" for c in calls_of(talk)]
        writer.writerow([talk.asked, str(calls), response, ""])
    return Export({"gpt_results.csv": text.getvalue()}, told(quiet(SERIAL)))


@export(12, "A loop of one's own, its calls of the model in a list")
def calls() -> Export:
    """Each call has all that was sent and what came back; the last one repeats the others."""
    rows: list[Any] = []
    for talk in TASKS:
        history = openai(talk, system=SYSTEM)
        made = [{"model": MODEL, "input": history[:n], "output": message, "usage": {"prompt_tokens": 3}}
                for n, message in enumerate(history) if message["role"] == "assistant"]  # fmt: skip
        rows.append({"task_id": talk.task, "model": MODEL, "llm_calls": made, "is_solved": talk.solved})
    return Export({"runs.jsonl": Lines(rows)}, told(TASKS, Says(task=True, model=True, outcomes=solved(TASKS))))


@export(12, "An agent's steps, in an object with their numbers")
def numbers() -> Export:
    """Ten steps would be sorted wrongly by name."""
    rows = [
        {"task_id": talk.task, "question": talk.asked, "answer": talk.answer, "passed": talk.solved,
         "agent_steps": {f"step_{n}": {"tool": c.name, "tool_input": c.args, "tool_output": c.result}
                         for n, c in enumerate(calls_of(talk), 9)}}
        for talk in quiet(SERIAL)
    ]  # fmt: skip
    return Export({"runs.jsonl": Lines(rows)}, told(quiet(SERIAL), Says(task=True, outcomes=solved(SERIAL))))


@export(12, "Transitions of an environment that rewards success alone")
def transitions() -> Export:
    """A reward for each step and an end: where all are 0 the attempt has failed."""
    rows: list[Any] = []
    for talk in SERIAL:
        made = calls_of(talk)
        seen = [talk.asked, *(c.result for c in made)]
        rows.append({"task_id": talk.task, "goal": talk.asked, "transitions": [
            {"obs": seen[n], "thought": f"I try {c.name}.", "action": {"tool": c.name, "args": c.args},
             "reward": float(talk.solved and n == len(made) - 1), "done": n == len(made) - 1, "next_obs": c.result}
            for n, c in enumerate(made)
        ]})  # fmt: skip
    right = told(SERIAL, Says(task=True, outcomes=solved(SERIAL)))
    said = [f"I try {calls_of(talk)[-1].name}." for talk in SERIAL]
    return Export({"runs.jsonl": Lines(rows)},
                  [replace(one, steps=len(one.calls), answered=last) for one, last in zip(right, said, strict=True)])  # fmt: skip
