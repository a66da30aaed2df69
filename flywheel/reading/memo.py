"""What was made of a JSON value before: most logs repeat a history and the offered tools at every call.

In: a function of a value out of a log. Out: the same function, which looks at a value only once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import orjson

T = TypeVar("T")

_MOST_BYTES = 1 << 25  # of all values of one function
_LONGEST = 1 << 18


def cached_by_content(make: Callable[..., T]) -> Callable[..., T]:
    """Return `make` with a memory; what it returns is shared by all callers.

    Its first argument is the value, by which it is cached_by_content; the others only matter where it fails.
    """
    known: dict[bytes | str, T] = {}
    held = 0

    def look(value: Any, *context: Any) -> T:
        nonlocal held
        try:
            key = value if isinstance(value, str) else orjson.dumps(value)
        except TypeError:  # what JSON cannot hold: it was not parsed from a log
            return make(value, *context)
        result = known.get(key)
        if result is None:
            result = make(value, *context)
            if len(key) <= _LONGEST:
                if held > _MOST_BYTES:
                    known.clear()
                    held = 0
                known[key] = result
                held += len(key)
        return result

    return look
