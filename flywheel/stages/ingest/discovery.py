"""Which files there are, by the paths that a user typed.

In: files, folders, globs, here or in a bucket. Out: files in a fixed order, each with the path that named it, and what
was passed over: a folder that cannot be listed, a link that leads out, a FIFO. Only hidden files are left out without a
word. What a glob matches passes the same filters as what a folder holds, because whoever may write there chose the
names.
"""

from __future__ import annotations

import fnmatch
import glob
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from flywheel.errors import IngestError
from flywheel.io.bucket_path import BucketPath
from flywheel.stages.ingest.signature import is_signature

STDIN = Path("-")
_SPECIAL = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


class Skipped(NamedTuple):
    """What lies below a named folder and is not read."""

    path: Path
    why: str


class Discovery(NamedTuple):
    """Files to read, sorted, each once, with the path that named it first; and what was passed over.

    `absent` are named paths that mean nothing, next to others that do, each with the reason.
    """

    sources: dict[Path, Path]
    skipped: list[Skipped]
    absent: list[Skipped]

    @property
    def files(self) -> list[Path]:
        """Return the files in the order in which they are read."""
        return list(self.sources)


def discover(paths: Sequence[Path]) -> list[Path]:
    """Return the files that paths mean; see `discovery`."""
    return discovery(paths).files


def discovery(paths: Sequence[Path]) -> Discovery:
    """Return the files that paths mean: files, folders (with all below them), globs, `-` for standard input.

    In folders and buckets, hidden files and folders are left out, and links that lead out of the folder.

    Raises:
        IngestError: nothing is found: no path exists, or each is a FIFO, a socket or a device.
    """
    sources: dict[Path, Path] = {}
    skipped: list[Skipped] = []
    faults: dict[Path, IngestError] = {}
    for path in paths:
        if path == STDIN:
            sources.setdefault(STDIN, STDIN)
            continue
        try:
            for file in _expand(path, skipped):
                sources.setdefault(file.absolute(), path)
        except IngestError as fault:
            faults[path] = fault
    if faults and not sources:
        raise next(iter(faults.values()))
    if not sources and not skipped:
        named = ", ".join(f"`{path}`" for path in paths)
        raise IngestError(f"nothing to read in {named}", hint="put logs there, or name files: flywheel ingest PATH")
    if not sources:
        first = skipped[0]
        raise IngestError(f"nothing to read: `{first.path}` is {first.why}", hint="name files that can be read")
    logs = {file: sources[file] for file in sorted(sources) if not is_signature(file)}
    absent = [Skipped(path, fault.message.removeprefix(f"`{path}` ")) for path, fault in faults.items()]
    return Discovery(logs, sorted(set(skipped)), absent)


def _expand(path: Path, skipped: list[Skipped]) -> Iterator[Path]:
    if isinstance(path, BucketPath):
        yield from _in_bucket(path, skipped)
    elif path.is_dir():
        yield from _below(path, skipped)
    elif path.exists():
        yield _plain(path)
    elif glob.has_magic(str(path)):
        fixed = next(n for n, part in enumerate(path.parts) if glob.has_magic(part))
        folder = Path(*path.parts[:fixed])
        yield from _matching(folder, path.parts[fixed:], folder.resolve(), skipped)
    elif path.is_symlink():
        raise IngestError(f"`{path}` is a link to nothing", hint="mend the link, or name a folder, a file or a glob")
    else:
        raise IngestError(f"`{path}` does not exist", hint="check the spelling, or name a folder, a file or a glob")


def is_missing(path: Path) -> bool:
    """Whether a path that means itself is not there; buckets and globs are only known by what is in them."""
    if path == STDIN or isinstance(path, BucketPath) or glob.has_magic(str(path)):
        return False
    return not (path.exists() or path.is_symlink())


def _in_bucket(path: BucketPath, skipped: list[Skipped]) -> Iterator[Path]:
    """Yield the objects that an address means."""
    nothing = True
    for place in path.objects():
        nothing = False
        inside = place.address.key.removeprefix(path.address.key)
        if place.object is None or place.object.key != place.address.key:
            skipped.append(Skipped(place, "an object whose name no path can have"))
        elif not any(part.startswith(".") and part not in _OF_SESSIONS for part in inside.split("/")):
            yield place
    if nothing:
        raise IngestError(f"`{path}` holds nothing", hint="check the spelling, or name a folder, an object or a glob")


def special_kind(path: Path) -> str:
    """Return what a path is if reading it could wait for ever: a FIFO, a socket, a device; '' for a file."""
    return _SPECIAL.get(stat.S_IFMT(path.stat().st_mode), "")


def _plain(path: Path) -> Path:
    kind = special_kind(path)
    if kind:
        raise IngestError(f"`{path}` is {kind}, not a file", hint="to read a stream, pipe it: ... | flywheel ingest -")
    return path


def _matching(place: Path, parts: Sequence[str], root: Path, skipped: list[Skipped]) -> Iterator[Path]:
    """Yield the files that the parts of a glob match below a place, and those in the folders that they match.

    Args:
        place: where the parts begin.
        parts: of the pattern that are left; `**` is any folders, and never a link.
        root: the folder at which the glob begins; what leads out of it is passed over.
        skipped: gets what is passed over.
    """
    head, rest = parts[0], parts[1:]
    if head == "**":
        yield from _matching(place, rest or ("*",), root, skipped)
        for folder in _entries(place, "*", skipped):
            if folder.is_dir() and not folder.is_symlink():
                yield from _matching(folder, parts, root, skipped)
        return
    for path in _entries(place, head, skipped):
        why = _passed_over(path, root)
        if why and why != _INSIDE:
            skipped.append(Skipped(path, why))
        elif rest and path.is_dir():
            yield from _matching(path, rest, root, skipped)
        elif not rest and path.is_dir():
            yield from _below(path.resolve() if why else path, skipped)
        elif not rest:
            yield path


def _entries(place: Path, pattern: str, skipped: list[Skipped]) -> list[Path]:
    """Return what a folder holds under names that fit, sorted; a hidden name fits a pattern that begins with a dot."""
    try:
        names = sorted(path.name for path in place.iterdir()) if place.is_dir() else []
    except OSError as error:
        skipped.append(_unreadable(error))
        return []
    if not glob.has_magic(pattern):
        return [place / pattern] if pattern in {*names, "..", "."} else []
    hidden = pattern.startswith(".")
    found = fnmatch.filter(names, pattern)
    return [place / name for name in found if hidden or not name.startswith(".") or name in _OF_SESSIONS]


def _unreadable(error: OSError) -> Skipped:
    return Skipped(Path(error.filename), f"a folder that cannot be read: {error.strerror}")


def _below(folder: Path, skipped: list[Skipped]) -> Iterator[Path]:
    """Yield the files in a folder and its folders."""
    root = folder.resolve()
    for place, folders, names in os.walk(folder, onerror=lambda error: skipped.append(_unreadable(error))):
        hidden = sorted(name for name in folders if name.startswith(".") and name not in _OF_SESSIONS)
        skipped.extend(Skipped(Path(place) / name, _HIDDEN) for name in hidden if name not in _OF_TOOLS)
        folders[:] = sorted(name for name in folders if not name.startswith(".") or name in _OF_SESSIONS)
        for name in sorted([*names, *folders]):
            path = Path(place) / name
            is_hidden = name.startswith(".") and name not in _OF_SESSIONS
            if name == _AIDERS and _AIDERS_WHOLE in names:
                skipped.append(Skipped(path, f"{_AIDERS_WHOLE} next to it has the same, and what the model read"))
                continue
            if is_hidden or (name in folders and not path.is_symlink()):
                continue
            why = _passed_over(path, root)
            if not why:
                yield path
            else:
                skipped.append(Skipped(path, why))


_HIDDEN = "a hidden folder, which is read where it is named"  # agents keep their sessions in some: `.claude`, `.codex`
_AIDERS, _AIDERS_WHOLE = ".aider.chat.history.md", ".aider.llm.history"
# Within each session of Antigravity; what Aider and DeepEval call theirs.
_OF_SESSIONS = (".system_generated", _AIDERS, _AIDERS_WHOLE, ".deepeval", ".latest_test_run.json")
_OF_TOOLS = frozenset((
    ".git", ".hg", ".svn", ".venv", ".cache", ".flywheel", ".ipynb_checkpoints", ".pytest_cache", ".mypy_cache",
    ".ruff_cache", ".idea", ".vscode", ".tox",
))  # fmt: skip
_INSIDE = "a link to a folder that is read under its own name"


def _passed_over(path: Path, root: Path) -> str:
    """Return why something below a folder is not read; '' for a file that is."""
    try:
        target = path.resolve()
        if not target.is_relative_to(root):
            return "a link that leads out of its folder"
        if path.is_symlink() and path.is_dir():
            return _INSIDE
        return special_kind(path)
    except FileNotFoundError:
        return "a link to nothing"
    except (OSError, RuntimeError):  # a circle of links
        return "a link that cannot be followed"
