"""What AutoGen and AG2 print while agents talk: `writer (to user_proxy):`, the words, a line of dashes.

In: the lines of such a text, colours and the program's other lines among them. Out: a record a message, under the role
of who speaks. Who speaks first, and who only passes that on, is the user; code that was run is a call, as is what
`Suggested tool call` shows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from flywheel.reading.shapes.heard import as_heard
from flywheel.reading.values import embedded

_Numbered = tuple[int, str]
_Rows = Iterator[tuple[int, dict[str, Any]]]

_COLOUR = re.compile(r"\x1b\[[\d;]*m")
_HEADER = re.compile(r"(?P<name>[\w.-][\w .-]{0,63}) \(to (?P<to>[\w.-][\w .-]{0,63})\):\Z")
_END = re.compile(r"-{40,}\Z")
_CALLED = re.compile(
    r"\*{3,} Suggested (?:tool|function) [Cc]all(?: \((?P<id>[^)]*)\))?: (?P<name>[\w.:/-]{1,64}) \*{3,}\Z"
)
_GAVE = re.compile(  # a function's by its name, a tool's by the id of the call
    r"\*{3,} Response from calling (?:tool [(\"](?P<id>[^)\"*]{1,80})|function [(\"](?P<name>[\w.:/-]{1,64}))[)\"] "
    r"\*{3,}\Z"
)
_STARS = re.compile(r"\*{5,}\Z")
_GIVEN = "Arguments:"
_FEWEST = 2  # messages


def is_console(head: Sequence[str]) -> bool:
    """Whether the first lines of a text are what AutoGen prints."""
    plain = [_COLOUR.sub("", line).rstrip() for line in head]
    return min(sum(map(bool, map(_HEADER.match, plain))), sum(map(bool, map(_END.match, plain)))) >= _FEWEST


def console_turns(lines: Sequence[_Numbered]) -> _Rows:
    """Yield the messages of the talk, each with the number of its first line."""
    people, asked = set[str](), ""
    for number, name, held in _messages(lines):
        words, calls, results = _parted(held, number)
        if not people or words == asked:  # a manager is given the same words once more
            is_first, asked = not people, words
            people.add(name)
            if not is_first:
                continue
        for result in results:
            yield number, {"role": "tool", **result}
        if calls:
            yield number, {"role": "assistant", "content": words or None, "tool_calls": calls}
        elif words:
            heard = as_heard({"role": "user", "name": name, "content": words}, number, people)
            yield number, {key: value for key, value in heard.items() if key != "name"}


def _messages(lines: Sequence[_Numbered]) -> Iterator[tuple[int, str, list[str]]]:
    """Yield who speaks and the lines of each message; what the program prints between two of them is left out."""
    start, name, held = 0, "", list[str]()
    for number, line in (*((n, _COLOUR.sub("", line).rstrip()) for n, line in lines), (0, "-" * 80)):
        header = _HEADER.match(line)
        if not header and not _END.match(line):
            held.append(line)
            continue
        if name:
            yield start, name, held
        start, name, held = (number, header["name"], []) if header else (0, "", [])


def _parted(held: Sequence[str], number: int) -> tuple[str, list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the words of a message, the calls that it shows, and the results."""
    words, calls, results = list[str](), list[dict[str, Any]](), list[dict[str, Any]]()
    within: list[str] | None = None
    for line in held:
        called, gave = _CALLED.match(line), _GAVE.match(line)
        if called or gave or (within is not None and _STARS.match(line)):
            within = [] if called or gave else None
            if called is not None:
                own = called["id"] or f"call_{number}_{len(calls)}"
                calls.append({"id": own, "name": called["name"], "arguments": within})
            elif gave is not None:
                of = {"tool_call_id": gave["id"]} if gave["id"] else {"name": gave["name"]}
                results.append({"content": within, **of})
            continue
        (words if within is None else within).append(line)
    calls = [{**call, "arguments": _given("\n".join(call["arguments"]))} for call in calls]
    results = [{**result, "content": "\n".join(result["content"]).strip()} for result in results]
    return "\n".join(words).strip(), calls, [] if calls else results


def _given(written: str) -> Any:
    """Return the arguments of a call, as an object where they are one."""
    text = written.strip().removeprefix(_GIVEN).strip()
    opened = embedded(text)
    return opened if isinstance(opened, dict) else text
