"""A sixth set, written after a second collection of public logs that were read by eye, where a cause was mended."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from benchmarks.exports.story import SERIAL, Call, Export, Lines, Says, Talk, export, quiet, solved, told


def _single(talk: Talk) -> list[tuple[str | None, Call | None]]:
    """Return the acts of a talk: words, and the only call."""
    return [(act.text, act.calls[0] if act.calls else None) for act in talk.acts]


@export(6, "Lines of users, AI and API")
def api_lines() -> Export:
    """A call is a line of its own role, with a name, parameters and a result that repeats both."""
    files = {}
    for talk in quiet(SERIAL):
        lines: list[dict[str, Any]] = [{"role": "User", "text": talk.asked}]
        for words, call in _single(talk):
            if call is None:
                lines.append({"role": "AI", "text": words})
                continue
            shown = {"api_name": call.name, "input": call.args, "output": call.result}
            line = {"role": "API", "api_name": call.name, "param_dict": call.args, "result": shown}
            lines.append(line | ({"error": call.result} if call.failed else {}))
        files[f"{talk.id}.jsonl"] = Lines(lines)
    return Export(files, told(quiet(SERIAL)))


@export(6, "Turns with a call next to their words")
def beside() -> Export:
    """A turn has `tool_call`, which is null in most; what came of it is an object."""
    rows = []
    for talk in SERIAL:
        turns: list[dict[str, Any]] = [{"role": "user", "content": talk.asked, "tool_call": None}]
        for words, call in _single(talk):
            made = None if call is None else {"name": call.name, "arguments": call.args}
            turns.append({"role": "assistant", "content": words, "tool_call": made})
            if call is not None:
                shown = {"error": call.result} if call.failed else {"ok": True, "result": call.result}
                turns.append({"role": "tool", "content": shown, "tool_call": None})
        rows.append({"blueprint_id": talk.id, "turns": turns, "final_response": talk.answer})
    return Export({"trajectories.jsonl": Lines(rows)}, told(SERIAL))


@export(6, "Tools between a question and an answer")
def between() -> Export:
    """A run has a question, a list of calls with what they gave, and an answer, under names of its own."""
    rows = [
        {
            "user_query": talk.asked,
            "tool_log": [
                {"tool_used": call.name, "tool_args": call.args, "tool_output": call.result, "success": not call.failed}
                for _, call in _single(talk)
                if call is not None
            ],
            "final_answer": talk.answer,
            "elapsed_s": 2.5,
        }
        for talk in SERIAL
    ]
    return Export({"runs.json": rows}, told(quiet(SERIAL)))


@export(6, "Steps that name their kind")
def kinds() -> Export:
    """A run's steps are thoughts, actions, observations and a final answer, each with a type and what it holds."""
    files = {}
    for talk in SERIAL:
        steps: list[dict[str, Any]] = []
        for words, call in _single(talk):
            if call is None:
                steps.append({"type": "final_answer", "content": words})
                continue
            steps += [
                {"type": "thought", "content": words},
                {"type": "action", "tool": call.name, "input": call.args},
                {"type": "observation", "content": call.result, "success": not call.failed},
            ]
        files[f"{talk.id}/run.json"] = {"task": talk.asked, "steps": steps, "success": talk.solved}
    return Export(files, told(SERIAL, Says(outcomes=solved(SERIAL))))


@export(6, "ReAct in words")
def react() -> Export:
    """Actions are written in the agent's words, and observations come back as words of the user."""
    rows = {}
    for talk in SERIAL:
        messages = [{"role": "user", "content": talk.asked}]
        for words, call in _single(talk):
            if call is None:
                messages.append({"role": "assistant", "content": words or ""})
                continue
            written = f"Thought: {words}\nAction: {call.name}\nAction Input: {call.text}"
            messages.append({"role": "assistant", "content": written})
            messages.append({"role": "user", "content": f"Observation: {call.result}"})
        rows[talk.id] = {"traj": messages, "reward": talk.solved}
    return Export({"trajs/run.json": rows}, told(SERIAL, Says(outcomes=solved(SERIAL))))


@export(6, "Moves of a game with scores")
def game() -> Export:
    """A history of actions and observations with the score so far, below a description of the task."""
    runs, moves = {}, {}
    for n, talk in enumerate(SERIAL):
        calls = [call for _, call in _single(talk) if call is not None]
        moves[str(n)] = [*(f"{call.name} {call.text}" for call in calls), "stop"]
        steps = [
            {"action": f"{call.name} {call.text}", "observation": call.result, "score": "0.0", "isCompleted": "false"}
            for call in calls
        ]
        steps.append({"action": "stop", "observation": "done", "score": "0.5", "isCompleted": "true"})
        runs[str(n)] = {"episode": {"taskDescription": talk.asked, "history": steps}}
    acts = [tuple(f"action{json.dumps({'action': move})}" for move in made) for made in moves.values()]
    counted = told(SERIAL, answered="", outcomes=(0.5,))
    pairs = zip(counted, acts, strict=True)
    return Export(
        {"oracle.json": runs}, [replace(one, steps=len(made), calls=made, results=len(made)) for one, made in pairs]
    )
