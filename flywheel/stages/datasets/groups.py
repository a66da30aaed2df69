"""Groups of logged attempts at one task, with group-relative advantages.

In: episodes, steps and returns of complete tasks. Out: rows of the groups table. Members share the task, the tools and
the system prompt; the user's wording may differ, and the group's prompt is its first member's. The funnel counts
attempts.

Rewards are centred on the mean of the *other* members and never divided by the group's spread: with logs that would
blow up the groups in which nearly all attempts did equally well.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from flywheel.config import GroupsConfig, RewardsConfig
from flywheel.contracts import frame_of
from flywheel.funnel import Funnel
from flywheel.models.calls import is_reproducible
from flywheel.records import Group, content_id
from flywheel.stages.common.canonical import dump
from flywheel.stages.common.sampling import Drawn, behaviour, draws
from flywheel.stages.credit.rejected import rejected_steps
from flywheel.stages.datasets.context import (
    NEEDS_IMAGE,
    PROVISIONAL,
    UNFIT,
    Fragment,
    episode_fragments,
    needing_images,
    unfit,
)

LONG, LONG_DISCOUNT = 10, 0.99  # steps from which an early step's share of the return is discounted, and by what a step
ADDED = {"values", "prefix_tree", "error_local"}  # credits that are added to the episode's advantage; others replace it


def advantages(rewards: Sequence[float]) -> list[float]:
    """Return what each of at least two members is above the mean of the others (RLOO); the sum is 0."""
    n = len(rewards)
    mean = math.fsum(rewards) / n
    return [(reward - mean) * n / (n - 1) for reward in rewards]


def step_advantages(advantage: float, credits_: Sequence[float | None], cfg: RewardsConfig) -> list[float]:
    """Return the training signal of each step of one attempt.

    A step whose action other attempts show to be worth something gets that, times `rewards.omega`; its attempt's own
    outcome, which rests on all its steps and on luck, is left out. A step like no other attempt's (None) only has its
    attempt's advantage, discounted by the steps to the end; the discount is 1 up to ten steps. Other estimators of
    credit are added to that advantage, or replace it.
    """
    known = [0.0 if credit is None else credit for credit in credits_]
    if cfg.credit not in ADDED:
        return known
    n = len(credits_)
    rate = cfg.discount if n <= LONG else min(cfg.discount, LONG_DISCOUNT)
    shared = [rate ** (n - 1 - t) * advantage for t in range(n)]
    if cfg.credit == "values" and cfg.omega > 0:
        return [whole if own is None else cfg.omega * own for whole, own in zip(shared, credits_, strict=True)]
    return [whole + cfg.omega * own for whole, own in zip(shared, known, strict=True)]


def build_groups(
    episodes: pl.DataFrame,
    steps: pl.DataFrame,
    returns: pl.DataFrame,
    cfg: GroupsConfig,
    funnel: Funnel,
    rewards: RewardsConfig | None = None,
) -> pl.DataFrame:
    """Group the attempts at each task whose outcome is known; both splits, sorted by id.

    `rewards` sets how a step's credit adds to its episode's advantage; None takes the defaults. No step of a turn that
    its user rejected has an advantage above 0.
    """
    rewards = rewards or RewardsConfig()
    funnel.considered += episodes.height
    shown = needing_images(steps)["episode_id"].unique()
    attempts = funnel.drop(
        _attempts(episodes, returns, funnel), pl.col("episode_id").is_in(shown.implode()), NEEDS_IMAGE
    )
    fragments = dict(episode_fragments(steps.filter(pl.col("episode_id").is_in(attempts["episode_id"].to_list()))))
    attempts = _with_signature(attempts, fragments, cfg, funnel)
    attempts = _sized(attempts, cfg, funnel)
    key = ["task_id", "_signature"]
    credit, rejected = _credit(returns), set(rejected_steps(returns).iter_rows())
    sampling = draws(steps.filter(pl.col("episode_id").is_in(attempts["episode_id"].implode())))
    rows = []
    for _, members in attempts.group_by(key, maintain_order=True):
        group = _group(members, fragments, sampling)
        by_member = []
        for episode, lead in zip(group["episodes_G"], group["advantages_G"], strict=True):
            own = [credit.get((episode, n)) for n in range(len(fragments[episode]))]
            signals = enumerate(step_advantages(lead, own, rewards))
            by_member.append([(min(a, 0.0) if (episode, n) in rejected else a) + cfg.shift for n, a in signals])
        rows.append(group | {"step_advantages_G": by_member})
    funnel.kept += attempts.height
    funnel.note("groups", len(rows))
    return frame_of(rows, Group).sort("group_id")


def _credit(returns: pl.DataFrame) -> dict[tuple[str, int], float]:
    """Return the credit of each step of each episode that was measured."""
    measured = pl.col("step").is_not_null() & pl.col("level").is_not_null()
    steps = returns.filter(measured).select("episode_id", "step", "value")
    return {(episode, step): value for episode, step, value in steps.iter_rows()}


def _attempts(episodes: pl.DataFrame, returns: pl.DataFrame, funnel: Funnel) -> pl.DataFrame:
    of_episode = returns.filter(pl.col("step").is_null()).select("episode_id", "value", "known", "provisional")
    attempts = episodes.sort("task_id", "episode_id").join(
        of_episode, on="episode_id", how="left", maintain_order="left"
    )
    attempts = funnel.drop(attempts, pl.col("episode_id").is_in(unfit(episodes)), UNFIT)
    attempts = funnel.drop(attempts, ~pl.col("known").fill_null(value=False), "unknown outcome")
    attempts = funnel.drop(attempts, pl.col("provisional").fill_null(value=False), PROVISIONAL)
    return funnel.drop(attempts, pl.col("n_steps") == 0, "no action")


def _with_signature(
    attempts: pl.DataFrame, fragments: dict[str, list[Fragment]], cfg: GroupsConfig, funnel: Funnel
) -> pl.DataFrame:
    """Add what members must share besides the task; drop attempts whose log rewrote its own history."""
    rewritten = [any(part.resets for part in fragments[e][1:]) for e in attempts["episode_id"]]
    attempts = attempts.with_columns(pl.Series("_rewritten", rewritten, dtype=pl.Boolean))
    attempts = funnel.drop(attempts, pl.col("_rewritten"), "context rewritten")
    offered = attempts.select("episode_id", pl.col("tools").is_not_null()).iter_rows()
    cut = [not all(_as_written(part, tools=tools) for part in fragments[e]) for e, tools in offered]
    attempts = funnel.drop(
        attempts.with_columns(pl.Series("_cut", cut, dtype=pl.Boolean)), pl.col("_cut"), "not as written"
    )
    members = attempts.select("episode_id", "tools", "split", "policy").iter_rows()
    signatures = [
        content_id(tools, _system_prompt(fragments[episode][0]), split, policy if cfg.by_policy else None)
        for episode, tools, split, policy in members
    ]
    return attempts.with_columns(pl.Series("_signature", signatures, dtype=pl.String))


def _as_written(part: Fragment, *, tools: bool) -> bool:
    certain = '"arguments_raw":' not in part.action and not (tools and '"content":"' in part.action)
    return certain or is_reproducible(json.loads(part.action), tools=tools)


def _system_prompt(first: Fragment) -> list[str]:
    if '"role":"system"' not in first.observation:
        return []
    messages = json.loads(f"[{first.observation}]")
    return [str(m.get("content") or "") for m in messages if m["role"] == "system"]


def _sized(attempts: pl.DataFrame, cfg: GroupsConfig, funnel: Funnel) -> pl.DataFrame:
    """Drop attempts of groups that are too small, those beyond the largest size, and groups without a difference.

    Which members of a large group stay is decided by their episode id, a hash: stable, and blind to their reward.
    """
    key = ["task_id", "_signature"]
    of_user = pl.int_range(pl.len()).over(*key, "user")
    attempts = funnel.drop(
        attempts, pl.col("user").is_not_null() & (of_user >= cfg.max_per_user), "over groups.max_per_user"
    )
    attempts = funnel.drop(attempts, pl.len().over(key) < cfg.min_size, "too few attempts")
    attempts = funnel.drop(attempts, pl.int_range(pl.len()).over(key) >= cfg.max_size, "over groups.max_size")
    n_users = pl.coalesce("user", "episode_id").n_unique().over(key)
    attempts = funnel.drop(attempts, n_users < cfg.min_users, "too few users")
    spread = (pl.col("value").max() - pl.col("value").min()).over(key)
    return funnel.drop(attempts, spread < cfg.min_range, "no difference in the group")


def _group(
    members: pl.DataFrame, fragments: dict[str, list[Fragment]], sampling: Mapping[str, Drawn]
) -> dict[str, Any]:
    episodes: list[str] = members["episode_id"].to_list()
    policies: list[str] = members["policy"].to_list()
    rewards: list[float] = members["value"].to_list()
    first = members.row(0, named=True)
    lead = advantages(rewards)
    samplings = [sampling[episode] for episode in episodes]
    behaviours = [behaviour(policy, known) for policy, known in zip(policies, samplings, strict=True)]
    return {
        "group_id": content_id(first["task_id"], first["_signature"], episodes),
        "task_id": first["task_id"],
        "split": first["split"],
        "prompt": f"[{fragments[episodes[0]][0].observation}]",
        "tools": first["tools"],
        "mixed_policies": len(set(policies)) > 1,
        "episodes_G": episodes,
        "completions_G": [_completion(fragments[episode]) for episode in episodes],
        "rewards_G": rewards,
        "advantages_G": lead,
        "policies_G": policies,
        "prompts_G": [f"[{fragments[episode][0].observation}]" for episode in episodes],
        "behaviour_G": behaviours,
        "log_probs_G": [dump(s.log_probs) if s.log_probs is not None else None for s in samplings],
        "temperatures_G": [s.temperature for s in samplings],
    }


def _completion(parts: list[Fragment]) -> str:
    """Return the messages after the prompt, up to the last action."""
    texts = [parts[0].action, *(text for part in parts[1:] for text in (part.observation, part.action) if text)]
    return f"[{','.join(texts)}]"
