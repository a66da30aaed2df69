"""Rows of columnar files: Parquet; Arrow as a file (Feather) and as a stream, as `datasets` stores its tables.

In: the file's bytes. Out: a record a row, numbered from 1, a few rows in memory at a time. A null is a field that the
row does not have, as an empty cell of CSV is; a text with a JSON object or list is opened, except in fields for words.
Damaged and hostile files end with a refusal: what an Arrow message claims to be is checked before it is decoded.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from flywheel.reading.values import embedded, without_nulls
from flywheel.stages.ingest.framing.framed import Bad, Record, refused
from flywheel.stages.ingest.framing.jsontext import BadJsonError, storable
from flywheel.stages.ingest.framing.opening import too_large
from flywheel.stages.ingest.framing.tables import WORDS

_PARQUET, _ARROW_FILE, _ARROW_STREAM = b"PAR1", b"ARROW1", b"\xff\xff\xff\xff"  # a stream has no mark of its own
_ROWS = 256
_IN_MEMORY = 1 << 28  # bytes that a slice of rows may take as Python's objects
_LARGEST = 1 << 31  # bytes of a message of Arrow, which is decoded as a whole
_ROW_BYTES = 64  # what a row takes at least, so that rows of nothing come to an end
_DEEPEST = 60  # types within types
_HEADER, _BATCHES = 8, (2, 3)  # bytes before a message's metadata; types of messages that hold columns: Arrow's
_DICTIONARIES = 2
_FAULTS = (pa.ArrowException, OSError, ValueError, NotImplementedError, OverflowError, MemoryError)


class _TooLargeError(ValueError):
    """A message claims more bytes than its file may expand to."""


class _UnreadableError(ValueError):
    """A table that cannot be read for the reason given."""


def columnar_rows(source: BinaryIO, most: int, max_ratio: int) -> Iterator[Record | Bad]:
    """Yield the rows of a columnar file, and a refusal where it is damaged or grows too large.

    Args:
        source: its bytes, which can be sought.
        most: bytes to which all rows together may expand.
        max_ratio: the setting that `most` follows from, for the refusal.
    """
    line, kind = 0, "Parquet" if source.read(4) == _PARQUET else "Arrow"
    source.seek(0)
    try:
        for row in _rows(_parquet(source) if kind == "Parquet" else _arrow(source, most), most):
            line += 1
            yield _record(line, row)
    except _TooLargeError:
        yield refused(line + 1, "truncated", too_large(max_ratio))
    except _UnreadableError as error:
        yield refused(line + 1, "unknown_format", str(error))
    except _FAULTS as error:
        detail = f"the {kind} file is damaged after row {line:,} ({type(error).__name__})"
        yield refused(line + 1, "truncated", detail)


def _rows(batches: Iterator[pa.RecordBatch], most: int) -> Iterator[dict[str, Any]]:
    """Yield the rows of batches.

    Raises:
        _TooLargeError: they take more bytes than allowed.
        _UnreadableError: two columns have one name.
    """
    size = 0
    for batch in batches:
        if len(set(batch.schema.names)) < len(batch.schema.names):
            raise _UnreadableError("two columns of this table have one name; rename one")
        for rows, weighed in _slices(batch, most):
            size += rows.nbytes
            for row in rows.to_pylist():
                size += _ROW_BYTES + (_weight(row) if weighed else 0)
                if size > most:
                    raise _TooLargeError
                yield row


def _parquet(source: BinaryIO) -> Iterator[pa.RecordBatch]:
    with pq.ParquetFile(source) as file:
        yield from file.iter_batches(batch_size=_ROWS)


def _arrow(source: BinaryIO, most: int) -> Iterator[pa.RecordBatch]:
    """Yield the batches of an Arrow file or stream; the file is a stream between its marks."""
    if source.read(len(_ARROW_FILE)) != _ARROW_FILE:
        source.seek(0)
    else:
        source.seek(_HEADER)
    with pa.ipc.open_stream(_Checked(source, most)) as reader:
        for batch in reader:
            batch.validate(full=True)
            yield batch


def _slices(batch: pa.RecordBatch, most: int) -> Iterator[tuple[pa.RecordBatch, bool]]:
    """Yield a batch in slices that fit in memory, and whether their rows weigh more than their bytes.

    Raises:
        _TooLargeError: its lists have more elements than the file may have bytes.
    """
    if sum(map(_elements, batch.columns)) > most:
        raise _TooLargeError
    shares = any(_shares(kind) for kind in batch.schema.types)
    rows = max(1, min(_ROWS, _IN_MEMORY // max(batch.nbytes, 1))) if shares else _ROWS
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows), shares


def _elements(column: pa.Array) -> int:
    """Return how many values a column has, with those within lists and objects."""
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    kind = column.type
    inner = []
    if pa.types.is_map(kind):
        inner = [column.keys, column.items]
    elif pa.types.is_struct(kind) or pa.types.is_union(kind):
        inner = [column.field(n) for n in range(kind.num_fields)]
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        inner = [column.values]
    return len(column) + sum(map(_elements, inner))


def _shares(kind: pa.DataType, depth: int = 0) -> bool:
    """Whether several rows of a type may have one value in common, so that its bytes say little of theirs.

    Raises:
        ValueError: it is nested too deeply.
    """
    if depth > _DEEPEST:
        raise ValueError("nested too deeply")
    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    of_its_own = (
        pa.types.is_dictionary(kind)
        or pa.types.is_run_end_encoded(kind)
        or pa.types.is_list_view(kind)
        or pa.types.is_large_list_view(kind)
        or pa.types.is_string_view(kind)
        or pa.types.is_binary_view(kind)
    )
    return of_its_own or any(_shares(kind.field(n).type, depth + 1) for n in range(kind.num_fields))


def _weight(value: Any) -> int:
    """Return how many characters the texts in a value have."""
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, list):
        return len(value) if isinstance(value, str | bytes) else 0
    return sum(map(_weight, value))


def _record(line: int, row: Mapping[str, Any]) -> Record | Bad:
    try:
        value, tags = storable({name: _opened(name, held) for name, held in row.items() if held is not None})
    except BadJsonError as error:
        return refused(line, error.reason, error.detail)
    return Record(line, value, None, tags, line, names=list(row))


def _opened(name: str, held: Any) -> Any:
    if isinstance(held, str):
        return held if name.rpartition(".")[2] in WORDS else embedded(held)
    return without_nulls(held)


class _Checked(io.RawIOBase):
    """A stream of Arrow's messages, each looked at before a byte of it is handed on.

    Raises:
        _TooLargeError: on reading, where the buffers of a message claim more than is allowed.
        ValueError: on reading, where a message is none, or too large to be decoded.
    """

    def __init__(self, source: BinaryIO, most: int) -> None:
        self._source, self._most = source, most
        self._left = self._claimed = 0  # bytes of this message; bytes that all messages claim
        self._ended = False

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        """Return up to so many bytes, and all of them where the stream has them."""
        pieces = []
        while size and (self._left or self._next()):
            piece = self._source.read(self._left if size < 0 else min(size, self._left))
            if not piece:
                break
            self._left -= len(piece)
            size -= len(piece) if size > 0 else 0
            pieces.append(piece)
        return b"".join(pieces)

    def _next(self) -> bool:
        """Look at the next message; return whether there is one. What follows the end (a file's footer) is none."""
        start = self._source.tell()
        head = b"" if self._ended else self._source.read(_HEADER)
        length = struct.unpack("<i", head[4:])[0] if len(head) == _HEADER and head.startswith(_ARROW_STREAM) else 0
        if length < 0 or (head and not head.startswith(_ARROW_STREAM)):
            raise ValueError("no message of Arrow")
        self._ended = length == 0
        if self._ended:
            self._source.seek(start)
            self._left = len(head)
            return bool(head)
        before = self._claimed
        metadata = self._source.read(length) if length <= self._most else b""
        try:
            body = self._claims(metadata, start + _HEADER + length)
        except (struct.error, RecursionError) as error:
            raise ValueError("no message of Arrow") from error
        if self._claimed > self._most:
            raise _TooLargeError
        if self._claimed - before > _LARGEST:
            raise _UnreadableError(f"a record batch of more than {_LARGEST:,} bytes; write smaller ones")
        self._source.seek(start)
        self._left = _HEADER + length + body
        return True

    def _claims(self, metadata: bytes, body_at: int) -> int:
        """Add what a message claims to expand to; return the length of its body."""
        message = _Table(metadata, _u32(metadata, 0))
        kind, body = message.byte(1), message.long(3)
        if body < 0:
            raise ValueError("a body of less than nothing")
        self._claimed += body
        if kind not in _BATCHES:
            return body
        batch = message.table(2)
        batch = batch.table(1) if kind == _DICTIONARIES and batch is not None else batch
        if batch is None or batch.table(3) is None:
            return body
        for offset, size in batch.pairs(2):
            if size >= _HEADER and 0 <= offset <= body - _HEADER:
                self._source.seek(body_at + offset)
                claim = struct.unpack("<q", self._source.read(_HEADER))[0]
                self._claimed += max(claim, 0)
        return body


def _u32(data: bytes, at: int) -> int:
    return int(struct.unpack_from("<I", data, at)[0])


class _Table:
    """A table of a flatbuffer, as the format of Arrow's messages has them; `slot` is a field's number in the schema.

    Raises:
        struct.error: it leads out of the bytes.
    """

    def __init__(self, data: bytes, at: int) -> None:
        self._data, self._at = data, at
        self._slots = at - struct.unpack_from("<i", data, at)[0]

    def _place(self, slot: int) -> int | None:
        if self._slots < 0 or _u32(self._data, self._slots) & 0xFFFF < 6 + 2 * slot:  # the size of the slots
            return None
        offset = struct.unpack_from("<H", self._data, self._slots + 4 + 2 * slot)[0]
        return self._at + offset if offset else None

    def byte(self, slot: int) -> int:
        place = self._place(slot)
        return self._data[place] if place is not None and place < len(self._data) else 0

    def long(self, slot: int) -> int:
        place = self._place(slot)
        return int(struct.unpack_from("<q", self._data, place)[0]) if place is not None else 0

    def table(self, slot: int) -> _Table | None:
        place = self._place(slot)
        return _Table(self._data, place + _u32(self._data, place)) if place is not None else None

    def pairs(self, slot: int) -> Iterator[tuple[int, int]]:
        """Yield the pairs of numbers in a vector of buffers."""
        place = self._place(slot)
        if place is None:
            return
        start = place + _u32(self._data, place)
        count = _u32(self._data, start)
        yield from struct.iter_unpack("<qq", self._data[start + 4 : start + 4 + 16 * count])
