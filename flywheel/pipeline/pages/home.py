"""Gathering what the home page shows: production by policy, what is waiting, the last night, the newest verdict.

In: the tables, the rounds, the last night. Out: `HomeData`; time ends with the newest episode, never with the clock.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta

import polars as pl

from flywheel import present
from flywheel.pipeline.build.registry import STAGES
from flywheel.pipeline.build.tables import read_table
from flywheel.pipeline.context import Context, served_name
from flywheel.pipeline.ingest.quarantine import quarantined_rows
from flywheel.pipeline.inspect.status import last_night, status
from flywheel.pipeline.rewards.outcomes import success
from flywheel.pipeline.rewards.sample import draws
from flywheel.records import Promotion
from flywheel.report import HomeData, Mark, Point, PolicyLine, Rate, RoundRow, Verdict, Waiting
from flywheel.stages.common.clock import end_of
from flywheel.stats.means import mean_interval
from flywheel.stats.paired import wilson

_MOST_POLICIES = 6
_SPANS = (("day", "1d", timedelta(days=21)), ("week", "1w", timedelta(weeks=30)), ("month", "1mo", timedelta.max))
_MOVED = {"promoted": "promoted", "forced": "forced", "rolled_back": "rolled back", "forgotten": "withdrawn"}
_WEEK = timedelta(days=7)


def home(ctx: Context, pages: Mapping[int, str], links: list[tuple[str, str]]) -> HomeData:
    """Return the home page's data.

    Args:
        ctx: the project.
        pages: address of each round's report in the folder.
        links: name and address of other pages in the folder.
    """
    episodes = _episodes(ctx)
    end = end_of(episodes["at"]).at
    dated = episodes if end is None else episodes.filter((pl.col("at") <= end).fill_null(value=True))  # nothing stray
    span, lines = _lines(dated)
    week = dated.filter(pl.col("at") > end - _WEEK) if end is not None else None
    before = (
        episodes.filter((pl.col("at") <= end - _WEEK) & (pl.col("at") > end - 2 * _WEEK)) if end is not None else None
    )
    cost = week["cost_usd"].mean() if week is not None else None
    return HomeData(
        project=ctx.config.name or ctx.project.name,
        until=end,
        span=span,
        lines=(shown := _shown(ctx, lines)),
        left_out=len(lines) - len(shown),
        without_time=episodes["at"].null_count(),
        marks=[_mark(p) for p in ctx.registry.promotions() if p.champion_after != p.champion_before],
        week=_rate(week) if week is not None else None,
        week_before=_rate(before) if before is not None else None,
        all_time=_rate(episodes),
        episodes=episodes.height,
        cost_usd=float(cost) if isinstance(cost, int | float) else None,
        champion=present.round_name(ctx.registry.champion),
        waiting=list(_waiting(ctx, episodes.height)),
        night=last_night(ctx),
        tables=[stage.name for stage in STAGES],
        verdict=_verdict(ctx, pages),
        rounds=list(_rounds(ctx, pages)),
        links=links,
    )


# --- production -------------------------------------------------------------------------------------------------------


def _episodes(ctx: Context) -> pl.DataFrame:
    """Return one row an episode: policy, time, cost, success, and what it rests on."""
    return (
        read_table(ctx.store, "episodes")
        .select("episode_id", "policy", "cost_usd", at=pl.coalesce("ended", "started"))
        .join(success(ctx.store).rename({"success": "p_success"}), on="episode_id", how="left")
        .with_columns(pl.col("known").fill_null(value=False))
        .sort("episode_id")
        .collect()
    )


def _rate(rows: pl.DataFrame) -> Rate:
    known = rows.filter(pl.col("known"))
    recorded = known.filter(pl.col("basis").is_in(["audit", "verifier"])).height
    if known.is_empty():
        return Rate(0, 0)
    successes = float(known["p_success"].sum())
    graded = bool(known["graded"].any())
    limits = mean_interval(known["p_success"].to_list()) if graded else wilson(successes, known.height)
    return Rate(known.height, recorded, successes / known.height, limits.low, limits.high, graded)


def _lines(episodes: pl.DataFrame) -> tuple[str, list[PolicyLine]]:
    """Return what a point sums up, and each policy's line, the one with most episodes first."""
    first, last = episodes["at"].min(), episodes["at"].max()
    length = last - first if isinstance(first, datetime) and isinstance(last, datetime) else timedelta()
    span, every, _ = next(one for one in _SPANS if length <= one[2])
    rows = episodes.with_columns(start=pl.col("at").dt.truncate(every))
    lines = []
    for (policy,), of in sorted(rows.group_by("policy"), key=lambda one: (-one[1].height, str(one[0][0]))):
        timed = of.filter(pl.col("start").is_not_null())
        points = [
            Point(start, _rate(part)) for (start,), part in timed.group_by("start") if isinstance(start, datetime)
        ]
        lines.append(PolicyLine(str(policy), of.height, _rate(of), sorted(points, key=lambda point: point.at)))
    return span, lines


def _shown(ctx: Context, lines: list[PolicyLine]) -> list[PolicyLine]:
    """Return the lines that have room, those with times first; the champion's and the last to appear in any case.

    Those without times have as much room once more: they are in the table alone.
    """
    ranked = sorted(lines, key=lambda line: not line.points)
    newest = max((line for line in lines if line.points), key=lambda line: line.points[0].at, default=None)
    serving = served_name(ctx, ctx.registry.champion)
    chosen = [line for line in ranked if line is newest or line.policy == serving]
    chosen += [line for line in ranked if line not in chosen][: _MOST_POLICIES - len(chosen)]
    chosen += [line for line in ranked if line not in chosen and not line.points][:_MOST_POLICIES]
    return [line for line in ranked if line in chosen]


def _mark(promotion: Promotion) -> Mark:
    label = present.round_name(promotion.champion_after)
    return Mark(promotion.at, f"{label} {_MOVED.get(promotion.decision, '')}".strip())


# --- rounds -----------------------------------------------------------------------------------------------------------


def _verdict(ctx: Context, pages: Mapping[int, str]) -> Verdict | None:
    """Return the state of the newest round."""
    numbers = ctx.registry.numbers()
    if not numbers:
        return None
    manifest, report = ctx.registry.manifest(numbers[-1]), ctx.registry.report(numbers[-1])
    decision = _decisions(ctx).get(numbers[-1])
    return Verdict(
        round=numbers[-1],
        headline=present.headline(manifest, report, decision),
        reasons=present.reasons(decision),
        steps=present.next_steps(manifest, report, decision),
        page=pages.get(numbers[-1], ""),
    )


def _decisions(ctx: Context) -> dict[int, Promotion]:
    """Return the newest decision on each round."""
    return {promotion.round: promotion for promotion in ctx.registry.promotions()}


def _rounds(ctx: Context, pages: Mapping[int, str]) -> Iterator[RoundRow]:
    decisions = _decisions(ctx)
    for number in reversed(ctx.registry.numbers()):
        manifest, report = ctx.registry.manifest(number), ctx.registry.report(number)
        headline, row = present.headline(manifest, report, decisions.get(number)), present.primary_row(report)
        yield RoundRow(
            round=number,
            label=headline.label,
            tone=headline.tone,
            method=manifest.method,
            rows=manifest.counts.get("kept"),
            metric=present.metric_change(row) if row else "",
            page=pages.get(number, ""),
            champion=ctx.registry.champion == number,
        )


# --- what is waiting --------------------------------------------------------------------------------------------------


def _waiting(ctx: Context, episodes: int) -> Iterator[Waiting]:
    """Yield what waits for a person or a command, the most urgent first."""
    state, decided = status(ctx), _decisions(ctx)
    trained = [n for n in ctx.registry.trained() if n not in decided]
    unseen = [n for n in trained if ctx.registry.report(n) is None]
    undecided = [n for n in trained if n not in unseen]
    if undecided:
        yield Waiting(len(undecided), _of(undecided, "to be decided"), f"flywheel promote {undecided[-1]}")
    if unseen:
        yield Waiting(len(unseen), _of(unseen, "to be evaluated"), f"flywheel eval --round {unseen[-1]} --promote")
    if refused := quarantined_rows(ctx).height:
        yield Waiting(refused, f"{present.nouns(refused, 'record')} in quarantine", "flywheel quarantine")
    drawn = draws(ctx)
    if drawn and drawn[-1].waiting:
        n = len(drawn[-1].waiting)
        yield Waiting(n, f"{present.nouns(n, 'episode')} to be audited by a person", "flywheel audit")
    if state.new_files:
        yield Waiting(state.new_files, f"log {present.nouns(state.new_files, 'file')} new or grown", "flywheel ingest")
    stale = sum(stage.state != "fresh" for stage in state.stages)
    if stale:
        yield Waiting(stale, f"{present.nouns(stale, 'table')} to be brought up to date", "flywheel build")
    fresh = episodes - _episodes_of_newest(ctx) if ctx.registry.numbers() else 0
    if fresh > 0:
        yield Waiting(fresh, f"{present.nouns(fresh, 'episode')} since the newest round", "flywheel plan")


def _episodes_of_newest(ctx: Context) -> int:
    """Return how many episodes there were when the newest round was planned; all, where that is forgotten."""
    snapshot = ctx.registry.manifest(ctx.registry.numbers()[-1]).inputs.get("episodes", {}).get("snapshot", "")
    stage, _, number = snapshot.partition("/")
    current = ctx.store.current("episodes")
    known = number.isdigit() and int(number) in ctx.store.numbers(stage)
    before = ctx.store.snapshot(stage, int(number)) if known else current
    return before.rows("episodes") if before is not None else 0


def _of(rounds: list[int], what: str) -> str:
    return f"{present.nouns(len(rounds), 'round')} {what} ({present.some([str(n) for n in rounds])})"
