"""The results of framing: records parsed or not yet, complete lines, and refusals.

In: a record's text. Out: its value, or why there is none.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from operator import not_
from typing import Any, NamedTuple

import orjson

from flywheel.stages.ingest.attachments import may_hold
from flywheel.stages.ingest.framing.jsontext import BadJsonError, dumps, loads

OTHER_LINES = "other lines of a program's log"  # why they are passed over
Row = tuple[Any, ...]  # values in the order of LogEvent's fields


class Bad(NamedTuple):
    """One record, or a file's unreadable rest, that was refused."""

    line: int
    reason: str
    detail: str
    size_bytes: int
    content_hash: str


class Raw(NamedTuple):
    """One record's text, not parsed yet."""

    line: int
    raw: bytes
    number: int  # among the records of its file, from 1: blank lines make no difference

    def parse(self) -> Record | Bad:
        """Return the record, or its refusal."""
        try:
            value, tags = loads(self.raw)
        except BadJsonError as error:
            return refused(self.line, error.reason, error.detail, self.raw)
        return Record(self.line, value, self.raw, tags, self.number)


class Lines(NamedTuple):
    """Consecutive unparsed lines, blank ones among them: most of a long log."""

    first: int
    raws: list[bytes]
    n_records: int  # those that are not blank
    size: int
    number: int  # of the first record
    exact: bool = False  # whether the fast parser keeps all their numbers

    def records(self) -> Iterator[Record | Bad]:
        """Yield each line that is not blank, parsed."""
        number = self.number - 1
        for line, (raw, plain) in enumerate(zip(self.raws, map(not_, may_hold(self.raws)), strict=True), self.first):
            if not raw or raw.isspace():
                continue
            number += 1
            if self.exact:
                try:
                    yield Record(line, orjson.loads(raw), raw, (), number, plain)
                    continue
                except orjson.JSONDecodeError:
                    pass
            try:
                value, tags = loads(raw)
            except BadJsonError:
                yield Raw(line, raw.strip(), number).parse()  # positions in the line are given without the blanks
            else:
                yield Record(line, value, raw, tags, number, plain)


class Passed(NamedTuple):
    """One record that no reader is asked to read, with the reason."""

    line: int
    reason: str


class Record(NamedTuple):
    """One record that is valid JSON.

    `raw` is its text, or None where the file has none (Parquet); `plain`: nothing in it could be an image or a file;
    `names` are the columns of its table, if it is a row of CSV or TSV.
    """

    line: int
    value: Any
    raw: bytes | None
    tags: tuple[str, ...]
    number: int
    plain: bool = False
    names: Sequence[str] = ()

    @property
    def fields(self) -> Any:
        """Its value, with the empty cells of its table as nulls, by which formats are detected."""
        return {**dict.fromkeys(filter(None, self.names)), **self.value} if self.names else self.value

    def bad(self, reason: str, detail: str) -> Bad:
        """Return this record as a refused one."""
        raw = self.raw if self.raw is not None else dumps(self.value).encode()
        return refused(self.line, reason, detail, raw)


def refused(line: int, reason: str, detail: str, raw: bytes = b"") -> Bad:
    """Return a refusal of a record's text."""
    return Bad(line, reason, detail, len(raw), hashlib.sha256(raw).hexdigest())


Framed = Raw | Lines | Record | Bad | Passed


def parsed(framed: Iterable[Framed]) -> Iterator[Record | Bad | Passed]:
    """Yield records of any kind, with their texts parsed."""
    for record in framed:
        if isinstance(record, Lines):
            yield from record.records()
        else:
            yield record.parse() if isinstance(record, Raw) else record
