"""Bring the derived tables up to date: fingerprints, staleness, and which stages have to run.

A stage's fingerprint = content of the tables it needs + its resolved settings + its version + the versions of its
extensions. Equal fingerprint: fresh, skipped. `explain` shows which component changed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flywheel.config import Config
from flywheel.errors import StoreError, UsageError
from flywheel.funnel import Funnel
from flywheel.pipeline.build.registry import STAGES, Stage, stage_of
from flywheel.present import table_counts
from flywheel.results.data import StageAnswer
from flywheel.store import Part, Snapshot, Store

if TYPE_CHECKING:
    from flywheel.pipeline.build.workers import Workers


def fingerprint(stage: Stage, store: Store, config: Config) -> dict[str, Any]:
    """Return what the stage's output depends on, component by component."""
    inputs = {}
    for table in stage.needs:
        snapshot = store.current(stage_of(table))
        inputs[f"input {table}"] = snapshot.table_sha256(table) if snapshot else ""
    return {
        **inputs,
        "settings": stage.settings(config),
        "version": stage.version,
        "extensions": stage.extension_versions(config),
        "partitions": store.partitions,
    }


def _flatten(value: Any, path: str = "") -> dict[str, Any]:
    if not isinstance(value, Mapping):
        return {path: value}
    flat: dict[str, Any] = {}
    for key, inner in value.items():
        flat |= _flatten(inner, f"{path}.{key}" if path else str(key))
    return flat


def changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return the differing components of two fingerprints, as short sentences."""
    differing = []
    for name in sorted({*before, *now}):
        old, new = before.get(name), now.get(name)
        if old == new:
            continue
        if name.startswith("input "):
            differing.append(f"{name.removeprefix('input ')} changed")
        elif name == "version":
            differing.append(f"stage version {old} → {new}")
        else:
            flat_old, flat_new = _flatten(old or {}), _flatten(new or {})
            label = "config" if name == "settings" else name
            differing += [
                f"{label} {key} {flat_old.get(key)} → {flat_new.get(key)}"
                for key in sorted({*flat_old, *flat_new})
                if flat_old.get(key) != flat_new.get(key)
            ]
    return differing


def _status(stage: Stage, store: Store, config: Config) -> StageAnswer:
    snapshot = store.current(stage.name)
    if snapshot is None:
        return StageAnswer(stage=stage.name, state="never", why=["never built"], rows={}, funnel={})
    why = changes(snapshot.fingerprint, fingerprint(stage, store, config))
    lost = {f"a part of {part.table} is {problem}" for part in snapshot.parts if (problem := store.damage(part))}
    why += sorted(lost)
    rows = {t: snapshot.rows(t) for t in stage.makes}
    state = "stale" if why else "fresh"
    return StageAnswer(stage=stage.name, state=state, why=why, rows=rows, funnel=dict(snapshot.funnel))


def statuses(store: Store, config: Config) -> list[StageAnswer]:
    """Return each stage's state; a stage after a stale one is stale too, because its input will change."""
    store.refuse_lost_events()
    states: list[StageAnswer] = []
    stale_tables: dict[str, str] = {}
    for stage in STAGES:
        status = _status(stage, store, config)
        behind = sorted({stale_tables[t] for t in stage.needs if t in stale_tables})
        if status.state == "fresh" and behind:
            status = status.model_copy(update={"state": "stale", "why": behind})
        if status.state != "fresh":
            stale_tables |= dict.fromkeys(stage.makes, f"{stage.name} is stale")
        states.append(status)
    return states


def select_stages(selection: str | None) -> list[Stage]:
    """Return the stages named by a selection: `pairs`, `rewards+` (and all after it), or None for all.

    Raises:
        UsageError: no stage has that name.
    """
    if selection is None:
        return list(STAGES)
    name = selection.removesuffix("+")
    names = [s.name for s in STAGES]
    if name not in names:
        raise UsageError(f"no stage `{name}`", hint=f"stages: {', '.join(names)}; `{names[0]}+` is it and all after it")
    first = names.index(name)
    return list(STAGES[first:]) if selection.endswith("+") else [STAGES[first]]


def _refuse_unbuilt(stages: Sequence[Stage], store: Store) -> None:
    """Refuse stages that would read what no stage has made: they would find nothing, and report that as the log's.

    Raises:
        UsageError: a stage before one of them was never built and is not among them.
    """
    brought = {name for stage in stages for name in stage.brings}
    run = [stage for stage in STAGES if stage in stages or stage.name in brought]
    read = {stage_of(table) for stage in run for table in stage.needs} - {stage.name for stage in run}
    unbuilt = [stage.name for stage in STAGES if stage.name in read and store.current(stage.name) is None]
    if unbuilt:
        raise UsageError(
            f"{stages[0].name} cannot be built: stages before it never were ({', '.join(unbuilt)})",
            hint="flywheel build",
        )


def _run(stage: Stage, store: Store, config: Config, workers: Workers) -> Snapshot:
    total, parts = Funnel(), list[Part]()
    for done in workers.run(stage):
        total.merge(done.funnel)
        parts += done.parts
    return store.commit(stage.name, fingerprint=fingerprint(stage, store, config), parts=parts, funnel=total.as_dict())


def _lost(stage: Stage, store: Store) -> bool:
    """Return whether the stage's own former output, which it remembers, cannot be read."""
    try:
        for table in stage.remembers:
            store.table(table, stage.name)
    except StoreError:
        return True
    return False


def build(
    store: Store,
    config: Config,
    project: Path,
    *,
    stages: list[Stage] | None = None,
    full_refresh: bool = False,
    on_stage: Callable[[StageAnswer], None] = lambda _: None,
) -> list[StageAnswer]:
    """Run those of the stages that are stale, in order; return the state of each.

    Raises:
        UsageError: a stage reads what was never built.
    """
    from flywheel.pipeline.build.workers import Workers  # imports polars and all stages, which `status` does not need

    store.refuse_lost_events()
    _refuse_unbuilt(STAGES if stages is None else stages, store)
    done = []
    with Workers(store, config, project) as workers:
        for stage in STAGES if stages is None else stages:
            for brought in (s for s in STAGES if s.name in stage.brings and s not in (stages or STAGES)):
                if _status(brought, store, config).state != "fresh":
                    _run(brought, store, config, workers)
            status = _status(stage, store, config)
            if full_refresh and stage.remembers and _lost(stage, store):
                store.prune(stage.name, 0)
            if status.state != "fresh" or full_refresh:
                started = time.monotonic()
                snapshot = _run(stage, store, config, workers)
                rows = {t: snapshot.rows(t) for t in stage.makes}
                status = StageAnswer(
                    stage=stage.name, state="built", why=status.why or ["full refresh"], rows=rows,
                    funnel=dict(snapshot.funnel), seconds=round(time.monotonic() - started, 3),
                )  # fmt: skip
            on_stage(status)
            done.append(status)
    return done


def explain_stage(store: Store, config: Config, name: str) -> list[str]:
    """Return sentences on why a stage is stale or fresh, and its funnel, without what its other counts add up to.

    Raises:
        UsageError: no stage has that name.
    """
    stage = select_stages(name)[0]
    status = next(s for s in statuses(store, config) if s.stage == stage.name)
    if status.state == "fresh":
        lines = [f"{name} is fresh: its inputs, settings, version and extensions are those of its last build."]
    elif status.state == "never":
        lines = [f"{name} was never built."]
    else:
        lines = [f"{name} is stale: {'; '.join(status.why)}."]
    if store.current("ingest") is None:
        lines.append("No logs were ingested yet: flywheel ingest LOGS")
    snapshot = store.current(stage.name)
    if snapshot:
        lines.append(f"Last build: snapshot {snapshot.number}, {table_counts(name, status.rows, status.funnel)}.")
        counted = {
            reason: rows
            for reason, rows in snapshot.funnel.items()
            if not reason.startswith("note: candidates of ") and (rows or not reason.startswith("note"))
        }
        lines += [f"  {rows:>9,}  {reason}" for reason, rows in counted.items()]
    return lines
