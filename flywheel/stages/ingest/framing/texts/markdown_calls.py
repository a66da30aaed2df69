"""What an answer in Markdown holds: words, thoughts, and the calls that SpecStory and OpenCode write between them.

In: the lines of an answer, each with whether it is in a block of code. Out: its acts: words with the calls behind them,
and what these gave. Words behind a call are another act: an agent writes them when it has seen what the call gave.

SpecStory writes what a call was given and what it gave one after the other. Behind `Parameters:` and `Result:` each is
known; else what its summary shows, a shell's command, or the lines before a block of `text` were given, and the last
block of `text`, or what is behind the summary or the command, is what it gave. Where nothing of this is there, all of
it was given: a call is not given a result that it may not have had. A status alone is a result of one word.
"""

from __future__ import annotations

import html
import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from flywheel.reading.values import embedded

Line = tuple[str, bool]  # with whether it is in a block of code
Body = Sequence[Line]
Call = dict[str, Any]  # name, arguments, result, failed

FENCE = re.compile(r" {0,3}(`{3,}|~{3,})(?!.*`)")
RULE = re.compile(r"(?:-{3,}|={3,}|\*{3,}|_{3,}|<hr ?/?>)\Z")
_TOOL_USE = re.compile(r"\s{0,8}<tool-use\b([^>]{0,400})>(.*)\Z")
_ATTRIBUTE = re.compile(r'data-tool-(type|name)="([^"]*)"')
_TOOL_END = re.compile(r"(.*)</tool-use>\s*\Z")
_THINK = re.compile(r"\s*<think>(?:<details>)?(?:<summary>.*?</summary>)?(.*)\Z")
_THINK_END = re.compile(r"(.*?)(?:</details>)?</think>\s*\Z")
_CALLED = re.compile(  # OpenCode's, and `**Tool call:** `name`` of other exports
    r"\*\*Tool: (\S{1,80})\*\*\Z|\*\*Tool (?:call|use):?\*\*:? *`([^`\s]{1,80})`\s*\Z", re.IGNORECASE
)
_ANSWERED = re.compile(r"\*\*Tool (?:result|output)s?:?\*\*:?\s*\Z", re.IGNORECASE)
_PARAMETERS, _RESULTS = ("Parameters:", "**Input:**"), ("Result:", "**Output:**", "**Error:**")
_MARKS = {*_PARAMETERS, *_RESULTS}
_TAGS = re.compile(r"</?details>|<summary>.{0,2000}?</summary>")
_TOOL_SHOWN = re.compile(r"(?:Tool use: )?(?:\*\*.{0,80}?\*\*)?[ •]{0,3}", re.DOTALL)  # what a summary begins with
_STATUS = re.compile(r"Status: \*\*(\w{1,20})\*\*")
_COMMAND = re.compile(r"`([^`]+)`\Z")
_SHELLS = ("bash", "sh", "shell", "zsh")
_GIVEN = re.compile(r"Input(?: \(truncated\))?: ?(?:```)?\Z")  # a line in front of what a call was given
_GAVE = "```text"


@dataclass
class Act:
    """Words and thoughts of an agent, and the calls behind them."""

    said: list[Line] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)


def trimmed(body: Body) -> str:
    """Return lines as text, without blank lines and rules around them."""
    lines = [line.rstrip() for line, _ in body]
    kept = [n for n, line in enumerate(lines) if line and not RULE.match(line)]
    return "\n".join(lines[kept[0] : kept[-1] + 1]) if kept else ""


def acts(body: Body) -> Iterator[Act]:
    """Yield the acts of an answer."""
    ends = {pattern: [n for n, (line, is_code) in enumerate(body) if not is_code and pattern.match(line)]
            for pattern in (_TOOL_END, _THINK_END)}  # fmt: skip
    act, n = Act(), 0
    while n < len(body):
        line, is_code = body[n]
        used, thought = (None, None) if is_code else (_TOOL_USE.match(line), _THINK.match(line))
        called = _CALLED.match(line.rstrip())
        if act.calls and not (used or called) and trimmed([body[n]]):
            yield act
            act = Act()
        if used:
            n, held = _until(body, n, ends, _TOOL_END)
            about = dict(_ATTRIBUTE.findall(used[1]))
            call = _of_specstory(about.get("type", ""), about.get("name", ""), [(used[2], False), *held])
            act.calls += [] if act.calls and _is_echo(call, act.calls[-1]) else [call]
        elif thought:
            n, held = _until(body, n, ends, _THINK_END)
            first = _THINK_END.match(thought[1])
            act.thoughts.append(trimmed([(first[1] if first else thought[1], False), *held]))
        elif called:
            n, call = _named(called, body, n)
            act.calls.append(call)
        else:
            act.said.append(body[n])
            n += 1
    yield act


def _named(called: re.Match[str], body: Body, start: int) -> tuple[int, Call]:
    """Return the line behind a call that a line names, and the call."""
    if called[1]:
        end = next((m for m in range(start + 1, len(body)) if _ends_call(body, m)), len(body))
        return end, _of_blocks(called[1], body[start + 1 : end])
    end = _behind_block(body, start)
    shown = _shown(body[start + 1 : end]) if end > start + 1 else ""
    given = embedded(shown)
    arguments = given if isinstance(given, dict) else {"input": shown} if shown else {}
    return end, {"name": called[2], "arguments": arguments, "result": None, "failed": None}


def results_in(body: Body) -> list[str]:
    """Return what the calls before gave, where a part of the user's is nothing else: each behind `**Tool result:**`."""
    starts = [n for n, (line, is_code) in enumerate(body) if not is_code and _ANSWERED.match(line.rstrip())]
    if not starts or trimmed(body[: starts[0]]):
        return []
    return [_shown(body[start + 1 : end]) for start, end in zip(starts, [*starts[1:], len(body)], strict=True)]


def _behind_block(body: Body, start: int) -> int:
    """Return the line behind the block of code that follows a call's name; the line behind the name without one."""
    block = next((n for n in range(start + 1, len(body)) if body[n][0].strip()), len(body))
    return block + len(_block(body, block)) if block < len(body) and body[block][1] else start + 1


def _until(
    body: Body, start: int, ends: Mapping[re.Pattern[str], Sequence[int]], pattern: re.Pattern[str]
) -> tuple[int, list[Line]]:
    """Return where an element ends, and its lines behind the first; one that never ends is its first line."""
    if pattern.match(body[start][0]):
        return start + 1, []
    following = bisect_right(ends[pattern], start)
    if following == len(ends[pattern]):
        return start + 1, []
    last = ends[pattern][following]
    end = pattern.match(body[last][0])
    return last + 1, [*body[start + 1 : last], (end[1] if end else "", False)]


def _of_specstory(kind: str, name: str, lines: list[Line]) -> Call:
    """Return a call of SpecStory's."""
    summary, behind = _summary(lines)
    ended = next((found[1].lower() for line, is_code in behind if not is_code and (found := _STATUS.match(line))), "")
    rest = [(line if is_code else _TAGS.sub("", line), is_code) for line, is_code in behind
            if is_code or not _STATUS.match(line)]  # fmt: skip
    call = _of_blocks(name, rest)
    if call["arguments"] is None and call["result"] is None:
        call |= _unmarked(kind, summary, rest)
    call["arguments"] = call["arguments"] or {}
    call["result"] = html.unescape(_plain(call["result"])) if call["result"] else ended or None
    return {**call, "failed": ended not in ("completed", "success")} if ended else call


def _summary(lines: list[Line]) -> tuple[str, list[Line]]:
    """Return what the summary of a call shows behind the tool's name, and the lines behind it."""
    start = next((n for n, (line, _) in enumerate(lines) if "<summary>" in line), None)
    if start is None:
        return "", lines
    end = next((n for n in range(start, len(lines)) if "</summary>" in lines[n][0]), start)
    _, _, summary = "\n".join(line for line, _ in lines[start : end + 1]).partition("<summary>")
    shown, closed, _ = summary.partition("</summary>")
    return (_TOOL_SHOWN.sub("", shown, count=1).strip(), lines[end + 1 :]) if closed else ("", lines)


def _unmarked(kind: str, summary: str, lines: Body) -> Call:
    """Return what a call was given and what it gave, where no line names them."""
    shown = max((n for n, (line, is_code) in enumerate(lines) if is_code and line.strip() == _GAVE), default=None)
    gave = None if shown is None else _plain("\n".join(_block(lines, shown)))
    if kind == "shell" and (command := _command(lines)):
        behind = trimmed(_without_command(lines)) if summary else None  # Cursor's, in a block without a name
        return {"arguments": {"command": command}, "result": gave or behind}
    if summary:
        return {"arguments": {"input": summary}, "result": trimmed(lines)}
    given = [line for line in lines[:shown] if not _GIVEN.match(line[0].strip())]
    given = [line for line in given if line[1] or not FENCE.match(line[0])]  # an end without its beginning
    text = html.unescape(_plain(trimmed(given).strip()))
    return {"arguments": {"input": text} if text else {}, "result": gave}


def _command(lines: Body) -> str | None:
    """Return the command of a shell: in a line of code, or in the first block where that is one of a shell."""
    for n, (line, is_code) in enumerate(lines):
        if not is_code and (found := _COMMAND.match(line.strip())):
            return html.unescape(found[1])
        if is_code:
            block = _plain("\n".join(_block(lines, n)))
            return html.unescape(block) if line.strip().endswith(_SHELLS) else None
    return None


def _without_command(lines: Body) -> list[Line]:
    """Return the lines behind a shell's command."""
    inline = next((n for n, (line, is_code) in enumerate(lines) if not is_code and _COMMAND.match(line.strip())), None)
    start = next((n for n, (_, is_code) in enumerate(lines) if is_code), None)
    if start is not None and lines[start][0].strip().endswith(_SHELLS) and (inline is None or start < inline):
        return list(lines[start + len(_block(lines, start)) :])
    return list(lines if inline is None else lines[inline + 1 :])


def _block(lines: Body, start: int) -> list[str]:
    """Return the lines of the block of code that begins at a line, with its fences."""
    fence = FENCE.match(lines[start][0])
    mark = fence[1] if fence else "```"
    end = next((n for n in range(start + 1, len(lines)) if lines[n][0].strip().startswith(mark)), len(lines) - 1)
    return [line for line, _ in lines[start : end + 1]]


def _plain(text: str) -> str:
    """Return a text without the fences of a block of code around all of it."""
    lines = text.split("\n")
    return "\n".join(lines[1:-1]) if len(lines) > 1 and FENCE.match(lines[0]) and FENCE.match(lines[-1]) else text


def _of_blocks(name: str, lines: Body) -> Call:
    """Return a call whose parameters and result are behind their names."""
    call: Call = {"name": name, "arguments": None, "result": None, "failed": None}
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


def _shown(lines: Body) -> str:
    """Return what is behind a name: the block of code that it begins with, else all of it."""
    start = next((n for n, (line, _) in enumerate(lines) if line.strip()), None)
    is_block = start is not None and lines[start][1]
    return _plain("\n".join(_block(lines, start or 0))) if is_block else trimmed(lines)


def _is_echo(call: Call, before: Call) -> bool:
    """Whether SpecStory shows the call before once more, by its name alone, as it does with Cursor's."""
    return call["name"] == before["name"] and not call["arguments"] and call["result"] is None


def _ends_call(body: Body, position: int) -> bool:
    """Whether a line is behind a call of OpenCode's: another call, or words behind what the call gave."""
    words, is_code = body[position][0].strip(), body[position][1]
    is_part = is_code or not words or words in _MARKS
    return not is_part or _CALLED.match(words) is not None
