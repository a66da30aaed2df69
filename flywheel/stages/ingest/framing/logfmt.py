"""Lines of logfmt (`time=... level=info msg="tool call" session=s1`), as logrus, slog and others write them, as JSON.

In: a line. Out: its pairs as an object, `true`, `false` and numbers as such; any other line as a container's log has
it, so that it is one of the program's others.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import orjson

_PAIR = re.compile(rb'([A-Za-z_@][\w.@/-]{0,80})=("(?:[^"\\]|\\.)*"|[^\s"]*)(?:\s+|\Z)')
_NUMBER = re.compile(rb"-?(?:0|[1-9]\d{0,14})(?:\.\d{1,9})?")
_WORDS = {b"true": True, b"false": False, b"null": None, b"nil": None, b"": None}
_LEAST = 3  # pairs of a line


def is_logfmt(lines: Sequence[bytes]) -> bool:
    """Whether most lines are pairs and nothing else."""
    return bool(lines) and sum(_pairs(line) is not None for line in lines) * 2 > len(lines)


def as_json(line: bytes) -> bytes:
    """Return a line as JSON; b'' for an empty one."""
    if not line:
        return b""
    pairs = _pairs(line)
    return orjson.dumps({"log": line.decode("utf-8", "replace") + "\n"} if pairs is None else pairs)


def _pairs(line: bytes) -> dict[str, Any] | None:
    found, end = dict[str, Any](), 0
    line = line.strip()
    while end < len(line) and (pair := _PAIR.match(line, end)) is not None:
        found[pair[1].decode()], end = _value(pair[2]), pair.end()
    return found if end == len(line) and len(found) >= _LEAST else None


def _value(written: bytes) -> Any:
    if written in _WORDS:
        return _WORDS[written]
    if written.startswith(b'"'):
        try:
            return orjson.loads(written)
        except orjson.JSONDecodeError:  # Go escapes more than JSON does
            return written[1:-1].decode("utf-8", "replace")
    return orjson.loads(written) if _NUMBER.fullmatch(written) else written.decode("utf-8", "replace")
