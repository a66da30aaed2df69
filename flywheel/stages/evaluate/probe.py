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


def well_formed_rate(config: Config, adapter: Path | None, asked: Sequence[tuple[Any, Any]]) -> float:
    """Return the share of prompts after which the policy's greedy action is a well-formed tool call.

    Args:
        config: the model and evaluation sections.
        adapter: the policy's adapter folder; None for the base model.
        asked: pairs of a prompt (messages) and its tools, at least one.
    """
    policy = PolicySet(config.model, config.eval).policy(adapter, "probe")
    made = policy.generate([p for p, _ in asked], [t for _, t in asked], max_new_tokens=config.eval.max_new_tokens)
    return sum(g.well_formed for g in made) / len(made)


def own_actions(
    config: Config, adapter: Path | None, asked: Sequence[tuple[Any, Any, dict[str, Any]]]
) -> list[dict[str, Any] | None]:
    """Return the policy's greedy action after each prompt where its calls are the known good ones, else None.

    Args:
        config: the model and evaluation sections.
        adapter: the policy's adapter folder; None for the base model.
        asked: a prompt (messages), its tools, and the known good action (an assistant message with calls).
    """
    policy = PolicySet(config.model, config.eval).policy(adapter, "replay")
    room = config.eval.max_new_tokens
    able = [n for n, fit in enumerate(fits(policy, [Ask(p, t) for p, t, _ in asked], room)) if fit]
    made = policy.generate([asked[n][0] for n in able], [asked[n][1] for n in able], max_new_tokens=room)
    found: list[dict[str, Any] | None] = [None] * len(asked)
    for n, one in zip(able, made, strict=True):
        _, tools, good = asked[n]
        calls = one.message.get("tool_calls") or []
        if one.well_formed and calls and same_calls(calls, good["tool_calls"], tools):
            found[n] = one.message
    return found
