"""Executing a plan: dataset and manifest first, then the trainer's process, then the adapter's hashes.

First the race of the methods, where `auto` holds one (`pipeline/train/race`); it leaves nothing but what is remembered.
Order of writes, each atomic: data/train.jsonl, data/origins.jsonl, config.toml, manifest.json (state built), adapter/
(by the trainer), manifest.json (state trained). Killed anywhere, the same command again goes on from what is there.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from flywheel.config import render_default_config
from flywheel.errors import EvidenceError, FlywheelError, TrainError, UsageError
from flywheel.extensions import TrainResult
from flywheel.io import files
from flywheel.pipeline.context import Context
from flywheel.pipeline.evaluate.protocol import protocol_of, sha256_of
from flywheel.pipeline.train.backend import write_files
from flywheel.pipeline.train.monitors import refuse_before_attempts, refuse_red
from flywheel.pipeline.train.plan import PlannedRound, differing_keys, make_plan, round_config, with_limits
from flywheel.pipeline.train.provenance import ORIGINS
from flywheel.pipeline.train.spec import train_spec
from flywheel.records import FileHash, KlPoint, Plan, RoundManifest
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
    if number in ctx.registry.numbers():
        manifest = ctx.registry.manifest(number)
    else:
        refuse_before_attempts(ctx, number, reason)
        ctx.registry.shared.claim(number)
        to_race = plan is not None and plan.race is not None and plan.race.winner is None
        planned = make_plan(ctx, number, remembered=not to_race)
        _refuse_other(plan, planned.plan)
        manifest = _begin(ctx, after_race(ctx, planned, reason, on_metrics), reason)
    if manifest.adapter_sha256:
        return manifest
    manifest = manifest.model_copy(update={"config": with_limits(manifest.config, round_config(ctx))})
    different = differing_keys(manifest.config, round_config(ctx))
    if different:
        raise UsageError(
            f"round {number} was begun under another configuration: {'; '.join(different)}",
            hint=f"restore these values, or remove `{ctx.registry.folder(number)}` to begin it again",
        )
    return _execute(ctx, manifest, on_metrics)


def after_race(
    ctx: Context, planned: PlannedRound, reason: str = "", on_metrics: Callable[[dict[str, Any]], None] = lambda _: None
) -> PlannedRound:
    """Return a round's plan after the race of its methods, which is held now if it has not been.

    Raises:
        TrainError: a monitor is red, or the race cannot be held.
    """
    plan = planned.plan
    if planned.racing is None or plan.race is None or plan.race.state != "planned":
        return planned
    refuse_red(plan.round, plan.monitors, reason)
    planned.racing.run(on_metrics)
    return make_plan(ctx, plan.round)


def _refuse_other(saved: Plan | None, plan: Plan) -> None:
    """Refuse a saved plan that is not the fresh one; it may have been made on a machine with other memory."""
    old, new = ({} if made is None else made.model_dump(exclude={"memory"}) for made in (saved, plan))
    if saved is None or old == new:
        return
    keys = ", ".join(k for k in new if old.get(k) != new[k])
    raise UsageError(f"the saved plan no longer holds: {keys} changed", hint="make it again with `flywheel plan --out`")


def _begin(ctx: Context, planned: PlannedRound, reason: str) -> RoundManifest:
    plan = planned.plan
    if plan.same_as is not None:
        raise UsageError(
            f"round {plan.round} would repeat round {plan.same_as}: same start, same rows, same configuration",
            hint="ingest more logs, or change a setting; another train.seed makes another adapter",
        )
    if plan.race is not None and plan.race.state == "lost":
        raise EvidenceError(
            f"round {plan.round} is not trained: {plan.race.reason}",
            hint=f"ingest more logs, or train it without a race: `flywheel train --method {plan.method}`",
            need=1,
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
        **shared,
        state="built",
        dataset=[data],
        seed=ctx.config.train.seed,
        forced=forced,
        protocol=protocol_of(ctx),
        timings_s={"race": round(planned.race_seconds, 3)} if planned.racing is not None else {},
    )
    return ctx.registry.save(manifest)


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
    spec = train_spec(ctx, manifest.round, manifest.method, manifest.parent, folder)
    if manifest.backend is not None:  # its training does not depend on the limit, which may have been raised since
        manifest = manifest.model_copy(update={"max_kl": ctx.config.train.kl_limit(manifest.method)})
    try:
        if manifest.backend is not None:
            write_files(ctx, spec)
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
            "backend": manifest.backend and manifest.backend.model_copy(update={"arguments": dict(result.arguments)}),
            "timings_s": {**manifest.timings_s, **result.timings_s, "total": round(seconds, 3)},
        }
    )
