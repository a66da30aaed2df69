"""Which files are known, and from where a known one goes on.

In: a file, and what was read before. Out: its `Start`. A file is known by its content, so that a renamed, rotated or
compressed one is not read again; a log that only grew, also under another name, is continued where it ended.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from flywheel.config import IngestConfig
from flywheel.extensions import Reader
from flywheel.io.bucket import address
from flywheel.io.bucket_path import BucketPath, source_path
from flywheel.records import content_id
from flywheel.stages.ingest.framing.opening import Opened, file_content

if TYPE_CHECKING:
    from hashlib import _Hash as Hash


UNKNOWN = "unknown"  # the format of a file that no reader knows

_CHUNK = 1 << 20
_ESCAPED = re.compile(rb"\\x([0-9a-f]{2})")


@dataclass(frozen=True)
class SourceState:
    """What was read of one file.

    `sha256` and `size_bytes` are the file's; `content_sha256` is that of its decompressed bytes. `offset_bytes`, of the
    decompressed bytes, is 0 for a file that was not read line by line and cannot be continued; `prefix_sha256` is the
    hash up to there, `offset_records` the number of records up to there, without blank lines (states of earlier
    versions have none); `from_line` is the line behind which it was read last. `columns` is what the file's place gave
    for its records: the same bytes elsewhere may mean another policy. `bad` counts the refused records. `set_aside`
    holds what was not stored as a whole, as reason: detail by the name of the file or the archive's member; `tried` is
    the `reading_key` it was tried with; `version` is that of the reader which read its first record, 0 if not known;
    `overwrote`: whether other content was read under this name before, None where an earlier version read it; `etag` is
    the tag that a bucket gives an object's content.
    """

    path: str
    format: str
    size_bytes: int
    sha256: str
    records: int
    offset_bytes: int = 0
    offset_lines: int = 0
    prefix_sha256: str = ""
    content_sha256: str = ""
    from_line: int = 0
    columns: Mapping[str, str] = field(default_factory=dict)
    bad: int = 0
    set_aside: Mapping[str, str] = field(default_factory=dict)
    tried: str = ""
    offset_records: int | None = None
    version: int = 0
    overwrote: bool | None = None
    etag: str = ""

    @property
    def numbered(self) -> int:
        """The number of the last record before the offset: readers order events by it."""
        return self.offset_lines if self.offset_records is None else self.offset_records

    @property
    def torn(self) -> bool:
        """Whether something of it was not read that might be the beginning of a line."""
        plain = self.content_sha256 == self.sha256 and (self.format == UNKNOWN or not self.set_aside)
        return plain and self.offset_bytes < self.size_bytes and (self.offset_bytes > 0 or self.format == UNKNOWN)

    def to_dict(self) -> dict[str, Any]:
        """Return the state as JSON."""
        state = asdict(self)
        return state if self.etag else {name: state[name] for name in state if name != "etag"}

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> SourceState:
        """Return the state that `to_dict` wrote; fields of a later version are ignored."""
        return cls(**{name: state[name] for name in cls.__dataclass_fields__ if name in state})


class Known:
    """The states of all files read before, to be found by path, by content, and by how the content begins.

    Args:
        states: what was read.
        root: folder that the states' paths are relative to.
    """

    def __init__(self, states: Iterable[SourceState], root: Path) -> None:
        self._root = root
        self._by_path: dict[str, SourceState] = {}
        self._by_file: dict[str, SourceState] = {}
        self._by_content: dict[str, SourceState] = {}
        self._torn: dict[str, set[str]] = defaultdict(set)
        self._moved: dict[tuple[int, str], SourceState] = {}
        for state in states:
            self.add(state)

    def add(self, state: SourceState) -> None:
        """Take in what was read of one more file."""
        self._by_path[state.path] = state
        self._by_file[state.sha256] = state
        torn = self._torn[state.path.rpartition("/")[0]]
        (torn.add if state.torn else torn.discard)(state.path)
        if state.content_sha256:
            self._by_content[state.content_sha256] = state
        if state.offset_bytes and self._is_gone(state):
            self._moved[state.offset_bytes, state.prefix_sha256] = state

    def _is_gone(self, state: SourceState) -> bool:
        """Whether another file may hold what this one held: it is away, or shorter than what was read of it."""
        if address(state.path) is not None:
            return False  # a request a file; one that was moved is known by its content
        try:
            return placed(state.path, self._root).stat().st_size < state.size_bytes
        except OSError:
            return True

    def file(self, path: str, sha256: str) -> SourceState | None:
        """Return the state of a file with these bytes: its own, or that of one with another name."""
        own = self._by_path.get(path)
        return own if own is not None and own.sha256 == sha256 else self._by_file.get(sha256)

    def tagged(self, path: str, etag: str, size: int) -> SourceState | None:
        """Return the state of an object of a bucket that has not changed since: same name, tag and size."""
        own = self._by_path.get(path)
        return own if own is not None and etag and (own.etag, own.size_bytes) == (etag, size) else None

    def content(self, sha256: str) -> SourceState | None:
        """Return the state of a file with this decompressed content."""
        return self._by_content.get(sha256)

    def torn_before(self, path: str) -> list[tuple[Path, SourceState]]:
        """Return the files next to `path` that may end inside a line of it: those before it by name, the last first."""
        folder = path.rpartition("/")[0]
        names = [name for name in self._torn.get(folder, ()) if name < path]
        return [(placed(name, self._root), self._by_path[name]) for name in sorted(names, reverse=True)]

    def offsets(self, path: str) -> list[int]:
        """Return how much of a file's beginning to compare: as much as was read of it, or of files that are gone."""
        own = self._by_path.get(path)
        fields = {offset for offset, _ in self._moved} | ({own.offset_bytes} if own is not None else set())
        return sorted(fields - {0})

    def prefix(self, path: str, offset: int, sha256: str) -> SourceState | None:
        """Return the state of a file that was read up to `offset` and begins with these bytes."""
        own = self._by_path.get(path)
        if own is not None and (own.offset_bytes, own.prefix_sha256) == (offset, sha256):
            return own
        return self._moved.get((offset, sha256))


def reading_key(cfg: IngestConfig, readers: Mapping[str, Reader]) -> str:
    """Return a key of all that decides whether a file can be read: a file that was set aside is tried with it once."""
    versions = {name: reader.version for name, reader in readers.items()}
    return content_id(cfg.format, cfg.max_quarantine, cfg.max_record_mb, cfg.max_expand_ratio, versions)


class Start(NamedTuple):
    """How to read a file now: its present content, and where an earlier reading ended."""

    size_bytes: int
    sha256: str
    content_sha256: str
    before: SourceState | None  # the earlier reading that this one continues
    hash_before: Hash | None  # the hash of its bytes, to be continued too
    same: SourceState | None  # an earlier reading of all of this content
    torn: Sequence[tuple[Path, SourceState]] = ()  # files before it that may end inside a line of it
    etag: str = ""


def legible(name: str) -> str:
    r"""Return a file's name with \xff and the like for bytes that are not UTF-8: a table holds text only."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def shown_path(file: Path, root: Path) -> str:
    r"""Return a file's path relative to the project where it lies inside, with forward slashes, legible.

    A folder's name that ends with `!` ends with \x21: `!/` is between an archive and its member.
    """
    whole = file.absolute()
    inside = whole.relative_to(root.absolute()) if whole.is_relative_to(root.absolute()) else file
    return legible(inside.as_posix()).replace("!/", "\\x21/")


def placed(name: str, root: Path) -> Path:
    """Return the file that `shown_path` called so."""
    path = source_path(name, root)
    if isinstance(path, BucketPath) or path.exists() or "\\x" not in name:
        return path
    return root / os.fsdecode(_ESCAPED.sub(lambda found: bytes([int(found[1], 16)]), name.encode()))


def start_of(file: Path, name: str, known: Known, max_ratio: int) -> Start:
    """Compare a file with what is known: its own earlier content, or that of a file that was renamed or compressed.

    Of an object whose tag and size are known nothing is read.

    Raises:
        OSError: the file cannot be read.
    """
    size, etag = file.stat().st_size, file.etag if isinstance(file, BucketPath) else ""
    same = known.tagged(name, etag, size)
    if same is not None and not same.set_aside:
        return Start(size, same.sha256, same.content_sha256, None, None, same, etag=etag)
    content = file_content(file, size)
    offsets = known.offsets(name)
    with content.open_at(0) as raw:
        whole, at = _hashes(raw, [offset for offset in offsets if offset <= size])
    same = known.file(name, whole)
    if same is not None and not same.set_aside:
        return Start(size, whole, same.content_sha256, None, None, same, etag=etag)
    inside = whole
    with Opened(content, max_ratio=max_ratio) as opened:
        if opened.compression:
            inside, at = _hashes(opened, offsets)
            same = same or known.content(inside)
    items = [(state, end) for offset, end in at.items() if (state := known.prefix(name, offset, end.hexdigest()))]
    before, end = max(items, key=lambda pair: pair[0].offset_bytes, default=(None, None))
    return Start(size, whole, inside, before, end, same, known.torn_before(name), etag)


def _hashes(stream: io.RawIOBase | io.BufferedIOBase, offsets: Sequence[int]) -> tuple[str, dict[int, Hash]]:
    """Return the SHA-256 of a stream, and the hash up to each of the offsets."""
    digest, done = hashlib.sha256(), 0
    at: dict[int, Hash] = {}
    for stop in (*offsets, None):
        while stop is None or done < stop:
            data = stream.read(_CHUNK if stop is None else min(_CHUNK, stop - done))
            if not data:
                break
            digest.update(data)
            done += len(data)
        if done == stop:
            at[done] = digest.copy()
    return digest.hexdigest(), at
