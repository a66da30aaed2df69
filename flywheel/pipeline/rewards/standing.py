"""Who speaks in a log: how many accounts are new, what counts as a burst, which sources only claim, who is verified.

In: the current tables. Out: the rows of `RewardsAnswer` about them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator

import polars as pl

from flywheel.pipeline.build.tables import read_table
from flywheel.pipeline.context import Context
from flywheel.results.rewards import AccountsRow, SourceRow, VerificationRow
from flywheel.stages.labelling.posterior import ALL, Posterior
from flywheel.stages.labelling.priors import full_log_odds
from flywheel.stages.signals.cohorts import BURST, CROWD, DEEDS
from flywheel.stages.signals.rows import AUDIT, CLAIMS, VERIFIER
from flywheel.stats.missing import worst_case_bounds

_SHOWN_PATTERNS = 6


def accounts(ctx: Context) -> AccountsRow:
    """Return how many accounts a log has, how far their deeds count, and the bursts among them."""
    tasks = read_table(ctx.store, "tasks").select("episode_id", "history").collect()
    users = read_table(ctx.store, "episodes").select("episode_id", "task_id", "user").collect()
    rewards = (
        read_table(ctx.store, "rewards").select("episode_id", "signal", "family", "kind", "score", "weight").collect()
    )
    most = (
        users.join(tasks, on="episode_id")
        .filter(pl.col("user").is_not_null())
        .group_by("user")
        .agg(pl.col("history").max())
    )
    deeds = rewards.filter(
        (pl.col("kind") == "implicit") & pl.col("family").is_in(list(DEEDS)) & (pl.col("score") != 0)
    )
    marks = rewards.filter(pl.col("signal") == BURST).join(users, on="episode_id")
    crowds = read_table(ctx.store, "crowds").filter("aside").select("crowd").collect()
    established = ctx.config.trust.established
    trusted = read_table(ctx.store, "reliability").filter((pl.col("kind") == "user") & (pl.col("value") < 1)).collect()
    return AccountsRow(
        accounts=most.height,
        established=most.filter(pl.col("history") >= established).height,
        counted=not tasks["history"].is_null().all(),
        discounted=deeds.filter((pl.col("weight") > 0) & (pl.col("weight") < 1)).height,
        bursts=marks.select("task_id", "score").n_unique(),
        in_bursts=marks["episode_id"].n_unique(),
        crowds=crowds["crowd"].n_unique(),
        in_crowds=crowds.height,
        doubted=trusted.height,
    )


def sources(ctx: Context, belief: Posterior) -> Iterator[SourceRow]:
    """Yield each source with its episodes, what it states, and what one vote of each signal is worth there."""
    episodes = read_table(ctx.store, "episodes").select("episode_id", source="source_format").collect()
    rewards = read_table(ctx.store, "rewards").select("episode_id", "family", "signal", "score").collect()
    stated = rewards.join(episodes, on="episode_id")
    for (source,), rows in sorted(episodes.group_by("source")):
        here = stated.filter(pl.col("source") == source)
        cast = here.filter((pl.col("score") != 0) & ~pl.col("family").is_in([AUDIT, VERIFIER])).select(
            "signal", "score"
        )
        votes = sorted(
            {(signal, 1 if score > 0 else -1) for signal, score in cast.iter_rows() if signal not in {BURST, CROWD}}
        )
        own = {
            f"{signal} {'+' if sign > 0 else '-'}": round(math.exp(full_log_odds(fitted[0], sign)), 3)
            for signal, sign in votes
            if (fitted := belief.rates.get((str(source), signal, sign))) is not None and fitted[1] != "prior"
        }
        yield SourceRow(
            source=str(source),
            episodes=rows.height,
            outcomes=here.filter(pl.col("family") == VERIFIER)["episode_id"].n_unique(),
            claims=here.filter(pl.col("family") == CLAIMS)["episode_id"].n_unique(),
            prior=round(belief.prior(str(source)), 4),
            odds=own,
        )


def verification(ctx: Context, votes: pl.DataFrame, reliability: pl.DataFrame, n: int) -> VerificationRow | None:
    """Return which share of the episodes is verified, by pattern of signals, and what holds whoever chose them."""
    verdicts = (
        votes.filter(pl.col("family") == VERIFIER).group_by("episode_id").agg(good=(pl.col("score").mean() + 1) / 2)
    )
    if verdicts.is_empty() or not n:
        return None
    spoken = votes.filter(~pl.col("family").is_in([VERIFIER, AUDIT]) & (pl.col("score") != 0))
    sign = pl.when(pl.col("score") > 0).then(pl.lit("+")).otherwise(pl.lit("-"))
    patterns = spoken.group_by("episode_id").agg(pattern=(pl.col("family") + sign).unique().sort().str.join(" "))
    episodes = read_table(ctx.store, "returns").filter(pl.col("step").is_null()).select("episode_id").collect()
    cells = (
        episodes.join(patterns, on="episode_id", how="left")
        .join(verdicts, on="episode_id", how="left")
        .group_by(pl.col("pattern").fill_null("no vote"))
        .agg(n=pl.len(), verified=pl.col("good").count(), good=pl.col("good").mean())
        .sort("n", "pattern", descending=[True, False])
    )
    chosen = reliability.filter((pl.col("kind") == "class") & (pl.col("scope") == ALL))
    share, mean = verdicts.height / n, float(verdicts["good"].sum()) / verdicts.height
    low, high = worst_case_bounds(share, mean)
    return VerificationRow(
        verified=verdicts.height,
        share=round(share, 4),
        good=round(mean, 4),
        low=round(low, 4),
        high=round(high, 4),
        taken=chosen["note"][0] if chosen.height else "",
        patterns=json.loads(cells.head(_SHOWN_PATTERNS).write_json()),
    )
