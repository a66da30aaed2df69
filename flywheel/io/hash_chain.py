"""Append-only files whose lines are chained by hash, so that a changed line is noticed.

    {"previous_sha256": "<hash of the line before>", ...}

The owner of a file keeps the hash of its last line, the head, elsewhere: without it a cut-off end would go unnoticed. A
new line is chained to the kept head, not to the last line of the file, so a break stays visible for ever instead of
being healed by the next honest line.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flywheel.io import files
from flywheel.records import canonical_json

NOT_AN_ENTRY = "is not an entry of this file"


def lines_of(path: Path) -> list[str]:
    """Return the file's lines; none where there is no file."""
    return files.lines(path.read_text(encoding="utf-8", errors="replace")) if path.exists() else []


def head_of(path: Path) -> str:
    """Return the hash of the last line; '' for an empty file."""
    lines = lines_of(path)
    return files.hash_text(lines[-1]) if lines else ""


def line_of(path: Path, entry: Mapping[str, Any], *, head: str | None) -> str:
    """Return an entry's line, chained to the one before.

    Args:
        path: the file.
        entry: its `previous_sha256` is filled in here.
        head: the kept head; None where there is none yet.
    """
    before = head_of(path) if head is None else head
    return files.encodable(canonical_json({**entry, "previous_sha256": before}))


def breaks(path: Path, *, head: str | None) -> list[str]:
    """Return where the chain is broken, in words; an empty list if it is intact.

    Args:
        path: the file.
        head: the kept head; None to leave the end unchecked.
    """
    before, broken, end = "", [], 0
    for number, line in enumerate(lines_of(path), 1):
        earlier = previous(line)
        if earlier is None:
            broken.append(f"{path.name} line {number} {NOT_AN_ENTRY}")
        elif earlier != before:
            broken.append(f"{path.name} line {number} does not follow from the line before")
        before = files.hash_text(line)
        end = number if before == head else end
    if head is not None and before != head:
        more = (
            f"{path.name} goes on behind line {end}, the last that is known: restore what knows its end where that is "
            f"older (a backup, git), else remove those after line {end}, which flywheel did not write"
        )
        broken.append(more if end else f"the end of {path.name} was changed or cut off; restore it from a backup")
    return broken


def previous(line: str) -> str | None:
    """Return the hash that a line has of the line before; None where it is not an entry."""
    try:
        entry = json.loads(line)
    except ValueError:
        return None
    sha256 = entry.get("previous_sha256", "") if isinstance(entry, dict) else None
    return sha256 if isinstance(sha256, str) else None
