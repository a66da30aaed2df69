"""Chats that editors and people export as Markdown: each message is below a line that names who speaks.

In: the lines of a text. Out: a record a message, as readers of messages know them, with the calls between the words of
an answer (`markdown_calls`).

A speaker is named by a heading, in bold or between rules, next to nothing but a number, a date or a model: `## User`,
`_**Agent (claude-sonnet-4, mode Agent)**_`, `**User Prompt** *[2025-09-02 22:14:18]*`, `## 🤖 assistant _(date)_`,
`=== USER ===`. In a block of code such a line is text, unless a rule is before it or it has more about the speaker:
what tools show may open a block and never end it. A document may have such headings, too: a chat is one that names its
user first, and has a second request, or a speaker with a rule before, a date, a number or a model.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from flywheel.reading.values import when
from flywheel.stages.ingest.framing.texts.markdown_calls import FENCE, RULE, Line, acts, results_in, trimmed

_Numbered = tuple[int, str]

_HEADING = re.compile(r"#{1,6} +(.+)\Z")
_BLOCK = re.compile(r"(?:\[?[\d-]{10}[T ][\d:.]{4,15}Z?\]? *)?(?:={2,}|-{2,}) *(\w[^=]*?) *(?:={2,}|-{2,})\Z")
_BOLD = re.compile(r"_?\*\*(.+?)\*\*_?(.*)\Z")
_NAMED = re.compile(
    r"(?:[^\w\s*_]+\s*)?(?P<name>[A-Za-z][A-Za-z .-]{0,30}?)(?P<side> - sidechain)?(?P<number> ?#?\d{1,5})?:?"
    r"(?:\s*[-–—]?\s*[_*]*[\[(](?P<about>.{1,120})[\])][_*]*)?\s*:?\Z"  # noqa: RUF001 - as people write
)
_USERS = {"user", "human", "you", "me"}
_AGENTS = {"assistant", "agent", "ai", "bot", "chatbot", "model", "llm", "cursor", "copilot", "github copilot",
           "chatgpt", "claude", "claude code", "gemini", "codex", "opencode"}  # fmt: skip
_TITLES = {"prompt": "user", "response": "assistant", "system": "system", "system prompt": "system"}
_SAYS = {"message", "prompt", "query", "request", "input", "response", "reply", "answer", "turn", "said", "says"}
_SESSION = re.compile(
    r"(?:\*\*Session ID:\*\*|<!-- [A-Za-z][\w .+-]{0,40}? Session|Session ID:) *([A-Za-z0-9][\w-]{7,63})\b",
    re.IGNORECASE,
)
_HEADER_LINES = 40
_UNNAMED = "_****_"  # of an agent, in SpecStory's first versions
_ABOUT = re.compile(r"\s*[,·|]\s*|\s+(?=\d{4}-\d\d-\d\d)")  # between the parts of what is next to a speaker
_MODEL = re.compile(r"(?:model )?((?=\S*\d)[A-Za-z][\w./:-]*-[\w./:-]+|(?:Claude|GPT|Gemini|Grok)[ -][\w. -]{1,30})\Z")
_LASTED = re.compile(r"\d+(?:\.\d+)?m?s\Z")
_MAY_BEGIN = {*"#_*=-[", *"0123456789"}
_LONGEST = 300  # characters of a line that names a speaker


class _Speaker(NamedTuple):
    """A line that names a speaker: where it is, the role, more about the speaker, and whether that is a helper."""

    line: int
    role: str
    about: str
    is_side: bool
    is_sure: bool  # no heading of a document


class _Message(NamedTuple):
    """A message: where it begins, who speaks, and its lines with whether each is code."""

    line: int
    by: _Speaker
    body: list[Line]


class _Marks:
    """The lines of a text that name speakers, and which lines are code."""

    def __init__(self, lines: Sequence[str]) -> None:
        self.is_code = [False] * len(lines)
        self.speakers: list[_Speaker] = []
        fence, start, before = "", 0, ""
        for n, line in enumerate(lines):
            may_be = line[:1] in _MAY_BEGIN and len(line) <= _LONGEST
            by = _speaker(n, line.rstrip(), before) if may_be else None
            is_title = by is not None and not self.speakers and by.role == "assistant" and line.startswith("# ")
            if by is not None and (by.is_sure or not fence):
                self.speakers += [] if is_title else [by]
                fence = ""  # a block that a message never ends is none
            elif not fence and (mark := FENCE.match(line)):
                fence, start = mark[1], n
            elif fence and line.strip().startswith(fence) and not line.strip().strip(fence[0]):
                self.is_code[start : n + 1] = [True] * (n + 1 - start)
                fence = ""
            before = line.strip() or before


def is_chat(head: Sequence[str]) -> bool:
    """Whether a text whose first lines these are is a chat."""
    marks = list(_Marks(head).speakers)
    spoken = [mark.role for mark in marks if mark.role != "system"]
    is_sure = spoken.count("user") > 1 or any(mark.is_sure for mark in marks)
    return spoken[:1] == ["user"] and "assistant" in spoken and is_sure


def without_code(lines: Sequence[str]) -> list[str]:
    """Return the lines of a text that are in no block of code."""
    return [line for line, is_code in zip(lines, _Marks(lines).is_code, strict=True) if not is_code]


def messages(lines: Sequence[_Numbered]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the messages of a chat, each with the number of its first line."""
    session = next((found[1] for _, line in lines[:_HEADER_LINES] if (found := _SESSION.search(line))), None)
    waiting: list[tuple[str, str]] = []  # calls of this turn that gave nothing yet: their ids and tools
    before = ""
    for n, message in enumerate(_split(lines)):
        row = {"session_id": session + "/side" * message.by.is_side} if session else {}
        row |= _of_speaker(message.by.about)
        waiting = [] if message.by.role == "assistant" != before else waiting
        before = message.by.role
        if message.by.role == "assistant":
            for line, answer in _answer(message, row, n):
                waiting += [(call["id"], call["name"]) for call in answer.get("tool_calls", ())]
                waiting = [call for call in waiting if call[0] != answer.get("tool_call_id")]
                yield line, answer
        elif 0 < len(gave := results_in(message.body)) <= len(waiting):
            for (own, tool), result in zip(waiting[: len(gave)], gave, strict=True):
                yield message.line, {**row, "role": "tool", "tool_call_id": own, "name": tool, "content": result}
            waiting = waiting[len(gave) :]
        elif words := trimmed(message.body):
            yield message.line, {**row, "role": message.by.role, "content": words}


def _of_speaker(about: str) -> dict[str, Any]:
    """Return the time and the model next to a speaker's name."""
    parts = [part.strip(" _*") for part in _ABOUT.split(about)] if about else []
    model = next((found[1] for part in parts if (found := _MODEL.match(part)) and when(part) is None), None)
    if len(parts) > 1 and _LASTED.match(parts[-1]):  # OpenCode's: mode, model, time
        model = parts[-2]
    at = next((part for part in (about, *parts) if when(part) is not None), None)
    return ({"model": model} if model else {}) | ({"timestamp": at} if at else {})


def _split(lines: Sequence[_Numbered]) -> Iterator[_Message]:
    """Yield the messages of a text, without what is before the first."""
    texts = [line for _, line in lines]
    marks = _Marks(texts)
    ends = [by.line for by in marks.speakers[1:]] + [len(lines)][: len(marks.speakers)]
    for by, end in zip(marks.speakers, ends, strict=True):
        inside = slice(by.line + 1, end)
        yield _Message(lines[by.line][0], by, list(zip(texts[inside], marks.is_code[inside], strict=True)))


def _speaker(number: int, line: str, before: str) -> _Speaker | None:
    """Return the speaker whom a line names, behind another line that is not blank; else None."""
    if line == _UNNAMED:
        return _Speaker(number, "assistant", "", is_side=False, is_sure=True)
    heading, bold, block = _HEADING.match(line), _BOLD.match(line), _BLOCK.match(line)
    written = heading[1].replace("**", "") if heading else f"{bold[1]}{bold[2]}" if bold else block[1] if block else ""
    named = _NAMED.match(written.strip())
    if named is None:
        return None
    name = named["name"].strip().lower()
    first, _, last = name.rpartition(" ")
    role = _TITLES.get(name) if heading else None
    for known, found in ((_USERS, "user"), (_AGENTS, "assistant")):
        if name in known or (first in known and last in _SAYS):
            role = found
    if role is None:
        return None
    about = (named["about"] or "").strip(" _*")
    is_sure = bool(about or named["number"]) or line.startswith("_**") or RULE.match(before) is not None
    return _Speaker(number, role, about, bool(named["side"]), is_sure)


def _answer(message: _Message, row: dict[str, Any], number: int) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the acts of an answer, each followed by what its calls gave."""
    position = 0
    for act in acts(message.body):
        ids = [f"call-{number}-{position + n}" for n in range(len(act.calls))]
        position += len(ids)
        made = [{"id": own, "name": call["name"], "arguments": call["arguments"]}
                for own, call in zip(ids, act.calls, strict=True)]  # fmt: skip
        words, thought = trimmed(act.said), "\n".join(filter(None, act.thoughts))
        if words or made or thought:
            beside: dict[str, Any] = {"tool_calls": made} if made else {}
            beside |= {"reasoning": thought} if thought else {}
            yield message.line, {**row, "role": "assistant", "content": words or None, **beside}
        for own, call in zip(ids, act.calls, strict=True):
            if call["result"] is not None:
                failed = {} if call["failed"] is None else {"is_error": call["failed"]}
                yield message.line, {**row, "role": "tool", "tool_call_id": own, "name": call["name"],
                                     "content": call["result"], **failed}  # fmt: skip
