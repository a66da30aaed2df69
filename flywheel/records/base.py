"""What all records have in common: rows and documents, canonical JSON, ids."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Unpack

import orjson
from pydantic import BaseModel, ConfigDict, Field

from flywheel.records.notebook import as_html

ID_HEX = 32


# Of ids and targets; `beside` is a session by its id, or by its place next to the file that states it; `part` is which
# part of a series of files an event is.
ID_KINDS = frozenset({"trace", "session", "span", "call", "response", "request", "message", "beside", "part"})


Json = Annotated[str, Field(json_schema_extra={"contentMediaType": "application/json"})]


_SAME_IN_BOTH = frozenset({str, int, bool, type(None)})  # kinds of values that both writers write alike: not floats
_write = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode


def canonical_json(value: object) -> str:
    """Return `value` as JSON text with sorted keys, no spaces and no NaN: equal values give equal text."""
    fast = _fast(value)
    return _write(value) if fast is None else fast.decode()


def _fast(value: object) -> bytes | None:
    """Return the canonical JSON by the fast writer; None where it may write other bytes, or cannot write at all."""
    if has_no_floats(value):
        try:
            return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
        except TypeError:
            pass  # a lone surrogate, an integer beyond 64 bits, a name that is not text
    return None


def has_no_floats(value: object) -> bool:
    """Whether a value is made of objects, lists, texts, integers, booleans and nulls alone."""
    found: list[Any] = [value]
    for inner in found:  # what is appended meanwhile is walked too
        kind = type(inner)
        if kind in _SAME_IN_BOTH:
            continue
        if kind is dict:
            found += inner.values()
        elif kind is list or kind is tuple:
            found += inner
        else:
            return False
    return True


def content_id(*parts: object) -> str:
    """Return a 32-hex-digit id of the given JSON-able parts (SHA-256 of their canonical JSON, truncated)."""
    text = _fast(parts) or _write(parts).encode("utf-8", "surrogatepass")
    return hashlib.sha256(text).hexdigest()[:ID_HEX]


def plain_value(value: object) -> object:
    """Return a JSON value as equal calls share it: 1.0 as 1, texts without outer blanks.

    Letter case stays: `tar -c` and `tar -C`, `Users` and `users`, are two things.
    """
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, Mapping):
        return {key: plain_value(inner) for key, inner in value.items()}
    return [plain_value(inner) for inner in value] if isinstance(value, list | tuple) else value


def texts_in(value: object) -> Iterator[str]:
    """Yield every text in a JSON value, in order, without names of fields."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from texts_in(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from texts_in(inner)


def is_name(value: object) -> bool:
    """Whether a value is a kind:id, as in `LogEvent.ids`."""
    kind, _, rest = value.partition(":") if isinstance(value, str) else ("", "", "")
    return kind in ID_KINDS and bool(rest)


class Record(BaseModel):
    """A frozen value of named and typed fields: a row, a document, or a part of one."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class Row(Record):
    """A row of a stored table; `table` and `version` name its schema."""

    table: ClassVar[str]
    version: ClassVar[int] = 1
    key: ClassVar[tuple[str, ...]]


class Document(Record):
    """A JSON document that a command or a round writes; a class that names its `document` publishes its schema."""

    document: ClassVar[str]
    version: ClassVar[int] = 1
    published: ClassVar[dict[str, type[Document]]] = {}

    def __init_subclass__(cls, **options: Unpack[ConfigDict]) -> None:
        super().__init_subclass__(**options)
        if "document" in vars(cls):
            Document.published[cls.document] = cls

    def _repr_html_(self) -> str:
        """Return the document as notebooks show it."""
        return as_html(self)
