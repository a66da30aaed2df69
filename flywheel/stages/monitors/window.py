"""Which episodes are the window and which the reference, and one row an episode with all that monitors read.

In: the tables, the configuration, and what is known of the champion's service. Out: `Windows`, one a way of looking:
the episodes of a policy (the configured one, else the champion where the logs name it), and the last days of the log;
each also on the accounts alone that both sides have. Everything else is the reference.

Dates and names of policies are fields that somebody wrote. So several windows are looked at and the worst level counts:
rows that somebody adds make a window of their own at the most, and hide no other. What is dated behind the present, or
claims to be by a champion that had not served yet, is set aside: it is on neither side.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta
from typing import NamedTuple

import polars as pl

from flywheel.config import MonitorsConfig
from flywheel.records import MonitorRow
from flywheel.stages.labelling.priors import PRAISE
from flywheel.stages.signals.rows import VERIFIER

_PEERS = ("peers", "task")  # families of signals that compare attempts
_VOTES = ("outcome", "implicit")
_WORST_FIRST = ("red", "amber", "green", "unknown")
_AHEAD = timedelta(days=1)  # by which the clocks of machines, and zones, may differ
_ALL_AHEAD = 0.5  # share of a log dated behind the present, from which it is this machine's clock that is wrong


class Serving(NamedTuple):
    """The champion, as far as logs can be about it."""

    names: frozenset[str] = frozenset()  # that logs may give it
    since: datetime | None = None  # first promotion or deployment; None: not known


class Windows(NamedTuple):
    """The logs as monitors read them; the column `now` is true in the window, false in the reference."""

    label: str  # which episodes are compared with which
    # episode_id, task_id, user, policy, started, now, proxy, verified, praise, speaks_for, value
    episodes: pl.DataFrame
    steps: pl.DataFrame  # episode_id, task_id, now, content, thinks, tool_names, malformed
    levels: pl.DataFrame  # level of the credit of each step of the window
    why_not: str  # why there is no reference; '' when there is
    aside: str = ""  # what is on neither side, and why


def unknown(monitor: str, why: str, *, n: int = 0) -> MonitorRow:
    """Return the row of a monitor that cannot tell."""
    return MonitorRow(monitor=monitor, level="unknown", n=n, sentence=why)


def worst(rows: Iterable[MonitorRow]) -> MonitorRow:
    """Return the row of the worst level, the first of equals: red, amber, green, unknown."""
    return min(rows, key=lambda row: _WORST_FIRST.index(row.level))


def not_ahead(episodes: pl.DataFrame, now: datetime | None) -> pl.DataFrame:
    """Return the episodes that are not dated behind the present; all, where most of the log is: the clock is wrong."""
    if now is None:
        return episodes
    ahead = (pl.col("started") > now + _AHEAD).fill_null(value=False)
    few = episodes.select(ahead.sum()).item() < _ALL_AHEAD * episodes.height
    return episodes.filter(~ahead) if few else episodes


def compare_windows(  # noqa: PLR0913 - four tables and their context
    episodes: pl.DataFrame,
    steps: pl.DataFrame,
    rewards: pl.DataFrame,
    returns: pl.DataFrame,
    cfg: MonitorsConfig,
    *,
    odds: Callable[[str, float], float],
    serving: Serving,
) -> list[Windows]:
    """Return the logs split in two in every way that is looked at, each episode with its votes and its return."""
    values = returns.filter(pl.col("step").is_null() & pl.col("known")).select("episode_id", "value")
    rows = (
        episodes.select("episode_id", "task_id", "user", "policy", "started")
        .join(_votes(rewards, odds), on="episode_id", how="left")
        .join(values, on="episode_id", how="left")
        .sort("episode_id")
    )
    acts = (
        steps.with_columns(
            content=pl.col("action").str.json_path_match("$.content").fill_null(""),
            thinks=pl.col("action").str.json_path_match("$.reasoning").fill_null("") != "",
        )
        .select("episode_id", "task_id", "index", "content", "thinks", "tool_names", "malformed")
        .sort("episode_id", "index")
    )
    levels = returns.filter(pl.col("step").is_not_null()).select("episode_id", "level")
    windows = []
    for way in _splits(rows, cfg, serving):
        sides = way.rows.select("episode_id", "now")
        of_steps = acts.join(sides, on="episode_id", maintain_order="left")
        of_window = levels.join(sides.filter("now"), on="episode_id", how="semi").select("level")
        windows.append(Windows(way.label, way.rows, of_steps, of_window, _too_few(way, cfg), way.aside))
    return windows


class _Way(NamedTuple):
    """A way of looking: episodes with `now`, what they are, and what is on neither side."""

    label: str
    rows: pl.DataFrame
    aside: str = ""


def _splits(rows: pl.DataFrame, cfg: MonitorsConfig, serving: Serving) -> Iterator[_Way]:
    """Yield each different way of looking once, and after it the same on accounts that both sides have."""
    by_policy = _by_policy(rows, cfg, serving)
    ways = [by_policy] if by_policy is not None else []
    ways += [] if cfg.policy else [_by_time(rows, cfg)]
    seen: list[pl.DataFrame] = []
    for way in ways:
        sides = way.rows.select("episode_id", "now")
        if any(sides.equals(other) for other in seen):
            continue
        seen.append(sides)
        yield way
        users = way.rows.drop_nulls("user").group_by("user").agg(pl.col("now").n_unique()).filter(pl.col("now") > 1)
        both = way.rows.join(users, on="user", how="semi")
        if 0 < both.height < way.rows.height:
            yield _Way(f"{way.label}, accounts of both sides", both)


def _by_policy(rows: pl.DataFrame, cfg: MonitorsConfig, serving: Serving) -> _Way | None:
    """Return the episodes of the configured policy, or of the champion since it serves; None where there are none."""
    names = {cfg.policy} if cfg.policy else serving.names & {*rows["policy"].to_list()}
    if not names:
        return None
    named, aside = ", ".join(sorted(names)), ""
    split = rows.with_columns(now=pl.col("policy").is_in(sorted(names)))
    if not cfg.policy and serving.since is not None and split["started"].count():
        early = pl.col("started").is_null() | (pl.col("started") < serving.since - _AHEAD)
        false = split.select((pl.col("now") & early).sum()).item()
        split = split.filter(~(pl.col("now") & early))
        aside = f"{false:,} that claim to be by {named} from before it served" if false else ""
    return _Way(f"episodes by {named} compared with all others", split, aside)


def _by_time(rows: pl.DataFrame, cfg: MonitorsConfig) -> _Way:
    """Return the last days of the log that hold enough episodes; what few are dated later is on neither side."""
    days, times = timedelta(days=cfg.window_days), rows["started"].drop_nulls().sort()
    if times.is_empty():
        return _Way("no episode has a time, and monitors.policy names none", rows.with_columns(now=False))
    # Episodes in the days up to each one, itself included.
    held = pl.int_range(1, len(times) + 1, eager=True) - times.search_sorted(times - days, side="right")
    full = (held >= cfg.min_episodes).arg_true()
    newest = times[full[-1]] if len(full) else times[-1]
    behind = int((times > newest).sum())
    split = rows.filter((pl.col("started") <= newest).fill_null(value=True))
    split = split.with_columns(now=(pl.col("started") > newest - days).fill_null(value=False))
    aside = f"{behind:,} dated later, too few for a window" if behind else ""
    return _Way(f"the {cfg.window_days:g} days up to {newest:%Y-%m-%d} compared with what came before", split, aside)


def _too_few(way: _Way, cfg: MonitorsConfig) -> str:
    """Return why there is no reference; '' where both sides have enough episodes."""
    n = int(way.rows["now"].sum())
    if not n and not way.rows["started"].count():
        return way.label
    for side, size in (("in the window", n), ("before it", way.rows.height - n)):
        if size < cfg.min_episodes:
            return f"{size:,} episodes {side}, monitors.min_episodes is {cfg.min_episodes:,} ({way.label})"
    return ""


def _votes(rewards: pl.DataFrame, odds: Callable[[str, float], float]) -> pl.DataFrame:
    """Return (episode_id, proxy, verified, speaks_for, praise), a row an episode.

    `proxy` and `verified` are the mean votes of implicit signals and of verifiers, from 0 to 1; `speaks_for` the
    log-odds of all votes for success, `praise` those of praise. Signals of one family share one vote. Where a verifier
    voted, it alone decides, and praise carries nothing. Agreement among the agent's own attempts is left out: a policy
    that always does the same agrees with itself.
    """
    votes = rewards.filter(pl.col("kind").is_in(_VOTES) & (pl.col("weight") > 0))
    by_vote = {  # each distinct vote is looked up once
        (signal, score): odds(signal, score) if score else 0.0
        for signal, score in votes.select("signal", "score").unique().iter_rows()
    }
    weighted = [w * by_vote[signal, score] for signal, score, w in votes["signal", "score", "weight"].iter_rows()]
    votes = votes.with_columns(_odds=pl.Series(weighted, dtype=pl.Float64))
    families = (
        votes.sort("episode_id", "family", "signal", "step")
        .group_by("episode_id", "family", maintain_order=True)
        .agg(score=pl.col("score").mean(), odds=pl.col("_odds").mean())
    )
    by_verifier, praised = pl.col("family") == VERIFIER, pl.col("family") == PRAISE
    for_success = pl.col("odds").clip(lower_bound=0.0)
    all_odds = for_success.filter(~by_verifier & ~pl.col("family").is_in(_PEERS)).sum()
    praise_odds = for_success.filter(praised).sum()
    return families.group_by("episode_id", maintain_order=True).agg(
        proxy=(pl.col("score").filter(~by_verifier).mean() + 1) / 2,
        verified=(pl.col("score").filter(by_verifier).mean() + 1) / 2,
        speaks_for=pl.when(by_verifier.any()).then(0.0).otherwise(all_odds),
        praise=pl.when(by_verifier.any()).then(0.0).otherwise(praise_odds),
    )
