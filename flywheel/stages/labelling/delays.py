"""How late each signal's votes arrive, by Kaplan-Meier over all episodes with times.

In: episodes, votes, and the time against which ages are measured. Out: rows of the kind delay, for signals that often
vote after the end of an episode; the others are never waited for. A vote that came no sooner than that time has not
come yet: a log ends with its last vote, so that its last age always has one, and the curve would jump there (0055).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import polars as pl

from flywheel.stages.labelling.priors import horizon_s
from flywheel.stages.signals.rows import AUDIT
from flywheel.stats.delays import kaplan_meier, thinned

ENOUGH_ARRIVALS = 5  # late votes; a signal with fewer is not waited for
LEAST_SHARE = 0.01  # of all episodes
KNOTS = 64


class Arrivals(NamedTuple):
    """When the episodes of a piece ended, and when each signal first voted on them, in microseconds."""

    ends: pl.DataFrame  # ended, n
    votes: pl.DataFrame  # signal, ended, arrived, n
    families: pl.DataFrame  # signal, family


def arrivals(base: pl.DataFrame, votes: pl.DataFrame) -> Arrivals:
    """Return when votes came; a reviewer's answer is not waited for."""
    timed = base.filter(pl.col("ended").is_not_null()).select("episode_id", pl.col("ended").dt.epoch("us"))
    arrived = votes.filter((pl.col("family") != AUDIT) & pl.col("arrived").is_not_null())
    first = arrived.group_by("signal", "episode_id").agg(pl.col("arrived").min().dt.epoch("us"))
    came = first.join(timed, on="episode_id").group_by("signal", "ended", "arrived").agg(n=pl.len())
    return Arrivals(timed.group_by("ended").agg(n=pl.len()), came, arrived.select("signal", "family").unique())


def delays(pieces: Sequence[Arrivals], now: float | None) -> Iterator[dict[str, Any]]:
    """Yield each late signal's curve: seconds since the end of an episode, and the share that has arrived by then."""
    if now is None:
        return
    ends = pl.concat([piece.ends for piece in pieces]).group_by("ended").agg(pl.col("n").sum())
    votes, families = (pl.concat(frames) for frames in zip(*(piece[1:] for piece in pieces), strict=True))
    for (signal,), named in sorted(families.group_by("signal")):
        first = votes.filter(pl.col("signal") == signal)
        silent = ends.join(first.group_by("ended").agg(came=pl.col("n").sum()), on="ended", how="left")
        silent = silent.select("ended", arrived=pl.lit(None, pl.Int64), n=pl.col("n") - pl.col("came").fill_null(0))
        episodes = pl.concat([first.select("ended", "arrived", "n"), silent]).select(
            "n",
            arrived=pl.col("arrived") / 1e6,
            delay=(pl.col("arrived") / 1e6 - pl.col("ended") / 1e6).clip(0),
            age=(now - pl.col("ended") / 1e6).clip(0),
        )
        late = int(episodes.filter(pl.col("delay") > 0)["n"].sum())
        if late < ENOUGH_ARRIVALS or late < LEAST_SHARE * int(ends["n"].sum()):
            continue
        observed = episodes.select(pl.min_horizontal("delay", "age")).to_series().to_numpy()
        came = (episodes["arrived"] < now).fill_null(value=False)
        curve = thinned(kaplan_meier(observed, came.to_numpy(), episodes["n"].cast(pl.Int64).to_numpy()), KNOTS)
        yield {
            "kind": "delay", "name": signal, "family": named["family"].min(), "n": late,
            "value": max(horizon_s(family) for family in named["family"].unique().sort()),
            "x": list(curve.times), "y": list(curve.shares),
        }  # fmt: skip
