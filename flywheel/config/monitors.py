"""The section on what blocks a training round: signs that a policy has learned to please the signals."""

from __future__ import annotations

from pydantic import Field

from flywheel.config._section import Section


class MonitorsConfig(Section):
    """When a round is not trained: each monitor compares the newest window of the logs with what came before."""

    policy: str = Field(
        default="", description="Policy whose episodes alone are the window; '': the champion's, and the last days."
    )
    window_days: float = Field(
        default=7.0, gt=0, description="Length of the window: the newest such days that hold enough episodes."
    )
    min_episodes: int = Field(default=30, ge=2, description="Fewest episodes on each side; with fewer: unknown.")
    min_users: int = Field(default=50, ge=10, description="Fewest users seen in the window; with fewer: unknown.")
