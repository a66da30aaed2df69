"""A line that was cut in two by whoever split or rotated the log: its end begins one file, its beginning ends another.

In: a file's first line that does not parse, and the files read before that stand beside it. Out: the whole line, where
what those files ended with makes it one. Only uncompressed logs of lines are put together, in the order of their names.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from flywheel.stages.ingest.jsontext import BadJsonError, loads
from flywheel.stages.ingest.sources import UNKNOWN, SourceState

_MOST_FILES = 8  # a line that is cut into more pieces is lost


def whole_line(end: bytes, before: Iterable[tuple[Path, SourceState]], limit: int) -> bytes | None:
    """Return the line that `end` is the end of.

    Args:
        end: the first line of a file.
        before: the files beside it, the one just before it first.
        limit: greatest length of a line in bytes.
    """
    begun = b""
    for count, (path, state) in enumerate(before):
        tail = _tail(path, state, limit)
        if not tail or len(begun) + len(tail) > limit or count >= _MOST_FILES:
            return None
        begun = tail + begun
        if is_object(begun + end):
            return begun + end
        if state.format != UNKNOWN:
            return None
    return None


def _tail(path: Path, state: SourceState, limit: int) -> bytes:
    """Return what was not read of a file: its unfinished last line, or all of a file that is but a piece of one."""
    size = state.size_bytes - state.offset_bytes
    if not state.torn or size > limit:
        return b""
    try:
        with path.open("rb") as handle:
            handle.seek(state.offset_bytes)
            return handle.read(size)
    except OSError:
        return b""


def is_object(text: bytes) -> bool:
    """Whether a text is one JSON object."""
    try:
        return isinstance(loads(text.strip()).value, dict)
    except BadJsonError:
        return False
