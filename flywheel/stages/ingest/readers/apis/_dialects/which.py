"""Which API a call is of, where a gateway logs the calls of several in the fields of one file.

In: a record and the dialect of its file. Out: the call's own pair and dialect.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flywheel.reading.pairs import Pair, pair_of
from flywheel.stages.ingest.readers.apis._dialects.calls import Dialect
from flywheel.stages.ingest.readers.apis._dialects.chat import CHAT
from flywheel.stages.ingest.readers.apis._dialects.claude import CLAUDE
from flywheel.stages.ingest.readers.apis._dialects.responses import RESPONSES

_DIALECTS = (RESPONSES, CLAUDE, CHAT)


def as_answered(record: Any, pair: Pair, usual: Dialect) -> tuple[Pair, Dialect]:
    """Return a call with its dialect: that of its file, unless another API answered it.

    Args:
        record: the record.
        pair: what was asked and answered in it, as the file's dialect finds them.
        usual: the dialect of the file.
    """
    if usual.completed(pair.response):
        return pair, usual
    for dialect in _DIALECTS:
        other = pair_of(record, dialect.fields)
        if other.request and "said" not in other.response and dialect.completed(other.response):
            return other, dialect
    return pair, usual


def dialect_of(pair: Pair) -> Dialect | None:
    """Return the dialect of a call that has been found already; None for that of another API."""
    return next((d for d in _DIALECTS if _has(pair.request, d) and d.completed(pair.response)), None)


def _has(request: Mapping[str, Any], dialect: Dialect) -> bool:
    return not request.keys().isdisjoint(dialect.fields)
