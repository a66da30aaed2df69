"""Taking a user's belongings out of the store, the rounds and the audits; each step may be cut off and done again.

In: `Belongings`. Out: nothing that is theirs: no event, no row made of one, no old snapshot, no row of a round's
dataset, no cached value, no page.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import polars as pl

from flywheel.errors import FlywheelError
from flywheel.io import files
from flywheel.pipeline.build.registry import STAGES
from flywheel.pipeline.build.run import build
from flywheel.pipeline.context import Context
from flywheel.pipeline.ingest.run import FORGOTTEN, without
from flywheel.pipeline.pages.round_page import write_page
from flywheel.pipeline.privacy.find import Belongings
from flywheel.pipeline.train.provenance import ORIGINS
from flywheel.records import FileHash, RoundManifest
from flywheel.registry.registry import DATASET
from flywheel.stages.ingest.forgotten import name_mark, user_mark
from flywheel.stages.ingest.redact import Redactor
from flywheel.stages.signals.audit import AUDITS

__all__ = ["audit_lines", "cleanse_audits", "cleanse_pages", "cleanse_round", "empty_cache", "purge", "rebuild"]

_KEPT = ("adapter/", "tracking/")  # weights; numbers and settings
_LASTING = {"manifest.json", "config.toml", "metrics.jsonl", "train.log", DATASET, ORIGINS, "eval/report.json"}


def purge(ctx: Context, mine: Belongings) -> None:
    """Commit events without the user's, and that they are refused from now on; what was made of them is stale."""
    before = ctx.store.current("ingest")
    marks = {user_mark(mine.user), *map(name_mark, (*mine.conversations, *mine.names))}
    if before is None or marks <= set(before.extra.get(FORGOTTEN, ())):
        return
    gone = (
        pl.col("conversation_id").is_in(mine.conversations)
        | pl.col("event_id").is_in(mine.events)
        | (pl.col("user") == mine.user)
    )
    extra = {**before.extra, FORGOTTEN: sorted(marks | set(before.extra.get(FORGOTTEN, ())))}
    parts = without(ctx.store, before.parts, gone)
    ctx.store.commit("ingest", fingerprint=before.fingerprint, parts=parts, funnel=before.funnel, extra=extra)


def rebuild(ctx: Context, mine: Belongings) -> list[str]:
    """Make the tables that were built anew from what is left, and remove every older snapshot; return what failed."""
    _let_clusters_go(ctx, mine)
    notes, built = [], [stage for stage in STAGES if ctx.store.current(stage.name) is not None]
    try:
        build(ctx.store, ctx.config, ctx.project, stages=built)
    except FlywheelError as error:
        notes.append(f"the tables could not be built again and were removed: {error.message}")
        for stage in STAGES:
            ctx.store.prune(stage.name, 0)
    for name in ctx.store.stages():
        ctx.store.prune(name, 1)
    for path in ctx.store.orphans():
        path.unlink(missing_ok=True)
    return notes


def _let_clusters_go(ctx: Context, mine: Belongings) -> None:
    """Forget which requests were found alike, as the user's may have joined them; what tasks were called stays."""
    if ctx.store.current("tasks") is None:
        return
    tasks = ctx.store.table("tasks", "tasks").filter(~pl.col("episode_id").is_in(mine.episodes))
    bare = tasks.with_columns(request_id=pl.lit(""), cluster_id=pl.lit("")).collect()
    part = ctx.store.write("tasks", bare, partition=0)
    ctx.store.commit("tasks", fingerprint={}, parts=[part] if part is not None else [], funnel={})


def cleanse_round(ctx: Context, number: int, rows: list[str], *, tainted: bool) -> None:
    """Take rows out of a round's dataset; a round that was not trained yet goes as a whole and is begun anew."""
    folder = ctx.registry.folder(number)
    if number not in ctx.registry.numbers():
        shutil.rmtree(folder, ignore_errors=True)  # cut off below
        return
    manifest = ctx.registry.manifest(number)
    if not manifest.adapter_sha256:
        if rows or tainted:
            (folder / "manifest.json").unlink()
            shutil.rmtree(folder)
        return
    for name in (DATASET, ORIGINS):
        _drop_lines(folder / name, set(rows))
    changes: dict[str, Any] = {"dataset": _hashed(folder, manifest)}
    if tainted:
        changes["state"] = "retired"
    if manifest.model_copy(update=changes) != manifest:
        ctx.registry.save(manifest.model_copy(update=changes))


def _drop_lines(path: Path, ids: set[str]) -> None:
    lines = files.lines(path.read_text(encoding="utf-8")) if path.exists() else []
    kept = [line for line in lines if json.loads(line)["id"] not in ids]
    if len(kept) < len(lines):
        files.atomic_write(path, "".join(f"{line}\n" for line in kept))


def _hashed(folder: Path, manifest: RoundManifest) -> list[FileHash]:
    """Return a manifest's dataset as it stands on disk."""
    return [
        one
        if not (path := folder / one.path).exists()
        else FileHash(path=one.path, sha256=files.hash_file(path), size_bytes=path.stat().st_size)
        for one in manifest.dataset
    ]


def cleanse_pages(ctx: Context) -> list[str]:
    """Write every round's page anew from what is left, and remove whatever else was made of rows; return what failed.

    A page shows episodes, whoever's they are.
    """
    notes = []
    for number in (n for n in ctx.registry.numbers() if ctx.registry.manifest(n).adapter_sha256):
        folder = ctx.registry.folder(number)
        had = (folder / "report.html").exists()
        for path in sorted(p for p in folder.rglob("*") if p.is_file()):
            name = path.relative_to(folder).as_posix()
            if name not in _LASTING and not name.startswith(_KEPT):
                path.unlink()
        try:
            if had:
                write_page(ctx, number)
        except FlywheelError as error:
            notes.append(f"the page of round {number} was removed and could not be written anew: {error.message}")
    return notes


def empty_cache(ctx: Context) -> None:
    """Remove every cached value and page: each can be made again, and some hold what was said to a user's request."""
    for name in ("cache", "view"):
        shutil.rmtree(ctx.store.root / name, ignore_errors=True)


def audit_lines(ctx: Context, mine: Belongings, key: bytes) -> dict[str, list[str]]:
    """Return each audit file's lines or rows that are the user's, drawn or answered."""
    redactor = Redactor(ctx.config.ingest.redact, key)
    found: dict[str, list[str]] = {}
    folder = ctx.project / AUDITS
    for path in sorted(folder.glob("*.answers.jsonl")) if folder.is_dir() else ():
        for line in files.lines(path.read_text(encoding="utf-8")):
            row = json.loads(line)
            reviewer = str(row.get("payload", {}).get("reviewer", ""))
            if row.get("conversation_id") in mine.conversations or redactor.user(reviewer) == mine.user:
                found.setdefault(path.name, []).append(files.hash_text(line))
    return found


def cleanse_audits(ctx: Context, mine: Belongings, lines: dict[str, list[str]]) -> None:
    """Take the user's conversations out of draws and answers."""
    folder = ctx.project / AUDITS
    for name, hashes in lines.items():
        text = files.lines((folder / name).read_text(encoding="utf-8"))
        files.atomic_write(folder / name, "".join(f"{one}\n" for one in text if files.hash_text(one) not in hashes))
    for path in sorted((folder / ".draws").glob("*.json")):
        draw = files.read_json(path)
        rows = [row for row in draw["rows"] if row["conversation_id"] not in mine.conversations]
        if len(rows) < len(draw["rows"]):
            files.write_json(path, {**draw, "rows": rows})
