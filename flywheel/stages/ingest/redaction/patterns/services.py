"""The keys that services mark: `services.toml` has the forms, and all that is searched for comes from it."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from pathlib import Path
from typing import NamedTuple

_CLASSES = {
    "d": "[0-9]", "h": "[0-9a-f]", "x": "[0-9A-Fa-f]", "a": "[A-Za-z]", "l": "[a-z0-9]", "U": "[A-Z0-9]", "n": "[A-Za-z0-9]",
    "w": "[A-Za-z0-9_-]", "k": "[A-Za-z0-9_.=-]", "b": "[A-Za-z0-9+/]", "e": "[A-Za-z0-9+/=_%-]", "v": "[A-Za-z0-9_/@-]",
    "u": "[0-9a-f-]",
}  # fmt: skip
_UUID = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_PART = re.compile(r"\{(?P<kind>[A-Za-z])(?P<least>[0-9]*)(?P<most>-[0-9]+)?(?P<more>\+)?\}")
_BESIDE, _BESIDE_SHORT, _SHORT = 2, 6, 3  # characters that must be next to a mark, to one of so few characters


class Form(NamedTuple):
    """One form of keys: an expression; the mark in it; the mark with a little of what must be next to it."""

    pattern: str
    mark: str
    trigger: str


@cache
def forms() -> tuple[Form, ...]:
    """Return the forms of all services' keys, each once, those with the longest mark first."""
    tables = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")).values()
    written = {form for services in tables for some in services.values() for form in some.split()}
    return tuple(sorted(map(_form, written), key=lambda form: (-len(form.mark), form.pattern)))


def _form(form: str) -> Form:
    classes, marks = list(_PART.finditer(form)), _PART.sub("\0", form).split("\0")
    place = max(range(len(marks)), key=lambda n: len(marks[n]))
    ends = [part.end() == len(form) for part in classes]
    parts = [_expression(part, is_last=is_last) for part, is_last in zip(classes, ends, strict=True)]
    pattern = "".join(re.escape(mark) + part for mark, part in zip(marks, [*parts, ""], strict=True))
    mark, part = re.escape(marks[place]), classes[min(place, len(classes) - 1)]
    least = min(_BESIDE_SHORT, int(part["least"] or _BESIDE_SHORT)) if len(marks[place]) <= _SHORT else _BESIDE
    beside = f"{_CLASSES[part['kind']]}{{{least}}}"
    return Form(pattern, marks[place], beside + mark if place == len(classes) else mark + beside)


def _expression(part: re.Match[str], *, is_last: bool) -> str:
    if part["kind"] == "u":
        return _UUID
    least, most = part["least"], (part["most"] or "").removeprefix("-")
    if most:
        return f"{_CLASSES[part['kind']]}{{{least},{most}}}" + "(?![A-Za-z0-9])" * is_last
    padding = "={0,2}" * (is_last and part["kind"] == "b")
    return f"{_CLASSES[part['kind']]}{{{least}{',' * (is_last or part['more'] is not None)}}}{padding}"
