"""`flywheel report`: what the agent learnt, still fails at, and cost in a span of time.

In: the tables and the decisions. Out: a `ReportAnswer`. The span ends where the log ends unless its end is given,
never with the clock, so that the same project gives the same answer on any day.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, time, timedelta
from typing import Any

import polars as pl

from flywheel import present
from flywheel.errors import UsageError
from flywheel.pipeline.build.tables import read_table
from flywheel.pipeline.context import Context
from flywheel.pipeline.rewards.outcomes import success
from flywheel.pipeline.rewards.sample import TALK, intents
from flywheel.results.inspect import (
    ReportAnswer,
    ReportChange,
    ReportCost,
    ReportExample,
    ReportIntent,
    ReportRate,
    ReportRound,
)
from flywheel.stages.common.clock import end_of
from flywheel.stats.means import difference_interval, mean_interval
from flywheel.stats.paired import newcombe, wilson

_UNITS = {"h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1)}
_MOST_INTENTS, _MOST_EXAMPLES, _MOST_CHANGES = 5, 3, 5
_EXCERPT = 100


def span(text: str) -> timedelta:
    """Return the length of `7d`, `24h` or `2w`.

    Raises:
        UsageError: the text is not a span.
    """
    match = re.fullmatch(r"(\d{1,4})([hdw])", text)
    if not match or int(match[1]) == 0:
        raise UsageError(f"`{text}` is not a span of time", hint="7d, 24h or 2w")
    return int(match[1]) * _UNITS[match[2]]


def moment(text: str) -> datetime:
    """Return the time that a text names: the end of a date; a time without a zone is in UTC.

    Raises:
        UsageError: the text is neither.
    """
    try:
        time_of = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(f"`{text}` is not a date", hint="2026-10-04 or 2026-10-04T18:00:00Z") from None
    if re.fullmatch(r"\d{4}-\d\d-\d\d|\d{8}", text):
        time_of = datetime.combine(time_of.date(), time.max)
    return time_of if time_of.tzinfo else time_of.replace(tzinfo=UTC)


def report(ctx: Context, since: timedelta, as_of: datetime | None) -> ReportAnswer:
    """Return the report on the span that ends with `as_of`, or with the newest episode.

    Of logs most of which have no times, and with no end given, it is on all episodes and all rounds.
    """
    episodes, at = _episodes(ctx), pl.col("at")
    without_time = episodes["at"].null_count()
    end = as_of or (end_of(episodes["at"]).at if 2 * without_time <= episodes.height else None)
    start = end - since if end is not None else None
    if end is None or start is None:
        now, before = episodes, episodes.clear()
    else:
        now = episodes.filter((at > start) & (at <= end))
        before = episodes.filter((at > start - since) & (at <= start))
    rounds = list(_rounds(ctx, start, as_of))
    better, worse = _changes(before, now)
    return ReportAnswer(
        project=ctx.config.name or ctx.project.name,
        since=start.isoformat() if start is not None else "",
        until=end.isoformat() if end is not None else "",
        episodes=now.height,
        episodes_before=before.height,
        without_time=without_time,
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


def _episodes(ctx: Context) -> pl.DataFrame:
    """Return one row an episode: time, intent, success, cost."""
    costs = ("cost_usd", "input_tokens", "output_tokens", "latency_s")
    return (
        read_table(ctx.store, "episodes")
        .select("episode_id", "task_id", *costs, at=pl.coalesce("ended", "started"))
        .join(success(ctx.store).rename({"success": "p_success"}), on="episode_id", how="left")
        .join(intents(ctx), on="episode_id", how="left")
        .with_columns(
            pl.col("intent").fill_null(TALK),
            pl.col("known").fill_null(value=False),
            recorded=pl.col("basis").is_in(["audit", "verifier"]).fill_null(value=False),
        )
        .sort("episode_id")
        .collect()
    )


def requests(ctx: Context, episodes: Sequence[str]) -> dict[str, str]:
    """Return what was asked first in each of these episodes, in one line, shortened."""
    among = pl.col("episode_id").is_in(list(episodes)) & (pl.col("index") == 0)
    first = read_table(ctx.store, "steps").filter(among).select("episode_id", "observation").collect()
    return {episode: _asked(json.loads(seen)) for episode, seen in first.iter_rows()}


def _asked(messages: Sequence[Mapping[str, Any]]) -> str:
    texts = [m.get("content") for m in messages if m.get("role") == "user"]
    text = " ".join(str(texts[0] or "")[: 4 * _EXCERPT].split()) if texts else ""
    return text if len(text) <= _EXCERPT else f"{text[:_EXCERPT]}…"


def _rate(rows: pl.DataFrame) -> ReportRate:
    known = rows.filter(pl.col("known"))
    if known.is_empty():
        return ReportRate(n=0, rate=None, low=None, high=None)
    successes, graded = float(known["p_success"].sum()), bool(known["graded"].any())
    limits = mean_interval(known["p_success"].to_list()) if graded else wilson(successes, known.height)
    rate = successes / known.height
    recorded = int(known["recorded"].sum())
    return ReportRate(n=known.height, recorded=recorded, rate=rate, low=limits.low, high=limits.high, graded=graded)


def _rounds(ctx: Context, start: datetime | None, end: datetime | None) -> Iterator[ReportRound]:
    """Yield the decisions after `start`: up to `end`, or to the last one where no end is given."""
    for promotion in ctx.registry.promotions():
        if (start is not None and promotion.at <= start) or (end is not None and promotion.at > end):
            continue
        manifest, report = ctx.registry.manifest(promotion.round), ctx.registry.report(promotion.round)
        row = present.primary_row(report)
        yield ReportRound(
            round=promotion.round,
            decision=promotion.decision,
            at=promotion.at.isoformat(),
            method=manifest.method,
            rows=manifest.counts.get("kept", 0),
            metric=present.metric_change(row) if row else "",
            wins=len(report.wins) if report else 0,
            regressions=len(report.regressions) if report else 0,
            train_s=manifest.timings_s.get("total"),
        )


def _changes(before: pl.DataFrame, now: pl.DataFrame) -> tuple[list[ReportChange], list[ReportChange]]:
    """Return the intents whose success rose significantly, and those where it fell, the largest change first."""
    changes = []
    for name in sorted(set(before["intent"].to_list()) & set(now["intent"].to_list())):
        of_old, of_new = (rows.filter((pl.col("intent") == name) & pl.col("known")) for rows in (before, now))
        old, new = _rate(of_old), _rate(of_new)
        if old.rate is not None and new.rate is not None:
            if old.graded or new.graded:
                limits = difference_interval(of_new["p_success"].to_list(), of_old["p_success"].to_list())
            else:
                limits = newcombe(new.rate * new.n, new.n, old.rate * old.n, old.n)
            changes.append(ReportChange(intent=name, before=old, now=new, low=limits.low, high=limits.high))
    better = sorted((c for c in changes if c.low > 0), key=lambda c: (-c.low, c.intent))
    worse = sorted((c for c in changes if c.high < 0), key=lambda c: (c.high, c.intent))
    return better[:_MOST_CHANGES], worse[:_MOST_CHANGES]


def _failing(ctx: Context, now: pl.DataFrame) -> list[ReportIntent]:
    """Return the intents with the most expected failures, each with the tasks that failed most."""
    known = now.filter(pl.col("known")).with_columns(failure=1 - pl.col("p_success"))
    ranked = (
        known.group_by("intent")
        .agg(failures=pl.col("failure").sum())
        .sort("failures", "intent", descending=[True, False])
    )
    failing = []
    for name, failures in ranked.filter(pl.col("failures") > 0).head(_MOST_INTENTS).iter_rows():
        rows = known.filter(pl.col("intent") == name)
        failing.append(
            ReportIntent(
                intent=name,
                failures=failures,
                success=_rate(rows),
                examples=list(_examples(ctx, rows)),
                recorded=bool(rows["recorded"].all()),
            )
        )
    return failing


def _examples(ctx: Context, rows: pl.DataFrame) -> Iterator[ReportExample]:
    tasks = (
        rows.sort("p_success", "episode_id")
        .group_by("task_id", maintain_order=True)
        .agg(pl.col("episode_id", "p_success", "recorded").first(), failures=pl.col("failure").sum(), n=pl.len())
        .filter(pl.col("p_success") < 0.5)  # noqa: PLR2004 - more likely failed than not
        .sort("failures", "task_id", descending=[True, False])
        .head(_MOST_EXAMPLES)
    )
    asked, names = requests(ctx, tasks["episode_id"].to_list()), _task_names(ctx, tasks["episode_id"].to_list())
    for row in tasks.iter_rows(named=True):
        yield ReportExample(
            episode=row["episode_id"],
            request=asked.get(row["episode_id"], ""),
            attempts=row["n"],
            p_success=row["p_success"],
            recorded=row["recorded"],
            task=names.get(row["episode_id"], ""),
            against=_against(ctx, row["episode_id"]),
        )


def _task_names(ctx: Context, episodes: Sequence[str]) -> dict[str, str]:
    """Return the log's own name of the task of each of these episodes that has one."""
    among = read_table(ctx.store, "episodes").filter(pl.col("episode_id").is_in(list(episodes)))
    named = read_table(ctx.store, "events").filter(pl.col("task_key").is_not_null())
    rows = among.join(named.group_by("conversation_id").agg(pl.col("task_key").min()), on="conversation_id")
    return dict(rows.select("episode_id", "task_key").collect().iter_rows())


def _against(ctx: Context, episode: str) -> list[str]:
    votes = read_table(ctx.store, "rewards").filter(
        (pl.col("episode_id") == episode) & pl.col("kind").is_in(["outcome", "implicit"]) & (pl.col("score") < 0)
    )
    return votes.select(pl.col("signal").unique().sort()).collect()["signal"].to_list()


def _cost(rows: pl.DataFrame, train_s: float) -> ReportCost:
    def total(name: str) -> Any:
        return rows[name].sum() if rows[name].count() else None

    return ReportCost(
        usd=total("cost_usd"),
        input_tokens=total("input_tokens"),
        output_tokens=total("output_tokens"),
        latency_s=total("latency_s"),
        logged=rows["cost_usd"].count(),
        train_s=round(train_s, 3),
    )
