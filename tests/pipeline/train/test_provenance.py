"""Whose a row is: by its own table, by any snapshot that is still there, or as everybody's of its task."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
from flywheel.contracts import polars_schema
from flywheel.pipeline.train.provenance import Origin, from_snapshots, origins_text, read_origins
from flywheel.records import TABLES
from flywheel.store import Store

SCENARIO = {
    "scenario_id": "s", "task_id": "t", "split": "train", "turn": 1, "state": "", "episode_id": "one", "step": 0,
    "prompt": "[]", "tools": None, "judged_by": "state", "n_calls": 1, "n_attempts": 3, "states_E": [], "answers_E": [],
    "rewards_E": [], "successes_E": [], "counts_E": [], "episodes_E": [["one"]],
}  # fmt: skip
EXAMPLE = {
    "example_id": "x", "task_id": "t", "split": "train", "state_key": "k", "prompt": "[]", "tools": None,
    "completion": "[]", "label": True, "p_success": 1.0, "weight": 1.0, "episode_id": "one", "step": 0,
    "source": "correction", "user": "user_editor",
}  # fmt: skip


def commit(store: Store, stage: str, table: str, *rows: dict[str, Any]) -> None:
    part = store.write(table, pl.DataFrame(list(rows), schema=polars_schema(TABLES[table])), partition=0)
    store.commit(stage, fingerprint={}, parts=[part] if part else [], funnel={})


def test_rows_of_tables_and_of_scenarios(tmp_path: Path) -> None:
    store = Store(tmp_path)
    tasks = [
        {"episode_id": e, "task_id": t, "request_id": "r", "cluster_id": "c", "split": "train", "formerly": []}
        for e, t in (("one", "t"), ("two", "t"), ("three", "another"))
    ]
    commit(store, "tasks", "tasks", *tasks)
    commit(store, "fixtures", "scenarios", SCENARIO)
    commit(store, "examples", "examples", EXAMPLE)

    path = tmp_path / "origins.jsonl"
    path.write_text(origins_text(store, [{"id": "s"}, {"id": "x"}, {"id": "lost"}, {"id": "own", "mix": "golden"}]))

    assert read_origins(path) == {
        "s": Origin(frozenset({"one", "two"}), frozenset()),  # any attempt at its task may be behind what it replays
        "x": Origin(frozenset({"one"}), frozenset({"user_editor"})),
        "own": Origin(frozenset(), frozenset()),  # known to be nobody's, unlike what is lost
    }


def test_older_snapshots_still_know(tmp_path: Path) -> None:
    store = Store(tmp_path)
    commit(store, "examples", "examples", EXAMPLE)
    commit(store, "examples", "examples", EXAMPLE | {"example_id": "newer"})

    assert set(from_snapshots(store, ["x", "newer", "never"])) == {"x", "newer"}
