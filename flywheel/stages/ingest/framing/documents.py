"""JSON that is not one value a line: an array of any size, a document over many lines, several of them in a row.

In: a byte stream. Out: `Piece`s, numbered from 1: the elements of arrays at the top level, and other top level values
whole. A piece may be no valid JSON; reading goes on behind it. The buffer holds about one record, never the file: the
scan only counts brackets outside strings and goes over each byte once.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

_CHUNK = 1 << 20
_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|["\[\]{}]', re.DOTALL)  # a lone quote: the buffer cuts the string
_STRING_REST = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)
_ATOM_REST = re.compile(rb"[^,\[\]{}\s]*+")
_SPACE = re.compile(rb"[\s,\0\xef\xbb\xbf]*+")  # between values; a byte order mark too
_QUOTE, _OPEN, _CLOSE = ord('"'), b"[{", b"]}"


class Piece(NamedTuple):
    """The text of one value. `size` and `digest` are set when it was too long to keep."""

    number: int
    raw: bytes
    truncated: bool = False
    size: int = 0
    digest: str = ""


class _Scanner:
    """Finds where the value at the window's beginning ends."""

    def __init__(self, stream: BinaryIO, limit: int) -> None:
        self._stream, self._limit = stream, limit
        self._data = b""
        self._start = self._at = 0
        self._depth = 0
        self._in_string = False
        self._dropped = 0
        self._digest = hashlib.sha256()

    def _more(self) -> bool:
        piece = self._stream.read(_CHUNK)
        self._data = self._data[self._start :] + piece
        self._at -= self._start
        self._start = 0
        return bool(piece)

    def next_byte(self) -> int | None:
        """Go to where the next value, or a bracket, begins; return its byte, or None at the end."""
        while True:
            match = _SPACE.match(self._data, self._at)
            self._at = self._start = match.end() if match else self._at
            if self._at < len(self._data):
                return self._data[self._at]
            if not self._more():
                return None

    def skip(self) -> None:
        """Step over one byte."""
        self._at += 1

    def value(self, number: int) -> Piece:
        """Take the value that begins here."""
        self._depth, self._in_string, self._dropped = 0, False, 0
        self._digest = hashlib.sha256()
        atom = self._data[self._at] not in b'{["'
        ended = False
        while not ended:
            ended = self._atom() if atom else self._scan()
            if not ended:
                self._drop()
                if not self._more():
                    break
        raw = self._data[self._start : self._at]
        self._start = self._at
        if self._dropped:
            self._digest.update(raw)
            return Piece(number, b"", not ended, self._dropped + len(raw), self._digest.hexdigest())
        return Piece(number, raw, truncated=not ended and not atom)

    def _drop(self) -> None:
        """Forget a value's beginning once it is longer than allowed."""
        if self._at - self._start > self._limit:
            gone = self._data[self._start : self._at]
            self._digest.update(gone)
            self._dropped += len(gone)
            self._start = self._at

    def _atom(self) -> bool:
        match = _ATOM_REST.match(self._data, self._at)
        end = match.end() if match else self._at
        stray = end == self._start and end < len(self._data)  # a bracket that nothing opened
        self._at = end + stray
        return self._at < len(self._data) or stray

    def _scan(self) -> bool:
        """Go on to the value's end; return False when the data ends first."""
        while True:
            if self._in_string and not self._close_string():
                return False
            if self._depth == 0 and self._at > self._start:
                return True
            if not self._brackets():
                return False

    def _close_string(self) -> bool:
        match = _STRING_REST.match(self._data, self._at)
        self._at = match.end() if match else self._at
        if self._at >= len(self._data) or self._data[self._at] != _QUOTE:
            return False
        self._at += 1
        self._in_string = False
        return True

    def _brackets(self) -> bool:
        """Count brackets until the value or the data ends, or a string begins that the data cuts."""
        depth = self._depth
        for match in _TOKEN.finditer(self._data, self._at):
            byte = self._data[match.start()]
            if byte == _QUOTE:
                if match.end() - match.start() == 1:
                    self._in_string = True
            elif byte in _OPEN:
                depth += 1
            else:
                depth -= 1
            if self._in_string or depth <= 0:
                self._at, self._depth = match.end(), max(depth, 0)
                return True
        self._at, self._depth = len(self._data), depth
        return False


def document_pieces(stream: BinaryIO, limit: int) -> Iterator[Piece]:
    """Yield the values of a stream.

    Args:
        stream: JSON text.
        limit: length in bytes above which a value is not kept; it comes as a piece without text.
    """
    scanner, number, in_array = _Scanner(stream, limit), 0, False
    while (byte := scanner.next_byte()) is not None:
        if byte == ord("[") and not in_array:
            in_array = True
            scanner.skip()
        elif byte == ord("]") and in_array:
            in_array = False
            scanner.skip()
        else:
            number += 1
            piece = scanner.value(number)
            yield piece
            if piece.truncated:
                return
    if in_array:
        yield Piece(number + 1, b"", truncated=True)
