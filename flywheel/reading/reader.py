"""Readers made of functions: a predicate that recognises a format, and a function from a record to its events.

In: both functions. Out: a `flywheel.extensions.Reader`. Use functions of a module, not lambdas: ingest sends readers to
its worker processes.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flywheel.extensions import BadRecordError, Sample
from flywheel.reading.events import Event

Fits = Callable[[Any], object]  # a predicate on a record
Columns = Callable[[Any], Mapping[str, str]]  # columns that a file's path, sidecar or first record gives


def is_object(record: Any) -> bool:
    """Whether a record is a JSON object."""
    return isinstance(record, dict)


def no_columns(_: Any) -> Mapping[str, str]:
    """Return no columns."""
    return {}


class has:  # noqa: N801 - reads as a predicate
    """A predicate: whether a record is an object with all of these fields; `|` joins it with another predicate.

    Args:
        fields: names of fields that must be there.
        types: names of fields that must hold a value of a type: `traj=list`.
    """

    def __init__(self, *fields: str, **types: type) -> None:
        self._fields = tuple(dict.fromkeys((*fields, *types)))
        self._types = types
        self._others: tuple[Fits, ...] = ()

    def __call__(self, record: Any) -> bool:
        """Whether a record fits."""
        if isinstance(record, dict) and all(name in record for name in self._fields):
            return all(isinstance(record[name], kind) for name, kind in self._types.items()) or self._else(record)
        return self._else(record)

    def _else(self, record: Any) -> bool:
        return any(other(record) for other in self._others)

    def __str__(self) -> str:
        *fields, last = self._fields
        return f"object with {', '.join(fields)} and {last}" if fields else f"object with {last}"

    def __or__(self, other: Fits) -> has:
        joined = has(*self._fields, **self._types)
        joined._others = (*self._others, other)
        return joined


def share(records: Iterable[Any], fits: Fits) -> float:
    """Return the share of records that fit, from 0 to 1."""
    fitting = [bool(fits(record)) for record in records]
    return sum(fitting) / len(fitting) if fitting else 0.0


@dataclass
class LogReader:
    """A reader made of functions; see `reader`."""

    name: str
    version: int
    reads: str
    events: Callable[..., Iterable[Event]]
    takes_line: bool
    marks: Sequence[tuple[float, Fits]]
    confidence: Callable[[Sample], float] | None
    surest: float
    needs: Fits
    refusal: str
    from_path: Columns
    sidecar: str | None
    from_sidecar: Columns
    from_opening: Columns

    def sniff(self, sample: Sample) -> float:
        """Return the confidence in [0, 1] that the records are of this format."""
        if self.confidence is not None:
            return self.confidence(sample)
        return max(weight * share(sample.records, fits) for weight, fits in self.marks)

    def read(self, record: Any, line: int) -> Iterable[Event]:
        """Return the events of one record.

        Raises:
            BadRecordError: the record is not of this format.
        """
        if not self.needs(record):
            raise BadRecordError("bad_record", self.refusal)
        return self.events(record, line) if self.takes_line else self.events(record)


def reader(  # noqa: PLR0913 - the parts of a reader
    name: str,
    version: int,
    reads: str = "",
    *,
    read: Callable[..., Iterable[Event]],
    marks: Fits | Sequence[tuple[float, Fits]] = (),
    sniff: Callable[[Sample], float] | None = None,
    surest: float = 1.0,
    needs: Fits | None = None,
    refusal: str = "",
    from_path: Columns = no_columns,
    sidecar: str | None = None,
    from_sidecar: Columns = no_columns,
    from_opening: Columns = no_columns,
) -> LogReader:
    """Return a reader.

    Args:
        name: the format's name, as in the entry point.
        version: to be raised when the same log gives other events.
        reads: what it reads, for `flywheel readers`.
        read: yields the events of a record; takes `(record)` or `(record, line)`. `BadRecordError` refuses a record.
        marks: what only this format has: `has("ticket", "turns")` or any predicate on a record. Confidence is the share
            of records that fit; with a list of (weight, predicate), the greatest weighted share.
        sniff: confidence from a whole sample, where no predicate on single records will do.
        surest: the most that `sniff` returns. Who reads logs of any program is less than sure of them, and is not asked
            where another one is surer than that.
        refusal: why a record that does not fit `marks` goes to quarantine, in words without log text; without this,
            every JSON object is read.
        needs: what a record has to fit instead, where that is less than `marks`; `has(...)` words its own refusal.
        from_path: columns that a file's path gives to all its events (`model`, `policy`, `scope`, `id`, `ignored`).
        sidecar: name of a JSON file next to the logs.
        from_sidecar: the same columns from that file's content.
        from_opening: the same columns from the first record of a file, before those of its path.
    """
    weighted = [(1.0, marks)] if callable(marks) else list(marks)
    if isinstance(needs, has):
        refusal = refusal or f"no {needs}"
    needs = needs or (weighted[0][1] if refusal else is_object)
    takes_line = len(inspect.signature(read).parameters) > 1
    return LogReader(
        name, version, reads, read, takes_line, weighted, sniff, surest, needs, refusal or "no JSON object", from_path,
        sidecar, from_sidecar, from_opening,
    )  # fmt: skip
