"""A cache of one call for functions of frames that several callers in a row call with the same frames.

In: a function of frames. Out: the same function, which returns its last result again when called with the same objects:
signals and builders are independent of one another and still read the steps once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def cached_by_identity(function: Callable[P, R]) -> Callable[P, R]:
    """Return the function with a cache of its last call, by identity of positional arguments; the result is shared."""
    last: list[Any] = []

    @wraps(function)
    def cached(*args: P.args, **kwargs: P.kwargs) -> R:
        if kwargs:
            return function(*args, **kwargs)
        if not last or len(last[0]) != len(args) or any(a is not b for a, b in zip(last[0], args, strict=True)):
            last[:] = [args, function(*args, **kwargs)]
        result: R = last[1]
        return result

    return cached
