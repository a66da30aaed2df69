"""JSON's escapes, seen from the redaction: short texts as JSON has them, and JSON that stands in a text.

In: texts. Out: texts in which the patterns find what they would find without the escapes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial

import orjson

_ESCAPE = re.compile(r"(?<=\\)(?:[nrtbf]|u[0-9A-Fa-f]{4})")  # in JSON that stands in a text
_PRIVATE, _PRIVATE_TOO = 0xF0000, 0x100000
_HIDDEN = re.compile("[\U000f0000-\U0010ffff]")


def as_fields(name: str, texts: list[str]) -> list[str]:
    """Return each text as a JSON object that has nothing else, under a name."""
    try:
        written = orjson.dumps(texts).decode()
    except TypeError:  # half an emoji
        return as_fields(name, [text.encode("utf-8", "replace").decode() for text in texts])
    if "\\" in written:
        return [orjson.dumps({name: text}).decode() for text in texts]
    return [f'{{"{name}":"{text}"}}' for text in texts]


def without_escapes(text: str) -> tuple[str, dict[str, str]]:
    r"""Return a text with one private character for the letters of each JSON escape, and what each stands for.

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
