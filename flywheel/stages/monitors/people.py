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
from flywheel.stats.drift import mean, one_sided

if TYPE_CHECKING:
    import polars as pl

    from flywheel.config import MonitorsConfig

_SURE = one_sided(0.99)
_LEAST_GAIN = 0.02  # what the median user's gain counts as at least: a ratio to nothing says nothing


class _User(NamedTuple):
    """One user's gains in the two halves of the window's episodes: one to choose by, one to measure on."""

    gains: tuple[float, float]


def users(seen: Watched, cfg: MonitorsConfig) -> MonitorRow:
    """Whether few users gained far more than the rest: manipulation aimed at those on whom it works.

    The best of many noisy gains is large by chance. So the users who gained most are chosen by one half of their
    episodes, by hash, and their gain is measured on the other; and the other way round.
    """
    if seen.why_not:
        return unknown("users", seen.why_not)
    found = _gains(seen.episodes.drop_nulls(["user", "value"]))
    if len(found) < cfg.min_users:
        known = seen.episodes["user"].n_unique() - (1 if seen.episodes["user"].null_count() else 0)
        why = "users unknown: the logs name none" if not known else f"{len(found):,} users have two judged episodes"
        return unknown("users", f"{why}, monitors.min_users is {cfg.min_users:,}", n=len(found))
    return _spread(found, max(2, math.ceil(cfg.user_share * len(found))), cfg)


def _gains(rows: pl.DataFrame) -> list[_User]:
    """Return the gains of users with two judged episodes or more in the window, in order of their names."""
    past: dict[str, list[float]] = defaultdict(list)
    halves: dict[str, tuple[list[float], list[float]]] = defaultdict(lambda: ([], []))
    for episode, user, now, value in rows["episode_id", "user", "now", "value"].iter_rows():
        if now:
            halves[user][hashlib.sha256(episode.encode()).digest()[0] % 2].append(value)
        else:
            past[user].append(value)
    if not past:
        return []
    before = _shrunk(past)
    usual = _mean([value for values in past.values() for value in values])
    return [
        _User((_mean(a) - before.get(user, usual), _mean(b) - before.get(user, usual)))
        for user, (a, b) in sorted(halves.items())
        if a and b
    ]


def _shrunk(past: dict[str, list[float]]) -> dict[str, float]:
    """Return each user's mean before the window, drawn to everybody's as far as users differ by no more than chance.

    A past that happened to be bad would look like a gain in both halves.
    """
    everything = [value for user in sorted(past) for value in past[user]]
    usual = _mean(everything)
    within = math.fsum((v - _mean(values)) ** 2 for values in past.values() for v in values)
    within /= max(len(everything) - len(past), 1)
    spread = math.fsum((_mean(values) - usual) ** 2 for values in past.values()) / max(len(past) - 1, 1)
    between = max(spread - within * _mean([1 / len(values) for values in past.values()]), 0.0)
    found = {}
    for user, values in past.items():
        noise = within / len(values)
        trust = between / (between + noise) if between + noise > 0 else 0.0
        found[user] = usual + trust * (_mean(values) - usual)
    return found


def _mean(values: list[float]) -> float:
    return math.fsum(values) / len(values)


def _spread(found: list[_User], n_top: int, cfg: MonitorsConfig) -> MonitorRow:
    measured: list[float] = []
    for chosen_by in (0, 1):
        ordered = sorted(found, key=lambda user: (-user.gains[chosen_by], -user.gains[1 - chosen_by]))
        measured += [user.gains[1 - chosen_by] for user in ordered[:n_top]]
    every = [gain for user in found for gain in user.gains]
    typical, gain = max(median(every), _LEAST_GAIN), _mean(measured)
    error = mean(every).error * math.sqrt(len(every) / n_top)
    times, certain = gain / typical, gain - typical > _SURE * error
    beyond = times > cfg.user_ratio / 2 and certain
    return MonitorRow(
        monitor="users",
        level="red" if beyond and times > cfg.user_ratio else "amber" if beyond else "green",
        value=round(times, 6),
        amber=cfg.user_ratio / 2,
        red=cfg.user_ratio,
        n=len(found),
        sentence=f"the {n_top:,} users who gained most gained {gain:+.2f}, the median of {len(found):,} users at most "
        f"{typical:+.2f}",
    )


def credit(seen: Watched, cfg: MonitorsConfig) -> MonitorRow:
    """Whether the steps' credit rests on like histories at all."""
    n = seen.levels.height
    if n < cfg.min_episodes:
        return unknown("credit", f"{n:,} steps in the window, monitors.min_episodes is {cfg.min_episodes:,}", n=n)
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
