"""The class of an action's text and of a tool's result, without the content.

In: an assistant message; the calls of a step and the messages after it. Out: short class names. A tool's result is
classed by its tool, how it ended (ok, empty, the kind of error), the shape of its JSON, and its size to a factor of 16.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import orjson

from flywheel.reading.status import says_nothing
from flywheel.records import ToolStatus

_BY_TOOL = '"role":"tool"'
_ERROR = re.compile(r"\b(?:[A-Za-z]\w*(?:Error|Exception)|[45]\d\d)\b")
_LOOKED_AT = 400  # characters of a failure in which its kind is looked for
_MOST_SHAPED = 20_000  # characters of a result whose shape is read
_SHORT = 500  # characters of messages that may well come again


def text_class(action: str) -> str:
    """Return what kind of text an action is: an answer or a question; wording never repeats."""
    content = orjson.loads(action).get("content")
    asks = isinstance(content, str) and ("?" in content or "\uff1f" in content)
    return "ASK" if asks else "FINAL"


def observation_class(names: Sequence[str], status: Sequence[str], after: str) -> str:
    """Return the class of the results of a step's calls.

    Args:
        names: tools called, in order.
        status: how each ended.
        after: JSON list of the messages that followed.
    """
    if not names:
        return ""
    if len(after) <= _SHORT:
        return _class_again(tuple(names), tuple(status), after)
    return _class_of(names, status, after)


def _class_of(names: Sequence[str], status: Sequence[str], after: str) -> str:
    contents = _contents(after) if _BY_TOOL in after else {}
    classes = []
    for name, end in zip(names, status, strict=True):
        results = contents.get(name)
        classes.append(f"{name} {_result(end, results.pop(0))}" if results else f"{name} {end}")
    return "\n".join(sorted(classes))


_class_again = lru_cache(maxsize=8192)(_class_of)


def _contents(after: str) -> dict[str, list[str]]:
    contents: dict[str, list[str]] = {}
    for message in orjson.loads(after):
        if message["role"] == "tool":
            contents.setdefault(str(message.get("name") or ""), []).append(str(message.get("content") or ""))
    return contents


def _result(end: str, content: str) -> str:
    text = content.strip()
    if end == ToolStatus.FAILED:
        kind = _ERROR.search(text[:_LOOKED_AT])
        return f"{end}:{kind[0] if kind else ''}"
    if says_nothing(text):
        return f"{end} empty"
    return f"{end} {_shape(text)} {len(text).bit_length() // 4}"


def _shape(text: str) -> str:
    """Return a hash of a JSON value's outer shape; '' for other text."""
    if text[0] not in "[{" or len(text) > _MOST_SHAPED:
        return ""
    try:
        value: Any = orjson.loads(text)
    except orjson.JSONDecodeError:
        return ""
    if isinstance(value, list):
        value = value[0] if value else {}
    if isinstance(value, dict):
        return _digest(tuple((key, type(item).__name__) for key, item in value.items()))
    return _digest(type(value).__name__)


@lru_cache(maxsize=1024)  # tools answer in few shapes
def _digest(outer: tuple[tuple[str, str], ...] | str) -> str:
    text = outer if isinstance(outer, str) else str(sorted(outer))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]
