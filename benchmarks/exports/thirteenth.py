"""A thirteenth set: logs of programs of people's own, tools and editors; written after the mends by real ones."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from typing import Any

from benchmarks.exports.story import (
    SERIAL,
    SYSTEM,
    TALKS,
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


@export(13, "An editor's agent whose results are words of the user")
def narrated() -> Export:
    """Cline answers its model's calls in text; what the user writes is in tags, and the rest is the program's."""
    files = {}
    around = "<environment_details>\n# Open tabs\n</environment_details>"
    plan = "# task_progress RECOMMENDED\n\nKeep your plan up to date."
    for talk in TASKS:
        messages: list[Any] = []
        waiting = [f"<task>\n{talk.asked}\n</task>"]
        for act in talk.acts:
            said = [{"type": "text", "text": words} for words in waiting]
            messages.append({"role": "user", "content": [*said, {"type": "text", "text": around}]})
            made = [{"type": "tool_use", "id": c.id, "name": c.name, "input": c.args} for c in act.calls]
            words = [{"type": "text", "text": act.text}] if act.text else []
            messages.append({"role": "assistant", "content": [*words, *made]})
            waiting = [f"[{c.name} for '{next(iter(c.args.values()))}'] Result:\n{c.result}" for c in act.calls]
            waiting += [plan]
        files[f"tasks/{talk.id}/api_conversation_history.json"] = messages
    right = zip(told(TASKS), TASKS, strict=True)
    tagged = [replace(one, asked=f"<task>\n{one.asked}\n</task>\n{around}", task=talk.id) for one, talk in right]
    return Export(files, tagged)


@export(13, "A log of tools alone, with the runs that called them")
def tools() -> Export:
    """What was asked and answered is nowhere; one of the calls is made twice."""
    rows: list[Any] = []
    for talk in TASKS:
        for n, c in enumerate((*calls_of(talk), calls_of(talk)[-1])):
            rows.append({"run_id": talk.id, "timestamp": at(n), "tool": c.name, "arguments": c.args,
                         "result": None if c.failed else c.result, "error": c.result if c.failed else None,
                         "success": not c.failed, "duration_ms": 12.5})  # fmt: skip
    return Export({"logs/tool_calls.jsonl": Lines(rows)}, list(map(_called, TASKS)))


@export(13, "A client of tools, a line for a call and one for its result")
def joined() -> Export:
    """They are joined by an id, and nothing names a session: a file's day is one."""
    rows: list[Any] = []
    talk = TASKS[0]
    for n, c in enumerate((*calls_of(talk), calls_of(talk)[-1])):
        about = {"correlation_id": f"k{n}", "server": "shop", "tool": c.name}
        rows.append({"t": at(2 * n), "kind": "request", **about, "args": c.args})
        rows.append({"t": at(2 * n + 1), "kind": "response", **about, "status": "error" if c.failed else "ok",
                     "result": {"text": c.result}, "error": None})  # fmt: skip
    return Export({"logs/mcp-20261001.jsonl": Lines(rows)}, [_called(talk)])


def _called(talk: Any) -> Told:
    """Return what is in a log of a talk's calls, the last of which was made twice."""
    made = (*calls_of(talk), calls_of(talk)[-1])
    return Told(steps=len(made), calls=tuple(f"{c.name}{json.dumps(c.args, sort_keys=True)}" for c in made),
                results=len(made), failed=sum(c.failed for c in made))  # fmt: skip


@export(13, "Events that are named by their speaker")
def spoken() -> Export:
    """A user, an assistant, a call and a result, each an event of a session's lines."""
    rows: list[Any] = []
    for talk in quiet(TALKS):
        n = 0
        for turn in talk.turns:
            if isinstance(turn, str):
                events: list[dict[str, Any]] = [{"kind": "user", "text": turn}]
            else:
                events = [{"kind": "assistant", "text": turn.text}] if turn.text else []
                events += [{"kind": "tool_call", "tool": c.name, "args": c.args, "call_id": c.id} for c in turn.calls]
                events += [{"kind": "tool_result", "call_id": c.id, "result": c.result} for c in turn.calls]
            for event in events:
                rows.append({"session_id": talk.id, "ts": at(n), **event})
                n += 1
    return Export({"events.jsonl": Lines(rows)}, told(quiet(TALKS)))


@export(13, "Messages under the names of their speakers")
def keyed() -> Export:
    """An object a message, whose only field is the speaker's; a call is the text of the message that an API gave."""
    rows = []
    for talk in quiet(SERIAL):
        said: list[dict[str, str]] = []
        for message in openai(talk, system=SYSTEM):
            calls = message.get("tool_calls")
            said.append({message["role"]: json.dumps(calls) if calls else message["content"]})
        rows.append({"id": talk.id, "messages": said, "success": talk.solved})
    return Export({"runs.jsonl": Lines(rows)}, told(quiet(SERIAL), Says(outcomes=solved(SERIAL))))


@export(13, "Steps of several attempts in a file, with what they earned")
def steps() -> Export:
    """A step a line, with its attempt's id: the reward of the last one is the attempt's."""
    rows: list[Any] = []
    for talk in SERIAL:
        made = calls_of(talk)
        seen = [talk.asked, *(c.result for c in made)]
        rows += [
            {"episode_id": talk.id, "step": n, "observation": seen[n], "thought": f"I try {c.name}.",
             "action": {"tool": c.name, "args": c.args}, "reward": float(talk.solved and n == len(made) - 1),
             "done": n == len(made) - 1}
            for n, c in enumerate(made)
        ]  # fmt: skip
    right = told(SERIAL, Says(outcomes=solved(SERIAL)))
    return Export({"rollouts.jsonl": Lines(rows)}, [
        replace(one, asked="", steps=len(one.calls), results=len(one.calls) - 1, failed=0,
                answered=f"I try {calls_of(talk)[-1].name}.")
        for one, talk in zip(right, SERIAL, strict=True)
    ])  # fmt: skip


@export(13, "A question and its answer in a row, with the tools that were used")
def rows() -> Export:
    """The calls are in a list of a name of its own, each with its result."""
    made = [
        {"session_id": talk.id, "timestamp": at(0), "user_query": talk.asked, "final_answer": talk.answer,
         "tools_used": [{"name": c.name, "arguments": c.args, "result": c.result} for c in calls_of(talk)]}
        for talk in quiet(SERIAL)
    ]  # fmt: skip
    return Export({"interactions.jsonl": Lines(made)}, told(quiet(SERIAL)))


@export(13, "A table of steps with titles")
def titled() -> Export:
    """A game's steps under `Step`, `Observation` and `Action`, as a spreadsheet shows them."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(["Step", "Observation", "Action", "Reasoning", "Reward", "Done"])
    for n in range(3):
        writer.writerow([n, f"You are in room {n}.", f"go to room {n + 1}", f"Room {n + 1} is next.",
                         "1.0" if n == 2 else "0.0", n == 2])  # fmt: skip
    calls = tuple(f'action{{"action": "go to room {n}"}}' for n in (1, 2, 3))
    right = Told(answered="Room 3 is next.", steps=3, calls=calls, results=2, outcomes=(1.0,))
    return Export({"run_01.csv": text.getvalue()}, [right])
