"""One partition's work: its rows are read, cut into slices and passed to the stage, and its output is written.

In: a stage and the number of a partition, or none: all partitions together, where there are few rows.
Out: the parts that it wrote and its funnel. Slices are conversations or tasks, as partitions are, so they change no
row; they bound what a stage holds in Python objects, however large the log.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import polars as pl

from flywheel.config import Config
from flywheel.errors import StoreError
from flywheel.funnel import Funnel
from flywheel.io.processes import uncollected
from flywheel.pipeline.build.registry import Frames, Stage, made_by, stage_of
from flywheel.pipeline.build.tables import RECORDED
from flywheel.records import TABLES, LogEvent, content_id
from flywheel.stages.conversations.link import follow_links, told_once
from flywheel.stages.conversations.series import without_repeated
from flywheel.stages.conversations.sessions import date_pieces, part_reopened
from flywheel.stages.conversations.thread import follow_threads, mark_copies
from flywheel.stages.conversations.unnamed import part_restarted, part_unnamed
from flywheel.stages.tasks.build import follow_tasks
from flywheel.store import Part, Snapshot, Store

NOWHERE = "0" * 8  # id of what no episode was made from
SLICE = 100_000  # rows of the largest table that a stage gets at once
TOGETHER = 4 * SLICE  # rows of the largest table that are read at once for several partitions


@dataclass(frozen=True)
class Done:
    """The output of a partition."""

    parts: tuple[Part, ...]
    funnel: Mapping[str, int]


def make_partitions(
    stage: Stage, store: Store, config: Config, project: Path, partitions: Sequence[int | None]
) -> Iterator[Done]:
    """Run a stage on each of some partitions, for which what lies by conversation is read once."""
    exchanged = _exchanged(stage, store, [number for number in partitions if number is not None])
    for partition in partitions:
        yield _make(stage, store, config, project, partition, exchanged)


def _exchanged(stage: Stage, store: Store, partitions: Sequence[int]) -> dict[str, dict[int, pl.DataFrame]]:
    """Return, by table and partition, the rows of some partitions' tasks, which lie in the parts of all partitions.

    What a stage over all made is every partition's, and read once.
    """
    if stage.by != "task" or not partitions:
        return {}
    home = partition_of("task_id", store.partitions)
    tasks = store.table("tasks", "tasks").filter(home.is_in(partitions))
    exchanged: dict[str, dict[int, pl.DataFrame]] = {}
    for table in stage.needs:
        if table != "links" and "task_id" not in TABLES[table].model_fields:
            exchanged[table] = dict.fromkeys(partitions, store.table(table, stage_of(table)).collect())
    for table in RECORDED.intersection(stage.needs):
        rows = follow_tasks(store.table(table, stage_of(table)), tasks).with_columns(_home=home).collect()
        apart = rows.partition_by("_home", as_dict=True, include_key=False)
        exchanged[table] = {int(number): here for (number,), here in apart.items()}
        for number in partitions:
            exchanged[table].setdefault(number, rows.drop("_home").clear())
    return exchanged


def _make(
    stage: Stage,
    store: Store,
    config: Config,
    project: Path,
    partition: int | None,
    exchanged: Mapping[str, Mapping[int, pl.DataFrame]],
) -> Done:
    """Run a stage on one partition, or on everything, and write its output to the partitions that it belongs to."""
    total = Funnel()
    slices: dict[str, list[pl.DataFrame]] = {table: [] for table in stage.makes}
    loaded = _load(stage, store, config, partition, exchanged)
    if partition and "events" in loaded and loaded["events"].is_empty() and not stage.remembers:
        return Done((), {})  # the first partition's funnel has every count, of no rows too
    for frames in _slices(stage, loaded):
        funnel = Funnel()
        remembered = {f"previous {table}": store.table(table, stage.name).collect() for table in stage.remembers}
        with uncollected():
            output = stage.function()(dict(frames) | remembered, config, funnel, project)
        funnel.check(stage.name)
        total.merge(funnel.as_dict())
        for table, rows in slices.items():
            rows.append(output[table])
    outputs = {table: pl.concat(rows) for table, rows in slices.items()}
    written = [
        store.write(table, here, partition=number)
        for table, rows in outputs.items()
        for number, here in _apart(rows, stage, loaded | outputs, store, partition)
    ]
    return Done(tuple(part for part in written if part is not None), total.as_dict())


def _apart(
    rows: pl.DataFrame, stage: Stage, frames: Frames, store: Store, partition: int | None
) -> Iterator[tuple[int, pl.DataFrame]]:
    """Yield each partition's rows: those of its conversations, of its tasks, or of the episodes that are attempts."""
    if partition is not None:
        yield partition, rows
        return
    if rows.is_empty():
        return
    if stage.by == "conversation":
        episodes = frames["episodes"]
        numbers = [store.partition(name) for name in episodes["conversation_id"]]
        homes = rows["episode_id"].replace_strict(episodes["episode_id"], numbers, return_dtype=pl.Int64)
    else:
        tasks = rows
        if "task_id" not in rows.columns:
            of_episodes = frames["episodes"].select("episode_id", "task_id")
            tasks = rows.join(of_episodes, on="episode_id", how="inner", maintain_order="left")
        homes = tasks.select(partition_of("task_id", store.partitions)).to_series()
    for number in range(store.partitions):
        yield number, rows.filter(homes == number)


def _slices(stage: Stage, frames: Frames) -> Iterator[Frames]:
    """Yield the frames in slices of whole conversations or tasks, of about `SLICE` rows."""
    number = math.ceil(max((frame.height for frame in frames.values()), default=0) / SLICE)
    if stage.by == "all" or number < 2:  # noqa: PLR2004
        yield frames
        return
    homes = {name: _homes(frame, frames.get("episodes"), stage, number) for name, frame in frames.items()}
    for place in range(number):
        yield {
            name: frame if homes[name] is None else frame.filter(homes[name] == place) for name, frame in frames.items()
        }


def _homes(frame: pl.DataFrame, episodes: pl.DataFrame | None, stage: Stage, number: int) -> pl.Series | None:
    """Return each row's slice, by the digits of its id after those that decide its partition; None: in every slice.

    Events lie with their conversation's episode; before there are episodes, by the conversation's own hash.
    """
    key = "task_id" if stage.by == "task" else "episode_id"
    if key in frame.columns:
        ids = frame[key]
    elif "conversation_id" not in frame.columns:
        return None
    elif episodes is not None:
        known = episodes.select("conversation_id", "episode_id").unique("conversation_id")
        ids = frame["conversation_id"].replace_strict(known["conversation_id"], known["episode_id"], default=NOWHERE)
    else:
        names = frame["conversation_id"].unique()
        hashes = pl.Series([content_id(name) for name in names], dtype=pl.String)
        ids = frame["conversation_id"].replace_strict(names, hashes)
    return ids.str.slice(4, 4).str.to_integer(base=16) % number


def partition_of(column: str, partitions: int) -> pl.Expr:
    """Return the partition of rows keyed by an id in hex: the first four digits modulo the number of partitions."""
    return pl.col(column).str.slice(0, 4).str.to_integer(base=16) % partitions


def _as_conversations(events: pl.DataFrame) -> pl.DataFrame:
    """Return events in the conversations that they are of, which single records do not know."""
    for step in (date_pieces, part_unnamed, part_restarted, part_reopened, follow_threads):
        events = step(events)
    return events


def _load(
    stage: Stage,
    store: Store,
    config: Config,
    partition: int | None,
    exchanged: Mapping[str, Mapping[int, pl.DataFrame]],
) -> dict[str, pl.DataFrame]:
    frames = {}
    for table in stage.needs:
        snapshot = store.current(stage_of(table))
        parts = snapshot.parts if snapshot else ()
        if snapshot is not None and stage.by != "all" and made_by(table) != "all":
            refuse_other_partitions(store, snapshot)
        if table == "events":
            events = _events(stage, store, parts, config.build.cutoff, partition).collect()
            frames[table] = events if stage.by == "all" else _as_conversations(events)
        elif table == "links" or (table == "tasks" and table not in stage.columns):
            continue  # events, and what is made of them, are read through them
        elif stage.by == "all":
            columns = stage.columns.get(table, tuple(TABLES[table].model_fields))
            frames[table] = store.read(parts, table).select(columns).collect()
        elif "task_id" not in TABLES[table].model_fields and partition is not None and table in exchanged:
            frames[table] = exchanged[table][partition]
        elif "task_id" not in TABLES[table].model_fields:
            frames[table] = store.read(parts, table).collect()  # the output of a stage over all is small
        elif stage.by == "conversation":
            frames[table] = store.read([p for p in parts if partition in {None, p.partition}], table).collect()
        elif partition is not None and table in exchanged:
            frames[table] = exchanged[table][partition].sort(list(TABLES[table].key))
        else:
            lazy = _of_tasks(store, table, parts, partition)
            frames[table] = lazy.sort(list(TABLES[table].key)).collect()
    return frames


def refuse_other_partitions(store: Store, needed: Snapshot) -> None:
    """Refuse to put together partitions of different numbers: some rows would be lost, others met twice.

    Raises:
        StoreError: the store was repartitioned after the needed snapshot.
    """
    partitions = needed.fingerprint.get("partitions", store.partitions)
    if partitions != store.partitions:
        raise StoreError(
            f"`{needed.stage}` was built in {partitions} partitions, and the store has {store.partitions} now",
            hint=f"build it first: `flywheel build`, or `flywheel build --select {needed.stage}`",
        )


def _of_tasks(store: Store, table: str, parts: Sequence[Part], partition: int | None) -> pl.LazyFrame:
    """Return the rows of a partition's tasks; of all, what was recorded before tasks were known is under its task."""
    if made_by(table) == "task":
        return store.read([p for p in parts if partition in {None, p.partition}], table)
    if table in RECORDED:
        return follow_tasks(store.read(parts, table), store.table("tasks", "tasks"))
    here = pl.lit(value=True) if partition is None else partition_of("task_id", store.partitions) == partition
    return store.read(parts, table).filter(here)


def _events(
    stage: Stage, store: Store, parts: Sequence[Part], cutoff: datetime | None, partition: int | None
) -> pl.LazyFrame:
    """Return a partition's events, or all, where they belong; for a stage over all, where they were recorded."""

    def recorded(chosen: Sequence[Part]) -> pl.LazyFrame:
        events = store.read(chosen, "events")
        return events if cutoff is None else events.filter(pl.col("ts").is_null() | (pl.col("ts") <= cutoff))

    if stage.by == "all":
        return recorded(parts).select(stage.columns.get("events", tuple(LogEvent.model_fields)))
    here = [p for p in parts if partition in {None, p.partition}]
    found = store.table("links", stage_of("links")).filter(pl.col("state").is_in(["joined", "copied"])).collect()
    copies = found.filter(pl.col("state") == "copied")["event_id"]
    links = found.filter(pl.col("state") == "joined")
    if links.is_empty():
        return _with_copies(recorded(here), copies)
    home = [store.partition(name) for name in links["conversation_id"]]
    coming = links.filter(pl.Series([partition in {None, number} for number in home], dtype=pl.Boolean))
    moved = pl.col("event_id").is_in(links["event_id"].drop_nulls().implode())
    joined = links.filter(pl.col("event_id").is_null())["source"]
    stays = recorded(here).filter(~moved & ~pl.col("conversation_id").is_in(joined.implode()))
    sources = {store.partition(name) for name in coming["source"]}
    comes = recorded([p for p in parts if p.partition in sources]).filter(
        pl.col("event_id").is_in(coming["event_id"].drop_nulls().implode())
        | (~moved & pl.col("conversation_id").is_in(coming.filter(pl.col("event_id").is_null())["source"].implode()))
    )
    comes = told_once(follow_links(without_repeated(comes, coming), coming))
    return _with_copies(pl.concat([stays, comes]), copies)


def _with_copies(events: pl.LazyFrame, copies: pl.Series) -> pl.LazyFrame:
    return events if copies.is_empty() else mark_copies(events, pl.col("event_id").is_in(copies.implode()))
