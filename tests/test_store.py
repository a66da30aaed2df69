"""The door: contracts enforced, parts by content, snapshots last."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow.parquet as pq
import pytest
from flywheel.contracts import polars_schema
from flywheel.errors import ContractError, StoreError
from flywheel.records import Reward
from flywheel.store import Store


def _rewards(**changes: Any) -> pl.DataFrame:
    row = {
        "episode_id": "e1", "task_id": "t1", "step": None, "signal": "thumbs", "family": "sentiment_pos",
        "kind": "implicit", "score": 1.0, "weight": 1.0, "evidence": ["a"], "arrived": datetime(2026, 1, 1, tzinfo=UTC),
        "signal_version": 1,
    }  # fmt: skip
    return pl.DataFrame([{**row, **changes}], schema=polars_schema(Reward))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    made = Store(tmp_path / "store")
    made.create()
    return made


def test_a_row_comes_back_as_it_went_in(store: Store) -> None:
    part = store.write("rewards", _rewards(), partition=0)

    assert part is not None
    assert store.read([part], "rewards").collect().equals(_rewards())
    metadata = pq.read_metadata(store.root / part.path).metadata
    assert metadata[b"flywheel.schema"] == b"reward/v1"


def test_row_order_does_not_change_the_bytes(store: Store) -> None:
    two = pl.concat([_rewards(signal="b"), _rewards(signal="a")])

    assert store.write("rewards", two, partition=0) == store.write("rewards", two.reverse(), partition=0)


def test_the_order_and_the_pieces_of_many_rows_do_not_change_the_bytes(store: Store) -> None:
    """Sorted in pieces, whose sizes differ by the order before and the number of threads: also on a cluster."""
    names = pl.int_range(150_000, eager=True).cast(pl.String).rename("episode_id")
    rows = pl.select(names).join(_rewards().drop("episode_id"), how="cross").select(_rewards().columns)

    part = store.write("rewards", rows, partition=0)
    assert part is not None
    assert part == store.write("rewards", rows.sample(fraction=1, shuffle=True, seed=1), partition=0)
    groups = pq.read_metadata(store.root / part.path)
    assert [groups.row_group(n).num_rows for n in range(groups.num_row_groups)] == [131_072, 18_928]


def test_an_empty_frame_writes_nothing(store: Store) -> None:
    assert store.write("rewards", _rewards().clear(), partition=0) is None


@pytest.mark.parametrize(
    ("frame", "problem"),
    [
        (_rewards().drop("score"), "missing columns"),
        (_rewards().with_columns(extra=pl.lit(1)), "unknown columns"),
        (_rewards().with_columns(pl.col("score").cast(pl.String)), "wrong column types"),
        (_rewards().with_columns(signal=pl.lit(None, dtype=pl.String)), "does not fit its column"),
    ],
)
def test_what_is_not_according_to_the_contract_cannot_be_written(
    store: Store, frame: pl.DataFrame, problem: str
) -> None:
    with pytest.raises(ContractError, match=problem):
        store.write("rewards", frame, partition=0)
    assert list((store.root).rglob("*.parquet")) == []


def test_the_highest_snapshot_is_current_and_old_ones_stay_readable(store: Store) -> None:
    assert store.current("rewards") is None
    for score in (0.1, 0.2):
        part = store.write("rewards", _rewards(score=score), partition=0)
        assert part is not None
        store.commit("rewards", fingerprint={"version": 1}, parts=[part], funnel={"considered": 1, "kept": 1})

    assert store.table("rewards", "rewards").collect()["score"].to_list() == [0.2]
    first = store.snapshot("rewards", 1)
    assert store.read(first.parts, "rewards").collect()["score"].to_list() == [0.1]
    assert Store(store.root).current("rewards") == store.current("rewards")


def test_a_lost_part_is_named(store: Store) -> None:
    part = store.write("rewards", _rewards(), partition=0)
    assert part is not None
    store.commit("rewards", fingerprint={}, parts=[part], funnel={})
    (store.root / part.path).unlink()

    with pytest.raises(StoreError, match="a part of table rewards is missing"):
        store.table("rewards", "rewards")


@pytest.mark.parametrize("written", ["[1]", "{}", '{"parts": [{"path": "x"}]}', "nonsense"])
def test_a_damaged_snapshot_is_named(store: Store, written: str) -> None:
    folder = store.root / "snapshots" / "ingest"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "7.json").write_text(written)
    with pytest.raises(StoreError, match="damaged"):
        Store(store.root).snapshot("ingest", 7)


@pytest.mark.parametrize("moving", [[4], [4, 1, 2], 3, "4", [0, 1]])
def test_a_header_of_half_a_move_is_named(store: Store, moving: object) -> None:
    (store.root / "store.json").write_text(json.dumps({"layout": 1, "partitions": 4, "moving": moving}))
    with pytest.raises(StoreError, match="no number of partitions"):
        Store(store.root)


def test_a_full_disk_is_the_disks_fault_not_the_frames(tmp_path: Path) -> None:
    """RLIMIT_FSIZE makes the kernel refuse the part, as a full disk does; nothing half-written is left."""
    code = """
import resource, sys
from pathlib import Path
import polars as pl
from flywheel.contracts import polars_schema
from flywheel.errors import StoreError
from flywheel.records import Reward
from flywheel.store import Store
store = Store(Path(sys.argv[1]))
store.create()
resource.setrlimit(resource.RLIMIT_FSIZE, (500, 500))
frame = pl.read_ipc(sys.argv[2])
try:
    store.write("rewards", frame, partition=0)
except StoreError as error:
    print(error.message, "|", error.hint)
"""
    _rewards().write_ipc(tmp_path / "frame.arrow")
    command = [sys.executable, "-c", code, str(tmp_path / "store"), str(tmp_path / "frame.arrow")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)

    assert "File too large" in done.stdout
    assert "type the command again" in done.stdout
    assert [p.name for p in (tmp_path / "store" / "tables" / "rewards" / "p00").iterdir()] == []


def test_another_layout_is_refused(store: Store) -> None:
    (store.root / "store.json").write_text(json.dumps({"layout": 99, "partitions": 4}))

    with pytest.raises(StoreError, match="layout 99"):
        Store(store.root)


def test_the_cache_gives_back_what_was_kept(store: Store) -> None:
    assert store.cached("probe", "k") is None
    store.cache("probe", "k", [1, "ü"])
    assert store.cached("probe", "k") == [1, "ü"]


def test_the_last_snapshots_are_kept_with_their_parts(store: Store) -> None:
    shared = store.write("rewards", _rewards(signal="shared"), partition=0)
    for number in range(25):
        part = store.write("rewards", _rewards(signal=f"s{number}"), partition=0)
        store.commit("rewards", fingerprint={}, parts=[p for p in (shared, part) if p], funnel={})

    assert store.numbers("rewards") == list(range(6, 26))
    files = list((store.root / "tables" / "rewards").rglob("*.parquet"))
    assert len(files) == 21
    again = Store(store.root)
    for number in again.numbers("rewards"):
        assert again.read(again.snapshot("rewards", number).parts, "rewards").collect().height == 2
