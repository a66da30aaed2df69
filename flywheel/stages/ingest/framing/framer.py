"""From content to its records: lines, server-sent events, elements of a JSON array, documents, rows of tables.

In: content and limits. Out: `Record`s and `Bad` records in order, one at a time, so that memory does not grow with the
file. What cannot be read is a `Bad` with its reason, size and hash, never an exception: the next record follows.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

import orjson

from flywheel.stages.ingest.framing.agui_events import is_agui, talk_messages
from flywheel.stages.ingest.framing.cline_screens import is_shown, shown_messages
from flywheel.stages.ingest.framing.documents import Piece, document_pieces
from flywheel.stages.ingest.framing.foreign import foreign_bytes, foreign_file, foreign_text
from flywheel.stages.ingest.framing.framed import Bad, Framed, Lines, Raw, refused
from flywheel.stages.ingest.framing.halves import has_halves, joined_halves
from flywheel.stages.ingest.framing.jsontext import has_large_numbers, is_object, is_printed, printed_value
from flywheel.stages.ingest.framing.logfmt import as_json, is_logfmt
from flywheel.stages.ingest.framing.opening import FREE_BYTES, Content, Opened, Stream, compression
from flywheel.stages.ingest.framing.sglang_log import is_sglang_log, sglang_calls
from flywheel.stages.ingest.framing.spread_json import is_spread, spread_objects
from flywheel.stages.ingest.framing.tables import delimiter_of, table_rows
from flywheel.stages.ingest.framing.texts.layouts import text_layout, text_records
from flywheel.stages.ingest.framing.vllm_log import is_vllm_log, vllm_calls
from flywheel.stages.ingest.framing.yaml_documents import YamlError, is_yaml, yaml_values

if TYPE_CHECKING:
    from hashlib import _Hash as Hash


Start = tuple[int, int, int, "Hash"]

_BOM = b"\xef\xbb\xbf"
_BLANK, _BRACKETS = b"\xef\xbb\xbf \t\r\n", (b"{", b"[")  # before JSON, and how it begins
_CHUNK = 1 << 20
_SINGLY = 20  # records that come one by one, for detection
_LENGTH = 4  # bytes of the length before a message
_MOST = 1 << 28  # a greater length before a message is four letters of a text
_EVENT_FIELDS = (b"data:", b"event:", b"id:", b"retry:", b":")  # of server-sent events
_NUMBER = re.compile(rb"-?[0-9]{1,9}(?:\.[0-9]+)?")  # a score alone, as `result.txt` and `reward.txt` hold it
_LONGEST_NUMBER = 32
_SCORES = re.compile(r"(?i)(?:.*[_.-])?(?:results?|rewards?|scores?)(?:\.[a-z]{1,8})?\Z")  # what such a file is called
_COLUMNAR = (b"PAR1", b"ARROW1", b"\xff\xff\xff\xff")  # Parquet, Arrow's files and streams
_TWICE = (b'"{\\"', b'"[{\\"', b'"{\\n', b'"[\\n')  # how JSON begins that was written as JSON twice
_PROBED_LINES = 20
_NO_HEADER = re.compile(rb"\s*(?:[(\[]|(?:INFO|DEBUG|WARNING|ERROR)\b|\d)")  # how a log begins
_OF_LOGS = ("unknown", "prefixed", "table")  # layouts that a server's log may look like
_STARTS = 5  # braces of a line at which its JSON may begin
_CONTAINER = re.compile(rb"\d{4}-\d\d-\d\dT\S+ (stdout|stderr) ([FP])(?: |\Z)")  # of Kubernetes' CRI
_TIME = re.compile(rb"[\[\"]?\d{4}-\d\d-\d\d[T ]\d\d:\d\d")  # which begins no header of a table
_OF_JSON = re.compile(rb'[{}]|\[\[|"\s*[:,]|,\s*\Z')  # in a line that may be a part of a document
_TIMED = re.compile(rb"\[\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d[^\]\n]{0,60}\][ \t]")  # before a line of a log
_TAG = re.compile(rb"\[[A-Za-z][\w.:/-]{0,40}\][ \t]")  # before a line, as runners write whose it is


@dataclass(frozen=True)
class Limits:
    """What a file may cost."""

    record_bytes: int
    expand_ratio: int


class Framing:
    """The records of one content, once, in order.

    With each record, and after the last, `offset`, `whole_lines` and `whole_records` say up to where it was read for
    good: its whole lines, without an unfinished last one, which a growing file may go on with; `digest` is the SHA-256
    of these bytes. `offset` stays 0 for what is not read line by line. Offsets are of the decompressed bytes;
    `position` is of the bytes as they are.

    Args:
        content: what to read.
        limits: what it may cost.
        start: (offset, lines, records, digest so far) where an earlier reading ended.
    """

    def __init__(self, content: Content, limits: Limits, *, start: Start | None = None) -> None:
        self._content, self._limits = content, limits
        self.offset, self.lines, self.whole_records, self._hash = start or (0, 0, 0, hashlib.sha256())
        self.whole_lines = self.lines
        self._rest = b""
        self._singly = 0
        self._unwrap: Callable[[bytes], bytes] = bytes.strip
        self._opened: Opened | None = None

    @property
    def digest(self) -> str:
        """SHA-256 of the bytes up to `offset`."""
        return self._hash.hexdigest()

    @property
    def position(self) -> int:
        """How many of the content's bytes were taken, of compressed ones as they are."""
        return self._opened.position if self._opened is not None else 0

    def __iter__(self) -> Iterator[Framed]:
        if self._content.size == 0:
            return
        with Opened(self._content, start=self.offset, max_ratio=self._limits.expand_ratio) as opened:
            self._opened = opened
            other = foreign_file(opened.head)
            if other and not self.offset:
                yield self._unknown(opened, other)
            elif opened.head.startswith(_COLUMNAR) and not self.offset:
                yield from self._columnar(opened)
            else:
                yield from self._text(opened)

    def _unknown(self, opened: Opened, detail: str) -> Bad:
        digest, size = hashlib.sha256(), 0
        while piece := opened.read(_CHUNK):
            digest.update(piece)
            size += len(piece)
        return Bad(0, "unknown_format", detail, size, digest.hexdigest())

    def _text(self, opened: Opened) -> Iterator[Framed]:
        is_named = is_yaml(self._content.name, opened.peek()) and not opened.peek().lstrip(_BLANK).startswith(_BRACKETS)
        layout = "yaml" if is_named else "text" if text_layout(opened.peek()) else _layout(opened.peek())
        layout = "screens" if layout == "document" and is_shown(opened.peek()) else layout
        layout = _server_log(layout, opened.peek()) or layout
        if layout in ("document", "lines", "events") and is_agui(opened.peek()):
            layout = "agui" if layout == "document" else "agui lines"
        elif layout in ("document", "lines", "events") and has_halves(opened.peek()):
            layout = "halves" if layout == "document" else "halves in lines"
        if self.offset and layout not in _BY_LINE:
            layout = "lines"
        if layout == "number" and not _SCORES.match(self._content.name):  # a port, a version
            layout = "unknown"
        if layout == "unknown":
            named = foreign_bytes(opened.peek()) or foreign_text(opened.peek())
            yield self._unknown(opened, opened.fault or named or "neither JSON nor a table")
            return
        self._unwrap = _BY_LINE.get(layout, self._unwrap)
        record: Framed | None = None
        ways = {"document": self._document, "frames": self._frames, "table": self._table, "number": self._number,
                "text": self._words, "quoted": self._quoted, "printed": self._printed,
                "screens": self._screens, "agui": self._talk, "agui lines": self._talk_in_lines,
                "vllm": self._vllm, "sglang": self._sglang, "halves": self._halves,
                "halves in lines": self._halves_in_lines, "yaml": self._yaml, "spread": self._spread}  # fmt: skip
        for record in ways.get(layout, self._lines)(opened):
            yield record
        is_truncated = isinstance(record, Bad) and record.reason == "truncated"
        if opened.fault and not is_truncated:
            yield refused(self.lines + 1, "truncated", opened.fault)

    def _lines(self, stream: Opened) -> Iterator[Framed]:
        """Yield the first lines one by one, for detection to look at, and the others many at a time."""
        while raw := self._rest or stream.readline(self._limits.record_bytes + 1):
            self._rest = b""
            self.lines += 1
            if not raw.endswith(b"\n"):
                if len(raw) <= self._limits.record_bytes:
                    yield from self._unfinished(raw, stream.fault)
                    return
                record: Framed | None = self._too_long(stream, raw)
            else:
                record = self._line(self.lines, raw)
                self._read_for_good(raw, 1, int(record is not None))
            if record is not None:
                self._singly += 1
                yield record
            if self._singly >= _SINGLY and self._unwrap is bytes.strip:
                yield from self._many(stream)

    def _read_for_good(self, raw: bytes, lines: int, records: int) -> None:
        self._hash.update(raw)
        self.offset += len(raw)
        self.whole_lines += lines
        self.whole_records += records

    def _unfinished(self, raw: bytes, fault: str) -> Iterator[Framed]:
        """Yield a last line without an end: read, but not for good, for it may go on; it then keeps its number."""
        record = self._line(self.lines, raw)
        parsed = record.parse() if record is not None else None
        if isinstance(parsed, Bad):
            yield parsed._replace(reason="truncated", detail=fault or "the last line is not finished")
        elif parsed is not None:
            yield parsed

    def _many(self, stream: Opened) -> Iterator[Lines]:
        """Yield whole lines until one comes that is too long, or the last; what is left of the last piece is kept."""
        while len(self._rest) <= self._limits.record_bytes and (piece := stream.read(_CHUNK)):
            end = piece.rfind(b"\n") + 1
            if not end:
                self._rest += piece
                continue
            whole, self._rest = self._rest + piece[:end], piece[end:]
            raws = whole[:-1].split(b"\n")
            blank = raws.count(b"") + sum(map(bytes.isspace, raws))
            count, exact = len(raws) - blank, not has_large_numbers(whole)
            lines = Lines(self.lines + 1, raws, count, len(whole), self.whole_records + 1, exact=exact)
            self.lines += len(raws)
            self._read_for_good(whole, len(raws), count)
            yield lines

    def _too_long(self, stream: Opened, raw: bytes) -> Bad:
        """Skip the rest of a line that is longer than allowed."""
        digest, size = hashlib.sha256(), 0
        while raw:
            end = raw.find(b"\n") + 1
            line, self._rest = (raw[:end], raw[end:]) if end else (raw, b"")
            digest.update(line)
            size += len(line)
            self._read_for_good(line, 0, 0)
            raw = b"" if end else stream.readline(_CHUNK)
        self.whole_lines += 1
        self.whole_records += 1
        detail = f"a line of {size:,} bytes; ingest.max_record_mb allows {self._limits.record_bytes:,}"
        return Bad(self.lines, "bad_record", detail, size, digest.hexdigest())

    def _screens(self, stream: Opened) -> Iterator[Framed]:
        return shown_messages(self._document(stream))

    # What one of these records means depends on others: their lines are read as a whole.
    def _talk(self, stream: Opened) -> Iterator[Framed]:
        return talk_messages(self._document(stream))

    def _talk_in_lines(self, stream: Opened) -> Iterator[Framed]:
        return talk_messages(self._whole_lines(stream))

    def _halves(self, stream: Opened) -> Iterator[Framed]:
        return joined_halves(self._document(stream))

    def _halves_in_lines(self, stream: Opened) -> Iterator[Framed]:
        return joined_halves(self._whole_lines(stream))

    def _vllm(self, stream: Opened) -> Iterator[Framed]:
        return vllm_calls(self._texts(stream))

    def _sglang(self, stream: Opened) -> Iterator[Framed]:
        return sglang_calls(self._texts(stream))

    def _spread(self, stream: Opened) -> Iterator[Framed]:
        lines = ((line, raw.rstrip(b"\r\n")) for line, raw in self._raw_lines(stream))
        return spread_objects(lines, self._limits.record_bytes)

    def _texts(self, stream: Opened) -> Iterator[tuple[int, str]]:
        for line, raw in self._raw_lines(stream):
            yield line, raw.decode("utf-8", "replace").rstrip("\r\n")

    def _raw_lines(self, stream: Opened) -> Iterator[tuple[int, bytes]]:
        while raw := stream.readline(self._limits.record_bytes + 1):
            self.lines += 1
            if len(raw) > self._limits.record_bytes:
                self._too_long(stream, raw)
            yield self.lines, raw[: self._limits.record_bytes]

    def _whole_lines(self, stream: Opened) -> Iterator[Framed]:
        while raw := stream.readline(self._limits.record_bytes + 1):
            self.lines += 1
            if len(raw) > self._limits.record_bytes:
                yield self._too_long(stream, raw)
            elif data := _event_data(raw.removeprefix(_BOM).strip()):
                yield Raw(self.lines, data, self.lines)

    def _document(self, stream: Opened | io.BytesIO) -> Iterator[Framed]:
        fault = "" if isinstance(stream, io.BytesIO) else stream.fault
        for piece in document_pieces(stream, self._limits.record_bytes):
            self.lines = piece.number
            yield self._piece(piece, fault)

    def _quoted(self, stream: Opened) -> Iterator[Framed]:
        """Yield the values of a document that was written as JSON twice: it is one text."""
        raw = stream.read(self._limits.record_bytes + 1)
        try:
            inner = orjson.loads(raw)
        except orjson.JSONDecodeError:
            inner = None
        if not isinstance(inner, str):
            yield refused(1, "unknown_format", stream.fault or "a text in JSON that is not finished, or not alone", raw)
            return
        yield from self._document(io.BytesIO(inner.encode()))

    def _printed(self, stream: Opened) -> Iterator[Framed]:
        """Yield the values of a document that Python printed: its literals are those of JSON, in other words."""
        raw = stream.read(self._limits.record_bytes + 1)
        value = printed_value(raw.decode("utf-8-sig", "replace").strip())
        if value is None:
            detail = "as Python prints objects, but not one that is finished and alone"
            yield refused(1, "unknown_format", stream.fault or detail, raw)
            return
        yield from self._document(io.BytesIO(json.dumps(value).encode()))

    def _yaml(self, stream: Opened) -> Iterator[Framed]:
        """Yield the values of a YAML file."""
        raw = stream.read(self._limits.record_bytes + 1)
        try:
            values = list(yaml_values(raw.removeprefix(_BOM), self._limits.record_bytes))
        except YamlError as error:
            yield refused(1, "unknown_format", stream.fault or str(error), raw)
            return
        for self.lines, value in enumerate(values, 1):
            yield Raw(self.lines, json.dumps(value).encode(), self.lines)

    def _number(self, stream: Opened) -> Iterator[Framed]:
        """Yield the score that a file holds and nothing else, as an object."""
        self.lines = 1
        yield Raw(1, b'{"score":%s}' % stream.read(_LONGEST_NUMBER).strip(), 1)

    def _table(self, stream: Opened) -> Iterator[Framed]:
        for row in table_rows(stream, delimiter_of(stream.peek()), self._limits.record_bytes):
            self.lines = row.line
            yield row

    def _words(self, stream: Opened) -> Iterator[Framed]:
        """Yield the messages or calls of a text that is not JSON."""
        for record in text_records(stream, text_layout(stream.peek()), self._limits.record_bytes):
            self.lines = record.line
            yield record

    def _piece(self, piece: Piece, fault: str) -> Raw | Bad:
        if piece.truncated:
            return refused(piece.number, "truncated", fault or "the document ends before its end", piece.raw)
        if piece.digest:
            detail = f"{piece.size:,} bytes; ingest.max_record_mb allows {self._limits.record_bytes:,}"
            return Bad(piece.number, "bad_record", detail, piece.size, piece.digest)
        return Raw(piece.number, piece.raw, piece.number)

    def _line(self, line: int, raw: bytes) -> Raw | None:
        text = raw.strip()
        if line == 1:
            text = text.removeprefix(_BOM).lstrip()
        text = self._unwrap(text)
        return Raw(line, text, self.whole_records + 1) if text else None

    def _frames(self, stream: Opened) -> Iterator[Framed]:
        """Read messages behind their length, as an OpenTelemetry collector writes compressed files."""
        while head := stream.read(_LENGTH):
            self.lines += 1
            size = int.from_bytes(head, "big")
            if size > self._limits.record_bytes:
                yield refused(
                    self.lines, "bad_record", f"a message of {size:,} bytes; ingest.max_record_mb allows fewer"
                )
                return
            raw = stream.read(size)
            if len(head) < _LENGTH or len(raw) < size:
                yield refused(self.lines, "truncated", "the file ends inside a message", raw)
                return
            yield self._message(raw)

    def _message(self, raw: bytes) -> Raw | Bad:
        if not compression(raw):
            return Raw(self.lines, raw, self.lines)
        inner = Content("message", len(raw), lambda _: Stream(io.BytesIO(raw)))
        with Opened(inner, max_ratio=self._limits.expand_ratio) as opened:
            text = opened.read(self._limits.record_bytes + 1)
            if opened.fault or len(text) > self._limits.record_bytes:
                return refused(self.lines, "bad_record", opened.fault or "more than ingest.max_record_mb allows", raw)
        foreign = foreign_bytes(text)
        return refused(self.lines, "unknown_format", foreign, raw) if foreign else Raw(self.lines, text, self.lines)

    def _columnar(self, opened: Opened) -> Iterator[Framed]:
        from flywheel.stages.ingest.framing.columnar import columnar_rows  # loads pyarrow

        path, plain = self._content.path, not opened.compression
        most = self._limits.expand_ratio * max(self._content.size, FREE_BYTES // 100)
        with path.open("rb") if path is not None and plain else io.BytesIO(opened.read()) as source:
            for row in columnar_rows(source, most, self._limits.expand_ratio):
                self.lines = row.line
                yield row


def _server_log(layout: str, head: bytes) -> str | None:
    """Return whose server wrote a log of the calls that it answered; None for any other text.

    A table whose cells quote such a log begins with the names of its columns.
    """
    is_text = layout in _OF_LOGS and (layout != "table" or _NO_HEADER.match(head) is not None)
    if is_text and is_vllm_log(head):
        return "vllm"
    return "sglang" if is_sglang_log(head, is_text=is_text) else None


def _layout(head: bytes) -> str:
    """Return how a text holds its records: as 'lines', 'document', 'events', ...; 'unknown' where it shows nothing."""
    if foreign_bytes(head):
        return "unknown"
    text = head.removeprefix(_BOM).lstrip()
    printed = is_printed(text)
    if printed or (text.startswith((b"[", *_TWICE)) and not _TAG.match(text) and not _TIMED.match(text)):
        return "printed" if printed else "document" if text.startswith(b"[") else "quoted"
    lines = [line for line in text.split(b"\n")[: _PROBED_LINES + 1] if line.strip()]
    some_parse = any(map(is_object, lines))
    if text.startswith(b"{"):
        return "prefixed" if _is_mixed(lines) else _layout_of_objects(lines, some_parse=some_parse)
    if text.startswith(_EVENT_FIELDS) and any(is_object(_event_data(line.strip())) for line in lines):
        return "events"
    length = int.from_bytes(head[:_LENGTH], "big")
    body = head[_LENGTH : _LENGTH + 4]
    if 0 < length < _MOST and (body.startswith(b"{") or (compression(body) and not head.startswith(b"{"))):
        return "frames"
    is_number = len(head) < _LONGEST_NUMBER and _NUMBER.fullmatch(text.strip())
    other = "table" if delimiter_of(text) else "lines" if some_parse else "number" if is_number else "unknown"
    other = "logfmt" if not some_parse and is_logfmt(lines[:-1] or lines) else other
    other = "prefixed" if not some_parse and _has_prefixes(text) else other
    return "spread" if other == "unknown" and is_spread(text) else other


def _layout_of_objects(lines: Sequence[bytes], *, some_parse: bool) -> str:
    goes_on = len(lines) > 1 and (not some_parse or lines[0].rstrip().endswith((b"{", b"[", b",")))
    return "document" if not is_object(lines[0]) and (goes_on or _holds_several(lines[0])) else "lines"


def _is_mixed(lines: Sequence[bytes]) -> bool:
    """Whether lines of JSON have others of plain words between them, as a program prints both: behind each other twice.

    A few plain lines in a row are what broke a log, and show in the quarantine.
    """
    plain = [not _OF_JSON.search(line) for line in lines[:-1]]
    are_objects = list(map(is_object, lines[:-1]))
    turns = sum(is_plain and next_one for is_plain, next_one in zip(plain, are_objects[1:], strict=False))
    return turns > 1 and sum(plain) + sum(are_objects) == len(plain)


def _has_prefixes(text: bytes) -> bool:
    """Whether a text is a log, no table, with JSON behind what a program or container writes first."""
    lines = [line for line in text.split(b"\n")[: _PROBED_LINES * 50] if line.strip()]
    if all(map(_CONTAINER.match, lines[:-1])) and len(lines) > 1:
        return True
    if delimiter_of(text) and not (_TIME.match(text) or _TAG.match(text)):
        return False
    return sum(_json_behind(line) is not None for line in lines) * 10 >= max(len(lines), 1)


def _json_behind(line: bytes) -> bytes | None:
    """Return the JSON object that a line ends with; None where it ends otherwise."""
    start = -1
    for _ in range(_STARTS if line.rstrip().endswith(b"}") else 0):
        start = line.find(b"{", start + 1)
        if start < 0 or is_object(line[start:]):
            break
    return line[start:] if start >= 0 and is_object(line[start:]) else None


def _as_logged(line: bytes) -> bytes:
    """Return a line as a container's log in JSON has it: what was logged, with an end unless it goes on."""
    container = _CONTAINER.match(line)
    text = line[container.end() :] if container else _json_behind(line) or line
    end = "" if container and container[2] == b"P" else "\n"
    stream = container[1].decode() if container else ""
    return orjson.dumps({"log": text.decode("utf-8", "replace") + end, "stream": stream}) if line else b""


def _holds_several(line: bytes) -> bool:
    """Whether objects are one behind another on a line, as Firehose writes them."""
    first, *others = [*islice(document_pieces(io.BytesIO(line), len(line)), 2)]
    return is_object(first.raw) and any(other.raw.startswith(b"{") for other in others)


def _event_data(line: bytes) -> bytes:
    """Return the JSON of a line of server-sent events; b'' for its other fields and its end."""
    if not line.startswith(_EVENT_FIELDS):
        return line
    data = line[len(b"data:") :].strip() if line.startswith(b"data:") else b""
    return b"" if data == b"[DONE]" else data


# What the records of a line are in.
_BY_LINE: Mapping[str, Callable[[bytes], bytes]] = {"events": _event_data, "prefixed": _as_logged, "logfmt": as_json}
