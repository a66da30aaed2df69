"""Which episodes are the window and which the reference, and one row an episode with all that monitors look at.

In: the tables and the configuration. Out: `Watched`. The window is what one policy did (the configured one, else the
champion where the logs name it), or the last days of the log; everything before is the reference.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple

import polars as pl

from flywheel.records import MonitorRow
from flywheel.stages.labelling.priors import PRAISE
from flywheel.stages.signals.rows import VERIFIER

if TYPE_CHECKING:
    from flywheel.config import MonitorsConfig

_OWN = ("peers", "task")  # families of what compares attempts
_VOTES = ("outcome", "implicit")


class Watched(NamedTuple):
    """The logs as monitors see them."""

    episodes: (
        pl.DataFrame
    )  # episode_id, task_id, user, policy, started, now, proxy, verified, praise, speaks_for, value
    steps: pl.DataFrame  # episode_id, task_id, now, content, tool_names, malformed
    levels: pl.DataFrame  # level of the credit of each step of the window
    sides: str  # what is compared with what, in words
    why_not: str  # why there is no reference; '' when there is

    def side(self, *, now: bool) -> pl.DataFrame:
        """Return the episodes of the window, or of the reference."""
        return self.episodes.filter(now=now)


def unknown(monitor: str, why: str, *, n: int = 0) -> MonitorRow:
    """Return the row of a monitor that cannot tell."""
    return MonitorRow(monitor=monitor, level="unknown", n=n, sentence=why)


def watched(  # noqa: PLR0913 - four tables and what is known besides
    episodes: pl.DataFrame,
    steps: pl.DataFrame,
    rewards: pl.DataFrame,
    returns: pl.DataFrame,
    cfg: MonitorsConfig,
    *,
    odds: Callable[[str, float], float],
    serving: Sequence[str],
) -> Watched:
    """Return the logs split in two, each episode with what was said of it."""
    now, sides, why_not = _split(episodes, cfg, serving)
    whole = returns.filter(pl.col("step").is_null() & pl.col("known")).select("episode_id", "value")
    told = (
        episodes.select("episode_id", "task_id", "user", "policy", "started", now=now)
        .join(_votes(rewards, odds), on="episode_id", how="left")
        .join(whole, on="episode_id", how="left")
        .sort("episode_id")
    )
    acts = (
        steps.join(told.select("episode_id", "now"), on="episode_id")
        .with_columns(content=pl.col("action").str.json_path_match("$.content").fill_null(""))
        .select("episode_id", "task_id", "index", "now", "content", "tool_names", "malformed")
        .sort("episode_id", "index")
    )
    levels = returns.filter(pl.col("step").is_not_null()).join(told.filter("now"), on="episode_id", how="semi")
    return Watched(told, acts, levels.select("level"), sides, why_not)


def _split(episodes: pl.DataFrame, cfg: MonitorsConfig, serving: Sequence[str]) -> tuple[pl.Expr, str, str]:
    """Return which episodes are the window, in words, and why there is no reference."""
    names = {cfg.policy} if cfg.policy else {*serving} & {*episodes["policy"].to_list()}
    if names:
        window = pl.col("policy").is_in(sorted(names))
        label = f"episodes by {', '.join(sorted(names))} beside all others"
    else:
        newest = episodes["started"].max()
        if newest is None:
            return pl.lit(value=True), "", "no episode has a time, and monitors.policy names none"
        since = newest - timedelta(days=cfg.window_days)  # type: ignore[operator]
        window = (pl.col("started") > since).fill_null(value=False)
        label = f"the last {cfg.window_days:g} days beside what came before"
    n = episodes.select(window.sum()).item()
    for side, size in (("in the window", n), ("before it", episodes.height - n)):
        if size < cfg.min_episodes:
            return window, label, f"{size:,} episodes {side}, monitors.min_episodes is {cfg.min_episodes:,} ({label})"
    return window, label, ""


def _votes(rewards: pl.DataFrame, odds: Callable[[str, float], float]) -> pl.DataFrame:
    """Return for each episode: what implicit signals and what verifiers say, from 0 to 1; and what speaks for success.

    Signals of one family share one vote. Where a verifier spoke, it alone decides, and praise carries nothing.
    What the agent's own attempts say of each other speaks for nothing: one that always does the same agrees with
    itself.
    """
    votes = rewards.filter(pl.col("kind").is_in(_VOTES) & (pl.col("weight") > 0))
    votes = votes.with_columns(_odds=_weighed(votes, odds))
    families = (
        votes.sort("episode_id", "family", "signal", "step")
        .group_by("episode_id", "family", maintain_order=True)
        .agg(score=pl.col("score").mean(), odds=pl.col("_odds").mean())
    )
    by_verifier, praised = pl.col("family") == VERIFIER, pl.col("family") == PRAISE
    for_success = pl.col("odds").clip(lower_bound=0.0)
    mass = (
        for_success.filter(~by_verifier & ~pl.col("family").is_in(_OWN)).sum(),
        for_success.filter(praised).sum(),
    )
    return families.group_by("episode_id", maintain_order=True).agg(
        proxy=(pl.col("score").filter(~by_verifier).mean() + 1) / 2,
        verified=(pl.col("score").filter(by_verifier).mean() + 1) / 2,
        speaks_for=pl.when(by_verifier.any()).then(0.0).otherwise(mass[0]),
        praise=pl.when(by_verifier.any()).then(0.0).otherwise(mass[1]),
    )


def _weighed(votes: pl.DataFrame, odds: Callable[[str, float], float]) -> pl.Series:
    """Return weight times log-odds of each vote; each distinct (signal, score) is looked up once."""
    known = {
        (signal, score): odds(signal, score) if score else 0.0
        for signal, score in votes.select("signal", "score").unique().iter_rows()
    }
    found = [weight * known[signal, score] for signal, score, weight in votes["signal", "score", "weight"].iter_rows()]
    return pl.Series(found, dtype=pl.Float64)
