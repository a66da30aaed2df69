"""Chats that programs write as text: Aider's history of its chats, its log of what the model read, and Markdown.

In: a stream of lines. Out: a record a message, or a call, as readers of messages and of Chat Completions know them.

A history shows what people saw, not what the model read: its answers are tagged `history_missing`. Lines of Aider
itself and of people's input end in two spaces, as Markdown breaks lines, and the model's words do not.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, BinaryIO

from flywheel.records import content_id
from flywheel.stages.ingest.framing.framed import Bad, Record, refused
from flywheel.stages.ingest.framing.jsontext import storable
from flywheel.stages.ingest.framing.texts.autogen_console import console_turns, is_console
from flywheel.stages.ingest.framing.texts.markdown import is_chat, messages, without_code
from flywheel.stages.ingest.framing.texts.plain_text import (
    crew_tasks,
    named_turns,
    plain_layout,
    react_attempts,
    terminal_turns,
)
from flywheel.stages.ingest.framing.texts.prompts import has_places

_Numbered = tuple[int, str]
_Rows = Iterator[tuple[int, dict[str, Any]]]

_BEGUN = re.compile(r"# aider chat started at (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)\Z")
_TYPED = re.compile(r"####(?: (.*?))? {2,}\Z")
_SHOWN = re.compile(r">(?: (.*?))? {2,}\Z")
# Versions of before 0.60 end such lines without blanks. What they show behind an answer begins with one of these words.
_TYPED_BARE = re.compile(r"#### (.*)\Z")
_SHOWN_BARE = re.compile(r">(?: (.*))?\Z")
_BEHIND = re.compile(
    r"> (?:Tokens: |Applied edit to |Commit [0-9a-f]{7}|Added |Removed |Allow |Add these |The LLM |Only |Repo-map|Git |"
    r"You can |Create new file |Did not apply |Retrying |Skipped |Warning|https://aider)"
)
_MODEL = re.compile(r"(?:Main model|Model|Models): ([^\s,]+)(?: with .*)?")
_UNFIT = re.compile(  # what Aider shows of an edit that fits nothing
    r"(?:> # \d+ SEARCH/REPLACE blocks? failed to match!\s+)?## SearchReplaceNoExactMatch:"
)
_UNDONE = re.compile(r"Removed: [0-9a-f]{7,40}\b")
_COMMANDS = ("/", "!")
_BLANK = "<blank>"  # nothing was typed
_EMPTYING = ("/clear", "/reset")
_CALL = re.compile(r"(TO LLM|LLM RESPONSE) (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\S*\Z")
_SAID = re.compile(r"(SYSTEM|USER|ASSISTANT|TOOL|DEVELOPER)(?: (.*))?\Z", re.DOTALL)
_SPEAKS = re.compile(  # in any line of such a text; a quick look
    rb"^(?:\[?[\d-]{10}[T ][\d:.]+\]?[ |-]*)?"
    rb"(?:#{1,6} |_?\*\*|={2,} ?|(?:- |\S{1,8} )?\[?(?:user|human|customer|you|system|question|task)\b|task_n"
    rb"|\xe2\x8f\xba |\xe2\x97\x8f |.{1,80} \(to .{1,80}\):\s*$)",
    re.MULTILINE | re.IGNORECASE,
)
_SCREENS = {"terminal", "autogen"}
_WHOLE: dict[str, Callable[[Sequence[_Numbered]], _Rows]] = {  # of which all lines are looked at before one is read
    "markdown": messages, "named": named_turns, "react": react_attempts, "crew": crew_tasks,
    "terminal": terminal_turns, "autogen": console_turns,
}  # fmt: skip
_ANSWER = "answer"
_NEXT = "-------"
_UNSEEN = ("history_missing",)  # the files and the messages that are sent along are in no line


def text_layout(head: bytes) -> str:
    """Return the layout of such a text by its beginning: 'chats', 'calls', 'markdown', ...; '' for any other."""
    first = next((line for line in head[:4096].splitlines() if line.strip()), b"").decode("utf-8", "replace").rstrip()
    call = _CALL.match(first)
    if _BEGUN.match(first) or (call and call[1] == "TO LLM"):
        return "chats" if _BEGUN.match(first) else "calls"
    if first[:1] in ("{", '"') or not _SPEAKS.search(head):
        return ""
    lines = head.decode("utf-8", "replace").splitlines()
    layout = "autogen" if is_console(lines) else "markdown" if is_chat(lines) else plain_layout(lines)
    shown = without_code(lines) if layout == "markdown" else lines
    return "" if layout not in _SCREENS and has_places(shown) else layout


def text_records(stream: BinaryIO, layout: str, limit: int) -> Iterator[Record | Bad]:
    """Yield the records of such a text, each numbered by its first line.

    Args:
        stream: its bytes, from the beginning.
        layout: what `text_layout` returned.
        limit: length in bytes above which a record is not kept.
    """
    lines = _Lines(stream, limit)
    ways: dict[str, Callable[[Iterable[_Numbered]], _Rows]] = {
        "chats": _chats, "calls": _calls, **{name: partial(_of_all, way) for name, way in _WHOLE.items()},
    }  # fmt: skip
    for number, (line, value) in enumerate(ways[layout](lines), 1):
        lines.size = 0
        kept, tags = storable(value)
        is_act = value.get("role", "assistant") == "assistant" and layout != "calls"
        yield Record(line, kept, None, (*tags, *(_UNSEEN if is_act else ())), number)
    if lines.bad is not None:
        yield lines.bad


def _of_all(way: Callable[[Sequence[_Numbered]], _Rows], lines: Iterable[_Numbered]) -> _Rows:
    yield from way(list(lines))


class _Lines:
    """The lines of a text without their ends, with their numbers; `bad` is why they end before the text does."""

    def __init__(self, stream: BinaryIO, limit: int) -> None:
        self._stream, self._limit = stream, limit
        self.size = 0  # of those of a record
        self.bad: Bad | None = None

    def __iter__(self) -> Iterator[_Numbered]:
        number = 0
        while raw := self._stream.readline(self._limit + 1):
            number += 1
            self.size += len(raw)
            if self.size > self._limit:
                detail = f"a record of more than {self._limit:,} bytes; the rest is not read"
                self.bad = refused(number, "truncated", detail, raw)
                return
            try:
                yield number, raw.decode("utf-8-sig").rstrip("\r\n")
            except UnicodeDecodeError:
                self.bad = refused(number, "bad_encoding", "a line that is not UTF-8; the rest is not read", raw)
                return


class _Chat:
    """What is known of the chat that is being read."""

    def __init__(self) -> None:
        self.started, self.part, self.model = "", 1, ""
        self.header: list[str] = []
        self.name = ""
        self.latest: tuple[int, dict[str, Any]] | None = None  # the last answer, which may yet be undone
        self.answers = 0

    def row(self, role: str, words: str) -> dict[str, Any]:
        """Return a message of this chat."""
        self.name = self.name or f"aider/{self.started}/{content_id(self.header)[:8]}"
        part = f"/{self.part}" if self.part > 1 else ""
        row = {"session_id": self.name + part, "role": role, "content": words, "timestamp": self.started}
        if role != "assistant":
            return row
        self.answers += 1
        return row | {"id": f"{self.name}#{self.answers}"} | ({"model": self.model} if self.model else {})

    def settled(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield the last answer."""
        if self.latest is not None:
            yield self.latest
        self.latest = None


def _chats(lines: Iterable[_Numbered]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the messages of all chats of a history."""
    chat = _Chat()
    for kind, line, words in _blocks(lines):
        if kind == "begun":
            yield from chat.settled()
            chat = _Chat()
            chat.started = words
        elif kind == "shown":
            _note(chat, words)
        elif kind == "typed" and words.startswith(_COMMANDS):
            chat.part += words.split()[0] in _EMPTYING
        elif kind == "said" and _UNFIT.match(words):
            _note(chat, words)
        elif words != _BLANK:
            yield from chat.settled()
            row = chat.row("user" if kind == "typed" else "assistant", words)
            if kind == "typed":
                yield line, row
            else:
                chat.latest = line, row
    yield from chat.settled()


def _note(chat: _Chat, words: str) -> None:
    """Take what a line of the program shows of its chat."""
    if model := _MODEL.match(words):
        chat.model = model[1]
    elif _UNDONE.match(words) and chat.latest is not None:
        chat.latest[1]["feedback"] = {"name": "undo", "value": False}
    if not chat.name:
        chat.header.append(words)


def _blocks(lines: Iterable[_Numbered]) -> Iterator[tuple[str, int, str]]:
    """Yield what was typed at once, each line of the program, and what the model wrote at once, with its first line."""
    kind, start, held = "", 0, list[str]()
    for number, line in lines:
        typed, shown, begun = _TYPED.match(line), _SHOWN.match(line), _BEGUN.match(line.rstrip())
        is_open = kind in ("begun", "shown", "typed") or not any(map(str.strip, held))  # no answer has begun
        typed = typed or (_TYPED_BARE.match(line) if is_open else None)
        shown = shown or (_SHOWN_BARE.match(line) if is_open or _BEHIND.match(line) else None)
        here = "begun" if begun else "typed" if typed else "shown" if shown else "said"
        words = begun[1] if begun else (typed[1] if typed else shown[1] if shown else line) or ""
        if here != kind or here in ("begun", "shown"):
            yield from _block(kind, start, held)
            kind, start, held = here, number, []
        held.append(words)
    yield from _block(kind, start, held)


def _block(kind: str, start: int, held: list[str]) -> Iterator[tuple[str, int, str]]:
    """Yield a block that is not blank."""
    blank = next((n for n, words in enumerate(held) if words.strip()), None)
    if kind and blank is not None:
        yield kind, start + blank, "\n".join(held).strip()


def _calls(lines: Iterable[_Numbered]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the calls of a log, each with what it was asked and answered."""
    start, at = 0, ""
    said: list[tuple[str, list[str]]] = []  # who wrote what; the answer is under a name of its own
    for number, line in lines:
        opened, words = _CALL.match(line), _SAID.match(line)
        if opened and opened[1] == "TO LLM":
            yield from _call(start, at, said)
            start, at, said = number, opened[2], []
        elif opened:
            said.append((_ANSWER, []))
        elif line == _NEXT:
            said.append(("", []))
        elif words and said:
            said[-1] = (said[-1][0] or words[1].lower(), [*said[-1][1], words[2] or ""])
    yield from _call(start, at, said)


def _call(start: int, at: str, said: Sequence[tuple[str, list[str]]]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield a call; one without an answer, or with a blank one, ended before it was whole."""
    whole = [(role, "\n".join(lines)) for role, lines in said if role]
    messages = [{"role": role, "content": words} for role, words in whole if role != _ANSWER]
    answer = next((words for role, words in whole if role == _ANSWER), "")
    choices = [{"message": {"role": "assistant", "content": answer}}]
    response = {"choices": choices} | ({} if answer.strip() else {"partial": True})
    if messages:
        yield start, {"timestamp": at, "request": {"messages": messages}, "response": response}
