"""`flywheel status`, `log` and `champion`, and the last night; they read JSON files only, without polars and torch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from flywheel import present
from flywheel.errors import FlywheelError, StoreError
from flywheel.io import files
from flywheel.pipeline.build.run import statuses
from flywheel.pipeline.context import Context, served_name
from flywheel.pipeline.copies import left_elsewhere
from flywheel.records import Night
from flywheel.results.data import StageAnswer, StatusAnswer
from flywheel.results.deploy import ChampionAnswer
from flywheel.results.rounds import LogAnswer, LogRow
from flywheel.stats.planning import candidate_level, cases_needed

if TYPE_CHECKING:
    from flywheel.stages.ingest.sources import Known

IMPROVEMENTS = (3, 5, 10)  # percentage points
NIGHT = "night.json"  # the journal of the newest night, in the store


def status(ctx: Context) -> StatusAnswer:
    """Return what is new, stale and pending."""
    stages = statuses(ctx.store, ctx.config)
    known, set_aside, new = _source_files(ctx)
    snapshots = [ctx.store.current(name) for name in ("ingest", *(s.stage for s in stages))]
    return StatusAnswer(
        project=ctx.config.name or ctx.project.name,
        store=ctx.config.store,
        store_bytes=sum(p.size_bytes for s in snapshots if s for p in s.parts),
        **ctx.registry.aliases(),
        next_round=ctx.registry.next_number(),
        source_files=known,
        set_aside=set_aside,
        new_files=new,
        stages=stages,
        looks=looks_needed(ctx),
        left_elsewhere=left_elsewhere(ctx, tainted) if (tainted := ctx.registry.tainted) else [],
        next=_next_command(ctx, stages, known=known, new=new),
    )


def looks_needed(ctx: Context) -> dict[str, int]:
    """Return how many looks a candidate needs that is truly better by 3, 5 or 10 points; none before the first look.

    At the level of the open candidate, or of the next one, and at the pace and discordance of the newest looks.
    """
    ledger = ctx.registry.candidates
    pace, waiting = ledger.pace(), ledger.open()
    if pace is None or pace[0] == 0:
        return {}
    place, promotions = ledger.next_place()
    level = candidate_level(place - ledger.unspent(), promotions, alpha=ctx.config.gate.alpha)
    level = waiting[-1].registered.level if waiting else level
    needed = {points: cases_needed(max(pace[1], points / 100), points / 100, level=level) for points in IMPROVEMENTS}
    return {str(points): max(1, math.ceil(cases / pace[0])) for points, cases in needed.items()}


def _source_files(ctx: Context) -> tuple[int, int, int]:
    """Return how many files were read, how many of these are set aside, and how many are new or have another size.

    New are files under `ingest.sources`; a copy of an ingested file under another name, also compressed, is not new.
    """
    from flywheel.stages.ingest.discovery import discover
    from flywheel.stages.ingest.sources import Known, SourceState, shown_path

    snapshot = ctx.store.current("ingest")
    sources = {p: SourceState.from_dict(s) for p, s in snapshot.extra["sources"].items()} if snapshot else {}
    try:
        files = discover([ctx.project / s for s in ctx.config.ingest.sources])
    except FlywheelError:
        files = []
    known, new = Known(sources.values(), ctx.project), 0
    for path in files:
        name = shown_path(path, ctx.project)
        if name in sources:
            new += sources[name].size_bytes != path.stat().st_size
        else:
            new += not (sources and _is_copy(path, name, known, ctx.config.ingest.max_expand_ratio))
    return len(sources), sum(bool(state.set_aside) for state in sources.values()), new


def _is_copy(path: Path, name: str, known: Known, max_ratio: int) -> bool:
    """Return whether the content was read under another name, and its place adds nothing to it, such as a policy."""
    from flywheel.stages.ingest.sources import start_of

    try:
        same = start_of(path, name, known, max_ratio).same
    except OSError:
        return False
    return same is not None and not same.set_aside and not same.columns


def _next_command(ctx: Context, stages: Sequence[StageAnswer], *, known: int, new: int) -> str:
    """Return the command to run next."""
    if new or not known:
        return "flywheel ingest" if new else "flywheel ingest LOGS"
    if any(s.state != "fresh" for s in stages):
        return "flywheel build"
    if any(s.rows.get("episodes") == 0 for s in stages):
        return "flywheel ingest LOGS"
    trained = ctx.registry.trained()
    if trained and ctx.registry.manifest(trained[-1]).state == "trained":
        return f"flywheel eval --round {trained[-1]} --promote"
    return "flywheel plan"


def last_night(ctx: Context) -> Night | None:
    """Return the newest night, or None; a damaged file counts as none, since only resuming depends on it."""
    from pydantic import ValidationError

    try:
        return Night.model_validate(files.read_json(ctx.store.root / NIGHT))
    except (StoreError, ValidationError):
        return None


def log(ctx: Context, limit: int | None = None) -> LogAnswer:
    """Return rounds and decisions, newest first; where there is no round, the command to run next."""
    registry = ctx.registry
    aliases = registry.aliases()
    rows = []
    for number in list(reversed(registry.numbers()))[:limit]:
        manifest, row = registry.manifest(number), present.primary_row(registry.report(number))
        rows.append(
            LogRow(
                round=number,
                state=manifest.state,
                method=manifest.method,
                raced=manifest.race.raced if manifest.race is not None else 0,
                parent=manifest.parent,
                rows=manifest.counts.get("kept", 0),
                steps=manifest.steps_taken,
                kl=manifest.kl,
                metric=present.metric_change(row) if row else "",
                aliases=[f"@{name}" for name, at in aliases.items() if at == number],
            )
        )
    decisions = list(reversed(registry.promotions()))[:limit]
    return LogAnswer(rounds=rows, decisions=decisions, next=None if rows else status(ctx).next)


def champion(ctx: Context) -> ChampionAnswer:
    """Return what to serve, and the decision behind it.

    Raises:
        StoreError: the champion's adapter is missing, or is not the one that was evaluated.
    """
    from flywheel.models.load import base_identity

    number = ctx.registry.champion
    problems = ctx.registry.problems([number] if number is not None else [])
    misplaced = ctx.registry.misplaced()
    if misplaced and not problems:
        raise StoreError("; ".join(misplaced), hint="the next command that writes, such as `flywheel build`, mends it")
    if problems:
        raise StoreError("; ".join(problems), hint="`flywheel rollback --yes` moves the champion to a sound round")
    manifest = ctx.registry.manifest(number) if number is not None else None
    decisions = [p for p in ctx.registry.promotions() if p.champion_after == number and p.champion_before != number]
    return ChampionAnswer(
        round=number,
        name=served_name(ctx, number),
        base_model=manifest.base_model if manifest else ctx.config.model.base,
        base_model_sha256=manifest.base_model_sha256 if manifest else base_identity(ctx.config.model).sha256,
        adapter=str(ctx.registry.adapter(number) or ""),
        adapter_sha256=manifest.adapter_sha256 if manifest else "",
        method=manifest.method if manifest else "",
        parent=manifest.parent if manifest else None,
        decision=decisions[-1].decision if decisions else "",
        decided_at=decisions[-1].at.isoformat() if decisions else "",
        reason=(decisions[-1].reason or str(decisions[-1].verdict or "")) if decisions else "",
        decisions_sha256=ctx.registry.head,
    )
