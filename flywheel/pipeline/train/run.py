"""Executing a plan: dataset and manifest first, then the trainer's process, then the adapter's hashes.

Order of writes, each atomic: data/train.jsonl, data/origins.jsonl, config.toml, manifest.json (state built), adapter/
(by the trainer), manifest.json (state trained). Killed anywhere, the same command again goes on from what is there.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from flywheel.config import Config, render_default_config
from flywheel.errors import FlywheelError, TrainError, UsageError
from flywheel.extensions import TrainResult, TrainSpec
from flywheel.io import files
from flywheel.pipeline.context import Context, served_rounds
from flywheel.pipeline.evaluate.protocol import protocol_of, sha256_of
from flywheel.pipeline.train.monitors import refuse_red
from flywheel.pipeline.train.plan import PlannedRound, differing_keys, make_plan, round_config
from flywheel.pipeline.train.provenance import ORIGINS
from flywheel.records import METHODS, FileHash, KlPoint, Plan, RoundManifest
from flywheel.registry.registry import ADAPTER_WEIGHTS, DATASET, files_sha256
from flywheel.stages.train.process.spec import launch


def train_round(
    ctx: Context,
    number: int,
    *,
    plan: Plan | None = None,
    reason: str = "",
    on_metrics: Callable[[dict[str, Any]], None] = lambda _: None,
) -> RoundManifest:
    """Train a round, or finish one that was interrupted; a trained round is returned as it is.

    Args:
        ctx: the project.
        number: the round, as checked by `check_number`.
        plan: a saved plan that the fresh one must equal.
        reason: why to train although a monitor is red; recorded in the manifest.
        on_metrics: gets each logged training metric.

    Raises:
        UsageError: the round was begun under another configuration, or the saved plan no longer holds.
        TrainError: there is too little to train on, a monitor is red, or the trainer failed.
    """
    begun = number in ctx.registry.numbers()
    manifest = ctx.registry.manifest(number) if begun else _begin(ctx, make_plan(ctx, number), plan, reason)
    if manifest.adapter_sha256:
        return manifest
    different = differing_keys(manifest.config, round_config(ctx))
    if different:
        raise UsageError(
            f"round {number} was begun under another configuration: {'; '.join(different)}",
            hint=f"restore these values, or remove `{ctx.registry.folder(number)}` to begin it again",
        )
    return _execute(ctx, manifest, on_metrics)


def _begin(ctx: Context, planned: PlannedRound, saved: Plan | None, reason: str) -> RoundManifest:
    plan = planned.plan
    if plan.same_as is not None:
        raise UsageError(
            f"round {plan.round} would repeat round {plan.same_as}: same start, same rows, same configuration",
            hint="ingest more logs, or change a setting; another train.seed makes another adapter",
        )
    if saved is not None and saved != plan:
        old, new = saved.model_dump(), plan.model_dump()
        keys = ", ".join(k for k in new if old.get(k) != new[k])
        raise UsageError(
            f"the saved plan no longer holds: {keys} changed", hint="make it again with `flywheel plan --out`"
        )
    forced = refuse_red(plan.round, plan.monitors, reason)
    folder = ctx.registry.folder(plan.round)
    shutil.rmtree(folder, ignore_errors=True)  # no manifest: nothing in it was ever finished
    files.atomic_write(folder / DATASET, planned.dataset)
    files.atomic_write(folder / ORIGINS, planned.origins)
    files.atomic_write(folder / "config.toml", render_default_config(ctx.config))
    data = FileHash(path=DATASET, sha256=plan.dataset_sha256, size_bytes=(folder / DATASET).stat().st_size)
    shared = {
        k: getattr(plan, k) for k in RoundManifest.model_fields if k in Plan.model_fields and k != "schema_version"
    }
    manifest = RoundManifest(
        **shared, state="built", dataset=[data], seed=ctx.config.train.seed, forced=forced, protocol=protocol_of(ctx)
    )
    return ctx.registry.save(manifest)


def _spec(ctx: Context, manifest: RoundManifest) -> TrainSpec:
    folder = ctx.registry.folder(manifest.round)
    return TrainSpec(
        round=manifest.round,
        method=manifest.method,
        data=folder / DATASET,
        out_dir=folder / "adapter",
        work_dir=folder / "work",
        base_model=manifest.base_model,
        start_adapter=ctx.registry.adapter(manifest.parent),
        reference=manifest.reference,
        config=_placed(ctx),
        seed=manifest.seed,
        cache_dir=ctx.store.root / "cache",
        behaviours=_served(ctx) if METHODS[manifest.method].behaviours else {},
        project_dir=ctx.project,
    )


def _placed(ctx: Context) -> Config:
    """Return the configuration with train.accelerate as a path that holds from any folder."""
    train = ctx.config.train
    if not train.accelerate:
        return ctx.config
    place = str(ctx.project / Path(train.accelerate).expanduser())
    return ctx.config.model_copy(update={"train": train.model_copy(update={"accelerate": place})})


def _served(ctx: Context) -> dict[str, str]:
    """Return the adapters under whose round's name logs may say that they were served."""
    adapters = {name: ctx.registry.adapter(n) for name, n in served_rounds(ctx).items()}
    return {name: str(folder) for name, folder in adapters.items() if folder is not None}


def _verify_inputs(ctx: Context, manifest: RoundManifest) -> None:
    folder = ctx.registry.folder(manifest.round)
    for data in manifest.dataset:
        if files.hash_file(folder / data.path) != data.sha256:
            raise TrainError(
                f"round {manifest.round}: `{data.path}` is not the file its manifest names",
                hint=f"remove `{folder}` and train it again",
            )
    problems = ctx.registry.problems([manifest.parent] if manifest.parent is not None else [])
    if problems:
        raise TrainError("; ".join(problems), hint="`flywheel rollback` moves the champion to a sound round")


def _execute(ctx: Context, manifest: RoundManifest, on_metrics: Callable[[dict[str, Any]], None]) -> RoundManifest:
    _verify_inputs(ctx, manifest)
    folder, started = ctx.registry.folder(manifest.round), time.monotonic()
    spec = _spec(ctx, manifest)
    try:
        result = launch(spec, on_metrics)
    except FlywheelError as error:
        ctx.registry.save(manifest.model_copy(update={"state": "failed", "error": error.message}))
        raise
    finally:
        _keep_logs(folder)
    trained = _finished(manifest, folder, result, time.monotonic() - started)
    ctx.registry.candidates.trained(
        trained.round, trained.adapter_sha256, sha256_of(trained.protocol), files_sha256(trained)
    )
    ctx.registry.save(trained)
    shutil.rmtree(spec.work_dir, ignore_errors=True)
    return trained


def _keep_logs(folder: Path) -> None:
    for name in ("metrics.jsonl", "train.log"):
        source = folder / "work" / name
        if source.exists():
            files.atomic_write(folder / name, source.read_text(encoding="utf-8", errors="replace"))


def _finished(manifest: RoundManifest, folder: Path, result: TrainResult, seconds: float) -> RoundManifest:
    outputs = [
        FileHash(path=p.relative_to(folder).as_posix(), sha256=files.hash_file(p), size_bytes=p.stat().st_size)
        for p in sorted((folder / "adapter").rglob("*"))
        if p.is_file()
    ]
    weights = [o.sha256 for o in outputs if o.path == f"adapter/{ADAPTER_WEIGHTS}"]
    if not weights:
        raise TrainError(
            f"round {manifest.round}: the trainer left no {ADAPTER_WEIGHTS}", hint=f"see `{folder}/train.log`"
        )
    return manifest.model_copy(
        update={
            "state": "trained",
            "error": "",
            "outputs": outputs,
            "adapter_sha256": weights[0],
            "steps_taken": result.steps,
            "stopped": result.stopped,
            "kl_curve": [KlPoint(step=step, kl=kl) for step, kl in result.kl],
            "checks": dict(result.checks),
            "versions": dict(result.versions),
            "timings_s": {**result.timings_s, "total": round(seconds, 3)},
        }
    )


def training_metrics(folder: Path) -> list[dict[str, Any]]:
    """Return a round's logged training metrics, oldest first; a torn last line is skipped."""
    path = folder / "metrics.jsonl"
    rows = []
    for line in files.lines(path.read_text(encoding="utf-8")) if path.exists() else []:
        try:
            rows.append(json.loads(line))
        except ValueError:
            continue
    return rows
