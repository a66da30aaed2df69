"""Aliases follow from the chain of decisions: which round each names, and where the pointer's file has others.

    rounds/aliases.json    {"champion": 2, "challenger": 3, "previous": 1, "decisions_sha256": "<the last decision>"}

The file is what servers and people read; the decisions are what counts. It also keeps the hash of the last decision,
so that none is added or cut off unseen, and while a decision is written, that of the coming one (`deciding_sha256`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from flywheel.io import files
from flywheel.present import the_round

ALIASES = ("champion", "challenger", "previous")
HEAD, COMING = "decisions_sha256", "deciding_sha256"
LOST = (
    "aliases.json is missing, or does not say which decision was the last (early versions did not); restore it from a "
    "backup, or decide again: "
    "`flywheel promote ROUND --force`, or `flywheel rollback --to base`"
)

Aliases = dict[str, int | None]


def moved(aliases: Mapping[str, int | None], decision: Mapping[str, Any]) -> Aliases:
    """Return the aliases after a decision."""
    before, after = decision.get("champion_before"), decision.get("champion_after")
    moves: Aliases = {**aliases, "champion": after}
    if after != before:
        moves["previous"] = before if decision.get("decision") != "forgotten" else None
    if decision.get("decision") == "held":
        moves["challenger"] = decision.get("round")
    elif aliases["challenger"] == after:
        moves["challenger"] = None
    return moves


def decided(lines: Sequence[str], head: str | None) -> list[dict[str, Any]] | None:
    """Return the decisions up to the one whose line has the hash `head`; all without one; None where it is not there.

    Args:
        lines: of promotions.jsonl; one that is not an entry is left out.
        head: as the pointer keeps it.
    """
    if head is not None:
        known = [number for number, line in enumerate(lines, 1) if files.hash_text(line) == head]
        if not known:
            return None
        lines = lines[: known[0]]
    return [entry for entry in map(_entry, lines) if entry]


def replayed(decisions: Sequence[Mapping[str, Any]]) -> Aliases:
    """Return the aliases after these decisions."""
    aliases: Aliases = dict.fromkeys(ALIASES)
    for decision in decisions:
        aliases = moved(aliases, decision)
    return aliases


def written(pointer: Mapping[str, object]) -> Aliases:
    """Return the aliases as the pointer's file has them."""
    return {name: number if type(number := pointer.get(name)) is int else None for name in ALIASES}


def differences(pointer: Mapping[str, object], aliases: Aliases) -> list[str]:
    """Return where the pointer's file differs from the decisions, in words."""
    stands = written(pointer)
    return [
        f"aliases.json names {the_round(stands[name])} as {name}, the decisions {the_round(aliases[name])}"
        for name in ALIASES
        if stands[name] != aliases[name]
    ]


def stamp(path: Path) -> tuple[int, int, int]:
    """Return what changes with a file, which is always replaced by another."""
    try:
        stat = path.stat()
    except OSError:
        return (0, 0, 0)
    return stat.st_ino, stat.st_mtime_ns, stat.st_size


def _entry(line: str) -> dict[str, Any]:
    try:
        entry = json.loads(line)
    except ValueError:
        return {}
    numbers = (
        (entry.get(k) for k in ("champion_before", "champion_after", "round")) if isinstance(entry, dict) else [""]
    )
    return entry if all(number is None or type(number) is int for number in numbers) else {}
