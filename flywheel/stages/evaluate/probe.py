"""How often a policy makes a well-formed call: what decides between a cold start by SFT and preferences."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flywheel.models.policy import PolicySet

if TYPE_CHECKING:
    from flywheel.config import Config

__all__ = ["well_formed_rate"]


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
