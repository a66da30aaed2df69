"""Signals that need no reading of users' messages: recorded outcomes, tool errors and recovery, loops, cost, latency.

In: episodes, steps, events. Out: rows of `Reward`, one signal a function (see `extensions.Signal`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import orjson
import polars as pl

from flywheel.config import RewardsConfig
from flywheel.reading.feedback import plain_name
from flywheel.records import ToolStatus
from flywheel.stages.signals.dialogue import EpisodeKey
from flywheel.stages.signals.evidence import StepRow, by_episode, proof, times_of
from flywheel.stages.signals.rows import CLAIMS, Evidence, SignalRows, events_by_episode, scaled

_BEST = 1.0 + 1e-9  # of an outcome whose range is not known; sums may be off by rounding
LOOP_AT = 3  # identical calls with identical results
LOOP_WITHIN = 6  # actions with calls
OUTPUT_PRICE = 4.0  # price of an output token in input tokens, where the log has tokens but no price


def outcome(episodes: pl.DataFrame, steps: pl.DataFrame, events: pl.DataFrame, cfg: RewardsConfig) -> pl.DataFrame:
    """Recorded results (rewards, tests, checks): the latest value of each name, scaled from its range to [-1, 1].

    Of values that add up (what single steps have earned) it is their sum; of several that differ and that nothing puts
    in order (verdicts of several reviewers) their mean.

    Best and worst value are those of `[rewards.score_names]`, else of the record, else 1 and 0. What lies between is a
    grade, unless `[rewards.success_at]` has the value from which on it is a success. A value above 1 without a range is
    of a range that is not known, and none: 5 may be of 5 or of 100. One below 0 is the worst.
    """
    del steps
    rows = SignalRows("outcome", "verifier", "outcome", version=3)
    return _latest(rows, events_by_episode(episodes, events, "outcome"), cfg)


def claim(episodes: pl.DataFrame, steps: pl.DataFrame, events: pl.DataFrame, cfg: RewardsConfig) -> pl.DataFrame:
    """Results stated by a source that `[trust]` does not let state outcomes: worth what known outcomes show."""
    del steps
    return _latest(SignalRows("claim", CLAIMS, version=3), events_by_episode(episodes, events, CLAIMS), cfg)


def _latest(rows: SignalRows, by_episode: Mapping[EpisodeKey, list[Evidence]], cfg: RewardsConfig) -> pl.DataFrame:
    thresholds = {plain_name(name): value for name, value in cfg.success_at.items()}
    for episode, outcomes in by_episode.items():
        shown: dict[str, list[Evidence]] = {}
        for event in outcomes:
            name = str(event.payload.get("name"))
            if not _adds(event) and not _is_beside(event, shown.get(name, [])):
                shown[name] = []
            shown.setdefault(name, []).append(event)
        for name, events in sorted(shown.items()):
            scores = [_score(name, payload, cfg, thresholds) for payload in _stated(events)]
            given = [score for score in scores if score is not None]
            if given:
                rows.add(episode, sum(given) / len(given), events)
    return rows.frame()


def _stated(events: Sequence[Evidence]) -> list[Mapping[str, Any]]:
    """Return what events of one name state: a sum where they add up, else each of them."""
    if not _adds(events[-1]):
        return [event.payload for event in events]
    return [{**events[-1].payload, "value": sum(event.payload["value"] for event in events if _adds(event))}]


def _score(name: str, payload: Mapping[str, Any], cfg: RewardsConfig, thresholds: Mapping[str, float]) -> float | None:
    ends = cfg.score_names.get(plain_name(name), ())
    value = payload.get("value")
    if not isinstance(value, int | float) or not math.isfinite(value):
        return None
    if plain_name(name) not in thresholds:
        is_beyond = value > _BEST and not ends and payload.get("scale") is None
        return None if is_beyond else scaled(payload, ends=ends)
    least = thresholds[plain_name(name)]
    reached = value <= least if ends and ends[0] > ends[1] else value >= least
    return 1.0 if reached else -1.0


def _is_beside(event: Evidence, others: Sequence[Evidence]) -> bool:
    """Whether an outcome was stated at the time of others: nothing shows which of them is the last word."""
    return bool(others) and not _adds(others[-1]) and (others[-1].ts, others[-1].seq) == (event.ts, event.seq)


def _adds(event: Evidence) -> bool:
    """Whether an outcome is one of several whose values add up."""
    return event.payload.get("adds") is True and isinstance(event.payload.get("value"), int | float)


def tool_error(episodes: pl.DataFrame, steps: pl.DataFrame, events: pl.DataFrame, cfg: RewardsConfig) -> pl.DataFrame:
    """The last call failed or did not parse, and its tool did not succeed in the same step.

    A failure with a later call is not a vote: going on is what an agent should do, and many logs do not record that a
    call succeeded. A malformed call counts like a failed one, so that breaking a call never helps.
    """
    del episodes, cfg
    rows, times = SignalRows("tool_error", "exec"), times_of(events)
    for episode, path in by_episode(steps):
        called = [step for step in path if step.tool_names]
        if called and _unrecovered(called[-1]):
            rows.add(episode, -1.0, proof(called[-1], times), step=called[-1].step)
    return rows.frame()


def _unrecovered(step: StepRow) -> bool:
    ended = list(zip(step.tool_names, step.tool_status, strict=True))
    worked = {name for name, status in ended if status == ToolStatus.OK}
    return step.malformed or any(status == ToolStatus.FAILED and name not in worked for name, status in ended)


def recovery(episodes: pl.DataFrame, steps: pl.DataFrame, events: pl.DataFrame, cfg: RewardsConfig) -> pl.DataFrame:
    """A call failed or did not parse, and a later call of the same tool succeeded: a vote for that later step."""
    del episodes, cfg
    rows, times = SignalRows("recovery", "exec"), times_of(events)
    broken = steps.filter(pl.col("malformed") | pl.col("tool_status").list.contains(ToolStatus.FAILED.value))
    for episode, path in _paths_of(steps, broken["episode_id"]):
        failed: dict[str, StepRow] = {}
        for step in path:
            for name, status in zip(step.tool_names, step.tool_status, strict=True):
                if status == ToolStatus.OK and name in failed:
                    rows.add(episode, 1.0, [*proof(failed.pop(name), times), *proof(step, times)], step=step.step)
            bad = {n for n, end in zip(step.tool_names, step.tool_status, strict=True) if end == ToolStatus.FAILED}
            failed |= dict.fromkeys([*sorted(bad), *(step.tool_names if step.malformed else ())], step)
    return rows.frame()


def loop(episodes: pl.DataFrame, steps: pl.DataFrame, events: pl.DataFrame, cfg: RewardsConfig) -> pl.DataFrame:
    """The same canonical calls were made three times within six actions with calls, and came back with the same.

    The same tests run again after each change are work, not a loop.
    """
    del cfg
    rows, times = SignalRows("loop", "exec", version=2), times_of(events)
    repeated = steps.filter(pl.len().over("episode_id", "action_key") >= LOOP_AT)["episode_id"].unique()
    results = _results(episodes, steps, repeated)
    for episode, path in _paths_of(steps, repeated):
        keys = [(s.action_key, results.get((episode[0], s.step), "")) if s.action_key else None for s in path]
        calls = [(key, step) for key, step in zip(keys, path, strict=True) if key]
        windows = (Counter(key for key, _ in calls[n : n + LOOP_WITHIN]) for n in range(len(calls)))
        stuck = {key for counts in windows for key, count in counts.items() if count >= LOOP_AT}
        if stuck:
            rows.add(episode, -1.0, [p for key, step in calls if key in stuck for p in proof(step, times)[:1]])
    return rows.frame()


def _paths_of(steps: pl.DataFrame, wanted: pl.Series) -> list[tuple[EpisodeKey, list[StepRow]]]:
    """Return some episodes with their steps; most show nothing of what a signal looks for, and need no walk."""
    episodes = set(wanted)
    return [(episode, path) for episode, path in by_episode(steps) if episode[0] in episodes] if episodes else []


def _results(episodes: pl.DataFrame, steps: pl.DataFrame, wanted_: pl.Series) -> dict[tuple[str, int], str]:
    """Return what each step's tools returned in some episodes, from the observation that followed it."""
    wanted = pl.col("episode_id").is_in(wanted_.implode())
    seen = steps.filter(wanted).select("episode_id", pl.col("index") - 1, messages="observation")
    last = episodes.filter(wanted).select("episode_id", pl.col("n_steps").cast(pl.Int64) - 1, messages="tail")
    rows = [*seen.iter_rows(), *last.iter_rows()]
    return {
        (episode, step): "\n".join(str(m.get("content")) for m in orjson.loads(messages) if m.get("role") == "tool")
        for episode, step, messages in rows
    }


def cost(episodes: pl.DataFrame, steps: pl.DataFrame, events: pl.DataFrame, cfg: RewardsConfig) -> pl.DataFrame:
    """What the episode cost, raw: money if logged, else tokens, else seconds, else steps.

    The family names the unit. Costs are normalised where they are combined, within one unit.
    """
    del steps, events, cfg
    tokens = pl.col("input_tokens").fill_null(0) + OUTPUT_PRICE * pl.col("output_tokens").fill_null(0)
    logged = pl.any_horizontal(pl.col("input_tokens", "output_tokens").is_not_null())
    amounts = {
        "usd": pl.col("cost_usd"),
        "tokens": pl.when(logged).then(tokens),
        "seconds": pl.col("latency_s"),
        "steps": pl.col("n_steps").cast(pl.Float64),
    }
    units = [pl.when((amount >= 0) & ~amount.is_nan()).then(pl.lit(unit)) for unit, amount in amounts.items()]
    of_episodes = episodes.select("episode_id", "task_id", family=pl.coalesce(units), **amounts)
    scored = of_episodes.with_columns(
        score=pl.coalesce(pl.when(pl.col("family") == unit).then(pl.col(unit)) for unit in amounts)
    )
    return SignalRows("cost", "", "cost").of(scored)


def latency(episodes: pl.DataFrame, steps: pl.DataFrame, events: pl.DataFrame, cfg: RewardsConfig) -> pl.DataFrame:
    """How many seconds the user waited for models and tools, where the episode's cost is in another unit.

    It never votes on success: it makes an episode expensive compared with other attempts at its task.
    """
    del steps, events, cfg
    rows = SignalRows("latency", "seconds", "cost")
    otherwise = pl.any_horizontal(pl.col("cost_usd", "input_tokens", "output_tokens").is_not_null())
    slow = episodes.filter(otherwise & (pl.col("latency_s") >= 0)).select("episode_id", "task_id", "latency_s")
    return rows.of(slow.with_columns(family=pl.lit("seconds"), score="latency_s"))
