"""Which episodes, and which users' pseudonyms, are behind each row of a round.

In: rows with their ids, and the tables that they were taken from. Out: `data/origins.jsonl`, a line a row; of a row
that comes from an attempt of the champion, the episode whose request was attempted, the one with whose actions it
began, and which attempt it was. Training does not read it; it shows later which rows, and which adapters, came from a
user who asks to be forgotten.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from flywheel.io.files import read_rows
from flywheel.pipeline.build.registry import stage_of
from flywheel.records import canonical_json
from flywheel.records.methods import DATASETS, TrainedTable
from flywheel.store import Store

ORIGINS = "data/origins.jsonl"

_TABLES = tuple(dict.fromkeys(dataset.table for dataset in DATASETS))


class Origin(NamedTuple):
    """Where a row comes from."""

    episodes: frozenset[str]
    users: frozenset[str]


def origins_text(store: Store, rows: Sequence[dict[str, Any]]) -> str:
    """Return the origins of rows of the current tables, as JSON lines in the rows' order; a golden row has none."""
    ids = [row["id"] for row in rows]
    origins = {row["id"]: Origin(frozenset(), frozenset()) for row in rows if row.get("mix") == "golden"}
    for table in _TABLES:
        origins |= _origins(store, store.table(table.name, stage_of(table.name)), table, ids)
    attempts = {row["id"]: row["attempt"] for row in rows if "attempt" in row}
    behind = {row["id"]: [row["episode_id"], *_guide(row)] for row in rows if "attempt" in row}
    origins |= _of_attempts(store, behind)
    lines = (
        {
            "id": name,
            "episodes": sorted(origins[name].episodes),
            "users": sorted(origins[name].users),
            **({"attempt": attempts[name]} if name in attempts else {}),
        }
        for name in ids
        if name in origins
    )
    return "".join(canonical_json(line) + "\n" for line in lines)


def read_origins(path: Path) -> dict[str, Origin]:
    """Return row id → origin from a round's file; nothing where the round has none."""
    return {
        row["id"]: Origin(frozenset(row["episodes"]), frozenset(row["users"])) for row in read_rows(path, optional=True)
    }


def from_snapshots(store: Store, ids: Iterable[str]) -> dict[str, Origin]:
    """Return the origins of rows of older rounds, as far as a snapshot that still exists has them."""
    missing, origins = set(ids), dict[str, Origin]()
    for table in _TABLES:
        stage = stage_of(table.name)
        for number in reversed(store.numbers(stage)):
            if missing:
                parts = [p for p in store.snapshot(stage, number).parts if not store.damage(p)]
                origins |= _origins(store, store.read(parts, table.name), table, sorted(missing))
                missing -= origins.keys()
    return origins


def _origins(store: Store, frame: pl.LazyFrame, table: TrainedTable, ids: list[str]) -> dict[str, Origin]:
    columns = table.episodes
    if table.by_task:
        tasks = store.table("tasks", stage_of("tasks")).group_by("task_id").agg(_attempts="episode_id")
        frame, columns = frame.join(tasks, on="task_id", how="left"), ("_attempts",)
    rows = frame.filter(pl.col(table.key).is_in(ids)).select(table.key, *columns, *table.users).collect()
    return {
        row[table.key]: Origin(
            frozenset(_flat(row[column] for column in columns)), frozenset(_flat(row[column] for column in table.users))
        )
        for row in rows.iter_rows(named=True)
    }


def _guide(row: Mapping[str, Any]) -> list[str]:
    guide = row["attempt"].get("guide")
    return [] if guide is None else [guide]


def _of_attempts(store: Store, episodes: Mapping[str, Sequence[str]]) -> dict[str, Origin]:
    """Return the origins of rows that rest on messages of some episodes, from row id → episodes."""
    if not episodes:
        return {}
    wanted = sorted({one for some in episodes.values() for one in some})
    known = store.table("episodes", stage_of("episodes")).filter(pl.col("episode_id").is_in(wanted))
    users = dict(known.select("episode_id", "user").collect().iter_rows())
    return {name: Origin(frozenset(some), frozenset(_flat(map(users.get, some)))) for name, some in episodes.items()}


def _flat(values: Iterable[Any]) -> Iterable[str]:
    for value in values:
        yield from value if isinstance(value, list) else [value] if value is not None else []
