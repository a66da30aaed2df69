"""JSON as logs really hold it: fast where it is clean, tolerant where it is not, never fatal.

In: bytes or text of one JSON value, or of one literal of Python's, which programs log that print an object. Out: the
value, with what no table can hold replaced and named in `tags`: NaN and infinities become null, halves of emoji become
U+FFFD. Integers beyond 64 bits stay exact.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, date, datetime
from typing import Any, NamedTuple

import orjson

from flywheel.extensions import BadRecordError
from flywheel.io.files import encodable
from flywheel.reading.values import python_value
from flywheel.records import canonical_json

_PYTHONIC = re.compile(r"\[?\s*\{\s*'")  # how objects begin that Python printed
MAX_DEPTH = 200  # deeper than any agent's log; far below what the recursive writers and readers downstream survive

BROKEN_TEXT = "broken_text"
NON_FINITE = "non_finite_number"

_BIG_INTEGER = re.compile(rb"(?:[:,\[]|^)[ \t\r\n]*(?:-\d{19}|\d{20})")  # the fast parser keeps those below exact
# Digits and minus as 0, and what may precede a number as a colon: so one search finds what the pattern might.
_SHAPE = bytes.maketrans(b"123456789-,[ \t\r\n", b"0000000000::::::")
_MANY_DIGITS = b":" + b"0" * 20
_LONGEST_LITERAL = 4_000_000  # characters


class BadJsonError(BadRecordError):
    """The text is not a JSON value that we keep: bad_json, bad_encoding or bad_record."""


class Loaded(NamedTuple):
    """A value and what had to be replaced in it."""

    value: Any
    tags: tuple[str, ...] = ()


def loads(raw: bytes) -> Loaded:
    """Parse one JSON value.

    Raises:
        BadJsonError: it is not UTF-8, not JSON, or nested deeper than `MAX_DEPTH`.
    """
    if not has_large_numbers(raw):
        try:
            return Loaded(orjson.loads(raw))
        except orjson.JSONDecodeError:
            pass
    return _tolerant(raw)


def is_object(text: bytes) -> bool:
    """Whether a text is one JSON object."""
    try:
        return isinstance(loads(text.strip()).value, dict)
    except BadJsonError:
        return False


def has_large_numbers(raw: bytes) -> bool:
    """Whether the fast parser may not keep all digits of a number."""
    shape = raw.translate(_SHAPE)
    some = _MANY_DIGITS in shape or shape.lstrip(b":").startswith(_MANY_DIGITS[1:])
    return some and _BIG_INTEGER.search(raw) is not None


def _tolerant(raw: bytes) -> Loaded:
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadJsonError("bad_encoding", f"not UTF-8 at byte {error.start}") from None
    items: list[str] = []
    try:
        value = json.loads(text, parse_constant=lambda _: items.append(NON_FINITE))
    except json.JSONDecodeError as error:
        if (printed := printed_value(text)) is not None:
            return storable(printed, items)
        # JSONDecodeError.msg is one of a fixed set of sentences; it never quotes the text
        raise BadJsonError("bad_json", f"{error.msg.removesuffix(' at')} at character {error.pos}") from None
    except (RecursionError, ValueError) as error:
        detail = "nested too deeply" if isinstance(error, RecursionError) else "a number with too many digits"
        raise BadJsonError("bad_record", detail) from None
    return storable(value, items)


def printed_value(text: str) -> Any:
    """Return the object, or the list of objects, that a text holds as Python prints it; None for any other text."""
    return python_value(text, most=_LONGEST_LITERAL) if _PYTHONIC.match(text) else None


def is_printed(head: bytes) -> bool:
    """Whether a text begins as Python prints objects, and its first line is none of JSON."""
    return _PYTHONIC.match(head.decode("latin-1")) is not None and not is_object(head.split(b"\n", 1)[0])


def storable(value: Any, items: list[str] | None = None) -> Loaded:
    """Return the value with only what JSON can hold: for values that no strict parser made (Parquet rows, say).

    Raises:
        BadJsonError: nested deeper than `MAX_DEPTH`.
    """
    tags = items if items is not None else []
    cleaned = _storable(value, tags, 0)
    return Loaded(cleaned, tuple(sorted(set(tags))))


def _storable(value: Any, tags: list[str], depth: int) -> Any:
    if depth > MAX_DEPTH:
        raise BadJsonError("bad_record", f"nested deeper than {MAX_DEPTH} levels")
    if isinstance(value, str):
        return _text(value, tags)
    if isinstance(value, dict):
        return {_text(str(key), tags): _storable(item, tags, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_storable(item, tags, depth + 1) for item in value]
    return _scalar(value, tags)


def _text(text: str, tags: list[str]) -> str:
    whole = encodable(text)
    if whole != text:
        tags.append(BROKEN_TEXT)
    return whole


def _scalar(value: Any, tags: list[str]) -> Any:
    if isinstance(value, float) and (value != value or value in {float("inf"), float("-inf")}):  # noqa: PLR0124 - NaN
        tags.append(NON_FINITE)
        return None
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, datetime):
        return (value.replace(tzinfo=UTC) if value.tzinfo is None else value).isoformat()
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, bytes):
        return _text(value.decode("utf-8", "replace"), tags)
    return str(value)


def dumps(value: Any) -> str:
    """Return the value as JSON with sorted keys and no spaces, by the fast writer where it can.

    Raises:
        BadJsonError: nested deeper than `MAX_DEPTH`.
    """
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()
    except TypeError:  # an integer beyond 64 bits, half an emoji, or too deep
        return canonical_json(storable(value).value)
