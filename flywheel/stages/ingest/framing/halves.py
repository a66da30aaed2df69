"""Calls whose request and response are two CloudEvents of one id, as KServe's logger sends them to a sink.

In: the events of a file, in order. Out: a record a call, where its second half comes, and halves whose other one is
not near it as they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from flywheel.reading.captured import as_captured
from flywheel.reading.values import as_dict
from flywheel.stages.ingest.framing.framed import Framed, Raw, Record

_WAITING = 4096
"""Halves that wait at most: the two events of a call are sent one soon after the other."""
_MARK = re.compile(rb'"type"\s*:\s*"[\w.]{1,80}\.inference\.(?:request|response|input|output)"')


def has_halves(head: bytes) -> bool:
    """Whether a file begins with such events."""
    return b'"specversion"' in head and _MARK.search(head) is not None


def joined_halves(records: Iterable[Framed]) -> Iterator[Framed]:
    """Yield the calls of a file."""
    waiting: dict[str, Record] = {}
    for framed in records:
        record = framed.parse() if isinstance(framed, Raw) else framed
        half = as_captured(as_dict(record.value)) if isinstance(record, Record) else {}
        named = str(half.get("request_id"))
        if not isinstance(record, Record) or half.keys().isdisjoint(("request", "response")):
            yield record
        elif named in waiting and waiting[named].value.keys().isdisjoint(half.keys() & {"request", "response"}):
            yield record._replace(value={**half, **waiting.pop(named).value}, raw=None)
        else:
            if named in waiting:
                yield waiting.pop(named)
            elif len(waiting) >= _WAITING:
                yield waiting.pop(next(iter(waiting)))
            waiting[named] = record._replace(value=dict(half), raw=None)
    yield from waiting.values()
