"""The section on signals, how they combine, and who gets the credit."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from flywheel.config._section import Section

__all__ = ["RewardsConfig"]


class RewardsConfig(Section):
    """Signals and how they combine: R = alpha*success - beta*cost - gamma*risk."""

    signals: list[str] = Field(
        default=[
            "outcome", "tool_error", "loop", "thumbs", "adopted", "user_edit",
            "complaint", "thanks", "rephrase", "escalate", "abandon",
            "cost", "risk",
        ],
        description="Signals to compute: names in the flywheel.rewards group or module:function.",
    )  # fmt: skip
    alpha: float = Field(default=1.0, description="Weight of success (2p - 1).")
    beta: float = Field(
        default=0.1, ge=0, description="Weight of cost; below pairs.min_margin so that it only breaks ties."
    )
    gamma: float = Field(default=1.0, ge=0, description="Weight of risk.")
    shrinkage: float = Field(default=2.0, ge=0, description="Prior strength k of a node's value in the prefix tree.")
    credit: Literal["prefix_tree", "broadcast", "discounted", "gigpo", "process", "error_local"] = Field(
        default="prefix_tree",
        description="Who gets the return, step by step; all but the default are for comparison with other tools.",
    )
    min_support: int = Field(
        default=3, ge=1, description="Attempts through an action from which its exact history is believed."
    )
    stratum: int = Field(
        default=8,
        ge=0,
        description="Attempts of one policy, or with one set of tools and system prompt, from which they are judged "
        "among themselves; 0: never.",
    )
    omega: float = Field(default=1.0, ge=0, description="Weight of a step's credit beside its episode's advantage.")
    discount: float = Field(
        default=1.0, gt=0, le=1, description="What a step's share of the return is multiplied by per step to the end."
    )
    long_discount: float = Field(
        default=0.99, gt=0, le=1, description="The same in episodes of more than ten steps, where it is less."
    )
