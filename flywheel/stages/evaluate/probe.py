"""What a start policy does before it is trained: how often its calls are well-formed, and where it acts well already.

The first decides between a cold start by SFT and preferences, the second what a round replays.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flywheel.models.policy import PolicySet
from flywheel.stages.evaluate.checks.calls import same_calls
from flywheel.stages.evaluate.window import Ask, fits

if TYPE_CHECKING:
    from flywheel.config import Config


def well_formed_rate(config: Config, adapter: Path | None, prompts: Sequence[tuple[Any, Any]]) -> float:
    """Return the share of prompts after which the policy's greedy action is a well-formed tool call.

    Args:
        config: the model and evaluation sections.
        adapter: the policy's adapter folder; None for the base model.
        prompts: pairs of a prompt (messages) and its tools, at least one.
    """
    policy = PolicySet(config.model, config.eval).policy(adapter, "probe")
    generated = policy.generate(
        [p for p, _ in prompts], [t for _, t in prompts], max_new_tokens=config.eval.max_new_tokens
    )
    return sum(g.well_formed for g in generated) / len(generated)


def own_actions(
    config: Config, adapter: Path | None, states: Sequence[tuple[Any, Any, dict[str, Any]]]
) -> list[dict[str, Any] | None]:
    """Return the policy's greedy action after each prompt where its calls are the known good ones, else None.

    Args:
        config: the model and evaluation sections.
        adapter: the policy's adapter folder; None for the base model.
        states: a prompt (messages), its tools, and the known good action (an assistant message with calls).
    """
    policy = PolicySet(config.model, config.eval).policy(adapter, "replay")
    room = config.eval.max_new_tokens
    able = [n for n, fit in enumerate(fits(policy, [Ask(p, t) for p, t, _ in states], room)) if fit]
    generated = policy.generate([states[n][0] for n in able], [states[n][1] for n in able], max_new_tokens=room)
    actions: list[dict[str, Any] | None] = [None] * len(states)
    for n, answer in zip(able, generated, strict=True):
        _, tools, good = states[n]
        calls = answer.message.get("tool_calls") or []
        if answer.well_formed and calls and same_calls(calls, good["tool_calls"], tools):
            actions[n] = answer.message
    return actions
