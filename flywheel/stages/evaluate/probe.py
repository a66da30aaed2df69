"""What a start policy does before it is trained: how often its calls are well-formed, and where it acts well already.

The first decides between a cold start by SFT and preferences, the second what a round replays.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from flywheel.config import Config
from flywheel.models.scoring import Watch
from flywheel.models.served.policy import Memory, open_policies
from flywheel.stages.evaluate.checks.calls import same_calls
from flywheel.stages.evaluate.window import Ask, fits


class StartPolicy(NamedTuple):
    """The policy that a round starts from."""

    adapter: Path | None  # its folder; None for the base model
    name: str  # 'round 3', 'base model'
    sha256: str  # of the adapter's weights; '' for the base model


PARTS = 8  # the prompts are tried in so many parts: after each the decision may be certain


def well_formed(
    config: Config,
    start: StartPolicy,
    prompts: Sequence[tuple[Any, Any]],
    watch: Watch = lambda _done, _of: None,
    memory: Memory | None = None,
) -> tuple[int, int]:
    """Return after how many prompts the policy's greedy action is a well-formed tool call, and how many were tried.

    They are tried in parts until it is certain on which side of `train.cold_start_below` the rate over all prompts
    lies: whatever the others give, the decision is the same.

    Args:
        config: the model, evaluation and training sections.
        start: the policy.
        prompts: pairs of a prompt (messages) and its tools, at least one.
        watch: gets how many prompts are done, and of how many.
        memory: where answers of a server are kept.
    """
    parts, tried, good = min(PARTS, len(prompts)), 0, 0
    with open_policies(config.model, config.eval, memory) as owner:
        policy = owner.policy(start.adapter, start.name, start.sha256)
        for end in (len(prompts) * number // parts for number in range(1, parts + 1)):
            if certain(good, tried, len(prompts), config.train.cold_start_below):
                break
            part = prompts[tried:end]
            owner.watch = partial(_further, watch, tried, len(prompts))
            generated = policy.generate(
                [p for p, _ in part], [t for _, t in part], max_new_tokens=config.eval.max_new_tokens
            )
            good, tried = good + sum(g.well_formed for g in generated), end
    return good, tried


def _further(watch: Watch, before: int, of: int, done: int, _of: int) -> None:
    watch(before + done, of)


def certain(good: int, tried: int, of: int, least: float) -> bool:
    """Return whether the share over all is known to be under `least`, or not to be, whatever the others give."""
    return tried > 0 and (good + of - tried < least * of or good >= least * of)


def own_actions(
    config: Config,
    start: StartPolicy,
    states: Sequence[tuple[Any, Any, dict[str, Any]]],
    memory: Memory | None = None,
) -> list[dict[str, Any] | None]:
    """Return the policy's greedy action after each prompt where its calls are the known good ones, else None.

    Args:
        config: the model and evaluation sections.
        start: the policy.
        states: a prompt (messages), its tools, and the known good action (an assistant message with calls).
        memory: where answers of a server are kept.
    """
    room = config.eval.max_new_tokens
    with open_policies(config.model, config.eval, memory) as owner:
        policy = owner.policy(start.adapter, start.name, start.sha256)
        able = [n for n, fit in enumerate(fits(policy, [Ask(p, t) for p, t, _ in states], room)) if fit]
        generated = policy.generate([states[n][0] for n in able], [states[n][1] for n in able], max_new_tokens=room)
    actions: list[dict[str, Any] | None] = [None] * len(states)
    for n, answer in zip(able, generated, strict=True):
        _, tools, good = states[n]
        calls = answer.message.get("tool_calls") or []
        if answer.well_formed and calls and same_calls(calls, good["tool_calls"], tools):
            actions[n] = answer.message
    return actions
