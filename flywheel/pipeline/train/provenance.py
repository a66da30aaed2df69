"""Whose a round's rows are: the episodes and the pseudonyms of the users behind each.

In: rows with their ids, and the tables that they were taken from. Out: `data/origins.jsonl`, a line a row. Rows are
trained on without it; it says later which of them, and which adapters, came from a user who wants to be forgotten.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import polars as pl

from flywheel.io.files import read_rows
from flywheel.pipeline.build.registry import stage_of
from flywheel.records import canonical_json
from flywheel.store import Store

if TYPE_CHECKING:
    from pathlib import Path


__all__ = ["ORIGINS", "Origin", "from_snapshots", "origins_text", "read_origins"]

ORIGINS = "data/origins.jsonl"

# Of each table rows may come from: its id, the columns with episodes, the columns with users.
_TABLES = {
    "examples": ("example_id", ("episode_id",), ("user",)),
    "pairs": ("pair_id", ("chosen_episode", "rejected_episode"), ("users",)),
    "groups": ("group_id", ("episodes_G",), ()),
    "scenarios": ("scenario_id", ("episodes",), ()),
}


class Origin(NamedTuple):
    """Where a row comes from."""

    episodes: frozenset[str]
    users: frozenset[str]


def origins_text(store: Store, rows: Iterable[dict[str, Any]]) -> str:
    """Return the origins of rows of the current tables, as JSON lines in the rows' order; a golden row has none."""
    given = list(rows)
    ids = [row["id"] for row in given]
    found = {row["id"]: Origin(frozenset(), frozenset()) for row in given if row.get("mix") == "golden"}
    for table in _TABLES:
        found |= _origins(store, store.table(table, stage_of(table)), table, ids)
    lines = (
        {"id": one, "episodes": sorted(found[one].episodes), "users": sorted(found[one].users)}
        for one in ids
        if one in found
    )
    return "".join(canonical_json(line) + "\n" for line in lines)


def read_origins(path: Path) -> dict[str, Origin]:
    """Return row id → origin as a round's file says; nothing where a round has none."""
    return {
        row["id"]: Origin(frozenset(row["episodes"]), frozenset(row["users"])) for row in read_rows(path, optional=True)
    }


def from_snapshots(store: Store, ids: Iterable[str]) -> dict[str, Origin]:
    """Return the origins of rows of older rounds, as far as any snapshot that is still there knows them."""
    wanted, found = set(ids), dict[str, Origin]()
    for table in _TABLES:
        stage = stage_of(table)
        for number in reversed(store.numbers(stage)):
            if wanted - found.keys():
                parts = [p for p in store.snapshot(stage, number).parts if (store.root / p.path).exists()]
                found |= _origins(store, store.read(parts, table), table, sorted(wanted - found.keys()))
    return found


def _origins(store: Store, frame: pl.LazyFrame, table: str, ids: list[str]) -> dict[str, Origin]:
    key, episodes, users = _TABLES[table]
    if table == "scenarios":  # which name only some of the attempts that they replay: any of their task may be behind
        tasks = store.table("tasks", stage_of("tasks")).group_by("task_id").agg(episodes="episode_id")
        frame = frame.join(tasks, on="task_id", how="left")
    rows = frame.filter(pl.col(key).is_in(ids)).select(key, *episodes, *users).collect()
    return {
        row[key]: Origin(frozenset(_flat(row[c] for c in episodes)), frozenset(_flat(row[c] for c in users)))
        for row in rows.iter_rows(named=True)
    }


def _flat(values: Iterable[Any]) -> Iterable[str]:
    for value in values:
        yield from value if isinstance(value, list) else [value] if value is not None else []
