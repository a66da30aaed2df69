"""The monitors against gaming on the current tables; red means no training without a reason."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from flywheel.errors import TrainError
from flywheel.pipeline.build.tables import read_table
from flywheel.pipeline.context import Context, served_name
from flywheel.pipeline.copies import DEPLOYMENTS, ledger
from flywheel.pipeline.rewards.quality import transport
from flywheel.present import round_name
from flywheel.records import MonitorRow
from flywheel.stages.labelling.priors import log_odds
from flywheel.stages.monitors import Serving, watch

_COLUMNS = {
    "episodes": ("episode_id", "task_id", "user", "policy", "started"),
    "steps": ("episode_id", "task_id", "index", "action", "tool_names", "malformed"),
    "rewards": ("episode_id", "step", "signal", "family", "kind", "score", "weight"),
    "returns": ("episode_id", "step", "value", "known", "level"),
}


def monitor_rows(ctx: Context) -> list[MonitorRow]:
    """Return the monitors' results on all that was built."""
    tables = {name: read_table(ctx.store, name).select(cols).collect() for name, cols in _COLUMNS.items()}
    frames = (tables["episodes"], tables["steps"], tables["rewards"], tables["returns"])
    return watch(
        *frames,
        ctx.config.monitors,
        odds=log_odds,
        serving=_serving(ctx),
        audit=_audited(ctx),
        now=ctx.clock(),
        crowd_members=read_table(ctx.store, "crowds").collect(),
    )


def _serving(ctx: Context) -> Serving:
    """Return the champion's names in logs, and since when it serves: by the decisions and deployments.

    A log that was built before a decision holds nothing of the champion, so that it serves from the log's end on: that
    is earlier where logs are read that were written long ago.
    """
    champion = ctx.registry.champion
    if champion is None:
        return Serving()
    deployed = [entry for entry in ledger(ctx, DEPLOYMENTS) if entry["round"] == champion]
    starts = [datetime.fromisoformat(entry["at"]) for entry in deployed]
    decisions = [p for p in ctx.registry.promotions() if p.champion_after == champion]
    starts += [min(p.at, p.log_end or p.at) for p in decisions]
    names = {str(champion), f"{champion:04d}", round_name(champion), served_name(ctx, champion)}
    return Serving(frozenset(names | {entry["name"] for entry in deployed}), min(starts, default=None))


def _audited(ctx: Context) -> str | None:
    """Return the audit's worst verdict on the calibration of the policies; None without answers."""
    verdicts = {found.verdict for found in transport(ctx)["policy"]}
    return next((verdict for verdict in ("FAIL", "INCONCLUSIVE", "PASS") if verdict in verdicts), None)


def refuse_red(number: int, rows: Sequence[MonitorRow], reason: str) -> str:
    """Return the reason to record: '' where nothing is red, else the given one.

    Raises:
        TrainError: a monitor is red and there is no reason to train all the same.
    """
    red = [row for row in rows if row.level == "red"]
    if not red:
        return ""
    if reason:
        return reason
    raise TrainError(
        f"round {number} is not trained: " + "; ".join(f"{row.monitor} is red: {row.sentence}" for row in red),
        hint="look at the newest episodes; `flywheel train --force --reason WHY` trains it anyway and records why",
    )


def refuse_before_attempts(ctx: Context, number: int, reason: str = "") -> None:
    """Refuse a round that is red before its plan makes attempts, which take minutes."""
    if ctx.config.train.attempts:
        refuse_red(number, monitor_rows(ctx), reason)
