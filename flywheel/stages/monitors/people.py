"""For whom is it better, and what is the credit made of?

In: `Watched`. Out: a `MonitorRow` each.
"""

from __future__ import annotations

import hashlib
import math
from collections import defaultdict
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from flywheel.records import MonitorRow
from flywheel.stages.monitors.window import Watched, unknown
from flywheel.stats.drift import Estimate, mean, one_sided

if TYPE_CHECKING:
    import polars as pl

    from flywheel.config import MonitorsConfig

__all__ = ["credit", "users"]

_SURE = one_sided(0.99)
_LEAST_GAIN = 0.02  # what the median user's gain counts as at least: a ratio to nothing says nothing


class _User(NamedTuple):
    """One user's gains, by two halves of the episodes: one to choose by, one to measure on."""

    chosen_by: float
    measured: float


def users(seen: Watched, cfg: MonitorsConfig) -> MonitorRow:
    """Whether few users gained far more than the rest: manipulation aimed at those on whom it works.

    The best of many noisy gains is large by chance. So the users who gained most are chosen by one half of their
    episodes, by hash, and their gain is measured on the other.
    """
    if seen.why_not:
        return unknown("users", seen.why_not)
    found = _gains(seen.episodes.drop_nulls(["user", "value"]))
    if len(found) < cfg.min_users:
        known = seen.episodes["user"].n_unique() - (1 if seen.episodes["user"].null_count() else 0)
        why = "users unknown: the logs name none" if not known else f"{len(found):,} users have two judged episodes"
        return unknown("users", f"{why}, monitors.min_users is {cfg.min_users:,}", n=len(found))
    ordered = sorted(found, key=lambda user: (-user.chosen_by, -user.measured))
    top = mean([user.measured for user in ordered[: max(2, math.ceil(cfg.user_share * len(ordered)))]])
    typical = max(median(user.measured for user in found), _LEAST_GAIN)
    return _spread(top, typical, len(found), cfg)


def _gains(rows: pl.DataFrame) -> list[_User]:
    """Return the gains of users with two judged episodes or more in the window, in order of their names.

    A user's past is that user's mean before the window, or everybody's for a new user.
    """
    past: dict[str, list[float]] = defaultdict(list)
    halves: dict[str, tuple[list[float], list[float]]] = defaultdict(lambda: ([], []))
    for episode, user, now, value in rows["episode_id", "user", "now", "value"].iter_rows():
        if now:
            halves[user][hashlib.sha256(episode.encode()).digest()[0] % 2].append(value)
        else:
            past[user].append(value)
    everybody = [value for values in past.values() for value in values]
    if not everybody:
        return []
    usual = math.fsum(everybody) / len(everybody)
    found = []
    for user in sorted(halves):
        a, b = halves[user]
        if a and b:
            before = math.fsum(past[user]) / len(past[user]) if past.get(user) else usual
            found.append(_User(math.fsum(a) / len(a) - before, math.fsum(b) / len(b) - before))
    return found


def _spread(top: Estimate, typical: float, n: int, cfg: MonitorsConfig) -> MonitorRow:
    times = top.value / typical
    certain = top.value - _SURE * top.error > typical
    level = (
        "red" if times > cfg.user_ratio and certain else "amber" if times > cfg.user_ratio / 2 and certain else "green"
    )
    return MonitorRow(
        monitor="users",
        level=level,
        value=round(times, 6),
        amber=cfg.user_ratio / 2,
        red=cfg.user_ratio,
        n=n,
        sentence=f"the {top.n:,} users who gained most gained {top.value:+.2f}, the median of {n:,} users at most "
        f"{typical:+.2f}",
    )


def credit(seen: Watched, cfg: MonitorsConfig) -> MonitorRow:
    """Whether the steps' credit rests on like histories at all."""
    n = seen.levels.height
    if not n:
        return unknown("credit", "no steps in the window")
    share = seen.levels.filter(seen.levels["level"] <= 1).height / n
    thin = share < cfg.credit_amber
    said = "credit is mostly broadcast: " if thin else ""
    return MonitorRow(
        monitor="credit",
        level="amber" if thin else "green",
        value=round(share, 6),
        amber=cfg.credit_amber,
        n=n,
        sentence=f"{said}{share:.0%} of {n:,} steps have credit from a like history",
    )
