"""Values that a text quotes: JSON and Python literals within it, and the escapes that such a text is written with."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

_ESCAPE = re.compile(r"(?<=\\)(?:[nrtbf]|u[0-9A-Fa-f]{4})")  # in JSON inside a text
JSON = re.compile(r"(?:^|(?<=[\s:=(]))[\[{](?=\s*[\"'\[{])")
_LONGEST_LITERAL, _MOST_BRACKETS = 20_000, 200
_MOST_JSON = 8  # values in one text that are looked at by their structure
_DECODER = json.JSONDecoder()
_PRIVATE, _PRIVATE_TOO = 0xF0000, 0x100000
_HIDDEN = re.compile("[\U000f0000-\U0010ffff]")


def _literal(text: str) -> Any:
    """Return what a Python literal that is all of a text means; None if it is none, too deep or too long."""
    if len(text) > _LONGEST_LITERAL or text.count("{") + text.count("[") > _MOST_BRACKETS or text[-1:] not in "}]":
        return None
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        return None


def values_in(text: str) -> Iterator[Any]:
    """Yield the JSON values in a text, the outermost ones."""
    end = 0
    for count, match in enumerate(JSON.finditer(text)):
        if count == _MOST_JSON:
            return
        if match.start() >= end:
            try:
                value, end = _DECODER.raw_decode(text, match.start())
            except (json.JSONDecodeError, RecursionError):
                value, end = _literal(text) if match.start() == 0 else None, match.end()
            yield value


def without_escapes(text: str) -> tuple[str, dict[str, str]]:
    r"""Return a text with one private character for the letters of each JSON escape, and the letters of each.

    A text may hold JSON: in `"say\n+49 30 ..."` the n belongs to the escape, not to what follows.
    """
    escapes: dict[str, str] = {}
    if "\\" not in text or _HIDDEN.search(text):
        return text, escapes

    def hidden(match: re.Match[str]) -> str:
        letters = match[0]
        char = chr(_PRIVATE + int(letters[1:], 16)) if letters[0] == "u" else chr(_PRIVATE_TOO + ord(letters))
        return char if escapes.setdefault(char, letters) == letters else letters

    return _ESCAPE.sub(hidden, text), escapes


def with_escapes(text: str, escapes: Mapping[str, str]) -> str:
    """Return a text of `without_escapes` with its escapes again."""
    return _HIDDEN.sub(partial(_escape, escapes), text) if escapes else text


def _escape(escapes: Mapping[str, str], match: re.Match[str]) -> str:
    return escapes[match[0]]
