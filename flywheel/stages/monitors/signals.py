"""Do the signals still measure success? Decoupling from the verifier, praise, and gains that the verifier lacks.

In: `Windows`. Out: a `MonitorRow` each.
"""

from __future__ import annotations

import math

import polars as pl

from flywheel.config import MonitorsConfig
from flywheel.present import percent
from flywheel.records import MonitorRow
from flywheel.stages.monitors.window import Windows, unknown, worst
from flywheel.stats.drift import Estimate, mean, one_sided, ratio, slope

_Z_95 = one_sided(0.95)
_SLOPE_DROP_AMBER, _SLOPE_DROP_RED = 0.15, 0.30  # relative drop of the slope of the verifier's outcome on the signals
_PRAISE_AMBER, _PRAISE_RED = 0.25, 0.40  # share of praise in the log-odds for success
_GOODHART_POLICIES = 3  # newest policies over which gains are compared
_LEAST_GAIN = 0.02  # of the signals, in [0, 1]; a smaller one is not looked into
_FOLLOW = 0.3  # share of the signals' gain that the verifier must show too; less is amber


def decoupling(windows: Windows, cfg: MonitorsConfig, audit: str | None) -> MonitorRow:
    """Whether the verifier's outcome still rises with the votes of the other signals, as it did before.

    The audit's FAIL is red by itself: the audit measured what this monitor guesses from the logs.
    """
    name = "decoupling"
    if audit == "FAIL":
        return MonitorRow(
            monitor=name, level="red", sentence="the audit finds the probabilities of this window's policy off (FAIL)"
        )
    if windows.why_not:
        return unknown(name, windows.why_not)
    both = windows.episodes.drop_nulls(["proxy", "verified"])
    before, now = (_slope(both.filter(now=side)) for side in (False, True))
    if before is None or now is None or min(before.n, now.n) < cfg.min_episodes:
        least = min(both.filter(now=side).height for side in (False, True))
        return unknown(name, f"{least:,} episodes of a side have both a verifier and other signals that vary", n=least)
    if before.value <= _Z_95 * before.error:
        return unknown(name, "before the window, the signals did not follow the verifier either", n=before.n)
    drop = 1 - now.value / before.value
    error = math.hypot(before.error, now.error)
    certain = before.value - now.value > _Z_95 * error
    half = one_sided(0.975) * error / before.value
    return MonitorRow(
        monitor=name,
        level="red" if drop > _SLOPE_DROP_RED and certain else "amber" if drop > _SLOPE_DROP_AMBER else "green",
        value=round(drop, 6),
        amber=_SLOPE_DROP_AMBER,
        red=_SLOPE_DROP_RED,
        low=round(drop - half, 6),
        high=round(drop + half, 6),
        n=now.n,
        sentence=f"the slope of the verifier's outcome on the other signals went from {before.value:.2f} to "
        f"{now.value:.2f} ({now.n:,} episodes have both)",
    )


def _slope(rows: pl.DataFrame) -> Estimate | None:
    if rows.is_empty():
        return None
    return slope(rows["proxy"].to_list(), rows["verified"].to_list(), rows["task_id"].to_list())


def praise(windows: Windows, cfg: MonitorsConfig) -> MonitorRow:
    """How much of the evidence for success in the window is thumbs up and thanks."""
    rows = windows.episodes.filter(now=True).drop_nulls("speaks_for")
    rows = rows.filter(rows["speaks_for"] > 0)
    if rows.height < cfg.min_episodes:
        return unknown("praise", f"{rows.height:,} episodes of the window have a signal for success", n=rows.height)
    share = ratio(rows["praise"].to_list(), rows["speaks_for"].to_list())
    certain = share.low > _PRAISE_AMBER
    return MonitorRow(
        monitor="praise",
        level="red" if share.value > _PRAISE_RED and certain else "amber" if share.value > _PRAISE_AMBER else "green",
        value=round(share.value, 6),
        amber=_PRAISE_AMBER,
        red=_PRAISE_RED,
        low=round(share.low, 6),
        high=round(share.high, 6),
        n=share.n,
        sentence=f"praise is {percent(share.value, 0)} of the evidence for success in {share.n:,} episodes "
        "without a verifier",
    )


def goodhart(windows: Windows, cfg: MonitorsConfig) -> MonitorRow:
    """Whether the verifier shows the gain that the signals show: of the newest policies, and in the window.

    The worse of both counts: names of policies are claims of whoever wrote the log.
    """
    rows = windows.episodes.drop_nulls(["proxy", "verified"])
    policies = (
        rows.drop_nulls("started")
        .group_by("policy")
        .agg(when=pl.col("started").median(), n=pl.len())
        .filter(pl.col("n") >= cfg.min_episodes)
        .sort("when", "policy")
        .tail(_GOODHART_POLICIES)["policy"]
        .to_list()
    )
    in_window = _followed(rows.filter(now=False), rows.filter(now=True), "in the window", cfg)
    if len(policies) < 2:  # noqa: PLR2004 - nothing to compare
        return in_window
    first, last = (rows.filter(policy=name) for name in (policies[0], policies[-1]))
    return worst([_followed(first, last, f"over {len(policies)} policies", cfg), in_window])


def _followed(before: pl.DataFrame, now: pl.DataFrame, where: str, cfg: MonitorsConfig) -> MonitorRow:
    name, sides = "goodhart", (before, now)
    least = min(side.height for side in sides)
    if least < cfg.min_episodes:
        return unknown(name, f"{least:,} episodes of a side have both a verifier and other signals", n=least)
    gain, followed = (_gain(sides[0], sides[1], column) for column in ("proxy", "verified"))
    rose = gain.value > _LEAST_GAIN and gain.value > _Z_95 * gain.error
    share = followed.value / gain.value if rose else None
    return MonitorRow(
        monitor=name,
        level="green" if share is None or share >= _FOLLOW else "red" if followed.value <= 0 else "amber",
        value=None if share is None else round(share, 6),
        amber=_FOLLOW,
        red=0.0,
        n=gain.n,
        sentence=f"{where} the signals went {gain.value:+.3f} and the verifier {followed.value:+.3f} "
        f"(95 % {followed.low:+.3f} to {followed.high:+.3f})",
    )


def _gain(before: pl.DataFrame, now: pl.DataFrame, column: str) -> Estimate:
    a, b = (mean(side[column].to_list(), side["task_id"].to_list()) for side in (before, now))
    return Estimate(b.value - a.value, math.hypot(a.error, b.error), now.height)
