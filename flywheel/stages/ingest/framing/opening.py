"""Bytes to read, decompressed: a file's, an archive member's, standard input's; gzip and zstd by their magic bytes.

In: a `Content`: where bytes are and how many of them count (a log may grow while it is read). Out: a binary stream that
ends where reading has to end; `fault` is the reason, if that was not the content's own end. Nothing is raised
for damaged content.
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_PIECE = 16 << 10  # at deflate's greatest ratio this expands to 16 MB: the most that one step can take in memory
_ZSTD_PIECE = 1 << 10  # zstd can expand a thousand times more
FREE_BYTES = 10_000_000  # below this a ratio means nothing
_BUFFER = 1 << 20


def too_large(max_ratio: int) -> str:
    """Return the problem of a decompression bomb."""
    return f"it expands to more than ingest.max_expand_ratio = {max_ratio} times its size"


def compression(head: bytes) -> str:
    """Return 'gzip', 'zstd' or '' for a content's first bytes."""
    return "gzip" if head.startswith(_GZIP) else "zstd" if head.startswith(_ZSTD) else ""


@dataclass(frozen=True)
class Content:
    """Bytes somewhere. `path` is set for a plain file, the only kind that is opened more than once or at an offset."""

    name: str
    size: int
    open_at: Callable[[int], io.RawIOBase]
    path: Path | None = None


def file_content(path: Path, size: int) -> Content:
    """Return the first `size` bytes of a file as content."""
    return Content(path.name, size, lambda start: _Window(path, start, size), path)


class _Window(io.RawIOBase):
    """The bytes of a file between two offsets."""

    def __init__(self, path: Path, start: int, end: int) -> None:
        self._file: BinaryIO = path.open("rb", buffering=0)
        self._file.seek(start)
        self._end, self._left = end, end - start

    @property
    def position(self) -> int:
        """The offset of the next byte."""
        return self._end - self._left

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


class Stream(io.RawIOBase):
    """A stream that somebody else owns, read in full buffers: an archive's member, standard input.

    Args:
        source: where to read; not closed.
        faults: what reading may raise where the content is damaged; it then ends, and `fault` is set.
    """

    def __init__(self, source: Any, faults: tuple[type[Exception], ...] = ()) -> None:
        self.fault = ""
        self._source, self._faults = source, faults

    def readable(self) -> bool:
        """A stream can be read, and nothing else."""
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """Fill the buffer as far as the source goes."""
        view = memoryview(buffer).cast("B")
        done = 0
        while done < len(view):
            try:
                data = self._source.read(len(view) - done)
            except self._faults as error:
                self.fault = f"the archive is damaged here ({type(error).__name__})"
                break
            if not data:
                break
            view[done : done + len(data)] = data
            done += len(data)
        return done


class _Expanded(io.RawIOBase):
    """A compressed file's content; members that follow one another are one content, as gzip and zstd define it."""

    def __init__(self, raw: io.BufferedReader[Any], kind: str, max_ratio: int) -> None:
        self.fault = ""
        self._raw = raw
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
                self.fault = f"other bytes follow the {self._kind} stream"
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
        if self._n_out > FREE_BYTES and self._n_out > self._max_ratio * self._n_in:
            self.fault = too_large(self._max_ratio)
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


def _is_packed(content: Content) -> bool:
    if content.path is None:
        return False
    with content.path.open("rb") as handle:
        return bool(compression(handle.read(4)))


class Opened(io.BufferedReader):
    """Content as a stream of lines, decompressed.

    Args:
        content: what to read.
        start: offset of the decompressed bytes to begin at.
        max_ratio: greatest size of the content relative to its compressed size.
    """

    def __init__(self, content: Content, *, start: int = 0, max_ratio: int) -> None:
        self._told = content.open_at(0 if _is_packed(content) else start)
        packed: io.BufferedReader[Any] = io.BufferedReader(self._told, _BUFFER)
        self.head = packed.peek(16)[:16]
        self.compression = compression(self.head)
        self._source = _Expanded(packed, self.compression, max_ratio) if self.compression else packed
        super().__init__(self._source, _BUFFER)
        if self.compression and start:
            self._skip(start)

    def _skip(self, size: int) -> None:
        while size > 0 and (piece := self.read(min(size, _BUFFER))):
            size -= len(piece)

    @property
    def position(self) -> int:
        """How many of the content's bytes were read, before they were decompressed."""
        return self._told.position if isinstance(self._told, _Window) else 0

    @property
    def fault(self) -> str:
        """Why the content ended early; '' when it did not."""
        expanded = self._source.fault if isinstance(self._source, _Expanded) else ""
        return expanded or (self._told.fault if isinstance(self._told, Stream) else "")
