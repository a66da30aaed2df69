"""How a tool call ended: ok, failed, or unknown without evidence.

Evidence, strongest first: a flag, an error object, a structured result's own fields, and at last how the
text begins. A result that merely exists proves nothing.

In: a result's text and fields. Out: a `ToolStatus` value.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import orjson

from flywheel.records import ToolStatus

OK, FAILED, UNKNOWN = ToolStatus.OK.value, ToolStatus.FAILED.value, ToolStatus.UNKNOWN.value

# Only words that say how a call went: an order may be cancelled, denied or completed and the call still be a success.
_FAILED_WORDS = {"error", "failed", "failure", "errored"}
_OK_WORDS = {"ok", "success", "succeeded"}
_BEGINS = re.compile(
    r"\s*(?:Traceback \(most recent call last\)|(?:Error|ERROR)\b|(?:\w+\.)*\w*(?:Error|Exception)\s*(?:[:(\n]|\Z))"
)
_FLAGS = (
    ("is_error", True),
    ("isError", True),
    ("failed", True),
    ("success", False),
    ("ok", False),
)
_TYPE = re.compile(r"\s*(?:[\w.]*\.)?([A-Z]\w*(?:Error|Exception))\b")
_PARSED_LENGTH = 200_000  # longer results are data; their first words decide


def stated_status(fields: Mapping[str, Any]) -> str:
    """Return the status that a structured result's own fields give: flags, an error, a word, an exit code."""
    for name, bad in _FLAGS:
        value = fields.get(name)
        if isinstance(value, bool):
            return FAILED if value is bad else OK
    for name in ("error", "errors", "exception"):
        if name in fields:
            if fields[name]:
                return FAILED
            if len(fields) > 1:
                return OK
    word = fields.get("status")
    if isinstance(word, str) and word.lower() in _FAILED_WORDS | _OK_WORDS:
        return FAILED if word.lower() in _FAILED_WORDS else OK
    for name in ("exit_code", "exitCode", "returncode", "return_code"):
        code = fields.get(name)
        if isinstance(code, int) and not isinstance(code, bool):
            return FAILED if code else OK
    return UNKNOWN


def tool_status(content: str | None, fields: Mapping[str, Any] | None = None) -> str:
    """Return how a call ended.

    Args:
        content: the result's text.
        fields: the tool message's or result record's own fields, which outweigh the text.
    """
    if fields:
        stated = stated_status({k: v for k, v in fields.items() if k not in {"content", "name"}})
        if stated != UNKNOWN:
            return stated
    if not content:
        return UNKNOWN
    if _BEGINS.match(content):
        return FAILED
    if content.lstrip()[:1] == "{" and len(content) < _PARSED_LENGTH:
        try:
            parsed = orjson.loads(content)
        except orjson.JSONDecodeError:
            return UNKNOWN
        return stated_status(parsed) if isinstance(parsed, dict) else UNKNOWN
    return UNKNOWN


def error_type(content: str | None) -> str | None:
    """Return the name of the error that a text begins with, like TimeoutError."""
    match = _TYPE.match(content) if content else None
    return match[1] if match else None
