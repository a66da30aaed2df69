"""`flywheel gc`: removes files that are no longer needed.

In: the store, the rounds, and how much is kept. Out: counts and bytes. Tables in a round's provenance are kept, and so
are the files that `diff` and `explain` read; a removed adapter leaves its manifest, data and evaluation. References to
a file are removed or marked before the file, so that after a kill the same command removes the rest. Published tables
are brought up to date first.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from flywheel.io.places import snapshot_name
from flywheel.pipeline.build.registry import STAGE_NAMES
from flywheel.pipeline.context import Context
from flywheel.pipeline.serve.delta import republish
from flywheel.results.operations import GcAnswer, GcRow
from flywheel.store import Snapshot


@dataclass(frozen=True)
class Kept:
    """How much is kept: snapshots of each stage, days of a cached value, rounds with their adapters (0: all)."""

    snapshots: int = 3
    days: int = 30
    rounds: int = 0
    tainted: bool = True  # remove adapters that learnt from forgotten users
    provenance: bool = True  # tables that rounds were made from


@dataclass(frozen=True)
class _Find:
    """Files that can be removed, those of the store by name, and an action to take first."""

    what: str
    why: str
    paths: tuple[Path, ...] = ()
    first: Callable[[], object] = lambda: None
    stored: tuple[str, ...] = ()


def collect(ctx: Context, kept: Kept | None = None, *, dry_run: bool = False) -> GcAnswer:
    """Remove the files that `kept` does not cover, or only count them.

    Args:
        ctx: the project, locked.
        kept: how much is kept.
        dry_run: remove nothing.
    """
    rows: dict[str, GcRow] = {}
    if not dry_run:
        republish(ctx.store)
    with nullcontext() if dry_run else ctx.store.place.alone("gc", STAGE_NAMES):
        for find in _finds(ctx, kept or Kept()):
            size = sum(_size(path) for path in find.paths) + sum(ctx.store.place.size(n) or 0 for n in find.stored)
            before = rows.get(find.what, GcRow(what=find.what, count=0, size_bytes=0, why=find.why))
            count = before.count + len(find.paths) + len(find.stored)
            rows[find.what] = GcRow(what=find.what, count=count, size_bytes=before.size_bytes + size, why=find.why)
            if not dry_run:
                find.first()
                ctx.store.place.remove(find.stored)
                for path in find.paths:
                    _remove(path)
        if not dry_run:
            ctx.registry.share()
    count, size_bytes = (sum(getattr(row, name) for row in rows.values()) for name in ("count", "size_bytes"))
    return GcAnswer(dry_run=dry_run, rows=list(rows.values()), count=count, size_bytes=size_bytes)


def _size(path: Path) -> int:
    inside = [path] if path.is_file() else [p for p in path.rglob("*") if p.is_file()]
    return sum(p.stat().st_size for p in inside)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _finds(ctx: Context, kept: Kept) -> Iterator[_Find]:
    if orphans := tuple(ctx.store.orphans()):
        yield _Find("orphan parts", "in no snapshot: left by an interrupted command", stored=orphans)
    yield from _snapshots(ctx, kept)
    yield from _cache(ctx, kept)
    yield from _leftovers(ctx)
    yield from _adapters(ctx, kept)


def _snapshots(ctx: Context, kept: Kept) -> Iterator[_Find]:
    """Yield old snapshots, each with the parts that no remaining one names: the snapshot first, then its parts."""
    needed = set(_named(ctx)) if kept.provenance else set()
    kept_snapshots, old = list[Snapshot](), list[tuple[str, Snapshot]]()
    for stage in ctx.store.stages():
        numbers = ctx.store.numbers(stage)
        for number in numbers:
            snapshot = ctx.store.snapshot(stage, number)
            if number in numbers[-max(1, kept.snapshots) :] or f"{stage}/{number}" in needed:
                kept_snapshots.append(snapshot)
            else:
                old.append((snapshot_name(stage, number), snapshot))
    named = {part.path for snapshot in kept_snapshots for part in snapshot.parts}
    for name, snapshot in old:
        unused = sorted({part.path for part in snapshot.parts} - named)
        named |= set(unused)
        parts = tuple(part for part in unused if ctx.store.place.size(part) is not None)
        yield _Find("old snapshots", "newer ones exist, and no round was made from them", stored=(name, *parts))


def _named(ctx: Context) -> Iterator[str]:
    """Yield the snapshots that rounds were made from."""
    for number in ctx.registry.numbers():
        for table in ctx.registry.manifest(number).inputs.values():
            yield table["snapshot"]


def _cache(ctx: Context, kept: Kept) -> Iterator[_Find]:
    before = ctx.clock() - timedelta(days=kept.days)
    for path in sorted(p for p in (ctx.store.root / "cache").rglob("*") if p.is_file()):
        if datetime.fromtimestamp(path.stat().st_mtime, UTC) < before:
            yield _Find("cached values", f"older than {kept.days} days; can be computed again", (path,))


def _leftovers(ctx: Context) -> Iterator[_Find]:
    """Yield checkpoints of trained rounds, and folders of rounds without a manifest."""
    root = ctx.registry.root
    folders = sorted(p for p in root.iterdir() if p.name.isdigit() and p.is_dir()) if root.exists() else []
    for folder in folders:
        if not (folder / "manifest.json").exists():
            yield _Find("unfinished rounds", "without a manifest a round starts again", (folder,))
        elif (folder / "work").exists() and ctx.registry.manifest(int(folder.name)).adapter_sha256:
            yield _Find("checkpoints", "their rounds are trained", (folder / "work",))


def _adapters(ctx: Context, kept: Kept) -> Iterator[_Find]:
    """Yield adapters that no alias needs; their manifests are marked first."""
    trained = [n for n in ctx.registry.numbers() if ctx.registry.manifest(n).adapter_sha256]
    newest = set(trained[-kept.rounds :]) if kept.rounds else set(trained)
    needed = {n for alias in ctx.registry.aliases().values() for n in ctx.registry.lineage(alias)}
    tainted = ctx.registry.tainted
    for number in trained:
        folder = ctx.registry.folder(number) / "adapter"
        there = folder.exists() or (ctx.registry.shared.elsewhere and not ctx.registry.manifest(number).erased)
        if not there or number in needed:
            continue
        if kept.tainted and number in tainted:
            yield _Find("tainted adapters", "trained on data of forgotten users", (folder,),
                        _erase(ctx, number, "it was trained on data of a forgotten user"))  # fmt: skip
        elif number not in newest:
            yield _Find("old adapters", f"not of the newest {kept.rounds} rounds, and no alias needs them", (folder,),
                        _erase(ctx, number, f"flywheel gc --keep-rounds {kept.rounds}"))  # fmt: skip


def _erase(ctx: Context, number: int, why: str) -> Callable[[], object]:
    def write_down() -> None:
        manifest = ctx.registry.manifest(number)
        if not manifest.erased:
            ctx.registry.save(manifest.model_copy(update={"erased": why}))

    return write_down
