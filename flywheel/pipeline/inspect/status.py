"""Looking at a project: status, log, show, explain. `status` and `log` read JSON files only: no polars, no torch."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from flywheel.errors import FlywheelError, StoreError, UsageError
from flywheel.pipeline.build.registry import STAGES
from flywheel.pipeline.build.run import StageStatus, explain_stage
from flywheel.pipeline.build.tables import read_table
from flywheel.pipeline.context import Context, served_name
from flywheel.pipeline.inspect.explain import explain_episode
from flywheel.pipeline.inspect.explain_round import explain_gate, explain_round, explain_row, metric_text, rule_names
from flywheel.pipeline.inspect.preview import preview
from flywheel.records import EvalReport
from flywheel.registry.registry import Registry
from flywheel.results import ChampionAnswer, LogRow, ShowAnswer

if TYPE_CHECKING:
    import polars as pl

__all__ = ["champion", "episode_id", "explain", "log_rows", "metric_text", "next_command", "show", "source_files"]

_BY_ID = {"episodes": "episode_id", "pairs": "pair_id", "examples": "example_id", "groups": "group_id"}
_SINGULAR = {"episodes": "episode", "pairs": "pair", "examples": "example", "groups": "group"}
_LEAST_ID = 6


def source_files(ctx: Context) -> tuple[int, int]:
    """Return how many files were ingested and how many under `ingest.sources` are new or have another size."""
    from flywheel.stages.ingest import discover, shown_path

    snapshot = ctx.store.current("ingest")
    sources: dict[str, dict[str, Any]] = dict(snapshot.extra["sources"]) if snapshot else {}
    try:
        found = discover([ctx.project / s for s in ctx.config.ingest.sources])
    except FlywheelError:
        found = []
    new = 0
    for path in found:
        state = sources.get(shown_path(path, ctx.project))
        new += state is None or state["size_bytes"] != path.stat().st_size
    return len(sources), new


def next_command(ctx: Context, stages: Sequence[StageStatus], *, known: int, new: int) -> str:
    """Return the one command that brings the wheel forward."""
    if new or not known:
        return "flywheel ingest" if new else "flywheel ingest LOGS"
    if any(s.state != "fresh" for s in stages):
        return "flywheel build"
    trained = ctx.registry.trained()
    if trained and ctx.registry.manifest(trained[-1]).state == "trained":
        return f"flywheel eval --round {trained[-1]} --promote"
    return "flywheel plan"


def _headline(report: EvalReport | None) -> str:
    rows = [m for m in report.metrics if m.primary and m.slice == "all"] if report else []
    return metric_text(rows[0]) if rows else ""


def log_rows(registry: Registry) -> list[LogRow]:
    """Return a line for each round, newest first."""
    aliases = registry.aliases()
    rows = []
    for number in reversed(registry.numbers()):
        manifest = registry.manifest(number)
        rows.append(
            LogRow(
                round=number,
                state=manifest.state,
                method=manifest.method,
                parent=manifest.parent,
                rows=manifest.counts.get("kept", 0),
                metric=_headline(registry.report(number)),
                aliases=[f"@{name}" for name, at in aliases.items() if at == number],
            )
        )
    return rows


def champion(ctx: Context) -> ChampionAnswer:
    """Return what to serve, and the decision behind it.

    Raises:
        StoreError: the champion's adapter is missing or is not the one that was judged.
    """
    from flywheel.models.load import base_identity

    number = ctx.registry.champion
    problems = ctx.registry.problems([number] if number is not None else [])
    if problems:
        raise StoreError("; ".join(problems), hint="`flywheel rollback --yes` moves the champion to a sound round")
    manifest = ctx.registry.manifest(number) if number is not None else None
    made = [p for p in ctx.registry.promotions() if p.champion_after == number and p.champion_before != number]
    return ChampionAnswer(
        round=number,
        name=served_name(ctx, number),
        base_model=manifest.base_model if manifest else ctx.config.model.base,
        base_model_sha256=manifest.base_model_sha256 if manifest else base_identity(ctx.config.model).sha256,
        adapter=str(ctx.registry.adapter(number) or ""),
        adapter_sha256=manifest.adapter_sha256 if manifest else "",
        method=manifest.method if manifest else "",
        parent=manifest.parent if manifest else None,
        decision=made[-1].decision if made else "",
        decided_at=made[-1].at.isoformat() if made else "",
        reason=(made[-1].reason or str(made[-1].verdict or "")) if made else "",
    )


# --- show -----------------------------------------------------------------------------------------------------------


def _unfold(row: dict[str, Any]) -> dict[str, Any]:
    """Return a table row with its JSON columns parsed."""
    folded = {"observation", "action", "tail", "tools", "prompt", "chosen", "rejected", "completion"}
    parsed = {k: json.loads(v) if k in folded and isinstance(v, str) else v for k, v in row.items()}
    if "completions_G" in parsed:
        parsed["completions_G"] = [json.loads(c) for c in parsed["completions_G"]]
    return parsed


def _find(ctx: Context, table: str, wanted: str) -> pl.DataFrame:
    import polars as pl

    column = _BY_ID[table]
    return read_table(ctx.store, table).filter(pl.col(column).str.starts_with(wanted)).sort(column).collect()


def _rows_of(ctx: Context, table: str, episode_id: str, order: list[str]) -> list[dict[str, Any]]:
    import polars as pl

    lazy = read_table(ctx.store, table).filter(pl.col("episode_id") == episode_id)
    return [_unfold(r) for r in lazy.sort(order).collect().iter_rows(named=True)]


def _plain(value: Any) -> Any:
    return json.loads(json.dumps(value, default=lambda v: v.isoformat()))


def show(ctx: Context, subject: str) -> ShowAnswer:
    """Return one thing in full: a round, or an episode, pair, example or group by the first digits of its id.

    Raises:
        UsageError: nothing, or more than one thing, has that name.
    """
    if subject.isdigit() or subject.startswith("@") or subject == "latest":
        number = ctx.registry.resolve(subject)
        if number is None:
            raise UsageError(f"`{subject}` is the base model: there is no round to show", hint="flywheel log")
        record = ctx.registry.manifest(number).model_dump(mode="json")
        record["aliases"] = [a for a, at in ctx.registry.aliases().items() if at == number]
        return ShowAnswer(kind="round", record=record)
    table, row = _lookup(ctx, subject)
    record = _unfold(row)
    if table == "episodes":
        record["steps"] = _rows_of(ctx, "steps", row["episode_id"], ["index"])
        record["rewards"] = _rows_of(ctx, "rewards", row["episode_id"], ["step", "signal"])
        record["returns"] = _rows_of(ctx, "returns", row["episode_id"], ["step"])
        return ShowAnswer(kind="episode", record=_plain(record))
    sides, how = preview(ctx, _SINGULAR[table], record)
    return ShowAnswer(kind=_SINGULAR[table], record=_plain(record), preview=sides, rendering=how)


def episode_id(ctx: Context, wanted: str) -> str:
    """Return the episode whose id begins so.

    Raises:
        UsageError: none, or more than one, does.
    """
    found = _find(ctx, "episodes", wanted) if len(wanted) >= _LEAST_ID else None
    if found is None or found.is_empty():
        raise UsageError(
            f"no episode is named `{wanted}`",
            hint=f"a round's number or alias, or at least {_LEAST_ID} digits of an episode's id",
        )
    if found.height > 1:
        raise UsageError(f"`{wanted}` begins {found.height} ids of episodes", hint="type more of the id")
    return str(found["episode_id"][0])


def _lookup(ctx: Context, wanted: str) -> tuple[str, dict[str, Any]]:
    if len(wanted) >= _LEAST_ID:
        for table in _BY_ID:
            found = _find(ctx, table, wanted)
            if found.height > 1:
                raise UsageError(f"`{wanted}` begins {found.height} ids of {table}", hint="type more of the id")
            if found.height == 1:
                return table, found.row(0, named=True)
    raise UsageError(
        f"nothing is named `{wanted}`",
        hint=f"a round's number or alias, or at least {_LEAST_ID} digits of an episode, pair, example or group id",
    )


# --- explain --------------------------------------------------------------------------------------------------------


def explain(ctx: Context, subject: str) -> list[str]:
    """Return sentences with numbers: why a stage is stale, a round or the gate held, an episode got its reward.

    Raises:
        UsageError: nothing has that name or id.
    """
    if subject == "gate" or subject in rule_names(ctx):
        return explain_gate(ctx, subject)
    if subject in {s.name for s in STAGES}:
        return explain_stage(ctx.store, ctx.config, subject)
    shown = show(ctx, subject)
    if shown.kind == "round":
        return explain_round(ctx, int(shown.record["round"]))
    if shown.kind == "episode":
        return explain_episode(ctx, shown.record)
    return explain_row(shown.kind, shown.record)
