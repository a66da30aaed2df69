"""The last answer of a function that several callers in a row ask for the same frames.

In: a function of frames. Out: the same function, which keeps its last result as long as it is given the same objects:
signals and builders are independent of one another and still read the steps once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def cached_by_identity(function: Callable[P, R]) -> Callable[P, R]:
    """Return the function with a memory of one call, by identity of its positional arguments; the result is shared."""
    last: list[Any] = []

    @wraps(function)
    def remembering(*args: P.args, **kwargs: P.kwargs) -> R:
        if kwargs:
            return function(*args, **kwargs)
        if not last or len(last[0]) != len(args) or any(a is not b for a, b in zip(last[0], args, strict=True)):
            last[:] = [args, function(*args, **kwargs)]
        found: R = last[1]
        return found

    return remembering
