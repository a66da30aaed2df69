"""The fields of an object that a framework logged as Python's `repr`: role='user' content='hi' tool_calls=[{...}].

Nothing is evaluated: only literals are parsed; other objects are skipped.

In: a text. Out: a dict, empty for any other text.
"""

from __future__ import annotations

import ast
import re
from typing import Any

_CLASS = re.compile(r"(\w+Message(?:Chunk)?)\((.*)\)\Z", re.DOTALL)
_BEGINS = re.compile(r"(?:role|content)=(?:['\"]|None\b|\[|<)")
_NAME = re.compile(r",?\s*(\w+)=")
_STRING = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"", re.DOTALL)
_OPENING, _CLOSING = "([{<", ")]}>"
_LONGEST = 1_000_000


def fields_of_repr(value: str) -> dict[str, Any]:
    """Return the fields of a repr that begins with a role or a content; {} when the text is something else.

    A message's class, where the repr names it, is its `type`.
    """
    if len(value) > _LONGEST:
        return {}
    named = _CLASS.match(value)
    if named is not None:
        value = named[2]
    if not _BEGINS.match(value):
        return {}
    fields: dict[str, Any] = {"type": named[1]} if named else {}
    position = 0
    while (name := _NAME.match(value, position)) is not None:
        end = _end(value, name.end())
        if end is None:
            return {}
        fields[name[1]] = _literal(value[name.end() : end].strip())
        position = end
    return fields if not value[position:].strip() and len(fields) > 1 else {}


def _end(value: str, start: int) -> int | None:
    """Return where the value that begins at `start` ends: at a space or comma outside all brackets and quotes."""
    depth, position = 0, start
    while position < len(value):
        sign = value[position]
        if sign in "'\"":
            string = _STRING.match(value, position)
            if string is None:
                return None
            position = string.end()
            continue
        if sign in " ," and depth == 0:
            return position
        depth += (sign in _OPENING) - (sign in _CLOSING)
        position += 1
    return position if depth == 0 else None


def _literal(written: str) -> Any:
    try:
        return ast.literal_eval(written)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        enum = re.match(r"<[\w.]+: ('[^']*')>\Z", written)
        return ast.literal_eval(enum[1]) if enum else None


def mapping_of_repr(value: str) -> dict[str, Any]:
    """Return a dict that was logged as Python's `repr`; {} when the text is something else."""
    mapping = _literal(value) if value.startswith("{") and len(value) <= _LONGEST else None
    return mapping if isinstance(mapping, dict) and all(isinstance(name, str) for name in mapping) else {}
