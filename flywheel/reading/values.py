"""Scalars as logs write them: times, numbers, ids, JSON inside strings. What does not fit is None, never an error.

In: a value of any type. Out: the value in one type, or None.
"""

from __future__ import annotations

import ast
import math
import re
import warnings
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

import orjson

from flywheel.reading.english import in_english, without_accents

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NUMERIC = re.compile(r"-?\d{1,19}(?:\.\d{1,9})?\Z")
_EARLIEST = 10**8  # seconds: March 1973; what is smaller is a duration, a counter or a bare year
_MAIL = re.compile(
    r"(?:[A-Z][a-z]{2}, )?\d{1,2} [A-Z][a-z]{2} \d{4} \d\d:\d\d(?::\d\d)?(?: [+\-A-Z0-9]{1,5})?\Z", re.ASCII
)
_DATE_DIGITS = 8  # 20261001
_MS, _US, _NS = 10**11, 10**14, 10**17  # what is larger is milliseconds, microseconds, nanoseconds since 1970
_VERSION = re.compile(r"v?\d{1,4}(?:\.\d{1,4}){1,3}(?:[-+.]?[a-z][\w.-]{0,20})?\Z", re.ASCII)
_LONGEST_AMOUNT = 12  # digits
_MOST = 10**_LONGEST_AMOUNT
_NUMBER = (int, float)
_LONGEST_LITERAL = 100_000  # characters; longer texts are data, not a call's arguments
_DEEPEST_LITERAL = 40
_KNOWN_NAMES = 4096  # names of fields whose words are remembered
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_WORDS = {"true": True, "false": False, "null": None}
_BASE64_ID = re.compile(r"(?:[A-Za-z0-9+/]{11}=|[A-Za-z0-9+/]{22}==)\Z")
_PLAIN_ID = re.compile(r"(?:tr-|0x)?(?!0+\Z)([0-9a-f]{16}(?:[0-9a-f]{16})?)\Z")
_HEX_ID = re.compile(r"[0-9a-fA-F]{16}(?:[0-9a-fA-F]{16})?\Z")


def as_dict(value: Any) -> Mapping[str, Any]:
    """Return a mapping as it is, anything else as an empty one."""
    return value if isinstance(value, dict) else {}


def as_list(value: Any) -> list[Any]:
    """Return a list as it is, anything else as an empty one."""
    return value if isinstance(value, list) else []


def first(source: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    """Return the first of the named values that is neither missing, null nor an empty text."""
    if source.keys().isdisjoint(names):
        return None
    for name in names:
        value = source.get(name)
        if value is not None and value != "":
            return value
    return None


def text(value: Any) -> str | None:
    """Return a text that is one and not empty."""
    return value if isinstance(value, str) and value else None


def number(value: Any) -> float | None:
    """Return a finite number; texts that are numbers count (unless they are longer than any amount: a card's, say)."""
    if value is None:
        return None
    if isinstance(value, str):
        if len(value.partition(".")[0].strip()) > _LONGEST_AMOUNT:
            return None
        try:
            value = float(value)
        except ValueError:
            return None
    if not isinstance(value, _NUMBER):
        return None
    try:
        result = float(value)
    except OverflowError:
        return None
    return result if math.isfinite(result) else None


def count(value: Any) -> int | None:
    """Return a count: a number without its fraction; None when it is negative or has more than 12 digits."""
    if type(value) is int:
        return value if 0 <= value < _MOST else None
    amount = number(value)
    return int(amount) if amount is not None and 0 <= amount < _MOST else None


def present(fields: Mapping[str, Any] | None = None, /, **more: Any) -> dict[str, Any]:
    """Return the fields that have a value: None is left out."""
    return {name: value for name, value in {**(fields or {}), **more}.items() if value is not None}


def picked(source: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Return the named fields of a record that have a value."""
    return {name: source[name] for name in names if source.get(name) is not None}


_PLACEHOLDER = "__fake_id__"  # of the OpenAI Agents SDK, for what another API made


def ident(value: Any) -> str | None:
    """Return an id as text; empty ones, those of zeros alone and placeholders mean that there is none."""
    if isinstance(value, str):
        stripped = value.strip()
        if stripped == _PLACEHOLDER:
            return None
        if stripped[:1] not in "0-":  # "" is in it
            return stripped
        return stripped if stripped.strip("0-") else ("0" if stripped == "0" else None)
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else None


def hex_id(value: Any) -> str | None:
    """Return a span or trace id in lower-case hex, also where the log has base64 (protobuf's JSON) or a prefix."""
    if isinstance(value, str) and (plain := _PLAIN_ID.match(value)):
        return plain[1]
    name = ident(value)
    if name is None:
        return None
    name = name.removeprefix("tr-").removeprefix("0x")
    if _BASE64_ID.match(name) and not _HEX_ID.match(name):
        import base64

        name = base64.b64decode(name).hex()
        return name if name.strip("0") else None
    bare = name.replace("-", "")
    return bare.lower() if _HEX_ID.match(bare) else name


def lowered(written: str) -> str:
    """Return a hex id in lower case; in other ids the case has a meaning (a token's prefix, an account's country)."""
    return written.lower() if _HEX_ID.match(written.replace("-", "")) else written


def version(value: Any) -> str | None:
    """Return a program's version: numbers and dots with a short word behind; what looks otherwise is none."""
    return value if isinstance(value, str) and _VERSION.match(value) else None


def when(value: Any) -> datetime | None:
    """Return a time in UTC, or None for what is none.

    Texts are ISO 8601 or as in mails; a number is since 1970, its unit follows from its size, and one below 10^8
    seconds is not a time. MongoDB's {"$date": ...} is what it holds.
    """
    if isinstance(value, dict):
        date = value.get("$date")
        value = date.get("$numberLong") if isinstance(date, dict) else date
    if isinstance(value, datetime):
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    if isinstance(value, str):
        stripped = value.strip()
        is_number = stripped[4:5] != "-" and _NUMERIC.match(stripped)  # the dash behind a year
        if not is_number or len(stripped) == _DATE_DIGITS:
            return _written_time(stripped)
        value = float(stripped) if "." in stripped else int(stripped)
    if isinstance(value, bool) or not isinstance(value, _NUMBER) or not value:
        return None
    return _since_epoch(value)


def later(time: datetime, seconds: float) -> datetime | None:
    """Return the time so many seconds later; None where no calendar has it."""
    try:
        return time + timedelta(seconds=seconds)
    except OverflowError:
        return None


def _written_time(written: str) -> datetime | None:
    try:
        parsed = _mailed(written) if _MAIL.match(written) else datetime.fromisoformat(written.removesuffix(" UTC"))
        if parsed.tzinfo is UTC:
            return parsed
        return parsed.replace(tzinfo=UTC) if parsed.tzinfo is None else parsed.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _mailed(written: str) -> datetime:
    from email.utils import parsedate_to_datetime

    return parsedate_to_datetime(written)


def _since_epoch(value: float) -> datetime | None:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    size = abs(value)
    if size < _EARLIEST:
        return None
    try:
        if size < _MS:
            micros = value * 10**6
        elif size < _US:
            micros = value * 10**3
        else:
            micros = value if size < _NS else value // 1000
        return _EPOCH + timedelta(microseconds=round(micros))
    except OverflowError:
        return None


def embedded(value: Any) -> Any:
    """Return the JSON inside a text that holds an object or a list, unwrapped at most twice; else the value itself."""
    for _ in range(2):
        if not isinstance(value, str) or value[:1].isalnum() or value.lstrip()[:1] not in {"{", "[", '"'}:
            break
        try:
            parsed = orjson.loads(value)
        except orjson.JSONDecodeError:
            break
        if isinstance(parsed, str) and parsed.lstrip()[:1] not in {"{", "["}:
            break
        value = parsed
    return value


class _NoLiteralError(ValueError):
    """A node that is not a literal of JSON's kinds."""


def literal(written: str) -> dict[str, Any] | None:
    """Return the object in a text that writes it as Python does: single quotes, True, None, tuples, a last comma.

    Nothing is evaluated. None for anything but literals, names other than texts, a name twice, sets, bytes, infinities,
    and for what is longer than 100,000 characters or nested deeper than 40.
    """
    stripped = written.strip()
    value = python_value(stripped) if stripped.startswith("{") else None
    return value if isinstance(value, dict) else None


def python_value(written: str, *, objects: bool = False, most: int = _LONGEST_LITERAL) -> Any:
    """Return the literal that a text writes as Python does; None for any other text, as for `literal`.

    Args:
        written: the text.
        objects: whether an object as its class shows it, with its fields by name, is these fields: nothing is called.
        most: characters that it may have; parsing Python takes some hundred bytes for each.
    """
    if len(written) > most:
        return None
    try:
        return _literal(_expression(written), 0, objects=objects)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None


def python_arguments(written: str) -> dict[str, Any] | None:
    """Return the arguments of a text that is a call of Python's with literals by name: `search(query="x", n=3)`.

    Nothing is called. None for any other text, as for `literal`.
    """
    try:
        node = _expression(written) if len(written) <= _LONGEST_LITERAL else None
        if not isinstance(node, ast.Call) or node.args:
            return None
        given = {str(word.arg): _literal(word.value, 0) for word in node.keywords if word.arg is not None}
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
    return given if len(given) == len(node.keywords) else None


def _expression(written: str) -> ast.expr:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of escapes that Python does not know: it leaves them as they are
        return ast.parse(written, mode="eval").body


def _literal(node: ast.expr, depth: int, *, objects: bool = False) -> Any:
    """Return the value of a node that JSON can hold.

    Raises:
        _NoLiteralError: it cannot, or is nested too deeply.
    """
    if depth > _DEEPEST_LITERAL:
        raise _NoLiteralError
    if isinstance(node, ast.Constant) and (node.value is None or isinstance(node.value, str | bool | int | float)):
        if isinstance(node.value, float) and not math.isfinite(node.value):
            raise _NoLiteralError
        return node.value
    if isinstance(node, ast.Name) and node.id in _WORDS:
        return _WORDS[node.id]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
        return -_amount(node.operand)
    if isinstance(node, ast.List | ast.Tuple):
        return [_literal(item, depth + 1, objects=objects) for item in node.elts]
    fields: list[tuple[str | None, ast.expr]] = []
    if isinstance(node, ast.Dict):
        fields = [(_name(key), value) for key, value in zip(node.keys, node.values, strict=True)]
    elif objects and isinstance(node, ast.Call) and not node.args:
        fields = [(word.arg, word.value) for word in node.keywords]
    named = {name: value for name, value in fields if name is not None}
    if len(named) == len(fields) and isinstance(node, ast.Dict | ast.Call) and (fields or isinstance(node, ast.Dict)):
        return {name: _literal(value, depth + 1, objects=objects) for name, value in named.items()}
    raise _NoLiteralError


def _amount(node: ast.Constant) -> float:
    if isinstance(node.value, bool) or not isinstance(node.value, _NUMBER):
        raise _NoLiteralError
    return node.value


def _name(key: ast.expr | None) -> str:
    if not isinstance(key, ast.Constant) or not isinstance(key.value, str):
        raise _NoLiteralError
    return key.value


def without_nulls(value: Any) -> Any:
    """Return a value without the nulls that Arrow put where another row's object has a field."""
    if isinstance(value, dict):
        return {k: without_nulls(v) for k, v in value.items() if v is not None}
    return [without_nulls(v) for v in value] if isinstance(value, list) else value


@lru_cache(_KNOWN_NAMES)
def words_of(name: str) -> frozenset[str]:
    """Return the words of a field's name, in small letters, those of other languages in English."""
    words = (word.lower() for word in _WORD.findall(name if name.isascii() else without_accents(name)))
    return frozenset(in_english(word) or word for word in words) or frozenset(filter(None, (in_english(name.lower()),)))
