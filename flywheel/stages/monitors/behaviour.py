"""What does the policy do more? The mix of its actions, broken calls, questions, length and flattery.

In: `Watched`. Out: `MonitorRow`s. Where both sides tried the same tasks, only these are compared: a policy is not to
blame for what it was asked. Style can be red only there.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

import polars as pl

from flywheel.records import MonitorRow
from flywheel.stages.monitors.window import Watched, unknown
from flywheel.stats.clusters import cluster, paired_t_interval
from flywheel.stats.drift import Estimate, mean, one_sided, psi, psi_by_chance, ratio

if TYPE_CHECKING:
    from flywheel.config import MonitorsConfig

_SURE = one_sided(0.95)
_ENOUGH_TASKS = 20  # tasks of both sides from which only they are compared
_RARE = 0.01  # tools called less are one kind
_LEAST_CHANGE = 0.01  # of a rate or share: less is nothing, however large beside almost nothing

_REFUSES = (
    r"(?i)^\W*(?:(?:i'?m|i am) (?:sorry|afraid)|sorry|unfortunately)?[,. ]*(?:but )?i (?:can'?t|cannot|can not|won'?t|"
    r"am (?:not able|unable)|'m (?:not able|unable))|^\W*(?:很?抱歉|对不起).{0,10}(?:不能|无法)"
)
_FLATTERS = (
    r"(?i)\b(?:you(?:'re| are) (?:absolutely |so |completely |quite )?right|i (?:completely|totally|fully) agree|"
    r"(?:great|excellent|good|fantastic|wonderful|brilliant|amazing) (?:question|point|idea|choice|thinking)|"
    r"what an? (?:great|excellent|wonderful|brilliant))|你说得(?:太)?对|好问题"
)
_LISTS = r"(?m)^\s*(?:[-*•]|\d+[.)])\s+\S"
_EMOJI = "[\U0001f300-\U0001faff\u2600-\u27bf]"


def _alike(seen: Watched, frame: pl.DataFrame) -> tuple[pl.DataFrame, bool]:
    """Return the rows of tasks that both sides tried, and True; all rows and False where these are few."""
    episodes = seen.episodes
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


def action_mix(seen: Watched, cfg: MonitorsConfig) -> MonitorRow:
    """How far the mix of actions moved: PSI, and never red by chance alone."""
    if seen.why_not:
        return unknown("action_mix", seen.why_not)
    steps, alike = _alike(seen, seen.steps)
    kinds = _kinds(steps)
    common = kinds.group_by("kind").len().filter(pl.col("len") >= _RARE * kinds.height)["kind"].to_list()
    named = kinds.with_columns(kind=pl.when(pl.col("kind").is_in(common)).then("kind").otherwise(pl.lit("rare")))
    mixes = [dict(named.filter(now=side).group_by("kind").len().iter_rows()) for side in (False, True)]
    units = [kinds.filter(now=side)["episode_id"].n_unique() for side in (False, True)]
    if min(units) < cfg.min_episodes:
        return unknown("action_mix", f"{min(units):,} episodes of a side on tasks that both tried", n=min(units))
    index = psi(mixes[0], mixes[1])
    certain = index > psi_by_chance(len({*mixes[0], *mixes[1]}), units[0], units[1])
    level = "red" if index > cfg.mix_red and certain else "amber" if index > cfg.mix_amber and certain else "green"
    return MonitorRow(
        monitor="action_mix",
        level=level,
        value=round(index, 6),
        amber=cfg.mix_amber,
        red=cfg.mix_red,
        n=units[1],
        sentence=f"the mix of actions moved by {index:.2f} (PSI); most: {_moved(mixes)}{_on(alike=alike)}",
    )


def _moved(mixes: list[dict[str, int]]) -> str:
    before, now = ({k: n / max(sum(m.values()), 1) for k, n in m.items()} for m in mixes)
    kind = max(sorted({*before, *now}), key=lambda k: abs(now.get(k, 0) - before.get(k, 0)))
    return f"{kind} {before.get(kind, 0):.0%} → {now.get(kind, 0):.0%}"


def _on(*, alike: bool) -> str:
    return ", on tasks that both sides tried" if alike else ""


def rates(seen: Watched, cfg: MonitorsConfig) -> list[MonitorRow]:
    """Whether broken calls or questions became more frequent: both are cheap ways out of a task."""
    found = []
    names = {"broken_calls": "invalid_call", "questions": "ask_user"}
    if seen.why_not:
        return [unknown(name, seen.why_not) for name in names]
    steps, alike = _alike(seen, seen.steps)
    by_episode = (
        _kinds(steps)
        .group_by("episode_id", "now")
        .agg(all=pl.len(), **{name: (pl.col("kind") == kind).sum() for name, kind in names.items()})
        .sort("episode_id")
    )
    for name, kind in names.items():
        sides = [by_episode.filter(now=side) for side in (False, True)]
        if min(side.height for side in sides) < cfg.min_episodes:
            found.append(unknown(name, f"too few episodes of a side on tasks that both tried{_on(alike=alike)}"))
            continue
        before, now = (ratio(side[name].to_list(), side["all"].to_list()) for side in sides)
        found.append(_grown(name, kind, before, now, cfg))
    return found


def _grown(name: str, kind: str, before: Estimate, now: Estimate, cfg: MonitorsConfig) -> MonitorRow:
    more = now.value - before.value
    certain = more > max(_LEAST_CHANGE, _SURE * math.hypot(before.error, now.error))
    times = now.value / before.value if before.value > 0 else None
    beyond = certain and (times is None or times > cfg.rate_ratio)
    return MonitorRow(
        monitor=name,
        level="red" if beyond else "amber" if certain else "green",
        value=None if times is None else round(times, 6),
        amber=1.0,
        red=cfg.rate_ratio,
        n=now.n,
        sentence=f"{kind}: {before.value:.1%} → {now.value:.1%} of actions",
    )


def style(seen: Watched, cfg: MonitorsConfig) -> list[MonitorRow]:
    """Whether texts became longer, fuller of lists and emoji, or more flattering than the margin allows."""
    measures = {
        "length": pl.col("content").str.len_chars().cast(pl.Float64),
        "lists": pl.col("content").str.contains(_LISTS).cast(pl.Float64),
        "emoji": pl.col("content").str.contains(_EMOJI).cast(pl.Float64),
        "flattery": pl.col("content").str.contains(_FLATTERS).cast(pl.Float64),
    }
    if seen.why_not:
        return [unknown(name, seen.why_not) for name in measures]
    texts = seen.steps.filter(pl.col("content") != "").select("episode_id", "task_id", "now", **measures)
    found = []
    for name in measures:
        by_task = texts.group_by("task_id", "now").agg(pl.col(name).mean()).sort("task_id")
        pairs = by_task.filter(now=False).join(by_task.filter(now=True), on="task_id", suffix="_now").sort("task_id")
        sides = [texts.filter(now=side) for side in (False, True)]
        if min(side["episode_id"].n_unique() for side in sides) < cfg.min_episodes:
            found.append(unknown(name, "too few episodes of a side have texts"))
        elif pairs.height >= _ENOUGH_TASKS:
            found.append(_paired(name, pairs, cfg))
        else:
            before, now = (mean(side[name].to_list(), side["episode_id"].to_list()) for side in sides)
            found.append(_unpaired(name, before, now, cfg))
    return found


def _paired(name: str, pairs: pl.DataFrame, cfg: MonitorsConfig) -> MonitorRow:
    was = float(pairs[name].sum()) / pairs.height
    data = cluster((pairs[f"{name}_now"] - pairs[name]).to_list(), pairs["task_id"].to_list())
    margin = _margin(name, was, cfg)
    certain = paired_t_interval(data).low > margin
    level: Literal["red", "amber", "green"] = "red" if certain else "amber" if data.mean > margin else "green"
    told = f"{_change(name, was, data.mean)} ({pairs.height:,} tasks that both sides tried)"
    return _styled(name, level, told, _relative(was, data.mean), pairs.height, cfg)


def _unpaired(name: str, before: Estimate, now: Estimate, cfg: MonitorsConfig) -> MonitorRow:
    more = now.value - before.value
    level: Literal["amber", "green"] = "amber" if more > _margin(name, before.value, cfg) else "green"
    told = f"{_change(name, before.value, more)} ({now.n:,} episodes, on other tasks than before)"
    return _styled(name, level, told, _relative(before.value, more), now.n, cfg)


def _margin(name: str, was: float, cfg: MonitorsConfig) -> float:
    """Return the tolerated growth: relative, but never less than one text in a hundred."""
    return cfg.style_margin * was if name == "length" else max(cfg.style_margin * was, _LEAST_CHANGE)


def _relative(was: float, more: float) -> float | None:
    return round(more / was, 6) if was > 0 else None


def _change(name: str, was: float, more: float) -> str:
    if name == "length":
        return f"{was:.0f} → {was + more:.0f} characters"
    return f"{was:.1%} → {was + more:.1%} of texts"


def _styled(
    name: str, level: Literal["red", "amber", "green"], told: str, value: float | None, n: int, cfg: MonitorsConfig
) -> MonitorRow:
    margin = cfg.style_margin
    return MonitorRow(monitor=name, level=level, value=value, amber=margin, red=margin, n=n, sentence=told)
