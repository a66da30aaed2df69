"""The store: tables, snapshots and cache. Tables are read and written here only.

Layout under the store's folder (of a bucket, see `flywheel.io.places`):

    store.json                       layout version, number of partitions, fingerprint of the redaction key
    tables/<table>/p<NN>/part-<sha>.parquet     immutable, named by content
    snapshots/<stage>/<n>.json       what a stage's output consists of; the highest n is current, the last 20 are kept
    cache/                           recomputable values by content key
    forgetting.json                  the rest of the work of an interrupted `forget`

A part is checked against its table's contract when it is written: polars refuses a wrong name, type or null. A snapshot
is written last, so a killed stage leaves the old snapshot current and orphan parts that the rerun finds by content.

The documents are input: a snapshot's paths must be names that this store gives, so that none leads elsewhere, and a
part's bytes must have the hash that names it, which is checked once a process before the part is read.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flywheel.contracts import arrow_schema, conform, polars_schema, schema_name
from flywheel.errors import ContractError, StoreError
from flywheel.io import files
from flywheel.io.places import Folder, snapshot_name
from flywheel.records import TABLES, Row, canonical_json, content_id

if TYPE_CHECKING:
    import polars as pl

LAYOUT = 1
PARTITIONS = 4
FORGETTING = "forgetting.json"  # in the store while a user is being forgotten
_KEPT = 20  # snapshots of a stage
_ROW_GROUP = 1 << 17  # rows of a part that are encoded together; left to polars, pieces in memory would decide
MOST_PARTITIONS = 1024
_SHA256 = re.compile(r"[0-9a-f]{64}")
RAW = ("events", "quarantine")  # tables that cannot be made again


@dataclass(frozen=True)
class Part:
    """One immutable Parquet file of a table."""

    table: str
    partition: int
    path: str  # relative to the store
    sha256: str
    rows: int
    size_bytes: int

    @property
    def named_by_content(self) -> bool:
        """Whether the path is the one that the store gives to this content of this table."""
        name = f"tables/{self.table}/p{self.partition:02d}/part-{self.sha256[:32]}.parquet"
        numbers = (self.partition, self.rows, self.size_bytes)
        known = self.table in TABLES and bool(_SHA256.fullmatch(self.sha256))
        return known and self.path == name and all(type(number) is int and number >= 0 for number in numbers)


@dataclass(frozen=True)
class Snapshot:
    """What a stage's output consists of, what it was built from, its funnel; no times: equal inputs, equal bytes."""

    stage: str
    number: int
    fingerprint: Mapping[str, Any]
    parts: tuple[Part, ...]
    funnel: Mapping[str, int]
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def sha256(self) -> str:
        """Hash of the content: tables and their parts, not the number."""
        return files.hash_text(canonical_json([[p.table, p.partition, p.sha256] for p in self.parts]))

    def table_sha256(self, table: str) -> str:
        """Hash over the parts of one table."""
        return files.hash_text(canonical_json([[p.partition, p.sha256] for p in self.parts if p.table == table]))

    def rows(self, table: str) -> int:
        """Return the number of rows of one of its tables."""
        return sum(p.rows for p in self.parts if p.table == table)


def way_out(table: str) -> str:
    """Return what to do where a part of a table is lost."""
    if table not in RAW:
        return "`flywheel build --full-refresh` makes it again"
    return (
        "only a backup has it: `doctor` lists all that is lost. Without one, move the store's folder away and ingest "
        "the logs that you still have"
    )


def _encode(frame: pl.DataFrame, row: type[Row]) -> memoryview:
    """Return a frame as Parquet bytes that fit the contract.

    In memory first: a refusal here is the frame's fault, a refusal while writing the bytes is the disk's. The same rows
    are the same bytes, whatever pieces of memory they lie in.
    """
    import polars as pl

    buffer = io.BytesIO()
    metadata = {"flywheel.schema": f"{schema_name(row)}/v{row.version}"}
    try:
        conform(frame, row).sink_parquet(
            buffer,
            compression="zstd",
            row_group_size=_ROW_GROUP,
            arrow_schema=arrow_schema(row),
            metadata=metadata,
            maintain_order=True,
        )
    except pl.exceptions.PolarsError as error:
        raise ContractError(
            f"table {row.table}: {type(error).__name__}: a value does not fit its column",
            hint=f"see schemas/{schema_name(row)}/v{row.version}.json; nulls are refused where the schema has none",
        ) from error
    return buffer.getbuffer()


def _named(parts: Iterable[Part]) -> str:
    return content_id(*sorted(part.path for part in parts))


class Store:
    """A project's tables and snapshots.

    Args:
        root: the store's folder, created on the first write; or its place in a bucket.
        partitions: their number where there is no store yet.

    Raises:
        StoreError: the folder holds a store of another layout version.
    """

    def __init__(self, root: Path | Folder, partitions: int = PARTITIONS) -> None:
        self.place = Folder(root) if isinstance(root, Path) else root
        self.root = self.place.root
        self._snapshots: dict[tuple[str, int], Snapshot] = {}
        self._sound: set[str] = set()  # parts whose hash was checked
        self._held: Mapping[str, int] | None = None  # the current snapshots, where another process sets them
        self.partitions, self.key_fingerprint = partitions, ""
        self._read_header()

    def _read_header(self) -> bool:
        """Take over what the header holds; return whether it is there, and as a finished command leaves it."""
        layout = self.place.header()
        if layout is None:
            return False
        number = layout.get("layout") if isinstance(layout, dict) else None
        if number != LAYOUT:
            raise StoreError(
                f"`{self.place.shown()}` has layout {number}, this flywheel reads {LAYOUT}",
                hint="use the flywheel version that wrote it, or ingest into a new store",
            )
        moving = layout.get("moving") or []
        counts = [layout.get("partitions"), *(moving if isinstance(moving, list) and len(moving) in {0, 2} else [None])]
        if not all(type(count) is int and count >= 1 for count in counts) or max(counts[:2]) > MOST_PARTITIONS:
            raise StoreError(
                f"`{self.place.shown()}` is damaged: no number of partitions", hint="restore it from a backup"
            )
        self.partitions = counts[0]
        if moving and moving[1] in self.place.numbers("ingest"):
            there = _named(self.snapshot("ingest", moving[1]).parts)
            if layout.get("moved", there) == there:  # of a bucket another machine may have committed that number
                self.partitions = moving[0]
        self.key_fingerprint = str(layout.get("key", ""))
        return not moving

    def _write_header(self, *moving: int, moved: str = "") -> None:
        header: dict[str, Any] = {"layout": LAYOUT, "partitions": self.partitions}
        header |= {"key": self.key_fingerprint} if self.key_fingerprint else {}
        self.place.write_header(header | ({"moving": moving, "moved": moved} if moving else {}))

    def create(self) -> None:
        """Create the store's header if missing, and settle what a killed command left; under the lock."""
        self.place.settle()
        if not self._read_header():
            self._write_header()

    def repartition(self, partitions: int, parts: Iterable[Part]) -> None:
        """Make these parts the events' and quarantine's current ones, by another number of partitions, in one step.

        The header gets the number and the snapshot from which on it holds; that snapshot is written next.
        """
        before = self.current("ingest")
        if before is not None:
            parts = list(parts)
            self._write_header(partitions, self.place.next("ingest"), moved=_named(parts))
            self.commit("ingest", fingerprint=before.fingerprint, parts=parts, funnel=before.funnel, extra=before.extra)
        self.partitions = partitions
        self._write_header()

    def keep_fingerprint(self, fingerprint: str) -> None:
        """Write down which redaction key this store's pseudonyms are made with, for good; call under the lock."""
        self.key_fingerprint = fingerprint
        self._write_header()

    def partition(self, conversation_id: str, partitions: int = 0) -> int:
        """Return the partition of a conversation's events, also by another number of partitions."""
        return int(content_id(conversation_id)[:4], 16) % (partitions or self.partitions)

    # --- tables ---------------------------------------------------------------------------------------------------

    def write(self, table: str, frame: pl.DataFrame, *, partition: int) -> Part | None:
        """Write a frame as one part; None when it has no rows. The only way into a table.

        Raises:
            ContractError: the frame does not fit the table's contract.
            StoreError: the disk refuses.
        """
        if frame.height == 0:
            return None
        row = TABLES[table]
        content = _encode(frame, row)
        name, sha256 = self.place.write(f"tables/{table}/p{partition:02d}", content)
        return Part(table, partition, name, sha256, frame.height, content.nbytes)

    def paths(self, parts: Iterable[Part], table: str) -> list[Path]:
        """Return the files of the given parts of a table, in part order.

        Raises:
            StoreError: one is missing, or is not what was written.
        """
        mine = [part for part in parts if part.table == table]
        new = [part for part in mine if part.path not in self._sound]
        self.place.fetch((part.path, part.sha256) for part in new)
        for part in new:
            if problem := self.fault(part):
                raise StoreError(f"a part of table {part.table} is {problem}: `{part.path}`", hint=way_out(part.table))
            self._sound.add(part.path)
        return [self.root / part.path for part in mine]

    def fault(self, part: Part) -> str:
        """Return what is wrong with a part, by all its bytes: missing, or changed; '' if nothing."""
        return self.damage(part) or ("" if self.place.sound(part.path, part.sha256) else "changed")

    def damage(self, part: Part) -> str:
        """Return what a glance shows to be wrong with a part: missing, or changed by its size; '' if nothing."""
        size = self.place.size(part.path)
        return "missing" if size is None else "changed" if size != part.size_bytes else ""

    def refuse_lost_events(self) -> None:
        """Refuse to go on where a glance shows that a part of the events is lost: nothing else can be called fresh.

        Raises:
            StoreError: a part is missing or has another size.
        """
        current = self.current("ingest")
        for part in current.parts if current else ():
            if problem := self.damage(part):
                raise StoreError(f"a part of table {part.table} is {problem}: `{part.path}`", hint=way_out(part.table))

    def read(self, parts: Iterable[Part], table: str) -> pl.LazyFrame:
        """Return the rows of the given parts of a table, in part order."""
        import polars as pl

        paths = self.paths(parts, table)
        if not paths:
            return pl.LazyFrame(schema=polars_schema(TABLES[table]))
        return pl.scan_parquet(paths, glob=False, missing_columns="insert")

    def table(self, table: str, stage: str) -> pl.LazyFrame:
        """Return a table as the current snapshot of its stage has it."""
        snapshot = self.current(stage)
        return self.read(snapshot.parts if snapshot else (), table)

    # --- snapshots ------------------------------------------------------------------------------------------------

    def numbers(self, stage: str) -> list[int]:
        """Return the numbers of a stage's snapshots, oldest first."""
        return self.place.numbers(stage)

    def current(self, stage: str) -> Snapshot | None:
        """Return a stage's current snapshot, or None if it never ran."""
        if self._held is not None:
            return self.snapshot(stage, self._held[stage]) if stage in self._held else None
        numbers = self.numbers(stage)
        return self.snapshot(stage, numbers[-1]) if numbers else None

    def hold(self, numbers: Mapping[str, int]) -> None:
        """Read these snapshots as the current ones from now on, by stage; a stage that is not in it has none."""
        self._held = dict(numbers)

    def snapshot(self, stage: str, number: int) -> Snapshot:
        """Return one snapshot of a stage.

        Raises:
            StoreError: there is none of that number, or it is damaged.
        """
        if (stage, number) not in self._snapshots:
            path = self.place.shown(snapshot_name(stage, number))
            raw = self.place.document(stage, number)
            hint = "restore it from a backup" + (", or remove it and type `flywheel build`" * (stage != "ingest"))
            try:
                raw["parts"] = tuple(Part(**p) for p in raw["parts"])
                snapshot = Snapshot(**raw)
                sound = (snapshot.stage, snapshot.number) == (stage, number)
                sound = sound and all(part.named_by_content for part in snapshot.parts)
            except (TypeError, KeyError):
                raise StoreError(f"`{path}` is damaged: not a snapshot", hint=hint) from None
            if not sound:
                raise StoreError(f"`{path}` is damaged: it names files that this store has not written", hint=hint)
            self._snapshots[stage, number] = snapshot
        return self._snapshots[stage, number]

    def commit(
        self,
        stage: str,
        *,
        fingerprint: Mapping[str, Any],
        parts: Iterable[Part],
        funnel: Mapping[str, int],
        extra: Mapping[str, Any] | None = None,
    ) -> Snapshot:
        """Make a new current snapshot of a stage: the one write that changes what readers see."""
        number = self.place.next(stage)
        ordered = tuple(sorted(parts, key=lambda p: (p.table, p.partition, p.path)))
        snapshot = Snapshot(stage, number, dict(fingerprint), ordered, dict(funnel), dict(extra or {}))
        document = {**asdict(snapshot), "parts": [asdict(p) for p in ordered]}
        self.place.create(stage, number, document)
        self._snapshots[stage, number] = snapshot
        self.prune(stage)
        return snapshot

    def stages(self) -> list[str]:
        """Return the stages that have a snapshot."""
        return self.place.stages()

    def prune(self, stage: str, kept: int = _KEPT) -> int:
        """Remove all but a stage's newest snapshots, and the parts that only they name; return the number removed.

        If it is killed, some stay until the next call. In a bucket they stay until `gc`.
        """
        numbers = self.numbers(stage)
        old, newest = (numbers[:-kept], numbers[-kept:]) if kept else (numbers, [])
        if not old or (not kept and self.place.clear(stage)) or not self.place.may_remove():
            return 0
        named = {p.path for number in newest for p in self.snapshot(stage, number).parts}
        for number in old:
            gone = {p.path for p in self.snapshot(stage, number).parts} - named
            self.place.remove([*sorted(gone), snapshot_name(stage, number)])
            self._snapshots.pop((stage, number), None)
        return len(old)

    def orphans(self) -> list[str]:
        """Return the parts that no snapshot names, as interrupted commands leave them; call only under the lock."""
        snapshots = (self.snapshot(stage, number) for stage in self.stages() for number in self.numbers(stage))
        named = {p.path for snapshot in snapshots for p in snapshot.parts}
        return [name for name in self.place.parts() if name not in named]

    def remove_orphans(self) -> None:
        """Remove the parts that no snapshot names, where something may be removed now."""
        if self.place.may_remove():
            self.place.remove(self.orphans())

    # --- cache ----------------------------------------------------------------------------------------------------

    def cached(self, kind: str, key: str) -> Any | None:
        """Return a cached JSON value, or None."""
        path = self.root / "cache" / kind / f"{key}.json"
        return files.read_json(path) if path.exists() else None

    def cache(self, kind: str, key: str, value: object) -> None:
        """Keep a JSON value that can be computed again, by content key."""
        files.write_json(self.root / "cache" / kind / f"{key}.json", value)
