"""Gathering what a round's report page shows, and writing it; the page is a pure function in `flywheel.report`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from flywheel.errors import FlywheelError
from flywheel.io import files
from flywheel.pipeline.build.registry import STAGES
from flywheel.pipeline.build.tables import read_table
from flywheel.pipeline.context import Context
from flywheel.pipeline.evaluate.looks import acts
from flywheel.pipeline.inspect.report import requests
from flywheel.pipeline.pages.views import Shower
from flywheel.records import EvalReport, MetricRow
from flywheel.registry.round_files import training_metrics
from flywheel.report import SCORE_EDGES, Agreement, CaseRow, Histogram, PastRound, ReportData, SignalRow, build_report
from flywheel.stats.paired import wilson

_EPISODES = 40  # in the page; all of them are a `flywheel show` away
_PAIRS = 12
_BINS = 20
_SILENT = 1e-9  # a smaller sum of votes is silence
_LEAST_BOTH, _MOST_AGREEMENTS = 5, 24  # episodes on which two signals must have voted; rows


def write_page(ctx: Context, number: int) -> Path:
    """Write `rounds/NNNN/report.html` and return its path."""
    manifest, report = ctx.registry.manifest(number), ctx.registry.report(number)
    decisions = [p for p in ctx.registry.promotions() if p.round == number]
    cases, shower = Cases(ctx, report), Shower(ctx, number)
    data = ReportData(
        project=ctx.config.name or ctx.project.name,
        manifest=manifest,
        report=report,
        promotion=decisions[-1] if decisions else None,
        funnels=_funnels(ctx),
        signals=_signals(ctx),
        agreements=_agreements(ctx),
        returns=_returns(ctx),
        training=training_metrics(ctx.registry.folder(number)),
        wins=cases.rows(report.wins if report else ()),
        regressions=cases.rows(report.regressions if report else ()),
        episodes=list(shower.episodes(_shown(ctx, cases.linked))),
        pairs=shower.pairs(_pairs(ctx, shower.rows)),
        history=_history(ctx, number),
    )
    path = ctx.registry.folder(number) / "report.html"
    files.atomic_write(path, build_report(data))
    return path


def rewrite_page(ctx: Context, number: int) -> None:
    """Write a round's page again if it has one; an error here never stops a rollback."""
    if (ctx.registry.folder(number) / "report.html").is_file():
        try:
            write_page(ctx, number)
        except FlywheelError as error:
            ctx.say(f"the page of round {number} is as it was before: {error.message}")


def _funnels(ctx: Context) -> dict[str, Mapping[str, int]]:
    funnels: dict[str, Mapping[str, int]] = {}
    for name in ("ingest", *(s.name for s in STAGES)):
        snapshot = ctx.store.current(name)
        if snapshot is not None:
            funnels[name] = snapshot.funnel
    return funnels


def _table(ctx: Context, name: str) -> pl.LazyFrame:
    return read_table(ctx.store, name)


def _signals(ctx: Context) -> list[SignalRow]:
    rows = (
        _table(ctx, "rewards")
        .group_by("signal", "family", "kind")
        .agg(n=pl.len(), mean=pl.col("score").mean(), share_positive=(pl.col("score") > 0).mean(), counts=_bins())
        .sort("kind", "signal", "family")
        .collect()
    )
    unbounded = ("cost",)  # in units of their own: no scale to spread over
    return [
        SignalRow(**{**row, "counts": () if row["kind"] in unbounded else row["counts"]})
        for row in rows.iter_rows(named=True)
    ]


def _bins() -> pl.Expr:
    """Return how many scores lie in each bin; the last bin holds its upper edge."""
    score, inner = pl.col("score"), SCORE_EDGES[1:-1]
    below = [(score < edge).sum() for edge in inner]
    counts = [a - b for a, b in zip([*below, pl.len()], [pl.lit(0), *below], strict=True)]
    return pl.concat_list([count.cast(pl.Int64) for count in counts]).first()


def _agreements(ctx: Context) -> list[Agreement]:
    """Return how often two signals agree on the episodes that both voted on, the most frequent two first."""
    votes = _table(ctx, "rewards").filter(pl.col("kind").is_in(["outcome", "implicit"]) & (pl.col("weight") > 0))
    cast = (
        votes.group_by("episode_id", "signal")
        .agg(score=(pl.col("score") * pl.col("weight")).sum())
        .filter(pl.col("score").abs() > _SILENT)
    )
    both = cast.join(cast, on="episode_id", suffix="_2").filter(pl.col("signal") < pl.col("signal_2"))
    alike = ((pl.col("score") > 0) == (pl.col("score_2") > 0)).sum()
    rows = both.group_by("signal", "signal_2").agg(n=pl.len(), alike=alike).filter(pl.col("n") >= _LEAST_BOTH)
    agreements = []
    for first, second, n, same in (
        rows.sort("n", "signal", "signal_2", descending=[True, False, False]).collect().rows()
    ):
        span = wilson(same, n)
        agreements.append(Agreement(first, second, n, same / n, span.low, span.high))
    return agreements[:_MOST_AGREEMENTS]


def _returns(ctx: Context) -> Histogram | None:
    returns = _table(ctx, "returns").filter(pl.col("step").is_null() & pl.col("known"))
    rows = returns.join(_table(ctx, "episodes").select("episode_id", "split"), on="episode_id").collect()
    if rows.height == 0:
        return None
    lowest, highest = rows.select(low=pl.col("value").min(), high=pl.col("value").max()).row(0)
    edges = np.linspace(min(-1.0, float(lowest)), max(1.0, float(highest)), _BINS + 1)
    counts = {
        split: np.histogram(rows.filter(pl.col("split") == split)["value"].to_numpy(), edges)[0].tolist()
        for split in sorted(rows["split"].unique().to_list())
    }
    return Histogram(edges=[round(float(e), 4) for e in edges], counts=counts)


class Cases:
    """Links evaluation cases to logged episodes of the same task, state or pair."""

    def __init__(self, ctx: Context, report: EvalReport | None) -> None:
        self._ctx = ctx
        self.linked: list[str] = []
        self._titles = report.titles if report is not None else {}
        self._acts = acts(ctx.registry, report) if report is not None else {}
        self._by_key: dict[str, list[str]] = {}
        if report is None:
            return
        wanted = [*report.wins, *report.regressions]
        steps, pairs = _table(ctx, "steps"), _table(ctx, "pairs")
        keyed = [steps.select("episode_id", key=key) for key in ("task_id", "state_key")]
        keyed += [pairs.select(key="pair_id", episode_id=f"{side}_episode") for side in ("chosen", "rejected")]
        for rows in keyed:
            known = rows.filter(pl.col("key").is_in(wanted)).select("key", "episode_id").unique()
            for key, episode in known.sort("episode_id").collect().rows():
                episodes = self._by_key.setdefault(key, [])
                if episode not in episodes:
                    episodes.append(episode)

    def rows(self, cases: Sequence[str]) -> list[CaseRow]:
        """Return case rows with their episodes; what is linked is remembered for the viewer."""
        rows = []
        behind = {case: self._by_key.get(case, [])[:3] for case in cases}
        asked = requests(self._ctx, [episodes[0] for episodes in behind.values() if episodes])
        for case, episodes in behind.items():
            self.linked += [e for e in episodes if e not in self.linked]
            request = asked.get(episodes[0], "") if episodes else self._titles.get(case, "")
            rows.append(CaseRow(case, episodes, request, self._acts.get(case, {})))
        return rows


def _shown(ctx: Context, linked: Sequence[str]) -> list[str]:
    """Return the ids of the page's episodes: those behind wins and regressions first."""
    ids = _table(ctx, "episodes").select("episode_id").sort("episode_id").collect()["episode_id"].to_list()
    first = set(linked)
    return [*linked, *(i for i in ids if i not in first)][:_EPISODES]


def _pairs(ctx: Context, trained: frozenset[str]) -> Sequence[Mapping[str, Any]]:
    """Return the pairs with the largest margins, those that the round was trained on first."""
    order = [pl.col("pair_id").is_in(sorted(trained)), pl.col("margin"), pl.col("pair_id")]
    return _table(ctx, "pairs").sort(order, descending=[True, True, False]).head(_PAIRS).collect().to_dicts()


def _history(ctx: Context, number: int) -> list[PastRound]:
    verdicts = {p.round: p.decision for p in ctx.registry.promotions()}
    history = []
    for past in [n for n in ctx.registry.numbers() if n <= number]:
        report = ctx.registry.report(past)
        row = next((m for m in report.metrics if m.primary and m.slice == "all"), None) if report else None
        if row is not None:
            method, verdict = ctx.registry.manifest(past).method, str(verdicts.get(past, "evaluated"))
            low, high = _interval(row)
            history.append(PastRound(past, method, verdict, row.metric, row.value, low, high, row.n, row.binary))
    return history


def _interval(row: MetricRow) -> tuple[float | None, float | None]:
    """Return the 95 % interval of a rate, with the number of cases divided by their design effect."""
    if not row.binary or row.value is None:
        return None, None
    worth = row.n / max(1.0, row.design_effect)
    span = wilson(row.value * worth, worth)
    return span.low, span.high
