"""What a source has and flywheel does not keep: the fields whose values no event holds, seen in a sample of records.

In: records and the events made of them. Out: counts by format and field path, without any value. No reader has to
declare anything: a field counts as kept when its value, as text, is anywhere in the record's events. A yes, a no
or a zero is in every text: one that shows how an attempt ended is lost where the record gave no outcome or feedback.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from flywheel.reading.feedback import JUDGING
from flywheel.reading.outcomes import is_result
from flywheel.reading.values import embedded, when
from flywheel.records import EventKind
from flywheel.stages.ingest.framing.framed import Record, Row
from flywheel.stages.ingest.redaction.redact import Redactor

_EVERY = 64
_MOST_BYTES = 200_000
_MOST_PATHS = 400
_OTHERS = "(other fields)"
_NAME_LENGTH = 40
_DEPTH = 12
_TS, _KIND = 1, 6  # columns of an event: its time and kind
_NUMBER = re.compile(r"(?<![\d.])-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?(?!\.?\d)")
_JUDGED = {EventKind.FEEDBACK, EventKind.OUTCOME}


@dataclass
class LostCounts:
    """Of one format: how many records were looked at, and in how many of them each field was lost."""

    total: int = 0
    by_path: Counter[str] = field(default_factory=Counter)

    def add(self, other: LostCounts) -> None:
        """Take in what was seen elsewhere."""
        self.total += other.total
        self.by_path.update(other.by_path)


class LostFields:
    """Looks at one record in `_EVERY` (the first of a file among them) and notes which of its values are not kept."""

    def __init__(self) -> None:
        self._seen: dict[str, LostCounts] = {}

    def look(self, source_format: str, record: Record, rows: Sequence[Row]) -> None:
        """Compare a record with its events, if it is one of the sample."""
        if (record.number - 1) % _EVERY or len(record.raw or b"") > _MOST_BYTES:
            return
        text = "\n".join(str(value) for row in rows for value in row[:-3] if value is not None)
        numbers = {number for written in _NUMBER.findall(text) for number in (written, written.lstrip("-"))}
        times = {row[_TS] for row in rows if row[_TS] is not None}
        found = self._seen.setdefault(source_format, LostCounts())
        found.total += 1
        judged = any(row[_KIND] in _JUDGED for row in rows)
        kept: set[str] = set()
        lost: set[str] = set()
        for path, value in _leaves(record.value, "", 0):
            is_kept = judged and _judges(path)
            is_kept = is_kept or (not isinstance(value, bool) and _is_in(value, text, numbers))
            is_kept = is_kept or (not isinstance(value, bool) and when(value) in times)
            (kept if is_kept else lost).add(path)
        for path in sorted(lost - kept):
            is_listed = path in found.by_path or len(found.by_path) < _MOST_PATHS
            found.by_path[path if is_listed else _OTHERS] += 1

    def counts(self, redactor: Redactor) -> dict[str, LostCounts]:
        """Return what was seen, by format."""
        seen: dict[str, LostCounts] = {}
        for name, found in self._seen.items():
            seen[name] = counts = LostCounts(found.total)
            for path, count in found.by_path.items():
                names = ".".join(map(redactor.text, path.split(".")))  # alone: within a path a name has neighbours
                counts.by_path[redactor.text(names)] += count
        return seen


def _leaves(value: Any, path: str, depth: int) -> Iterator[tuple[str, Any]]:
    """Yield every value with its path, also those of JSON in texts; list positions are left out of paths."""
    inner = embedded(value) if isinstance(value, str) else value
    if depth < _DEPTH and isinstance(inner, Mapping):
        if set(inner) >= {"key", "value"} and isinstance(inner["key"], str):  # an OTLP attribute
            inner = {inner["key"]: inner["value"]}
        for name, item in inner.items():
            shown = _shown(str(name))
            yield from _leaves(item, f"{path}.{shown}" if path else shown, depth + 1)
    elif depth < _DEPTH and isinstance(inner, list):
        for item in inner:
            yield from _leaves(item, path if path.endswith("[]") else f"{path}[]", depth + 1)
    elif isinstance(value, bool) or value == 0:
        if _judges(path):
            yield path, bool(value)
    elif value is not None and value != "":
        yield path, value


def _judges(path: str) -> bool:
    name = path.rpartition(".")[2]
    return name in JUDGING or is_result(name)


@lru_cache(maxsize=4096)
def _shown(text: str) -> str:
    """Return a field's name; only identifiers are shown: others may be private data."""
    shown = text.replace(".", "_").replace("-", "_")
    return text if shown.isidentifier() and text.isascii() and len(text) <= _NAME_LENGTH else "*"


def _is_in(value: Any, text: str, numbers: Collection[str]) -> bool:
    """Whether a value is in the events' text or its numbers, also as part of a JSON string or written otherwise."""
    if isinstance(value, str):
        if value in text:
            return True
        escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
        return any(other in text for other in {escaped, value.strip()} if other != value)
    written = (str(value), f"{value:g}") if isinstance(value, float) else (str(value), f"{value}.0")
    return any(number in numbers for number in written)
