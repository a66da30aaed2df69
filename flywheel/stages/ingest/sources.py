"""Which files there are, which of them are known, and from where a known one goes on.

In: paths as the user typed them, and what was read before. Out: files in a fixed order, and for each a `Start`. A file
is known by its content, so that a renamed or rotated one is not read again; a log that only grew is continued where it
ended.
"""

from __future__ import annotations

import glob
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from flywheel.errors import IngestError

__all__ = ["SourceState", "Start", "discover", "shown_path", "start_of"]

_CHUNK = 1 << 20


@dataclass(frozen=True)
class SourceState:
    """What was read of one file. `offset_bytes` is 0 for a file that cannot be continued."""

    path: str
    format: str
    size_bytes: int
    sha256: str
    records: int
    offset_bytes: int = 0
    offset_lines: int = 0
    prefix_sha256: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the state as JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> SourceState:
        """Return the state that `to_dict` wrote; fields of a later version are ignored."""
        return cls(**{name: state[name] for name in cls.__dataclass_fields__ if name in state})


class Start(NamedTuple):
    """How to read a file now: its present content, and where an earlier reading ended."""

    size_bytes: int
    sha256: str
    before: SourceState | None  # the earlier reading that this one continues
    unchanged: bool


def discover(paths: Sequence[Path]) -> list[Path]:
    """Return the files that paths mean: files, folders (with all below them) and globs; sorted, each once.

    In folders, hidden files and links that lead out of the folder are left out.

    Raises:
        IngestError: a path does not exist, or nothing is found.
    """
    found: dict[Path, None] = {}
    for path in paths:
        for file in _expand(path):
            found.setdefault(file.absolute())
    if not found:
        named = ", ".join(f"`{path}`" for path in paths)
        raise IngestError(f"nothing to read in {named}", hint="put logs there, or name files: flywheel ingest PATH")
    return sorted(found)


def _expand(path: Path) -> Iterable[Path]:
    if path.is_dir():
        root = path.resolve()
        return [f for f in sorted(path.rglob("*")) if _visible(f, path) and f.resolve().is_relative_to(root)]
    if path.exists():
        return [path]
    if glob.has_magic(str(path)):
        matches = [Path(match) for match in sorted(glob.glob(str(path), recursive=True))]  # noqa: PTH207 - Path.glob refuses absolute patterns
        return [file for match in matches for file in (_expand(match) if match.is_dir() else [match])]
    raise IngestError(f"`{path}` does not exist", hint="check the spelling, or name a folder, a file or a glob")


def _visible(file: Path, root: Path) -> bool:
    hidden = any(part.startswith(".") for part in file.relative_to(root).parts)
    return not hidden and file.is_file()


def shown_path(file: Path, root: Path) -> str:
    """Return a file's path relative to the project where it lies inside, with forward slashes."""
    try:
        return file.absolute().relative_to(root.absolute()).as_posix()
    except ValueError:
        return file.as_posix()


def start_of(file: Path, name: str, known: Mapping[str, SourceState]) -> Start:
    """Compare a file with what is known of it.

    Raises:
        IngestError: the file cannot be read.
    """
    earlier = known.get(name)
    try:
        size = file.stat().st_size
        offset = earlier.offset_bytes if earlier is not None and 0 < earlier.offset_bytes <= size else 0
        whole, prefix = _hashes(file, size, offset)
    except OSError as error:
        raise IngestError(f"`{name}` cannot be read: {error.strerror}", hint="check its permissions") from None
    unchanged = any(state.sha256 == whole and state.size_bytes == size for state in known.values())
    continues = earlier is not None and offset > 0 and prefix == earlier.prefix_sha256
    return Start(size, whole, earlier if continues else None, unchanged)


def prefix_hash(file: Path, offset: int) -> str:
    """Return the SHA-256 of a file's first bytes."""
    return _hashes(file, offset, offset)[1]


def _hashes(file: Path, size: int, offset: int) -> tuple[str, str]:
    """Return the SHA-256 of the first `size` bytes and of the first `offset` bytes of a file."""
    digest, prefix, done = hashlib.sha256(), "", 0
    with file.open("rb") as handle:
        while done < size:
            stop = offset if done < offset else size
            data = handle.read(min(_CHUNK, stop - done))
            if not data:
                break
            digest.update(data)
            done += len(data)
            if done == offset:
                prefix = digest.hexdigest()
    return digest.hexdigest(), prefix
