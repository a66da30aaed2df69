"""The section on signals, how they combine, and who gets the credit."""

from __future__ import annotations

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
