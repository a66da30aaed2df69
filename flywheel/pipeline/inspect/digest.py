"""A span of time in numbers: what the agent learnt, what it still fails at, what it cost.

In: the tables and the decisions. Out: a `DigestAnswer`. No clock is asked: the span ends with the newest event unless
its end is given, so that the same project gives the same answer on any day.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, time, timedelta
from typing import Any

import polars as pl

from flywheel import present
from flywheel.errors import UsageError
from flywheel.pipeline.build.tables import read_table
from flywheel.pipeline.context import Context
from flywheel.pipeline.rewards.sample import TALK, intents
from flywheel.results.inspect import (
    DigestAnswer,
    DigestChange,
    DigestCost,
    DigestExample,
    DigestIntent,
    DigestRate,
    DigestRound,
)
from flywheel.stats.paired import newcombe, wilson

__all__ = ["digest", "moment", "span"]

_UNITS = {"h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1)}
_MOST_INTENTS, _MOST_EXAMPLES, _MOST_CHANGES = 5, 3, 5
_EXCERPT = 100


def span(text: str) -> timedelta:
    """Return how long `7d`, `24h` or `2w` is.

    Raises:
        UsageError: the text is no span.
    """
    found = re.fullmatch(r"(\d{1,4})([hdw])", text)
    if not found or int(found[1]) == 0:
        raise UsageError(f"`{text}` is no span of time", hint="7d, 24h or 2w")
    return int(found[1]) * _UNITS[found[2]]


def moment(text: str) -> datetime:
    """Return the moment that a date or a time names: of a date its end, of a time without a zone that in UTC.

    Raises:
        UsageError: the text is neither.
    """
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(f"`{text}` is no date", hint="2026-10-04 or 2026-10-04T18:00:00Z") from None
    if re.fullmatch(r"\d{4}-\d\d-\d\d|\d{8}", text):
        found = datetime.combine(found.date(), time.max)
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def digest(ctx: Context, since: timedelta, as_of: datetime | None) -> DigestAnswer:
    """Return the digest of the span that ends with `as_of`, or with the newest event.

    Raises:
        UsageError: nothing was built, or the logs have no times.
    """
    end = as_of or _newest(ctx)
    start = end - since
    whole = _whole(ctx)
    known = pl.col("at")
    now = whole.filter((known > start) & (known <= end))
    before = whole.filter((known > start - since) & (known <= start))
    rounds = list(_rounds(ctx, start, as_of))
    better, worse = _changes(before, now)
    return DigestAnswer(
        project=ctx.config.name or ctx.project.name,
        since=start.isoformat(),
        until=end.isoformat(),
        episodes=now.height,
        episodes_before=before.height,
        without_time=whole["at"].null_count(),
        success=_rate(now),
        success_before=_rate(before),
        champion=ctx.registry.champion,
        rounds=rounds,
        better=better,
        worse=worse,
        failing=_failing(ctx, now),
        cost=_cost(now, sum(r.train_s or 0.0 for r in rounds)),
        cost_before=_cost(before, 0.0),
    )


def _newest(ctx: Context) -> datetime:
    found = read_table(ctx.store, "events").select(pl.col("ts").max()).collect().item()
    if not isinstance(found, datetime):
        raise UsageError("no event has a time", hint="flywheel ingest LOGS; or say when with --as-of 2026-10-04")
    return found


def _whole(ctx: Context) -> pl.DataFrame:
    """Return one row an episode: when, what it was about, how it went, what it took."""
    took = ("cost_usd", "input_tokens", "output_tokens", "latency_s")
    returns = read_table(ctx.store, "returns").filter(pl.col("step").is_null())
    return (
        read_table(ctx.store, "episodes")
        .select("episode_id", "task_id", *took, at=pl.coalesce("ended", "started"))
        .join(returns.select("episode_id", "p_success", "known"), on="episode_id", how="left")
        .join(intents(ctx), on="episode_id", how="left")
        .with_columns(pl.col("intent").fill_null(TALK), pl.col("known").fill_null(value=False))
        .sort("episode_id")
        .collect()
    )


def _rate(rows: pl.DataFrame) -> DigestRate:
    told = rows.filter(pl.col("known"))
    if told.is_empty():
        return DigestRate(n=0, rate=None, low=None, high=None)
    good = float(told["p_success"].sum())
    limits = wilson(good, told.height)
    return DigestRate(n=told.height, rate=good / told.height, low=limits.low, high=limits.high)


def _rounds(ctx: Context, start: datetime, end: datetime | None) -> Iterator[DigestRound]:
    """Yield what was decided since `start`: up to `end`, or up to the last decision where no end was given."""
    for made in ctx.registry.promotions():
        if made.at <= start or (end is not None and made.at > end):
            continue
        manifest, report = ctx.registry.manifest(made.round), ctx.registry.report(made.round)
        row = present.primary_row(report)
        yield DigestRound(
            round=made.round,
            decision=made.decision,
            at=made.at.isoformat(),
            method=manifest.method,
            rows=manifest.counts.get("kept", 0),
            metric=present.metric_change(row) if row else "",
            wins=len(report.wins) if report else 0,
            regressions=len(report.regressions) if report else 0,
            train_s=manifest.timings_s.get("total"),
        )


def _changes(before: pl.DataFrame, now: pl.DataFrame) -> tuple[list[DigestChange], list[DigestChange]]:
    """Return the intents whose success surely rose, and those where it surely fell, the largest change first."""
    found = []
    for name in sorted(set(before["intent"].to_list()) & set(now["intent"].to_list())):
        old, new = (_rate(rows.filter(pl.col("intent") == name)) for rows in (before, now))
        if old.rate is not None and new.rate is not None:
            limits = newcombe(new.rate * new.n, new.n, old.rate * old.n, old.n)
            found.append(DigestChange(intent=name, before=old, now=new, low=limits.low, high=limits.high))
    better = sorted((c for c in found if c.low > 0), key=lambda c: (-c.low, c.intent))
    worse = sorted((c for c in found if c.high < 0), key=lambda c: (c.high, c.intent))
    return better[:_MOST_CHANGES], worse[:_MOST_CHANGES]


def _failing(ctx: Context, now: pl.DataFrame) -> list[DigestIntent]:
    """Return the intents with the most expected failures, each with the tasks that failed most."""
    told = now.filter(pl.col("known")).with_columns(failure=1 - pl.col("p_success"))
    ranked = (
        told.group_by("intent")
        .agg(failures=pl.col("failure").sum())
        .sort("failures", "intent", descending=[True, False])
    )
    found = []
    for name, failures in ranked.filter(pl.col("failures") > 0).head(_MOST_INTENTS).iter_rows():
        rows = told.filter(pl.col("intent") == name)
        found.append(
            DigestIntent(intent=name, failures=failures, success=_rate(rows), examples=list(_examples(ctx, rows)))
        )
    return found


def _examples(ctx: Context, rows: pl.DataFrame) -> Iterator[DigestExample]:
    tasks = (
        rows.sort("p_success", "episode_id")
        .group_by("task_id", maintain_order=True)
        .agg(pl.col("episode_id").first(), pl.col("p_success").first(), failures=pl.col("failure").sum(), n=pl.len())
        .filter(pl.col("p_success") < 0.5)  # noqa: PLR2004 - more likely failed than not
        .sort("failures", "task_id", descending=[True, False])
        .head(_MOST_EXAMPLES)
    )
    for row in tasks.iter_rows(named=True):
        yield DigestExample(
            episode=row["episode_id"],
            request=_request(ctx, row["episode_id"]),
            attempts=row["n"],
            p_success=row["p_success"],
            against=_against(ctx, row["episode_id"]),
        )


def _request(ctx: Context, episode: str) -> str:
    first = read_table(ctx.store, "steps").filter((pl.col("episode_id") == episode) & (pl.col("index") == 0))
    seen: list[Any] = first.select("observation").collect()["observation"].to_list()
    said = [m.get("content") for m in (json.loads(seen[0]) if seen else []) if m.get("role") == "user"]
    text = " ".join(str(said[0] or "")[: 4 * _EXCERPT].split()) if said else ""
    return text if len(text) <= _EXCERPT else f"{text[:_EXCERPT]}…"


def _against(ctx: Context, episode: str) -> list[str]:
    votes = read_table(ctx.store, "rewards").filter(
        (pl.col("episode_id") == episode) & pl.col("kind").is_in(["outcome", "implicit"]) & (pl.col("score") < 0)
    )
    return votes.select(pl.col("signal").unique().sort()).collect()["signal"].to_list()


def _cost(rows: pl.DataFrame, train_s: float) -> DigestCost:
    def total(name: str) -> Any:
        return rows[name].sum() if rows[name].count() else None

    return DigestCost(
        usd=total("cost_usd"),
        input_tokens=total("input_tokens"),
        output_tokens=total("output_tokens"),
        latency_s=total("latency_s"),
        logged=rows["cost_usd"].count(),
        train_s=round(train_s, 3),
    )
