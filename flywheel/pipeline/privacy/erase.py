"""Delete a user's data from the store, the rounds and the audits; each step can be interrupted and repeated.

In: `Belongings`. After it there is no event of the user, no row made of one, no old snapshot, no row in a round's
dataset, no cached value and no page.
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
from flywheel.pipeline.ingest.intake import FORGOTTEN, without
from flywheel.pipeline.pages.round_page import write_page
from flywheel.pipeline.privacy.find import Belongings
from flywheel.pipeline.serve.delta import republish
from flywheel.pipeline.train.provenance import ORIGINS
from flywheel.records import FileHash, RoundManifest
from flywheel.registry.registry import DATASET
from flywheel.stages.ingest.forgotten import name_mark, user_mark
from flywheel.stages.ingest.redaction.redact import Redactor
from flywheel.stages.signals.audit import AUDITS

_ANSWERS = ".answers.jsonl"
_KEPT = ("adapter/", "tracking/")  # weights; numbers and settings
_LASTING = {"manifest.json", "config.toml", "metrics.jsonl", "train.log", DATASET, ORIGINS, "eval/report.json"}


def purge(ctx: Context, mine: Belongings) -> None:
    """Commit the events without the user's, and refuse the user from now on; derived tables become stale."""
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
    """Rebuild the built tables and remove every older snapshot; return notes on failures."""
    _clear_clusters(ctx, mine)
    notes, built = [], [stage for stage in STAGES if ctx.store.current(stage.name) is not None]
    try:
        build(ctx.store, ctx.config, ctx.project, stages=built)
    except FlywheelError as error:
        notes.append(f"the tables could not be rebuilt and were removed: {error.message}")
        for stage in STAGES:
            ctx.store.prune(stage.name, 0)
    try:
        republish(ctx.store)
    except FlywheelError as error:
        notes.append(f"the published tables were not brought up to date: {error.message}")
    for name in ctx.store.stages():
        ctx.store.prune(name, 1)
    ctx.store.remove_orphans()
    return notes


def _clear_clusters(ctx: Context, mine: Belongings) -> None:
    """Clear the clusters of similar requests, which the user's may have joined; task names stay."""
    if ctx.store.current("tasks") is None:
        return
    tasks = ctx.store.table("tasks", "tasks").filter(~pl.col("episode_id").is_in(mine.episodes))
    bare = tasks.with_columns(request_id=pl.lit(""), cluster_id=pl.lit("")).collect()
    part = ctx.store.write("tasks", bare, partition=0)
    ctx.store.commit("tasks", fingerprint={}, parts=[part] if part is not None else [], funnel={})


def cleanse_round(ctx: Context, number: int, rows: list[str], *, tainted: bool) -> None:
    """Remove rows from a round's dataset; an untrained round is removed completely and starts again."""
    folder = ctx.registry.folder(number)
    if number not in ctx.registry.numbers():
        shutil.rmtree(folder, ignore_errors=True)  # interrupted below
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
    """Return a manifest's dataset files with their hashes on disk."""
    return [
        FileHash(path=file.path, sha256=files.hash_file(path), size_bytes=path.stat().st_size)
        if (path := folder / file.path).exists()
        else file
        for file in manifest.dataset
    ]


def cleanse_pages(ctx: Context) -> list[str]:
    """Write every round's page again and remove its other derived files; return notes on failures.

    Every page is affected, because a page shows episodes of any user.
    """
    notes = []
    for number in (n for n in ctx.registry.numbers() if ctx.registry.manifest(n).adapter_sha256):
        folder = ctx.registry.folder(number)
        page = folder / "report.html"
        for path in sorted(p for p in folder.rglob("*") if p.is_file() and p != page):
            name = path.relative_to(folder).as_posix()
            if name not in _LASTING and not name.startswith(_KEPT):
                path.unlink()
        try:
            if page.exists():  # replaced in one step: after a kill it is there to be replaced again
                write_page(ctx, number)
        except FlywheelError as error:
            page.unlink()
            notes.append(f"the page of round {number} was removed and could not be written again: {error.message}")
    return notes


def empty_cache(ctx: Context) -> None:
    """Remove every cached value and page: they can be made again, and some hold answers to a user's request."""
    for name in ("cache", "view"):
        shutil.rmtree(ctx.store.root / name, ignore_errors=True)


def is_answers(name: str) -> bool:
    """Return whether a name is one of a file of reviewers' answers, and no path."""
    return name.endswith(_ANSWERS) and Path(name).name == name


def audit_lines(ctx: Context, mine: Belongings, key: bytes) -> dict[str, list[str]]:
    """Return the hashes of each answer file's lines that are about the user, or by the user as reviewer."""
    redactor = Redactor(ctx.config.ingest.redact, key)
    hashes: dict[str, list[str]] = {}
    folder = ctx.project / AUDITS
    for path in sorted(folder.glob(f"*{_ANSWERS}")) if folder.is_dir() else ():
        for line in files.lines(path.read_text(encoding="utf-8")):
            row = json.loads(line)
            reviewer = str(row.get("payload", {}).get("reviewer", ""))
            if row.get("conversation_id") in mine.conversations or mine.user in redactor.users.pseudonyms(reviewer):
                hashes.setdefault(path.name, []).append(files.hash_text(line))
    return hashes


def cleanse_audits(ctx: Context, mine: Belongings, lines: dict[str, list[str]]) -> None:
    """Remove the user's conversations from samples and answers."""
    folder = ctx.project / AUDITS
    for name, hashes in lines.items():
        text = files.lines((folder / name).read_text(encoding="utf-8"))
        files.atomic_write(folder / name, "".join(f"{line}\n" for line in text if files.hash_text(line) not in hashes))
    for path in sorted((folder / ".draws").glob("*.json")):
        sample = files.read_json(path)
        rows = [row for row in sample["rows"] if row["conversation_id"] not in mine.conversations]
        if len(rows) < len(sample["rows"]):
            files.write_json(path, {**sample, "rows": rows})
