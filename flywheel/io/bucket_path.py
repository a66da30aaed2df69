"""Objects of a bucket as paths that can be read, so that a log there is read by the code that reads files.

In: an address, `s3://bucket/logs`. Out: paths of its objects, each with the size and tag that the listing gave. Bytes
stream from the bucket; none is written to the disk, because logs are not redacted yet.
"""

from __future__ import annotations

import fnmatch
import io
import os
import re
import stat
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path, PosixPath
from typing import TYPE_CHECKING, Any, Self

from flywheel.errors import UsageError
from flywheel.io.bucket import Address, Bucket, Object, address

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_HEAD = 1 << 20


class BucketPath(PosixPath):
    """A place in a bucket. Only what reading logs needs is there; nothing writes.

    Args of its constructor are those of a path: `BucketPath("s3://bucket/key")`.
    """

    _known: Object | None = None

    @property
    def address(self) -> Address:
        """Where it is."""
        where = address("/".join(self.parts))
        if where is None:
            raise UsageError(f"`{'/'.join(self.parts)}` is not an address in a bucket", hint="such as s3://bucket/logs")
        return where

    def __str__(self) -> str:
        return self.address.url if len(self.parts) > 1 else "/".join(self.parts)

    def as_posix(self) -> str:
        """Return the address."""
        return str(self)

    def absolute(self) -> Self:
        """Return the path itself: no folder is above it."""
        return self

    def resolve(self, strict: bool = False) -> Self:  # noqa: ARG002, FBT001, FBT002 - as a path has it
        """Return the path itself: buckets have no links."""
        return self

    def is_symlink(self) -> bool:
        """Buckets have no links."""
        return False

    @property
    def object(self) -> Object | None:
        """The object of this name; asked for once."""
        if self._known is None and len(self.parts) > 2 and self.address.key:  # noqa: PLR2004 - s3:, bucket, key
            self._known = Bucket(self.address).find(self.address.key)
        return self._known

    @property
    def etag(self) -> str:
        """The tag of the object's present content."""
        return self.object.etag if self.object is not None else ""

    def exists(self, **_: Any) -> bool:
        """Whether there is an object of this name."""
        return self.object is not None

    def is_file(self, **_: Any) -> bool:
        """Whether there is an object of this name."""
        return self.object is not None

    def is_dir(self, **_: Any) -> bool:
        """Whether it is a folder: never asked of a server, which knows none."""
        return False

    def stat(self, **_: Any) -> os.stat_result:
        """Return size and time of change.

        Raises:
            FileNotFoundError: there is no such object.
        """
        found = self.object
        if found is None:
            raise FileNotFoundError(2, "no such object", str(self))
        time = found.modified.timestamp()
        return os.stat_result((stat.S_IFREG | 0o444, 0, 0, 1, 0, 0, found.size, time, time, time))

    def open(self, mode: str = "rb", buffering: int = -1, *_: Any, **__: Any) -> Any:
        """Open the object for reading bytes; each seek is a request."""
        if mode != "rb":
            raise UsageError(f"`{self}` can only be read", hint="copy it to a file")
        if self.object is None:
            raise FileNotFoundError(2, "no such object", str(self))
        stream = _Stream(Bucket(self.address), self.object)
        return stream if buffering == 0 else io.BufferedReader(stream, 1 << 20)

    def covers(self, other: BucketPath) -> bool:
        """Whether another place is this one, or in it, or is one that this one means as a pattern."""
        same = self.address[:2] == other.address[:2]
        return same and _pattern(self.address.key).match(other.address.key) is not None

    def objects(self) -> Iterator[BucketPath]:
        """Yield the object of this name; or those below it, or below the folders that it matches as a pattern."""
        parts = self.address.key.split("/") if self.address.key else []
        fixed = next((n for n, part in enumerate(parts) if _is_pattern(part)), len(parts))
        if fixed == len(parts) and self.object is not None:
            yield self
            return
        matched = _pattern("/".join(parts))
        for found in Bucket(self.address).below("/".join(parts[:fixed])):
            if matched.match(found.key) and not found.key.endswith("/"):
                path = BucketPath(self.address._replace(key=found.key).url)
                path._known = found
                yield path


def _is_pattern(part: str) -> bool:
    return any(sign in part for sign in "*?[")


@lru_cache(maxsize=64)
def _pattern(key: str) -> re.Pattern[str]:
    """Return what the names of the objects that a pattern means match: those of that name, and all below them."""
    segments = [part for part in key.split("/") if part]
    ways = "".join("(?:[^/]+/)*" if part == "**" else _segment(part) + "/" for part in segments)
    if segments and segments[-1] == "**":
        return re.compile(ways)
    return re.compile(ways.removesuffix("/") + "(?:/|$)" if segments else "")


def _segment(part: str) -> str:
    """Return one part of a pattern; `*` and `?` do not go beyond a slash."""
    return fnmatch.translate(part).removeprefix("(?s:").removesuffix(r")\Z").replace(".*", "[^/]*")


def source_path(text: str | Path, folder: Path | None = None) -> Path:
    """Return what a user named: a place in a bucket, or a path, relative to a folder."""
    if address(str(text)) is not None:
        return BucketPath(text)
    return folder / text if folder is not None else Path(text)


@lru_cache(maxsize=4)
def _head(bucket: Bucket, known: Object) -> bytes:
    """Return an object's beginning, at which a log is looked at several times before it is read."""
    return b"".join(bucket.pieces(known.key, 0, known.etag, min(_HEAD, known.size)))


class _Stream(io.RawIOBase):
    """An object's bytes; they come as one answer from where reading begins, and another one after a seek."""

    def __init__(self, bucket: Bucket, known: Object) -> None:
        self._bucket, self._object = bucket, known
        self._at, self._rest = 0, b""
        self._pieces: Iterator[bytes] | None = None

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._object.size}[whence]
        if start + offset != self._at:
            self._at, self._rest, self._pieces = start + offset, b"", None
        return self._at

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        view = memoryview(buffer).cast("B")
        if self._at >= self._object.size or not len(view):
            return 0
        if self._at < _HEAD:
            data = _head(self._bucket, self._object)[self._at : self._at + len(view)]
            view[: len(data)] = data
            self._at += len(data)
            return len(data)
        if self._pieces is None:
            self._pieces = self._bucket.pieces(self._object.key, self._at, self._object.etag)
        self._rest = self._rest or next(self._pieces, b"")
        taken = self._rest[: len(view)]
        view[: len(taken)] = taken
        self._rest, self._at = self._rest[len(taken) :], self._at + len(taken)
        return len(taken)
