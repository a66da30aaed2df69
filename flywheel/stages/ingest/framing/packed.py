"""Values that a program keeps as MessagePack, such as LangGraph's checkpoints: as plain data.

In: bytes. Out: what JSON can hold. Objects of a class are packed as the class's place and what it is made from
(`langgraph.checkpoint.serde.jsonplus`); only the latter is read. No class is looked up, and nothing is constructed.
"""

from __future__ import annotations

from typing import Any

import msgpack

KIND = "msgpack"  # as the column `type` of LangGraph's tables names it
FAULTS = (ValueError, TypeError, RecursionError, msgpack.UnpackException)
_MADE_FROM = 2  # place in a packed object: after the module and the name of its class
_DEEPEST, _DEEPEST_JSON = 50, 200  # packed objects within each other; values, of which JSON's writer allows 254
_LOCAL_TIME = 3  # the library's name for "as a datetime"


def unpacked(held: bytes, depth: int = 0) -> Any:
    """Return a value as JSON has it, objects as what they are made from and other bytes by their number.

    Raises:
        FAULTS: it is damaged, or nested too deep.
    """

    def plain(code: int, data: bytes) -> Any:
        del code
        if depth >= _DEEPEST:
            raise ValueError("nested too deep")
        inner = unpacked(data, depth + 1)
        is_object = isinstance(inner, list) and len(inner) > _MADE_FROM
        return inner[_MADE_FROM] if is_object else inner

    value = msgpack.unpackb(held, ext_hook=plain, timestamp=_LOCAL_TIME, strict_map_key=False)
    return _jsonable(value)


def _jsonable(value: Any, depth: int = 0) -> Any:
    if depth > _DEEPEST_JSON:
        raise ValueError("nested too deep")
    if isinstance(value, dict):
        return {str(key): _jsonable(inner, depth + 1) for key, inner in value.items()}
    if isinstance(value, list):
        return [_jsonable(inner, depth + 1) for inner in value]
    return f"<{len(value)} bytes>" if isinstance(value, bytes) else value
