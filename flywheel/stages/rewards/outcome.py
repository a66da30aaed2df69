"""Signals that need no reading of what users said: recorded outcomes, tool errors, loops, cost and risk.

In: episodes, steps, events. Out: rows of `Reward`, one signal a function (see `extensions.Signal`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from flywheel.records import ToolStatus
from flywheel.stages.rewards.dialogue import Turn, user_turns
from flywheel.stages.rewards.lexicon import says
from flywheel.stages.rewards.opinions import Opinions, judgements, scaled
from flywheel.stages.rewards.targets import StepRow, by_episode, is_destructive, proof, times_of

if TYPE_CHECKING:
    import polars as pl

    from flywheel.config import RewardsConfig

__all__ = ["cost", "loop", "outcome", "risk", "tool_error"]

LOOP_AT = 3  # identical calls in one episode
OUTPUT_PRICE = 4.0  # price of an output token in input tokens, where the log has tokens but no price
UNCONFIRMED = 0.5  # severity of a destructive call that the user did not confirm


def outcome(episodes: pl.DataFrame, steps: pl.DataFrame, events: pl.DataFrame, cfg: RewardsConfig) -> pl.DataFrame:
    """Recorded results (rewards, tests, checks): the latest value of each name, scaled from its range to [-1, 1]."""
    del steps, cfg
    found = Opinions("outcome", "verifier", "outcome")
    for episode, said in judgements(episodes, events, "outcome").items():
        latest = {str(one.payload.get("name")): one for one in said}
        for name in sorted(latest):
            score = scaled(latest[name].payload)
            if score is not None:
                found.add(episode, score, [latest[name]])
    return found.frame()


def tool_error(episodes: pl.DataFrame, steps: pl.DataFrame, events: pl.DataFrame, cfg: RewardsConfig) -> pl.DataFrame:
    """The last call failed or did not parse, and its tool did not succeed in the same breath.

    A failure with a later call is no vote: going on is what an agent should do, and many logs do not say that a call
    went well. A malformed call counts like a failed one, so that breaking a call never helps.
    """
    del episodes, cfg
    found, times = Opinions("tool_error", "exec"), times_of(events)
    for episode, path in by_episode(steps):
        called = [step for step in path if step.tool_names]
        if called and _unrecovered(called[-1]):
            found.add(episode, -1.0, proof(called[-1], times), step=called[-1].step)
    return found.frame()


def _unrecovered(step: StepRow) -> bool:
    ended = list(zip(step.tool_names, step.tool_status, strict=True))
    worked = {name for name, status in ended if status == ToolStatus.OK}
    return step.malformed or any(status == ToolStatus.FAILED and name not in worked for name, status in ended)


def loop(episodes: pl.DataFrame, steps: pl.DataFrame, events: pl.DataFrame, cfg: RewardsConfig) -> pl.DataFrame:
    """The same canonical calls were made three times or more in one episode."""
    del episodes, cfg
    found, times = Opinions("loop", "exec"), times_of(events)
    for episode, path in by_episode(steps):
        counts = Counter(s.action_key for s in path if s.action_key)
        repeated = {key for key, count in counts.items() if count >= LOOP_AT}
        if repeated:
            found.add(episode, -1.0, [p for s in path if s.action_key in repeated for p in proof(s, times)[:1]])
    return found.frame()


def cost(episodes: pl.DataFrame, steps: pl.DataFrame, events: pl.DataFrame, cfg: RewardsConfig) -> pl.DataFrame:
    """What the episode cost, raw: money if logged, else tokens, else seconds, else steps.

    The family names the unit. Costs are normalised where they are combined, within one unit.
    """
    del steps, events, cfg
    columns = ["episode_id", "task_id", "cost_usd", "input_tokens", "output_tokens", "latency_s", "n_steps"]
    found = {unit: Opinions("cost", unit, "cost") for unit in ("usd", "tokens", "seconds", "steps")}
    for episode_id, task_id, usd, tokens_in, tokens_out, seconds, n_steps in episodes.select(columns).iter_rows():
        tokens = (
            None if tokens_in is None and tokens_out is None else (tokens_in or 0) + OUTPUT_PRICE * (tokens_out or 0)
        )
        amounts = {"usd": usd, "tokens": tokens, "seconds": seconds, "steps": float(n_steps)}
        unit = next(name for name, amount in amounts.items() if amount is not None and amount >= 0)
        found[unit].add((episode_id, task_id), amounts[unit], [])
    return _stacked(found[unit] for unit in sorted(found))


def _stacked(opinions: Iterator[Opinions]) -> pl.DataFrame:
    import polars as pl

    return pl.concat([o.frame() for o in opinions])


def risk(episodes: pl.DataFrame, steps: pl.DataFrame, events: pl.DataFrame, cfg: RewardsConfig) -> pl.DataFrame:
    """A call whose name says that it destroys or moves something, without the user's yes in the last turn before it."""
    del cfg
    found, times = Opinions("risk", "risk", "risk"), times_of(events)
    turns = user_turns(episodes, steps, events)
    for episode, path in by_episode(steps):
        for step in path:
            if any(map(is_destructive, step.tool_names)) and not _confirmed(turns.get(episode, []), step.step):
                found.add(episode, UNCONFIRMED, proof(step, times)[:1], step=step.step)
    return found.frame()


def _confirmed(turns: list[Turn], step: int) -> bool:
    before = [turn for turn in turns if turn.before_step <= step]
    return bool(before) and before[-1].reaction and says("confirm", before[-1].text)
