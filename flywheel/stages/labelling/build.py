"""The reliability of signals, learned from the whole log: rates, delays, calibration, trust in users.

In: some columns of all episodes and rewards. Out: the small table `reliability`, which `returns` reads in addition to
its own partition. Where rates cannot be identified (few known outcomes, few families of signals that overlap), the
priors stay, with a warning row.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import polars as pl

from flywheel.config import RewardsConfig
from flywheel.contracts import conform, frame_of
from flywheel.funnel import Funnel
from flywheel.records import Reliability
from flywheel.stages.common.clock import end_of
from flywheel.stages.labelling.calibration import calibration
from flywheel.stages.labelling.delays import delays
from flywheel.stages.labelling.fit import fitted
from flywheel.stages.labelling.posterior import ALL, Posterior
from flywheel.stages.labelling.trust import user_trust
from flywheel.stages.labelling.votes import summed
from flywheel.stages.signals.cohorts import BURST

SUSPECT = "suspect"
_PAUSE = timedelta(days=14)  # the longest that evidence is waited for


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
    funnel.considered += episodes.height
    base = funnel.drop(episodes, pl.col("tags").list.contains(SUSPECT), "suspect reward")
    crowd = rewards.filter(pl.col("signal") == BURST)["episode_id"].unique()
    base = funnel.drop(base, pl.col("episode_id").is_in(crowd.implode()), "burst of new accounts")
    funnel.kept += base.height
    base = base.sort("episode_id").with_columns(source=pl.col("source_format").fill_null(""), scope=_scope(cfg))
    votes = summed(rewards.filter(pl.col("kind").is_in(["outcome", "implicit"]))).filter(pl.col("weight") > 0)
    votes = votes.join(base.select("episode_id"), on="episode_id", how="semi", maintain_order="left")
    rows = [*_time(base, votes, cutoff), *fitted(base, votes, cfg)]
    rows += delays(base, votes, next((r["value"] for r in rows if r["kind"] == "time"), None))
    rows += user_trust(base, votes)
    # An account's trust has learned from the answers that the curve goes through; its habits have not.
    habits = {row["name"]: row["low"] for row in rows if row["kind"] == "user"}
    rows += calibration(base, votes, replace(Posterior.read(_frame(rows)), users=habits))
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


def _time(base: pl.DataFrame, votes: pl.DataFrame, cutoff: datetime | None) -> Iterator[dict[str, Any]]:
    """Yield the time against which ages are measured: never the clock's, which would change the rows from day to day.

    A reviewer's answer is not counted: it arrives long after the end of the log. Nor are a few stray times far behind
    the others, which would make every label mature.
    """
    arrived = votes.filter(pl.col("family") != "audit").select("episode_id", at="arrived")
    of_episodes = [base.select("episode_id", at=name) for name in ("ended", "started")]
    newest = pl.concat([*of_episodes, arrived]).group_by("episode_id").agg(pl.col("at").max())  # one stray, one time
    end = end_of(newest["at"], _PAUSE).at
    now = cutoff or end
    if now is not None:
        yield {"kind": "time", "value": now.timestamp(), "note": now.isoformat()}
