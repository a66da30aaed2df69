"""From a file to its records: lines, elements of a JSON array, whole documents, Parquet rows.

In: a path and limits. Out: `Record`s and `Bad` records in order, one at a time, so that memory does not grow with the
file. What cannot be read is a `Bad` with its reason, size and hash, never an exception: the next record follows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from flywheel.stages.ingest.documents import Piece, document_pieces
from flywheel.stages.ingest.jsontext import BadJsonError, dumps, loads, plain
from flywheel.stages.ingest.opening import Opened, compression, open_bytes

__all__ = ["Bad", "Framing", "Limits", "Record"]

_BOM = b"\xef\xbb\xbf"
_PARQUET_ROWS = 256
_PROBED_LINES = 20

_OTHER_FILES = {
    b"PK\x03\x04": "a zip archive; unpack it first",
    b"BZh": "a bzip2 file; unpack it first",
    b"\xfd7zXZ\x00": "an xz file; unpack it first",
    b"SQLite format 3\x00": "an SQLite database; export its tables as JSONL or Parquet",
    b"\xff\xfe": "UTF-16 text; convert it to UTF-8",
    b"\xfe\xff": "UTF-16 text; convert it to UTF-8",
}


@dataclass(frozen=True)
class Limits:
    """What a file may cost."""

    record_bytes: int
    expand_ratio: int


class Bad(NamedTuple):
    """One record, or a file's unreadable rest, that was refused."""

    line: int
    reason: str
    detail: str
    size_bytes: int
    content_hash: str


class Record(NamedTuple):
    """One record that is valid JSON; `raw` is its text, or None where the file has none (Parquet)."""

    line: int
    value: Any
    raw: bytes | None
    tags: tuple[str, ...]

    def bad(self, reason: str, detail: str) -> Bad:
        """Return this record as a refused one."""
        raw = self.raw if self.raw is not None else dumps(self.value).encode()
        return _bad(self.line, reason, detail, raw)


def _bad(line: int, reason: str, detail: str, raw: bytes = b"") -> Bad:
    return Bad(line, reason, detail, len(raw), hashlib.sha256(raw).hexdigest())


class Framing:
    """The records of one file, once, in order.

    After the iteration `offset` and `lines` say up to where a growing file was read for good: its whole lines, without
    an unfinished last one. `offset` stays 0 for a file that cannot be continued.

    Args:
        path: the file.
        size: how many of its bytes count; it may grow meanwhile.
        limits: what it may cost.
        start: (offset, lines) where an earlier reading ended.
    """

    def __init__(self, path: Path, size: int, limits: Limits, *, start: tuple[int, int] = (0, 0)) -> None:
        self._path, self._size, self._limits = path, size, limits
        self.offset, self.lines = start
        self._continues = False

    def __iter__(self) -> Iterator[Record | Bad]:
        if self._size == 0:
            return
        with self._path.open("rb") as handle:
            head = handle.read(16)
        other = next((what for magic, what in _OTHER_FILES.items() if head.startswith(magic)), None)
        if other is not None:
            yield self._unknown(other)
        elif head.startswith(b"PAR1"):
            yield from self._parquet()
        else:
            self._continues = not compression(head)
            yield from self._text()

    def _unknown(self, detail: str) -> Bad:
        with self._path.open("rb") as handle:
            return Bad(0, "unknown_format", detail, self._size, hashlib.file_digest(handle, "sha256").hexdigest())

    def _text(self) -> Iterator[Record | Bad]:
        opened = open_bytes(self._path, start=self.offset, end=self._size, max_ratio=self._limits.expand_ratio)
        with opened as stream:
            layout = "lines" if self.offset else _layout(stream.peek())
            if layout == "unknown":
                yield self._unknown(opened.fault or "neither JSON nor Parquet")
                return
            found: Record | Bad | None = None
            for found in self._lines(stream) if layout == "lines" else self._document(stream):
                yield found
            told = isinstance(found, Bad) and found.reason == "truncated"
            if opened.fault and not told:
                yield _bad(self.lines + 1, "truncated", opened.fault)

    def _lines(self, stream: Opened) -> Iterator[Record | Bad]:
        limit, offset, line = self._limits.record_bytes, self.offset, self.lines
        while raw := stream.readline(limit + 1):
            line += 1
            finished, size = raw.endswith(b"\n"), len(raw)
            if len(raw) > limit and not finished:
                too_long = _too_long(stream, line, raw, limit)
                finished, size = True, too_long.size_bytes
                found: Record | Bad | None = too_long
            else:
                found = _line(line, raw)
            if not finished and isinstance(found, Bad):
                yield found._replace(reason="truncated", detail=stream.fault or "the last line is not finished")
                return
            offset += size
            self.lines, self.offset = line, offset if self._continues else 0
            if found is not None:
                yield found

    def _document(self, stream: Opened) -> Iterator[Record | Bad]:
        for piece in document_pieces(stream, self._limits.record_bytes):
            self.lines = piece.number
            yield self._piece(piece, stream.fault)

    def _piece(self, piece: Piece, fault: str) -> Record | Bad:
        if piece.truncated:
            return _bad(piece.number, "truncated", fault or "the document ends before its end", piece.raw)
        if piece.digest:
            detail = f"{piece.size:,} bytes; ingest.max_record_mb allows {self._limits.record_bytes:,}"
            return Bad(piece.number, "bad_record", detail, piece.size, piece.digest)
        return _parsed(piece.number, piece.raw)

    def _parquet(self) -> Iterator[Record | Bad]:
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            with pq.ParquetFile(self._path) as file:
                for batch in file.iter_batches(batch_size=_PARQUET_ROWS):
                    for row in batch.to_pylist():
                        self.lines += 1
                        yield _row(self.lines, row)
        except (pa.ArrowException, OSError, ValueError) as error:
            detail = f"the Parquet file is damaged after row {self.lines:,} ({type(error).__name__})"
            yield _bad(self.lines + 1, "truncated", detail)


def _layout(head: bytes) -> str:
    """Return 'lines', 'document' or 'unknown' for the beginning of a file's content."""
    text = head.removeprefix(_BOM).lstrip()
    if text.startswith(b"["):
        return "document"
    lines = [line for line in text.split(b"\n")[: _PROBED_LINES + 1] if line.strip()]
    some_parse = any(map(_parses, lines))
    if text.startswith(b"{"):
        return "lines" if some_parse or len(lines) == 1 else "document"
    return "lines" if some_parse else "unknown"


def _parses(line: bytes) -> bool:
    try:
        return isinstance(loads(line.strip()).value, dict)
    except BadJsonError:
        return False


def _line(line: int, raw: bytes) -> Record | Bad | None:
    text = raw.strip()
    if line == 1:
        text = text.removeprefix(_BOM).lstrip()
    return _parsed(line, text) if text else None


def _parsed(line: int, raw: bytes) -> Record | Bad:
    try:
        value, tags = loads(raw)
    except BadJsonError as error:
        return _bad(line, error.reason, error.detail, raw)
    return Record(line, value, raw, tags)


def _row(line: int, row: dict[str, Any]) -> Record | Bad:
    try:
        value, tags = plain(row)
    except BadJsonError as error:
        return _bad(line, error.reason, error.detail)
    return Record(line, value, None, tags)


def _too_long(stream: Opened, line: int, raw: bytes, limit: int) -> Bad:
    """Skip the rest of a line that is longer than allowed."""
    digest, size = hashlib.sha256(raw), len(raw)
    while not raw.endswith(b"\n") and (raw := stream.readline(1 << 20)):
        digest.update(raw)
        size += len(raw)
    detail = f"a line of {size:,} bytes; ingest.max_record_mb allows {limit:,}"
    return Bad(line, "bad_record", detail, size, digest.hexdigest())
