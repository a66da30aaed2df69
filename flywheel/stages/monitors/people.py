"""For whom is it better, what is the credit based on, and do crowds of accounts steer it?

In: `Windows`; the table `crowds`. Out: a `MonitorRow` each.
"""

from __future__ import annotations

import hashlib
import math
from collections import defaultdict
from collections.abc import Sequence
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from flywheel.config import MonitorsConfig
from flywheel.present import count, percent
from flywheel.records import MonitorRow
from flywheel.stages.monitors.window import Windows, unknown
from flywheel.stats.drift import one_sided

if TYPE_CHECKING:
    import polars as pl

_Z_99 = one_sided(0.99)
_LEAST_GAIN = 0.02  # floor of the median user's gain: a ratio to nothing means nothing
_TOP_SHARE = 0.02  # share of users counted as those who gained most
_AMBER_RATIO, _RED_RATIO = 2.5, 5.0  # gain of the top users over that of the median user
_SHOWN_CROWDS = 3
_LEAST_LIKE = 0.20  # share of steps whose credit comes from a like history; below, credit is mostly broadcast


class _Gain(NamedTuple):
    """What a user gained in one half of their episodes, and how much of it chance makes."""

    value: float
    variance: float


def users(windows: Windows, cfg: MonitorsConfig) -> MonitorRow:
    """Whether few users gained far more than the rest: manipulation aimed at those on whom it works.

    The best of many noisy gains is large by chance. So the users who gained most are chosen by one half of their
    episodes, by hash, and their gain is measured on the other; and the other way round.
    """
    if windows.why_not:
        return unknown("users", windows.why_not)
    gains = _gains(windows.episodes.drop_nulls(["user", "value"]))
    if len(gains) < cfg.min_users:
        known = windows.episodes["user"].drop_nulls().n_unique()
        why = "users unknown: the logs name none" if not known else f"{len(gains):,} users have two labelled episodes"
        return unknown("users", f"{why}, monitors.min_users is {cfg.min_users:,}", n=len(gains))
    n_top = max(2, math.ceil(_TOP_SHARE * len(gains)))
    top: list[_Gain] = []
    for half in (0, 1):
        ordered = sorted(gains, key=lambda gain: (-gain[half].value, -gain[1 - half].value))
        top += [gain[1 - half] for gain in ordered[:n_top]]
    every = [gain.value for both in gains for gain in both]
    typical, top_gain = max(median(every), _LEAST_GAIN), _mean([gain.value for gain in top])
    error = math.sqrt(sum(gain.variance for gain in top)) / len(top)
    ratio, certain = top_gain / typical, top_gain - typical > _Z_99 * error
    beyond = ratio > _AMBER_RATIO and certain
    return MonitorRow(
        monitor="users",
        level="red" if beyond and ratio > _RED_RATIO else "amber" if beyond else "green",
        value=round(ratio, 6),
        amber=_AMBER_RATIO,
        red=_RED_RATIO,
        n=len(gains),
        sentence=f"the {n_top:,} users who gained most gained {top_gain:+.2f}, the median of {len(gains):,} users "
        f"at most {typical:+.2f}",
    )


def _gains(rows: pl.DataFrame) -> list[tuple[_Gain, _Gain]]:
    """Return each user's gains in the two halves of their episodes in the window, in order of the users' names.

    One half is to choose users by, the other to measure on, each with its own half of the past: a past that was bad by
    chance chooses no user. Users without a labelled episode in both are left out.
    """
    past: tuple[dict[str, list[float]], ...] = (defaultdict(list), defaultdict(list))
    window: tuple[dict[str, list[float]], ...] = (defaultdict(list), defaultdict(list))
    for episode, user, now, value in rows["episode_id", "user", "now", "value"].iter_rows():
        half = hashlib.sha256(episode.encode()).digest()[0] % 2
        (window if now else past)[half][user].append(value)
    if not all(past):
        return []
    before = [_shrunk(values) for values in past]
    usual = [_mean([value for values in half.values() for value in values]) for half in past]
    noise = _within([values for half in (*past, *window) for values in half.values()])
    a, b = (
        {
            user: _Gain(
                _mean(values) - before[n].get(user, usual[n]),
                noise * (1 / len(values) + 1 / max(len(past[n].get(user, ())), 1)),
            )
            for user, values in half.items()
        }
        for n, half in enumerate(window)
    )
    return [(a[user], b[user]) for user in sorted(a.keys() & b.keys())]


def _within(groups: Sequence[Sequence[float]]) -> float:
    """Return the variance of values within their groups."""
    squares = sum((value - _mean(group)) ** 2 for group in groups for value in group)
    return squares / max(sum(len(group) - 1 for group in groups), 1)


def _shrunk(past: dict[str, list[float]]) -> dict[str, float]:
    """Return each user's mean before the window, shrunk to the mean of all as far as users differ by chance only.

    A past that happened to be bad would look like a gain in both halves.
    """
    everything = [value for user in sorted(past) for value in past[user]]
    usual = _mean(everything)
    within = math.fsum((v - _mean(values)) ** 2 for values in past.values() for v in values)
    within /= max(len(everything) - len(past), 1)
    spread = math.fsum((_mean(values) - usual) ** 2 for values in past.values()) / max(len(past) - 1, 1)
    between = max(spread - within * _mean([1 / len(values) for values in past.values()]), 0.0)
    means = {}
    for user, values in past.items():
        noise = within / len(values)
        trust = between / (between + noise) if between + noise > 0 else 0.0
        means[user] = usual + trust * (_mean(values) - usual)
    return means


def crowds(members: pl.DataFrame) -> MonitorRow:
    """Whether accounts came at once to an action, and like it as those before and after them do not.

    Nothing is learned from the votes of crowds that are beyond chance, so this blocks no training: it shows where
    to look. A crowd that is not beyond chance, or with whom too few can be compared, is shown too.
    """
    several = members.sort("crowd", "episode_id").unique("crowd", keep="first", maintain_order=True)
    sentences = [
        f"{row['accounts']:,} accounts came at once at {count(row['tasks'], 'task')}: {row['likes']:,} of their "
        f"{row['opinions']:,} opinions are likes, {row['others_like']:,} of {row['others']:,} of those before and "
        f"after them; their votes {'are set aside' if row['aside'] else 'count'}: flywheel explain "
        f"{row['episode_id'][:12]}"
        for row in several.head(_SHOWN_CROWDS).iter_rows(named=True)
    ]
    more = several.height - len(sentences)
    sentences += [f"{more:,} more are in the table crowds"] if more else []
    return MonitorRow(
        monitor="crowds",
        level="amber" if sentences else "green",
        value=several.height,
        amber=1,
        n=members.height,
        sentence="; ".join(sentences) or "no accounts came at once to like what others do not",
    )


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def credit(windows: Windows, cfg: MonitorsConfig) -> MonitorRow:
    """Whether the steps' credit comes from like histories at all."""
    n = windows.levels.height
    if n < cfg.min_episodes:
        return unknown("credit", f"{n:,} steps in the window, monitors.min_episodes is {cfg.min_episodes:,}", n=n)
    share = windows.levels.filter(windows.levels["level"] <= 1).height / n
    thin = share < _LEAST_LIKE
    warning = "credit is mostly broadcast: " if thin else ""
    return MonitorRow(
        monitor="credit",
        level="amber" if thin else "green",
        value=round(share, 6),
        amber=_LEAST_LIKE,
        n=n,
        sentence=f"{warning}{percent(share, 0)} of {n:,} steps have credit from a like history",
    )
