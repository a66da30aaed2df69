"""Chats that editors and people export as Markdown: each message is below a line that names who speaks.

In: the lines of a text. Out: a record a message, as readers of messages know them, with the calls that SpecStory and
OpenCode write between the words of an answer.

A speaker is named by a heading, in bold or between rules, next to nothing but a number, a date or a model: `## User`,
`_**Agent (claude-sonnet-4, mode Agent)**_`, `**User Prompt** *[2025-09-02 22:14:18]*`, `## 🤖 assistant _(date)_`,
`=== USER ===`. In a block of code such a line is text, unless a rule is before it or it has more about the speaker:
what tools show may open a block and never end it. A document may have such headings, too: a chat is one that names its
user first, and has a second request, or a speaker with a rule before, a date, a number or a model.
"""

from __future__ import annotations

import html
import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from flywheel.reading.values import embedded, when

_Numbered = tuple[int, str]
_Line = tuple[str, bool]  # with whether it is code
_Body = Sequence[_Line]

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})(?!.*`)")
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
_RULE = re.compile(r"(?:-{3,}|={3,}|\*{3,}|_{3,}|<hr ?/?>)\Z")
_SESSION = re.compile(
    r"(?:\*\*Session ID:\*\*|<!-- [A-Za-z][\w .+-]{0,40}? Session|Session ID:) *([A-Za-z0-9][\w-]{7,63})\b",
    re.IGNORECASE,
)
_HEADER_LINES = 40
_ABOUT = re.compile(r"\s*[,·|]\s*|\s+(?=\d{4}-\d\d-\d\d)")  # between the parts of what is next to a speaker
_MODEL = re.compile(r"(?:model )?((?=\S*\d)[A-Za-z][\w./:-]*-[\w./:-]+|(?:Claude|GPT|Gemini|Grok)[ -][\w. -]{1,30})\Z")
_LASTED = re.compile(r"\d+(?:\.\d+)?m?s\Z")
_TOOL_USE = re.compile(r"\s{0,8}<tool-use\b([^>]{0,400})>(.*)\Z")
_ATTRIBUTE = re.compile(r'data-tool-(type|name)="([^"]*)"')
_TOOL_END = re.compile(r"(.*)</tool-use>\s*\Z")
_THINK = re.compile(r"\s*<think>(?:<details>)?(?:<summary>.*?</summary>)?(.*)\Z")
_THINK_END = re.compile(r"(.*?)(?:</details>)?</think>\s*\Z")
_TAGS = re.compile(r"</?details>|<summary>.{0,2000}?</summary>")
_SUMMARY = re.compile(r"<summary>(?:Tool use: )?(?:\*\*.{0,80}?\*\*)?[ •]{0,3}(.{0,2000}?)</summary>")
_MAY_BEGIN = {*"#_*=-[", *"0123456789"}
_LONGEST = 300  # characters of a line that names a speaker
_STATUS = re.compile(r"Status: \*\*(\w{1,20})\*\*")
_COMMAND = re.compile(r"`([^`]+)`\Z")
_PARAMETERS, _RESULTS = ("Parameters:", "**Input:**"), ("Result:", "**Output:**", "**Error:**")
_MARKS = {*_PARAMETERS, *_RESULTS}
_CALLED = re.compile(r"\*\*Tool: (\S{1,80})\*\*\Z")  # OpenCode's


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
    body: list[_Line]


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
            elif not fence and (mark := _FENCE.match(line)):
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
    for n, message in enumerate(_split(lines)):
        row = {"session_id": session + "/side" * message.by.is_side} if session else {}
        row |= _of_speaker(message.by.about)
        if message.by.role == "assistant":
            yield from _answer(message, row, n)
        elif words := _words(message.body):
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
    ends = [by.line for by in marks.speakers[1:]] + [len(lines)]
    for by, end in zip(marks.speakers, ends, strict=True):
        inside = slice(by.line + 1, end)
        yield _Message(lines[by.line][0], by, list(zip(texts[inside], marks.is_code[inside], strict=True)))


def _speaker(number: int, line: str, before: str) -> _Speaker | None:
    """Return the speaker whom a line names, behind another line that is not blank; else None."""
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
    is_sure = bool(about or named["number"]) or line.startswith("_**") or _RULE.match(before) is not None
    return _Speaker(number, role, about, bool(named["side"]), is_sure)


def _words(body: _Body) -> str:
    """Return lines as text, without blank lines and rules around them."""
    lines = [line.rstrip() for line, _ in body]
    kept = [n for n, line in enumerate(lines) if line and not _RULE.match(line)]
    return "\n".join(lines[kept[0] : kept[-1] + 1]) if kept else ""


def _answer(message: _Message, row: dict[str, Any], number: int) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield an answer with its thoughts and calls, and what the calls gave."""
    said, thoughts, calls = _parts(message.body)
    ids = [f"call-{number}-{n}" for n in range(len(calls))]
    made = [{"id": own, "name": call["name"], "arguments": call["arguments"]}
            for own, call in zip(ids, calls, strict=True)]  # fmt: skip
    words = _words(said)
    if words or made or thoughts:
        beside: dict[str, Any] = {"tool_calls": made} if made else {}
        beside |= {"reasoning": "\n".join(thoughts)} if thoughts else {}
        yield message.line, {**row, "role": "assistant", "content": words or None, **beside}
    for own, call in zip(ids, calls, strict=True):
        if call["result"] is not None:
            failed = {} if call["failed"] is None else {"is_error": call["failed"]}
            yield message.line, {**row, "role": "tool", "tool_call_id": own, "name": call["name"],
                                 "content": call["result"], **failed}  # fmt: skip


def _parts(body: _Body) -> tuple[list[_Line], list[str], list[dict[str, Any]]]:
    """Return the words of an answer, its thoughts, and its calls."""
    said, thoughts, calls = list[_Line](), list[str](), list[dict[str, Any]]()
    ends = {pattern: [n for n, (line, is_code) in enumerate(body) if not is_code and pattern.match(line)]
            for pattern in (_TOOL_END, _THINK_END)}  # fmt: skip
    n = 0
    while n < len(body):
        line, is_code = body[n]
        used, thought = (None, None) if is_code else (_TOOL_USE.match(line), _THINK.match(line))
        called = _CALLED.match(line.rstrip())
        if used:
            end, held = _until(body, n, ends, _TOOL_END)
            about = dict(_ATTRIBUTE.findall(used[1]))
            call = _of_specstory(about.get("type", ""), about.get("name", ""), [(used[2], False), *held])
            if not (calls and _is_echo(call, calls[-1])):
                calls.append(call)
        elif thought:
            end, held = _until(body, n, ends, _THINK_END)
            first = _THINK_END.match(thought[1])
            thoughts.append(_words([(first[1] if first else thought[1], False), *held]))
        elif called:
            end = next((m for m in range(n + 1, len(body)) if _ends_call(body, m)), len(body))
            calls.append(_of_blocks(called[1], body[n + 1 : end]))
        else:
            end = n + 1
            said.append(body[n])
        n = end
    return said, [thought for thought in thoughts if thought], calls


def _until(
    body: _Body, start: int, ends: Mapping[re.Pattern[str], Sequence[int]], pattern: re.Pattern[str]
) -> tuple[int, list[_Line]]:
    """Return where an element ends, and its lines behind the first; one that never ends is its first line."""
    if pattern.match(body[start][0]):
        return start + 1, []
    following = bisect_right(ends[pattern], start)
    if following == len(ends[pattern]):
        return start + 1, []
    last = ends[pattern][following]
    end = pattern.match(body[last][0])
    return last + 1, [*body[start + 1 : last], (end[1] if end else "", False)]


def _of_specstory(kind: str, name: str, lines: list[_Line]) -> dict[str, Any]:
    """Return a call of SpecStory's: its parameters or command, and what it gave."""
    summary = next((found[1].strip() for line, _ in lines if (found := _SUMMARY.search(line))), "")
    rest = [(line if is_code else _TAGS.sub("", line), is_code) for line, is_code in lines]
    call = _of_blocks(name, rest)
    if call["arguments"] is None:
        command = _command(rest) if kind == "shell" else None
        call["arguments"] = {"command": command} if command else {"input": summary} if summary else {}
        shown = [line for line in rest if line[0].strip() != f"`{command}`"]
        call["result"] = _words(_without_command(shown)) if command else _words(rest) or None
        call["result"] = call["result"] or None
    call["result"] = html.unescape(_plain(call["result"])) if call["result"] else None
    ended = next((found[1].lower() for line, is_code in lines if not is_code and (found := _STATUS.match(line))), "")
    return {**call, "failed": ended not in ("completed", "success")} if ended else call


def _command(lines: _Body) -> str | None:
    """Return the command of a shell: in a line of code, or in the first block where that is one of a shell."""
    for n, (line, is_code) in enumerate(lines):
        if not is_code and (found := _COMMAND.match(line.strip())):
            return found[1]
        if is_code:
            block = _block(lines, n)
            return _plain("\n".join(block)) if line.strip().endswith(("bash", "sh", "shell", "zsh")) else None
    return None


def _without_command(lines: _Body) -> list[_Line]:
    """Return the lines behind the block of a shell's command."""
    start = next((n for n, (line, is_code) in enumerate(lines) if is_code), None)
    if start is None or not lines[start][0].strip().endswith(("bash", "sh", "shell", "zsh")):
        return list(lines)
    return list(lines[start + len(_block(lines, start)) :])


def _block(lines: _Body, start: int) -> list[str]:
    """Return the lines of the block of code that begins at a line, with its fences."""
    fence = _FENCE.match(lines[start][0])
    mark = fence[1] if fence else "```"
    end = next((n for n in range(start + 1, len(lines)) if lines[n][0].strip().startswith(mark)), len(lines) - 1)
    return [line for line, _ in lines[start : end + 1]]


def _plain(text: str) -> str:
    """Return a text without the fences of a block of code around all of it."""
    lines = text.split("\n")
    return "\n".join(lines[1:-1]) if len(lines) > 1 and _FENCE.match(lines[0]) and _FENCE.match(lines[-1]) else text


def _of_blocks(name: str, lines: _Body) -> dict[str, Any]:
    """Return a call whose parameters and result are blocks behind their names."""
    call: dict[str, Any] = {"name": name, "arguments": None, "result": None, "failed": None}
    for n, (line, is_code) in enumerate(lines):
        mark = "" if is_code else line.strip()
        if mark not in _MARKS:
            continue
        ends = (m for m in range(n + 1, len(lines)) if not lines[m][1] and lines[m][0].strip() in _MARKS)
        shown = _shown(lines[n + 1 : next(ends, len(lines))])
        if mark in _PARAMETERS:
            given = embedded(shown)
            call["arguments"] = given if isinstance(given, dict) else {"input": shown}
        else:
            call |= {"result": shown} | ({"failed": True} if mark == "**Error:**" else {})
    return call


def _shown(lines: _Body) -> str:
    """Return what is behind a name: the block of code that it begins with, else all of it."""
    start = next((n for n, (line, _) in enumerate(lines) if line.strip()), None)
    is_block = start is not None and lines[start][1]
    return _plain("\n".join(_block(lines, start or 0))) if is_block else _words(lines)


def _is_echo(call: dict[str, Any], before: dict[str, Any]) -> bool:
    """Whether SpecStory shows the call before once more, by its name alone."""
    return call["name"] == before["name"] and not call["arguments"] and call["result"] is None


def _ends_call(body: _Body, position: int) -> bool:
    """Whether a line is behind a call of OpenCode's: another call, or words behind what the call gave."""
    words, is_code = body[position][0].strip(), body[position][1]
    is_part = is_code or not words or words in _MARKS
    return not is_part or _CALLED.match(words) is not None
