"""Talks as lines that begin with who speaks or what is done: `User: ...`, ReAct's `Thought: ...`, a terminal's marks.

In: the lines of a text. Out: a record a message, a record an attempt with its messages, or a record a task, as readers
of these know them. A line that begins with no name goes on with the one before.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from flywheel.reading.shapes.actions import ACTION
from flywheel.stages.ingest.framing.texts.markdown_calls import trimmed
from flywheel.stages.ingest.framing.texts.prompts import explains_a_loop
from flywheel.stages.ingest.framing.texts.rendered import rendered_talk

_Numbered = tuple[int, str]
_Rows = Iterator[tuple[int, dict[str, Any]]]

_AT = r"(?:\[?(?P<at>\d{4}-\d\d-\d\d[T ]\d\d:\d\d[\d:.]*Z?)\]?\s{1,3}(?:[-|]\s)?)?"
_SPEAKERS = (
    "User|Human|Customer|You|System|Assistant|AI Assistant|AI|Agent|Bot|Chatbot|Model|ChatGPT|GPT|Claude|Gemini"
    "|Tool[ _]call|Tool[ _]result"
)
_NAMED = re.compile(
    rf"{_AT}(?:- |[^\w\s\[*(]{{1,3}} )?\[?(?:\*\*)?(?P<name>{_SPEAKERS})(?: ?:\*\*|\*\* ?:|\]? ?:)\s*(?P<words>.*)\Z",
    re.IGNORECASE,
)
_WRITTEN_CALL = re.compile(r"([\w.:-]{1,80})\((.*)\)", re.DOTALL)
_USERS = {"user", "human", "customer", "you"}
_PEOPLE = _USERS - {"you"}  # who speaks to an agent in a text within a record
_AGENTS = {"assistant", "ai assistant", "ai", "agent", "bot", "chatbot", "chatgpt", "gpt"}
_FEWEST = 2  # turns of each of two speakers
_ASKED = {"❯ ", "> "}  # noqa: RUF001 - a prompt's mark
_GAVE = re.compile(r" {1,3}⎿ {1,3}")
_DRAWN = {"╭", "│", "╰", "─", "✻", "✽", "✢", "✳", "∴", "※"}  # of a screen: frames, and what it does meanwhile
_SHOWN_CALL = re.compile(
    r"([A-Z]\w{1,40}|mcp__\w{1,80}|[\w-]{1,40}(?::| - )[\w-]{1,60})(?: \(MCP\))?\((.{0,4000})\)\Z", re.DOTALL
)
_STEP = re.compile(
    r"(?P<kind>Question|Task|Thought|Action|Action Input|Observation|Final Answer|Answer) ?\d*:\s*(?P<words>.*)\Z"
)
_ASKS = {"Question", "Task"}
# Fields of a record in which a whole attempt may be one text.
ATTEMPTS = ("traj", "trajectory", "transcript", "history", "log", "trace", "scratchpad", "agent_scratchpad", "text",
            "content")  # fmt: skip
_PROMPT = "> "  # of a text game
_THINKS = re.compile(r"(?:think|actionpath)\s?:", re.IGNORECASE)  # what is typed there and no act: ReAct, KnowAgent
_CREW = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d): task_name=\"")
_CREW_FIELDS = ("task_name", "task", "agent", "status", "output")


def plain_layout(head: Sequence[str]) -> str:
    """Return 'named', 'react', 'terminal' or 'crew' for the first lines of such a text; '' for any other."""
    marks = {line[:2] for line in head}
    if marks & _ASKED and ("⏺ " in marks or ("● " in marks and any(_GAVE.match(line) for line in head))):
        return "terminal"
    first = next((line for line in head if line.strip()), "")
    if _CREW.match(first):
        return "crew"
    if _is_react(head):
        return "react"
    names = [named["name"].lower() for line in head if (named := _NAMED.match(line.rstrip()))]
    by_user = sum(name in _USERS for name in names)
    by_agent = sum(name not in _USERS and name != "system" and not name.startswith("tool") for name in names)
    is_talk = _NAMED.match(first.rstrip()) is not None and min(by_user, by_agent) >= _FEWEST
    return "named" if is_talk and max(by_user, by_agent) <= 2 * min(by_user, by_agent) else ""


def _is_react(head: Sequence[str]) -> bool:
    """Whether lines are questions with their steps, and no prompt that explains these or ends before the answer."""
    found = [(n, step) for n, line in enumerate(head) if (step := _STEP.match(line.strip()))]
    kinds = {step["kind"] for _, step in found}
    if not found or found[0][1]["kind"] not in _ASKS or not {"Thought", "Action", "Observation"} <= kinds:
        return False
    is_open = found[-1][1]["kind"] in _ASKS and not found[-1][1]["words"] and not any(head[found[-1][0] + 1 :])
    return not is_open and not explains_a_loop(head[: found[0][0]])


def talk_in(text: str, *, is_talk: bool = False) -> list[dict[str, Any]]:
    """Return the messages of a text that is a talk of two by one name each; [] for any other text.

    A prompt has an open end, a glossary several names of one speaker, and a form fields that are called so.

    Args:
        text: what may be a talk.
        is_talk: whether it is in a field for one, as a call's transcript: then it may be short, and one may be silent.
    """
    lines = text.strip().splitlines()
    last = _NAMED.match(lines[-1].rstrip()) if lines else None
    if not lines or _NAMED.match(lines[0].rstrip()) is None or (last is not None and not last["words"]):
        return []
    names = {named["name"].lower().replace("_", " ") for line in lines if (named := _NAMED.match(line.rstrip()))}
    speakers = names - {"system", "tool call", "tool result"}
    known = [len(speakers & _PEOPLE), len(speakers & _AGENTS)]
    if sum(known) != len(speakers) or (known != [1, 1] and not (is_talk and known == [0, 1])):
        return []
    rows = [row for _, row in named_turns(list(enumerate(lines, 1)))]
    calls = any(row.get("tool_calls") for row in rows) and {"user", "assistant"} <= {row["role"] for row in rows}
    return rows if calls or is_talk or plain_layout(lines) == "named" else []


def attempt_in(text: str) -> list[dict[str, Any]]:
    """Return the messages of a text that is one attempt; [] for any other text.

    ReAct or a text game writes it so, or a chat template.

    What is before the first step was asked: the last question, where examples with their steps come before it. A text
    that begins with a thought has no request.
    """
    if rendered := rendered_talk(text):
        return rendered
    lines = text.strip().splitlines()
    kinds = [(n, step["kind"]) for n, line in enumerate(lines) if (step := _STEP.match(line.strip()))]
    begun = next((n for n, kind in reversed(kinds) if kind in _ASKS), 0)
    steps = [(n, kind) for n, kind in kinds if n >= begun and kind not in _ASKS]
    if not {"Thought", "Action", "Observation"} <= {kind for _, kind in steps}:
        return _game_in(lines)
    asked = lines[begun : steps[0][0]]
    asked = asked if asked and _STEP.match(asked[0].strip()) else [f"Question: {asked[0] if asked else ''}", *asked[1:]]
    rows: list[dict[str, Any]] = next(
        row["messages"] for _, row in react_attempts(list(enumerate((*asked, *lines[steps[0][0] :]))))
    )
    return rows if rows[0]["content"] else rows[1:]


def _game_in(lines: Sequence[str]) -> list[dict[str, Any]]:
    """Return the messages of a text game: acts behind a prompt's mark, and what each gave in the lines below it."""
    typed = [n for n, line in enumerate(lines) if line.startswith(_PROMPT)]
    acts = [n for n in typed if not _THINKS.match(lines[n].removeprefix(_PROMPT))]
    if len(acts) < _FEWEST or typed[0] == 0 or not all(lines[n + 1 : n + 2] for n in acts[:-1]):
        return []
    messages: list[dict[str, Any]] = [{"role": "user", "content": "\n".join(lines[: typed[0]]).strip()}]
    thoughts: list[str] = []
    for n, after in pairwise((*typed, len(lines))):
        said, gave = lines[n].removeprefix(_PROMPT), "\n".join(lines[n + 1 : after]).strip()
        if n not in acts:
            thoughts.append(said)
            continue
        call = {"id": f"act_{n}", "name": ACTION, "arguments": {"input": said}}
        messages.append({"role": "assistant", "content": "\n".join(thoughts) or None, "tool_calls": [call]})
        messages += [{"role": "tool", "content": gave, "tool_call_id": call["id"]}] if gave else []
        thoughts = []
    return [*messages, *([{"role": "assistant", "content": "\n".join(thoughts)}] if thoughts else [])]


def named_turns(lines: Sequence[_Numbered]) -> _Rows:
    """Yield the messages of a talk, each with the number of its first line; calls and results are by their names.

    A call right behind words of the agent is in their message: it was one act.
    """
    before: tuple[int, dict[str, Any]] | None = None
    for number, row in _named_rows(lines):
        last = before[1] if before is not None else {}
        if before is not None and row.get("tool_calls") and last["role"] == "assistant" and "tool_calls" not in last:
            before = before[0], {**last, "tool_calls": row["tool_calls"]}
            continue
        if before is not None:
            yield before
        before = number, row
    if before is not None:
        yield before


def _named_rows(lines: Sequence[_Numbered]) -> _Rows:
    start, row, held = 0, dict[str, Any](), list[str]()
    calls = 0
    for number, line in (*lines, (0, "User:")):
        named = _NAMED.match(line.rstrip())
        if named is None:
            held.append(line)
            continue
        if words := trimmed([(words, False) for words in held]).strip():
            call = _WRITTEN_CALL.fullmatch(words) if row.get("role") == "call" else None
            calls += call is not None
            yield start, row | _said(row, words, call, f"written_{calls}")
        name = named["name"].lower().replace("_", " ")
        role = "call" if name == "tool call" else "tool" if name == "tool result" else None
        role = role or ("user" if name in _USERS else "system" if name == "system" else "assistant")
        start, row = number, {"role": role} | ({"timestamp": named["at"]} if named["at"] else {})
        held = [named["words"] or ""]


def _said(row: dict[str, Any], words: str, call: re.Match[str] | None, own: str) -> dict[str, Any]:
    """Return what is in a message: a call as `find({"id": 7})`, what it gave, or words."""
    if call is not None:
        return {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": own, "name": call[1], "arguments": call[2]}],
        }
    if row.get("role") == "tool":
        return {"content": words, "tool_call_id": own}
    return {"role": "assistant" if row.get("role") == "call" else row.get("role"), "content": words}


def terminal_turns(lines: Sequence[_Numbered]) -> _Rows:
    """Yield the messages of a session of Claude Code as its screen shows it (`/export`, or copied).

    Calls are by the name and the words that are shown of them, and what they gave may be cut.
    """
    start, kind, held = 0, "", list[str]()
    calls, own = 0, dict[str, str]()  # own: the id of the call that what follows is of
    for number, line in (*lines, (0, "> ")):
        begins = _begins(line, kind)
        if not begins:
            held.append(line.removeprefix("  ").rstrip())
            continue
        words, call = "\n".join(held).strip(), _SHOWN_CALL.match(" ".join(held).strip())
        if kind == "agent" and call and words:
            calls, own = calls + 1, {"tool_call_id": f"shown_{calls + 1}"}
            made = {"id": own["tool_call_id"], "name": call[1], "arguments": {"input": call[2]}}
            yield start, {"role": "assistant", "content": None, "tool_calls": [made]}
        elif kind == "gave" and words:
            yield start, {"role": "tool", "content": words, **own}
        elif kind in ("user", "agent") and words:
            own = {}
            yield start, {"role": "user" if kind == "user" else "assistant", "content": words}
        mark = _GAVE.match(line)
        start, kind, held = number, begins, [line[mark.end() if mark else 2 :].rstrip()]


def _begins(line: str, kind: str) -> str:
    """Return what a line of a terminal begins: user, agent, gave, other; '' where it goes on with what was there."""
    if line[:2] in _ASKED:
        return "user"
    if line[:2] in ("⏺ ", "● "):
        return "agent"
    if _GAVE.match(line):
        return "gave" if kind in ("agent", "gave") else ""
    return "other" if line[:1] in _DRAWN or not kind or line[:1].strip() else ""  # words are indented


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
