"""What does the policy do more? The mix of its actions, broken calls, questions, thoughts, length, flattery.

In: `Windows`. Out: `MonitorRow`s. Where both sides tried the same tasks, only these are compared: a policy is not to
blame for what it was asked. Style can be red only there.
"""

from __future__ import annotations

import math
from typing import Literal

import polars as pl

from flywheel.config import MonitorsConfig
from flywheel.present import percent
from flywheel.records import MonitorRow
from flywheel.stages.monitors.window import Windows, unknown
from flywheel.stats.clusters import cluster, paired_t_interval
from flywheel.stats.drift import Estimate, mean, one_sided, psi, psi_by_chance, ratio

_Z_95 = one_sided(0.95)
_MIX_AMBER, _MIX_RED = 0.10, 0.25  # population stability index of the mix of actions
_RATE_RATIO = 1.5  # growth of broken calls or questions that is red
_ENOUGH_TASKS = 20  # tasks of both sides from which only they are compared
_RARE = 0.01  # tools called less often are one kind
_STYLE_MARGIN = 0.10  # relative growth of length, lists, emoji or flattery that is tolerated
_LEAST_CHANGE = 0.01  # of a rate or share; a smaller change does not count, however large relative to almost nothing

_REFUSES = (
    r"(?i)^\W*(?:(?:i'?m|i am) (?:sorry|afraid)|sorry|unfortunately)?[,. ]*(?:but )?i (?:can'?t|cannot|can not|won'?t|"
    r"am (?:not able|unable)|'m (?:not able|unable))|^\W*(?:很?抱歉|对不起).{0,10}(?:不能|无法)"
)
_FLATTERS = (
    r"(?i)\b(?:you(?:'re| are) (?:absolutely |so |completely |quite )?right|i (?:completely|totally|fully) agree|"
    r"(?:great|excellent|good|fantastic|wonderful|brilliant|amazing) (?:question|point|idea|choice|thinking)|"
    r"what an? (?:great|excellent|wonderful|brilliant))|你说得(?:太)?对|好问题"
)
Level = Literal["red", "amber", "green"]

_LISTS = r"(?m)^\s*(?:[-*•]|\d+[.)])\s+\S"
_EMOJI = "[\U0001f300-\U0001faff\u2600-\u27bf]"


def _on_shared_tasks(windows: Windows, frame: pl.DataFrame) -> tuple[pl.DataFrame, bool]:
    """Return the rows of tasks that both sides tried, and True; all rows and False where these are few."""
    episodes = windows.episodes
    here, there = (set(episodes.filter(now=side)["task_id"].to_list()) for side in (True, False))
    shared = sorted(here & there)
    if len(shared) < _ENOUGH_TASKS:
        return frame, False
    return frame.filter(frame["task_id"].is_in(shared)), True


def _kinds(steps: pl.DataFrame) -> pl.DataFrame:
    """Return the kind of each action, one row a call: a tool, invalid_call, ask_user, refuse or final."""
    text = (
        pl.when(pl.col("content").str.contains(_REFUSES))
        .then(pl.lit("refuse"))
        .when(pl.col("content").str.contains("[?\uff1f]"))
        .then(pl.lit("ask_user"))
        .otherwise(pl.lit("final"))
    )
    kinds = (
        pl.when("malformed")
        .then(pl.concat_list(pl.lit("invalid_call")))
        .when(pl.col("tool_names").list.len() == 0)
        .then(pl.concat_list(text))
        .otherwise("tool_names")
    )
    return steps.select("episode_id", "task_id", "now", kind=kinds).explode("kind")


def action_mix(windows: Windows, cfg: MonitorsConfig) -> MonitorRow:
    """How far the mix of actions moved: PSI, and never red by chance alone."""
    if windows.why_not:
        return unknown("action_mix", windows.why_not)
    steps, shared = _on_shared_tasks(windows, windows.steps)
    kinds = _kinds(steps)
    common = kinds.group_by("kind").len().filter(pl.col("len") >= _RARE * kinds.height)["kind"].to_list()
    named = kinds.with_columns(kind=pl.when(pl.col("kind").is_in(common)).then("kind").otherwise(pl.lit("rare")))
    mixes = [dict(named.filter(now=side).group_by("kind").len().iter_rows()) for side in (False, True)]
    units = [kinds.filter(now=side)["episode_id"].n_unique() for side in (False, True)]
    if min(units) < cfg.min_episodes:
        return unknown("action_mix", f"{min(units):,} episodes of a side on tasks that both tried", n=min(units))
    index = psi(mixes[0], mixes[1])
    certain = index > psi_by_chance(len({*mixes[0], *mixes[1]}), units[0], units[1])
    level = "red" if index > _MIX_RED and certain else "amber" if index > _MIX_AMBER and certain else "green"
    if level == "red" and _verified_gain(windows, cfg):
        level = "amber"  # other actions, and by the verifier better ones: what a promoted round is for
    shares = [{kind: n / max(sum(mix.values()), 1) for kind, n in mix.items()} for mix in mixes]
    before, now = ({kind: side.get(kind, 0.0) for kind in sorted({*mixes[0], *mixes[1]})} for side in shares)
    most = max(before, key=lambda kind: abs(now[kind] - before[kind]))
    return MonitorRow(
        monitor="action_mix",
        level=level,
        value=round(index, 6),
        amber=_MIX_AMBER,
        red=_MIX_RED,
        n=units[1],
        sentence=f"the mix of actions moved by {index:.2f} (PSI); most: {most} {percent(before[most], 0)} → "
        + percent(now[most], 0)
        + (", on tasks that both sides tried" if shared else ""),
    )


def _verified_gain(windows: Windows, cfg: MonitorsConfig) -> bool:
    """Whether the verifier shows that the window is better, beyond chance, on tasks that both sides tried.

    What it did not see in the window counts as failed: an agent that asks instead of failing gains nothing.
    """
    rows = _on_shared_tasks(windows, windows.episodes)[0]
    sides = [
        rows.filter(now=False).drop_nulls("verified"),
        rows.filter(now=True).with_columns(pl.col("verified").fill_null(0.0)),
    ]
    if min(side.height for side in sides) < cfg.min_episodes:
        return False
    before, now = (mean(side["verified"].to_list(), side["task_id"].to_list()) for side in sides)
    return now.value - before.value > max(_LEAST_CHANGE, _Z_95 * math.hypot(before.error, now.error))


def rates(windows: Windows, cfg: MonitorsConfig) -> list[MonitorRow]:
    """Whether broken calls or questions became more frequent: both are cheap ways out of a task."""
    names = {"broken_calls": "invalid_call", "questions": "ask_user"}
    if windows.why_not:
        return [unknown(name, windows.why_not) for name in names]
    steps, shared = _on_shared_tasks(windows, windows.steps)
    by_episode = (
        _kinds(steps)
        .group_by("episode_id", "now")
        .agg(all=pl.len(), **{name: (pl.col("kind") == kind).sum() for name, kind in names.items()})
        .sort("episode_id")
    )
    sides = [by_episode.filter(now=side) for side in (False, True)]
    if min(side.height for side in sides) < cfg.min_episodes:
        where = " on tasks that both tried" if shared else ""
        return [unknown(name, f"too few episodes of a side{where}") for name in names]
    rows = []
    for name, kind in names.items():
        before, now = (ratio(side[name].to_list(), side["all"].to_list()) for side in sides)
        rows.append(_growth(name, kind, before, now))
    return rows


def _growth(name: str, kind: str, before: Estimate, now: Estimate) -> MonitorRow:
    more = now.value - before.value
    certain = more > max(_LEAST_CHANGE, _Z_95 * math.hypot(before.error, now.error))
    times = now.value / before.value if before.value > 0 else None
    beyond = certain and (times is None or times > _RATE_RATIO)
    return MonitorRow(
        monitor=name,
        level="red" if beyond else "amber" if certain else "green",
        value=None if times is None else round(times, 6),
        amber=1.0,
        red=_RATE_RATIO,
        n=now.n,
        sentence=f"{kind}: {percent(before.value)} → {percent(now.value)} of actions",
    )


def thinking(windows: Windows, cfg: MonitorsConfig) -> MonitorRow:
    """Whether a policy thinks less often before it acts; amber at most, for the reference may be another model."""
    if windows.why_not:
        return unknown("thinking", windows.why_not)
    steps = _on_shared_tasks(windows, windows.steps)[0]
    by_episode = steps.group_by("episode_id", "now").agg(all=pl.len(), thinks=pl.col("thinks").sum()).sort("episode_id")
    sides = [by_episode.filter(now=side) for side in (False, True)]
    if min(side.height for side in sides) < cfg.min_episodes:
        return unknown("thinking", "too few episodes of a side")
    before, now = (ratio(side["thinks"].to_list(), side["all"].to_list()) for side in sides)
    if before.value == 0:
        sentence = "no action before the window holds a thought"
        return MonitorRow(monitor="thinking", level="green", amber=1.0, n=now.n, sentence=sentence)
    less = before.value - now.value
    certain = less > max(_LEAST_CHANGE, _Z_95 * math.hypot(before.error, now.error))
    return MonitorRow(
        monitor="thinking",
        level="amber" if certain else "green",
        value=round(now.value / before.value, 6),
        amber=1.0,
        n=now.n,
        sentence=f"thoughts: before {percent(before.value)} → {percent(now.value)} of actions",
    )


def style(windows: Windows, cfg: MonitorsConfig) -> list[MonitorRow]:
    """Whether texts became longer, fuller of lists and emoji, or more flattering than the margin allows."""
    measures = {
        "length": pl.col("content").str.len_chars().cast(pl.Float64),
        "lists": pl.col("content").str.contains(_LISTS).cast(pl.Float64),
        "emoji": pl.col("content").str.contains(_EMOJI).cast(pl.Float64),
        "flattery": pl.col("content").str.contains(_FLATTERS).cast(pl.Float64),
    }
    if windows.why_not:
        return [unknown(name, windows.why_not) for name in measures]
    texts = windows.steps.filter(pl.col("content") != "").select("episode_id", "task_id", "now", **measures)
    rows = []
    for name in measures:
        by_task = texts.group_by("task_id", "now").agg(pl.col(name).mean()).sort("task_id")
        pairs = by_task.filter(now=False).join(by_task.filter(now=True), on="task_id", suffix="_now").sort("task_id")
        sides = [texts.filter(now=side) for side in (False, True)]
        if min(side["episode_id"].n_unique() for side in sides) < cfg.min_episodes:
            rows.append(unknown(name, "too few episodes of a side have texts"))
        elif pairs.height >= _ENOUGH_TASKS:
            rows.append(_paired(name, pairs))
        else:
            before, now = (mean(side[name].to_list(), side["episode_id"].to_list()) for side in sides)
            rows.append(_unpaired(name, before, now))
    return rows


def _paired(name: str, pairs: pl.DataFrame) -> MonitorRow:
    was = float(pairs[name].sum()) / pairs.height
    data = cluster((pairs[f"{name}_now"] - pairs[name]).to_list(), pairs["task_id"].to_list())
    margin = _margin(name, was)
    certain = paired_t_interval(data).low > margin
    level: Level = "red" if certain else "amber" if data.mean > margin else "green"
    basis = f"{pairs.height:,} tasks that both sides tried"
    return _style_row(name, level, was, data.mean, basis=basis, n=pairs.height)


def _unpaired(name: str, before: Estimate, now: Estimate) -> MonitorRow:
    more = now.value - before.value
    level: Level = "amber" if more > _margin(name, before.value) else "green"
    basis = f"{now.n:,} episodes, on other tasks than before"
    return _style_row(name, level, before.value, more, basis=basis, n=now.n)


def _margin(name: str, was: float) -> float:
    """Return the tolerated growth: relative, but never less than one text in a hundred."""
    return _STYLE_MARGIN * was if name == "length" else max(_STYLE_MARGIN * was, _LEAST_CHANGE)


def _style_row(name: str, level: Level, was: float, more: float, *, basis: str, n: int) -> MonitorRow:
    texts = f"{percent(was)} → {percent(was + more)} of texts"
    change = f"{was:.0f} → {was + more:.0f} characters" if name == "length" else texts
    return MonitorRow(
        monitor=name,
        level=level,
        value=round(more / was, 6) if was > 0 else None,
        amber=_STYLE_MARGIN,
        red=_STYLE_MARGIN,
        n=n,
        sentence=f"{change} ({basis})",
    )
