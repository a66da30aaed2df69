"""Talks as lines that begin with who speaks or what is done: `User: ...`, ReAct's `Thought: ...`, CrewAI's tasks.

In: the lines of a text. Out: a record a message, a record an attempt with its messages, or a record a task, as readers
of these know them. A line that begins with no name goes on with the one before.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

_Numbered = tuple[int, str]
_Rows = Iterator[tuple[int, dict[str, Any]]]

_NAMED = re.compile(
    r"(?:\[(?P<at>\d{4}-\d\d-\d\d[T ]\d\d:\d\d[\d:.]*Z?)\]\s*)?(?:\*\*)?(?P<name>User|Human|Customer|You|System|"
    r"Assistant|Agent|AI|Bot|Chatbot|AI Assistant|ChatGPT|Claude|Gemini)(?::\*\*|\*\*:|:)(?:\s+(?P<words>.*))?\Z"
)
_USERS = {"User", "Human", "Customer", "You"}
_FEWEST = 2  # turns of each of two speakers
_STEP = re.compile(
    r"(?P<kind>Question|Task|Thought|Action|Action Input|Observation|Final Answer|Answer) ?\d*:\s*(?P<words>.*)\Z"
)
_ASKS = {"Question", "Task"}
_CREW = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d): task_name=\"")
_CREW_FIELDS = ("task_name", "task", "agent", "status", "output")


def prose_layout(head: Sequence[str]) -> str:
    """Return 'named', 'react' or 'crew' for the first lines of such a text; '' for any other."""
    first = next((line for line in head if line.strip()), "")
    if _CREW.match(first):
        return "crew"
    steps = [step["kind"] for line in head if (step := _STEP.match(line.strip()))]
    if steps[:1] and steps[0] in _ASKS and {"Thought", "Action", "Observation"} <= set(steps):
        return "react"
    names = [named["name"] for line in head if (named := _NAMED.match(line.rstrip()))]
    by_user = sum(name in _USERS for name in names)
    by_agent = sum(name not in _USERS and name != "System" for name in names)
    is_talk = _NAMED.match(first.rstrip()) is not None and min(by_user, by_agent) >= _FEWEST
    return "named" if is_talk and max(by_user, by_agent) <= 2 * min(by_user, by_agent) else ""


def named_turns(lines: Sequence[_Numbered]) -> _Rows:
    """Yield the messages of a talk, each with the number of its first line."""
    start, row, held = 0, dict[str, Any](), list[str]()
    for number, line in (*lines, (0, "User:")):
        named = _NAMED.match(line.rstrip())
        if named is None:
            held.append(line.rstrip())
            continue
        if words := "\n".join(held).strip():
            yield start, {**row, "content": words}
        name = named["name"]
        role = "user" if name in _USERS else "system" if name == "System" else "assistant"
        start, row = number, {"role": role} | ({"timestamp": named["at"]} if named["at"] else {})
        held = [named["words"] or ""]


def react_attempts(lines: Sequence[_Numbered]) -> _Rows:
    """Yield the attempts of a text, each with its question, thoughts, actions and observations as messages."""
    start, messages = 0, list[dict[str, Any]]()
    for number, kind, words in _steps(lines):
        if kind in _ASKS:
            if len(messages) > 1:
                yield start, {"messages": messages, "id": f"question-{start}"}
            start, messages = number, [{"role": "user", "content": words}]
        elif kind == "Observation" and messages:
            messages.append({"role": "user", "content": f"Observation: {words}"})
        elif messages:
            said = words if kind in ("Answer", "Final Answer") else f"{kind}: {words}"
            if messages[-1]["role"] == "assistant":
                messages[-1]["content"] += f"\n{said}"
            else:
                messages.append({"role": "assistant", "content": said})
    if len(messages) > 1:
        yield start, {"messages": messages, "id": f"question-{start}"}


def _steps(lines: Sequence[_Numbered]) -> Iterator[tuple[int, str, str]]:
    """Yield the steps of a text: where each begins, its kind and its words."""
    start, kind, held = 0, "", list[str]()
    for number, line in (*lines, (0, "Question:")):
        step = _STEP.match(line.strip())
        if step is None:
            held.append(line.rstrip())
            continue
        if kind:
            yield start, kind, "\n".join(held).strip()
        start, kind, held = number, step["kind"], [step["words"]]


def crew_tasks(lines: Sequence[_Numbered]) -> _Rows:
    """Yield the tasks that ended of a log of CrewAI's (`output_log_file`), each with what its agent answered."""
    start, held = 0, list[str]()
    for number, line in (*lines, (0, '0000-00-00 00:00:00: task_name="')):
        if _CREW.match(line):
            task = _crew_fields("\n".join(held).strip())
            if task.get("output"):
                at, _, _ = held[0].partition(": ")
                yield start, {"timestamp": at, "policy": task["agent"], "question": task["task"],
                              "response": task["output"]}  # fmt: skip
            start, held = number, []
        held.append(line)


def _crew_fields(text: str) -> dict[str, str]:
    """Return the fields of a task, in their order; {} where one of the first four is missing."""
    _, _, rest = text.partition(f'{_CREW_FIELDS[0]}="')
    fields: dict[str, str] = {}
    for name, following in pairwise((*_CREW_FIELDS, "")):
        value, found, rest = rest.partition(f'", {following}="') if following else (rest, "", "")
        fields[name] = value
        if not found:
            return {**fields, name: value.removesuffix('"')} if name in _CREW_FIELDS[3:] else {}
    return fields
