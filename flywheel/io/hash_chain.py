"""Append-only files whose lines are chained by hash, so that what was written once cannot be changed unseen.

    {"previous_sha256": "<hash of the line before>", ...}

The hash of the last line, the head, is kept elsewhere by whoever owns the file: without it a cut-off end would look
whole. A new line is chained to the head that was kept, not to whatever stands last in the file, so a break stays
visible for ever instead of being healed by the next honest line.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flywheel.io import files
from flywheel.records import canonical_json


def lines_of(path: Path) -> list[str]:
    """Return the file's lines; none where there is no file."""
    return files.lines(path.read_text(encoding="utf-8", errors="replace")) if path.exists() else []


def head_of(path: Path) -> str:
    """Return the hash of the last line as it stands; '' for no line."""
    lines = lines_of(path)
    return files.hash_text(lines[-1]) if lines else ""


def append(path: Path, entry: Mapping[str, Any], *, head: str | None) -> str:
    """Append an entry and return the new head.

    Args:
        path: the file.
        entry: its `previous_sha256` is filled in here.
        head: the kept head; None where none was kept yet.
    """
    previous = head_of(path) if head is None else head
    line = files.encodable(canonical_json({**entry, "previous_sha256": previous}))
    files.append_line(path, line)
    return files.hash_text(line)


def breaks(path: Path, *, head: str | None) -> list[str]:
    """Return where the chain is broken, in words; nothing when it is whole.

    Args:
        path: the file.
        head: the kept head; None to leave the end unchecked.
    """
    before, found = "", []
    lines = lines_of(path)
    for number, line in enumerate(lines, 1):
        previous = _previous(line)
        if previous is None:
            found.append(f"{path.name} line {number} is no entry of this file")
        elif previous != before:
            found.append(f"{path.name} line {number} does not follow from the line before")
        before = files.hash_text(line)
    if head is not None and before != head:
        found.append(f"the end of {path.name} was changed or cut off")
    return found


def _previous(line: str) -> str | None:
    try:
        entry = json.loads(line)
    except ValueError:
        return None
    found = entry.get("previous_sha256", "") if isinstance(entry, dict) else None
    return found if isinstance(found, str) else None
