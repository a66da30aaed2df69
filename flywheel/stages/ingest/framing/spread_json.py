"""JSON over several lines between the lines of a program's log, as loggers print it with an indent.

In: a log's lines: `INFO:server:Trace: {`, the fields of the object, and `}` at the beginning of a line. Out: the
objects, each at the line where it begins. Other lines are passed over and counted; an object that is not finished, or
no JSON, is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from flywheel.stages.ingest.framing.framed import OTHER_LINES, Bad, Passed, Raw, refused
from flywheel.stages.ingest.framing.jsontext import is_object

_OPENS = re.compile(rb"(?:\A|[\s:=>|-])(\{)\s*\Z")  # a line that ends where an object begins
_ENDS = b"}"


def is_spread(head: bytes) -> bool:
    """Whether a text has an object over several lines that is JSON, and that a line of a log begins."""
    framed = spread_objects(enumerate(head.split(b"\n"), 1), len(head) + 1)
    return any(isinstance(one, Raw) and is_object(one.raw) for one in framed)


def spread_objects(lines: Iterable[tuple[int, bytes]], most: int) -> Iterator[Raw | Bad | Passed]:
    """Yield the objects of a log.

    Args:
        lines: with their numbers.
        most: how many bytes an object may have.
    """
    held, begun, size, number = list[bytes](), 0, 0, 0
    for n, line in lines:
        size += len(line) + 1
        if not held:
            opens = _OPENS.search(line)
            if opens is None:
                yield from [Passed(n, OTHER_LINES)] if line.strip() else []
                continue
            held, begun, size = [line[opens.start(1) :]], n, len(line)
            continue
        if size <= most:
            held.append(line)
        if line.rstrip() == _ENDS:
            number += 1
            raw = b"\n".join(held)
            yield Raw(begun, raw, number) if size <= most else refused(begun, "bad_record", _too_long(size), raw)
            held = []
    if held:
        yield refused(begun, "truncated", "the log ends within an object", b"\n".join(held))


def _too_long(size: int) -> str:
    return f"an object of {size:,} bytes; ingest.max_record_mb allows fewer"
