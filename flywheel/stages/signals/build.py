"""From episodes to rewards: every signal votes on every episode it has evidence about.

In: episodes, steps and events of a set of conversations, and the signals to run. Out: the table `opinions`, long: one
row per episode, step and signal. When all attempts at a task are together, signals that compare them add their rows,
and both are the table `rewards`. Nothing is combined here, so weights can change without running signals again.
"""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from flywheel.config import RewardsConfig
from flywheel.contracts import conform, polars_schema
from flywheel.errors import ContractError, ExtensionError
from flywheel.extensions import Signal
from flywheel.funnel import Funnel
from flywheel.records import LogEvent, Reward
from flywheel.stages.signals.rows import rewards_frame


def build_rewards(
    episodes: pl.DataFrame,
    steps: pl.DataFrame,
    events: pl.DataFrame,
    cfg: RewardsConfig,
    signals: Mapping[str, Signal],
    funnel: Funnel,
) -> pl.DataFrame:
    """Return the rows of all signals on all episodes; counts rows, and notes each signal's coverage.

    Raises:
        ExtensionError: a signal's rows do not fit the contract, are out of range, or repeat a key.
    """
    frames = [rewards_frame([])]
    for name in sorted(signals):
        rows = _checked(name, signals[name](episodes, steps, events, cfg))
        funnel.note(f"rows of {name}", rows.height)
        frames.append(rows)
    rewards = pl.concat(frames)
    _refuse_duplicates(rewards)
    funnel.considered += rewards.height
    rewards = funnel.drop(rewards, ~pl.col("episode_id").is_in(episodes["episode_id"].implode()), "unknown episode")
    funnel.kept += rewards.height
    return conform(rewards, Reward).collect()


def looks_at_tasks(signal: Signal) -> bool:
    """Return whether a signal compares attempts at one task: its attribute `by` is "task"."""
    return getattr(signal, "by", "conversation") == "task"


def compare_attempts(
    episodes: pl.DataFrame,
    steps: pl.DataFrame,
    opinions: pl.DataFrame,
    cfg: RewardsConfig,
    signals: Mapping[str, Signal],
    funnel: Funnel,
) -> pl.DataFrame:
    """Return the opinions on some tasks' episodes plus the rows of signals that compare attempts; counts all rows.

    Raises:
        ExtensionError: as `build_rewards`.
    """
    no_events = pl.DataFrame(schema=polars_schema(LogEvent))
    compared = build_rewards(episodes, steps, no_events, cfg, signals, funnel)
    funnel.considered += opinions.height
    funnel.kept += opinions.height
    rewards = pl.concat([conform(opinions, Reward).collect(), compared])
    _refuse_duplicates(rewards)
    return rewards


def _checked(name: str, frame: pl.DataFrame) -> pl.DataFrame:
    if frame.is_empty() and frame.schema == polars_schema(Reward):
        return frame
    hint = f"signal `{name}` must return rows of `Reward`: see `flywheel schema reward`"
    if "inclusion" not in frame.columns:  # only audits have it
        frame = frame.with_columns(inclusion=pl.lit(None, dtype=pl.Float64))
    try:
        rows = conform(frame, Reward).collect()
    except ContractError as error:
        raise ExtensionError(f"signal `{name}`: {error.message}", hint=hint) from error
    if rows.is_empty():
        return rows
    required = [column for column in rows.columns if column not in {"step", "arrived", "inclusion"}]
    if rows.select(pl.any_horizontal(pl.col(required).is_null().any())).item():
        raise ExtensionError(f"signal `{name}`: a null in a column that must not have one", hint=hint)
    vote = pl.col("kind").is_in(["outcome", "implicit"])
    risk, cost = pl.col("kind") == "risk", pl.col("kind") == "cost"
    score, weight = pl.col("score"), pl.col("weight")
    fits = (
        (vote & score.is_between(-1, 1)) | (risk & score.is_between(0, 1)) | (cost & (score >= 0) & score.is_finite())
    )
    if not rows.select((fits & weight.is_between(0, 1)).all()).item():
        raise ExtensionError(
            f"signal `{name}`: a score or weight out of range",
            hint="votes lie in [-1, 1], risks and weights in [0, 1], costs are finite and not negative",
        )
    return rows


def _refuse_duplicates(rewards: pl.DataFrame) -> None:
    duplicates = rewards.filter(pl.struct(Reward.key).is_duplicated())
    if not duplicates.is_empty():
        raise ExtensionError(
            f"signal `{duplicates.item(0, 'signal')}`: more than one row for an episode and step",
            hint="a signal gives one row an episode and step, with all its evidence, under a name of its own",
        )
