"""A file's bytes, decompressed: gzip and zstd by their magic bytes, however the file is named.

In: a path and how many of its bytes count (a log may grow while it is read). Out: a binary stream that ends where
reading has to end; `fault` then says why, if it was not the file's own end. Nothing is raised for damaged content.
"""

from __future__ import annotations

import io
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

if TYPE_CHECKING:
    from collections.abc import Callable

    from _typeshed import WriteableBuffer

__all__ = ["Opened", "compression", "open_bytes"]

_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_PIECE = 16 << 10  # at deflate's greatest ratio this expands to 16 MB: the most that one step can take in memory
_ZSTD_PIECE = 1 << 10  # zstd can expand a thousand times more
_FREE_BYTES = 10_000_000  # below this a ratio says nothing
_BUFFER = 1 << 20


def compression(head: bytes) -> str:
    """Return 'gzip', 'zstd' or '' for a file's first bytes."""
    return "gzip" if head.startswith(_GZIP) else "zstd" if head.startswith(_ZSTD) else ""


class _Window(io.RawIOBase):
    """The bytes of a file between two offsets."""

    def __init__(self, path: Path, start: int, end: int) -> None:
        self._file: BinaryIO = path.open("rb", buffering=0)
        self._file.seek(start)
        self._left = end - start

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        view = memoryview(buffer).cast("B")
        data = self._file.read(min(len(view), self._left)) if self._left > 0 else b""
        self._left -= len(data)
        view[: len(data)] = data
        return len(data)

    def close(self) -> None:
        self._file.close()
        super().close()


class _Expanded(io.RawIOBase):
    """A compressed file's content; members that follow one another are one content, as gzip and zstd define it."""

    def __init__(self, raw: io.RawIOBase, kind: str, max_ratio: int) -> None:
        self.fault = ""
        self._raw = io.BufferedReader(raw, _BUFFER)
        self._new: Callable[[], Any] = _gzip if kind == "gzip" else _zstd
        self._magic = _GZIP if kind == "gzip" else _ZSTD
        self._piece = _PIECE if kind == "gzip" else _ZSTD_PIECE
        self._kind, self._max_ratio = kind, max_ratio
        self._decoder = self._new()
        self._out = memoryview(b"")
        self._rest = b""
        self._in_member = False
        self._n_in = self._n_out = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        view = memoryview(buffer).cast("B")
        done = 0
        while done < len(view):
            if not self._out and (self.fault or not self._step()):
                break
            n = min(len(view) - done, len(self._out))
            view[done : done + n] = self._out[:n]
            self._out, done = self._out[n:], done + n
        return done

    def _step(self) -> bool:
        """Decompress one more piece; return whether there may be more."""
        piece, self._rest = self._rest or self._raw.read(self._piece), b""
        if not piece:
            self.fault = f"the {self._kind} stream ends before its end" if self._in_member else ""
            return False
        if not self._in_member:
            piece = piece.lstrip(b"\0")  # tapes and block devices pad
            if piece and not (piece + self._raw.peek(4)[:4]).startswith(self._magic):
                self.fault = f"bytes follow the {self._kind} stream that are no part of it"
                return False
        if not piece:
            return True
        self._in_member = True
        return self._expand(piece)

    def _expand(self, piece: bytes) -> bool:
        try:
            out = self._decoder.decompress(piece)
        except _decoder_errors():
            self.fault = f"the {self._kind} stream is damaged"
            return False
        if self._decoder.eof:
            self._rest, self._in_member = self._decoder.unused_data, False
            self._decoder = self._new()
        self._n_in += len(piece) - len(self._rest)
        self._n_out += len(out)
        if self._n_out > _FREE_BYTES and self._n_out > self._max_ratio * self._n_in:
            self.fault = f"it expands to more than ingest.max_expand_ratio = {self._max_ratio} times its size"
            return False
        self._out = memoryview(out)
        return True

    def close(self) -> None:
        self._raw.close()
        super().close()


def _gzip() -> Any:
    return zlib.decompressobj(wbits=31)


def _zstd() -> Any:
    import zstandard

    return zstandard.ZstdDecompressor(max_window_size=1 << 27).decompressobj()


def _decoder_errors() -> tuple[type[Exception], ...]:
    import zstandard

    return zlib.error, zstandard.ZstdError


class Opened(io.BufferedReader):
    """A file's content as a stream of lines."""

    def __init__(self, raw: io.RawIOBase) -> None:
        super().__init__(raw, _BUFFER)
        self._source = raw

    @property
    def fault(self) -> str:
        """Why the content ended early; '' when it did not."""
        return self._source.fault if isinstance(self._source, _Expanded) else ""


def open_bytes(path: Path, *, start: int, end: int, max_ratio: int) -> Opened:
    """Open the content of a file.

    Args:
        path: the file.
        start: offset to begin at; only for a file that is not compressed.
        end: offset of the last byte that counts, plus one.
        max_ratio: greatest size of the content relative to the file's.
    """
    with path.open("rb") as handle:
        kind = compression(handle.read(4))
    window = _Window(path, start, end)
    return Opened(_Expanded(window, kind, max_ratio) if kind else window)
