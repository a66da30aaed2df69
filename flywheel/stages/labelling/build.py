"""The reliability of signals, learned from the whole log: rates, delays, calibration, trust in users.

In: some columns of all episodes and rewards. Out: the small table `reliability`, which `returns` reads in addition to
its own partition. Where rates cannot be identified (few known outcomes, few families of signals that overlap), the
priors stay, with a warning row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import polars as pl

from flywheel.config import RewardsConfig
from flywheel.contracts import conform, frame_of
from flywheel.funnel import Funnel
from flywheel.records import Reliability
from flywheel.stages.common.clock import Run, end_of_runs, runs_of
from flywheel.stages.common.pieces import Piece, Reading
from flywheel.stages.labelling.calibration import calibration
from flywheel.stages.labelling.delays import Arrivals, arrivals, delays
from flywheel.stages.labelling.fit import fitted
from flywheel.stages.labelling.patterns import Observed, observed
from flywheel.stages.labelling.posterior import ALL, Posterior
from flywheel.stages.labelling.trust import Deeds, deeds_of, user_trust
from flywheel.stages.labelling.votes import summed
from flywheel.stages.signals.cohorts import BURST, CROWD
from flywheel.stages.signals.rows import AUDIT

SUSPECT = "suspect"
_PAUSE = timedelta(days=14)  # the longest that evidence is waited for


class Shown(NamedTuple):
    """What a piece of the log shows of its signals: counts, so that pieces add up to the same whatever they are."""

    funnel: dict[str, int]
    times: list[Run]
    observed: Observed
    arrivals: Arrivals
    deeds: Deeds
    audited: pl.DataFrame  # the audited episodes
    votes: pl.DataFrame  # on these


def shown_in(reading: Reading, piece: Piece, cfg: RewardsConfig) -> Shown:
    """Return what the episodes of a piece's tasks show; drops those with a suspect reward."""
    episodes, rewards = reading.scan("episodes"), reading.scan("rewards", piece)
    if piece is not None:
        ours = reading.scan("tasks").filter(reading.lies_in("task_id", piece)).select("episode_id")
        episodes = episodes.join(ours, on="episode_id", how="semi")
    return _shown(episodes.collect(), rewards.collect(), cfg)


def _shown(episodes: pl.DataFrame, rewards: pl.DataFrame, cfg: RewardsConfig) -> Shown:
    funnel = Funnel()
    funnel.considered += episodes.height
    base = funnel.drop(episodes, pl.col("tags").list.contains(SUSPECT), "suspect reward")
    many = rewards.filter(pl.col("signal").is_in([BURST, CROWD]))["episode_id"].unique()
    base = funnel.drop(base, pl.col("episode_id").is_in(many.implode()), "burst or crowd of accounts")
    funnel.kept += base.height
    base = base.sort("episode_id").with_columns(source=pl.col("source_format").fill_null(""), scope=_scope(cfg))
    votes = summed(rewards.filter(pl.col("kind").is_in(["outcome", "implicit"]))).filter(pl.col("weight") > 0)
    votes = votes.join(base.select("episode_id"), on="episode_id", how="semi", maintain_order="left")
    answered = votes.filter((pl.col("family") == AUDIT) & pl.col("inclusion").is_not_null()).select("episode_id")
    audited, said = (
        frame.join(answered, on="episode_id", how="semi", maintain_order="left") for frame in (base, votes)
    )
    times = _times(base, votes)
    return Shown(
        funnel.as_dict(), times, observed(base, votes), arrivals(base, votes), deeds_of(base, votes), audited, said
    )


def build_reliability(
    episodes: pl.DataFrame, rewards: pl.DataFrame, cfg: RewardsConfig, cutoff: datetime | None, funnel: Funnel
) -> pl.DataFrame:
    """Return the rows of `Reliability`; counts episodes and drops those with a suspect reward.

    Args:
        episodes: episode_id, user, policy, source_format, started, ended and tags of all episodes.
        rewards: the columns `VOTE_COLUMNS` of all rewards.
        cfg: how reliabilities may differ and how strong priors are.
        cutoff: the time as of which the build runs; None: the newest time of the log.
        funnel: considered = episodes.
    """
    return learned([_shown(episodes, rewards, cfg)], cfg, cutoff, funnel)


def learned(pieces: Sequence[Shown], cfg: RewardsConfig, cutoff: datetime | None, funnel: Funnel) -> pl.DataFrame:
    """Return the rows of `Reliability` that all pieces of a log show together."""
    for piece in pieces:
        funnel.merge(piece.funnel)
    now = cutoff or end_of_runs((run for piece in pieces for run in piece.times), _PAUSE).at
    rows: list[dict[str, Any]] = (
        [] if now is None else [{"kind": "time", "value": now.timestamp(), "note": now.isoformat()}]
    )
    rows += fitted([piece.observed for piece in pieces], cfg)
    rows += delays([piece.arrivals for piece in pieces], None if now is None else now.timestamp())
    rows += user_trust([piece.deeds for piece in pieces])
    # An account's trust has learned from the answers that the curve goes through; its habits have not.
    habits = {row["name"]: row["low"] for row in rows if row["kind"] == "user"}
    audited, votes = (pl.concat(frames) for frames in zip(*(piece[-2:] for piece in pieces), strict=True))
    rows += calibration(audited, votes, replace(Posterior.read(_frame(rows)), users=habits))
    funnel.note("facts", len(rows))
    return _frame(rows)


def _frame(rows: list[dict[str, Any]]) -> pl.DataFrame:
    """Return rows as a frame of `Reliability`; fields that a row lacks are empty."""
    empty = {"scope": ALL, "name": "", "sign": 0, "family": "", "n": 0, "source": "", "x": [], "y": [], "note": ""}
    return conform(frame_of([empty | row for row in rows], Reliability), Reliability).collect()


def _scope(cfg: RewardsConfig) -> pl.Expr:
    """Return `posterior.scope_of` as an expression, without the source."""
    if cfg.scope == "policy":
        return "policy " + pl.col("policy")
    return (pl.col("started").dt.strftime("%Y-%m") if cfg.scope == "month" else pl.lit(None)).fill_null(ALL)


def _times(base: pl.DataFrame, votes: pl.DataFrame) -> list[Run]:
    """Return the times against which ages are measured: never the clock's, which would change rows from day to day.

    A reviewer's answer is not counted: it arrives long after the end of the log. Nor are a few stray times far behind
    the others, which would make every label mature.
    """
    arrived = votes.filter(pl.col("family") != "audit").select("episode_id", at="arrived")
    of_episodes = [base.select("episode_id", at=name) for name in ("ended", "started")]
    newest = pl.concat([*of_episodes, arrived]).group_by("episode_id").agg(pl.col("at").max())  # one stray, one time
    return runs_of(newest["at"], _PAUSE)
