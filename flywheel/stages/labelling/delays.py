"""How late each signal's votes arrive, by Kaplan-Meier over all episodes with times.

In: episodes, votes, and the time against which ages are measured. Out: rows of the kind delay, for signals that often
vote after the end of an episode; the others are never waited for. A vote that came no sooner than that time has not
come yet: a log ends with its last vote, so that its last age always has one, and the curve would jump there (0055).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import polars as pl

from flywheel.stages.labelling.priors import horizon_s
from flywheel.stages.signals.rows import AUDIT
from flywheel.stats.delays import kaplan_meier, thinned

ENOUGH_ARRIVALS = 5  # late votes; a signal with fewer is not waited for
LEAST_SHARE = 0.01  # of all episodes
KNOTS = 64


def delays(base: pl.DataFrame, votes: pl.DataFrame, now: float | None) -> Iterator[dict[str, Any]]:
    """Yield each late signal's curve: seconds since the end of an episode, and the share that has arrived by then."""
    if now is None:
        return
    timed = base.filter(pl.col("ended").is_not_null()).select("episode_id", ended=_seconds("ended"))
    arrivals = votes.filter((pl.col("family") != AUDIT) & pl.col("arrived").is_not_null())
    for (signal,), rows in sorted(arrivals.group_by("signal")):
        first = rows.group_by("episode_id").agg(pl.col("arrived").min()).with_columns(arrived=_seconds("arrived"))
        episodes = timed.join(first, on="episode_id", how="left").with_columns(
            delay=(pl.col("arrived") - pl.col("ended")).clip(0), age=(now - pl.col("ended")).clip(0)
        )
        late = episodes.filter(pl.col("delay") > 0).height
        if late < ENOUGH_ARRIVALS or late < LEAST_SHARE * timed.height:
            continue
        observed = episodes.select(pl.min_horizontal("delay", "age")).to_series().to_numpy()
        came = (episodes["arrived"] < now).fill_null(value=False)
        curve = thinned(kaplan_meier(observed, came.to_numpy()), KNOTS)
        family = rows["family"].sort()[0]
        horizon = max(horizon_s(name) for name in rows["family"].unique().sort())
        yield {
            "kind": "delay", "name": signal, "family": family, "value": horizon, "n": late,
            "x": list(curve.times), "y": list(curve.shares),
        }  # fmt: skip


def _seconds(column: str) -> pl.Expr:
    return pl.col(column).dt.epoch("us") / 1e6
