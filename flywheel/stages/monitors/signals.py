"""Do the signals still mean what they meant? Decoupling from the verifier, praise, and gains that it does not see.

In: `Watched`. Out: a `MonitorRow` each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from flywheel.records import MonitorRow
from flywheel.stages.monitors.window import Watched, unknown
from flywheel.stats.drift import Estimate, mean, one_sided, ratio, slope

if TYPE_CHECKING:
    from flywheel.config import MonitorsConfig

_SURE = one_sided(0.95)


def decoupling(seen: Watched, cfg: MonitorsConfig, audit: str | None) -> MonitorRow:
    """Whether the verifier's outcome still rises with what the other signals say, as it did before.

    The audit's FAIL is red by itself: what it measured is what this monitor guesses from the logs.
    """
    name = "decoupling"
    if audit == "FAIL":
        return MonitorRow(
            monitor=name, level="red", sentence="the audit finds the probabilities of this window's policy off (FAIL)"
        )
    if seen.why_not:
        return unknown(name, seen.why_not)
    both = seen.episodes.drop_nulls(["proxy", "verified"])
    before, now = (_slope(both.filter(now=side)) for side in (False, True))
    if before is None or now is None or min(before.n, now.n) < cfg.min_episodes:
        least = min(both.filter(now=side).height for side in (False, True))
        return unknown(name, f"{least:,} episodes of a side have both a verifier and other signals that vary", n=least)
    if before.value <= _SURE * before.error:
        return unknown(name, "before the window, the signals did not follow the verifier either", n=before.n)
    return _dropped(before, now, cfg)


def _slope(rows: pl.DataFrame) -> Estimate | None:
    if rows.is_empty():
        return None
    return slope(rows["proxy"].to_list(), rows["verified"].to_list(), rows["task_id"].to_list())


def _dropped(before: Estimate, now: Estimate, cfg: MonitorsConfig) -> MonitorRow:
    fall = 1 - now.value / before.value
    error = (before.error**2 + now.error**2) ** 0.5
    certain = before.value - now.value > _SURE * error
    level = "red" if fall > cfg.slope_drop_red and certain else "amber" if fall > cfg.slope_drop_amber else "green"
    half = one_sided(0.975) * error / before.value
    return MonitorRow(
        monitor="decoupling",
        level=level,
        value=round(fall, 6),
        amber=cfg.slope_drop_amber,
        red=cfg.slope_drop_red,
        low=round(fall - half, 6),
        high=round(fall + half, 6),
        n=now.n,
        sentence=f"the slope of the verifier's outcome on the other signals went from {before.value:.2f} to "
        f"{now.value:.2f} ({now.n:,} episodes have both)",
    )


def praise(seen: Watched, cfg: MonitorsConfig) -> MonitorRow:
    """How much of what speaks for success in the window is thumbs up and thanks."""
    rows = seen.side(now=True).drop_nulls("speaks_for")
    rows = rows.filter(rows["speaks_for"] > 0)
    if rows.height < cfg.min_episodes:
        return unknown(
            "praise", f"{rows.height:,} episodes of the window have a signal that speaks for success", n=rows.height
        )
    share = ratio(rows["praise"].to_list(), rows["speaks_for"].to_list())
    certain = share.low > cfg.praise_amber
    level = (
        "red" if share.value > cfg.praise_red and certain else "amber" if share.value > cfg.praise_amber else "green"
    )
    return MonitorRow(
        monitor="praise",
        level=level,
        value=round(share.value, 6),
        amber=cfg.praise_amber,
        red=cfg.praise_red,
        low=round(share.low, 6),
        high=round(share.high, 6),
        n=share.n,
        sentence=f"praise is {share.value:.0%} of what speaks for success in {share.n:,} episodes without a verifier",
    )


def goodhart(seen: Watched, cfg: MonitorsConfig) -> MonitorRow:
    """Whether the verifier shows the gain that the signals show, over the newest policies in order of their time."""
    name = "goodhart"
    rows = seen.episodes.drop_nulls(["proxy", "verified"])
    policies = (
        rows.drop_nulls("started")
        .group_by("policy")
        .agg(when=pl.col("started").median(), n=pl.len())
        .filter(pl.col("n") >= cfg.min_episodes)
        .sort("when", "policy")
        .tail(cfg.goodhart_rounds)["policy"]
        .to_list()
    )
    sides = (
        [rows.filter(policy=policies[0]), rows.filter(policy=policies[-1])]
        if len(policies) > 1
        else [rows.filter(now=False), rows.filter(now=True)]
    )
    least = min(side.height for side in sides)
    if least < cfg.min_episodes:
        return unknown(name, f"{least:,} episodes of a side have both a verifier and other signals", n=least)
    gain, followed = (_gain(sides[0], sides[1], column) for column in ("proxy", "verified"))
    where = f"over {len(policies)} policies" if len(policies) > 1 else "in the window"
    return _followed(gain, followed, where, cfg)


def _gain(before: pl.DataFrame, now: pl.DataFrame, column: str) -> Estimate:
    a, b = (mean(side[column].to_list(), side["task_id"].to_list()) for side in (before, now))
    return Estimate(b.value - a.value, (a.error**2 + b.error**2) ** 0.5, now.height)


def _followed(gain: Estimate, followed: Estimate, where: str, cfg: MonitorsConfig) -> MonitorRow:
    """Compare the gains: red where the verifier shows none at all."""
    rose = gain.value > cfg.goodhart_gain and gain.value > _SURE * gain.error
    share = followed.value / gain.value if rose else None
    level = "green" if share is None or share >= cfg.goodhart_follow else "red" if followed.value <= 0 else "amber"
    return MonitorRow(
        monitor="goodhart",
        level=level,
        value=None if share is None else round(share, 6),
        amber=cfg.goodhart_follow,
        red=0.0,
        n=gain.n,
        sentence=f"{where} the signals went {gain.value:+.3f} and the verifier {followed.value:+.3f} "
        f"(95 % {followed.low:+.3f} to {followed.high:+.3f})",
    )
