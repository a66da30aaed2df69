"""Archives of logs: members of tar files (also compressed) and zip files, and tables of databases, as contents.

In: a file. Out: its members in the archive's order, read as they stream by: nothing is unpacked to the disk, where raw
logs have no business. A member that cannot be read has a reason; names that try to lead elsewhere are only names here.
"""

from __future__ import annotations

import io
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from flywheel.stages.ingest.framing.databases import FAULTS as DATABASE_FAULTS
from flywheel.stages.ingest.framing.databases import MAGIC, tables
from flywheel.stages.ingest.framing.opening import Content, Opened, Stream, file_content, too_large

_TAR_MAGIC_AT, _TAR_MAGIC = 257, b"ustar"
_BLOCK = 512
_ZIP = b"PK\x03\x04"
_LOCAL_HEADER = 30
_OFFICE = ("[Content_Types].xml", "META-INF/manifest.xml")  # what Microsoft's and LibreOffice's documents hold
_ZSTD_METHOD = 93  # which Python's zipfile knows from 3.14 on
_FAULTS = (
    *DATABASE_FAULTS,
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    OSError,
    ValueError,
    RuntimeError,
)
_MOST_BESIDE = 1_000_000


class Member(NamedTuple):
    """A file in an archive; `problem` is set when it cannot be read, with the `reason` of the refusal."""

    name: str
    content: Content
    problem: str = ""
    reason: str = "truncated"


def archive_kind(path: Path, size: int, max_ratio: int) -> str:
    """Return 'zip', 'tar', 'sqlite' or '' for a file."""
    with path.open("rb") as handle:
        head = handle.read(len(MAGIC))
    if head.startswith(_ZIP) or head == MAGIC:
        return "zip" if head.startswith(_ZIP) else "sqlite"
    with Opened(file_content(path, size), max_ratio=max_ratio) as stream:
        block = stream.read(_BLOCK)
    return "tar" if block[_TAR_MAGIC_AT : _TAR_MAGIC_AT + len(_TAR_MAGIC)] == _TAR_MAGIC else ""


def members(path: Path, size: int, kind: str, max_ratio: int) -> Iterator[Member]:
    """Yield an archive's files; each must be read before the next is asked for.

    A damaged archive ends with a member that has no name but the problem.
    """
    try:
        yield from _tar(path, size, max_ratio) if kind == "tar" else _MEMBERS[kind](path, max_ratio)
    except _FAULTS as error:
        damaged = f"the {kind} archive is damaged after its last member"
        problem = "the SQLite database cannot be read to its end" if kind == "sqlite" else damaged
        yield Member("", _nothing(""), f"{problem} ({type(error).__name__})")


def _sqlite(path: Path, max_ratio: int) -> Iterator[Member]:
    for table in tables(path, max_ratio):
        yield Member(f"{table.name}.jsonl", _streamed(f"{table.name}.jsonl", path.stat().st_size, table.rows))


def _tar(path: Path, size: int, max_ratio: int) -> Iterator[Member]:
    with (
        Opened(file_content(path, size), max_ratio=max_ratio) as stream,
        tarfile.open(fileobj=stream, mode="r|") as archive,
    ):
        for info in archive:
            file = archive.extractfile(info) if info.isreg() else None
            if file is not None and _visible(info.name):
                yield Member(info.name, _streamed(info.name, info.size, file))
        if stream.fault:
            yield Member("", _nothing(""), stream.fault)


def _zip(path: Path, max_ratio: int) -> Iterator[Member]:
    with path.open("rb") as packed, zipfile.ZipFile(packed) as archive:
        if not archive.NameToInfo.keys().isdisjoint(_OFFICE):
            document = "an Office document, such as an Excel sheet; save the sheet as CSV (UTF-8)"
            yield Member("", _nothing(""), document, "unknown_format")
            return
        for info in archive.infolist():
            if not info.filename or info.is_dir() or not _visible(info.filename):
                continue
            if info.file_size > max_ratio * max(info.compress_size, 1_000):
                yield Member(info.filename, _nothing(info.filename), too_large(max_ratio))
                continue
            try:
                with _unzipped(archive, info, path) as file:
                    yield Member(info.filename, _streamed(info.filename, info.file_size, file))
            except (NotImplementedError, RuntimeError) as error:  # an unknown method, a password
                problem = f"the zip member cannot be unpacked ({type(error).__name__})"
                yield Member(info.filename, _nothing(info.filename), problem)


_MEMBERS = {"zip": _zip, "sqlite": _sqlite}


def _unzipped(archive: zipfile.ZipFile, info: zipfile.ZipInfo, path: Path) -> Any:
    if info.compress_type != _ZSTD_METHOD:
        return archive.open(info)
    import zstandard

    with path.open("rb") as handle:
        handle.seek(info.header_offset + _LOCAL_HEADER - 4)  # its last fields: lengths of the name and the extras
        name, extra = int.from_bytes(handle.read(2), "little"), int.from_bytes(handle.read(2), "little")
        handle.seek(name + extra, io.SEEK_CUR)
        packed = handle.read(info.compress_size)
    return zstandard.ZstdDecompressor().stream_reader(io.BytesIO(packed), read_across_frames=True)


def _visible(name: str) -> bool:
    parts = PurePosixPath(name).parts
    return not any(part.startswith((".", "__MACOSX")) and part not in {".", ".."} for part in parts)


def _streamed(name: str, size: int, file: Any) -> Content:
    return Content(PurePosixPath(name).name, size, lambda _: Stream(file, _FAULTS))


def _nothing(name: str) -> Content:
    return Content(PurePosixPath(name).name, 0, lambda _: Stream(io.BytesIO()))


def member_beside(path: Path, kind: str, member: str, name: str) -> bytes | None:
    """Return the file called `name` in a zip member's folder or the one above it; a tar is not searched."""
    if kind != "zip":
        return None
    folder = PurePosixPath(member).parent
    with path.open("rb") as packed, zipfile.ZipFile(packed) as archive:
        for place in (folder / name, folder.parent / name):
            info = archive.NameToInfo.get(place.as_posix())
            if info is not None and info.file_size <= _MOST_BESIDE:
                try:
                    with _unzipped(archive, info, path) as file:
                        content: bytes = file.read(_MOST_BESIDE)
                        return content
                except _FAULTS:
                    return None
    return None
