"""The section on what blocks a training round: signs that a policy has learned to please the signals."""

from __future__ import annotations

from pydantic import Field

from flywheel.config._section import Section


class MonitorsConfig(Section):
    """When a round is not trained: each monitor compares the newest window of the logs with what came before.

    The thresholds are engineering choices, not published constants.
    """

    policy: str = Field(
        default="", description="Policy whose episodes are the window, all others the reference; '' splits by time."
    )
    window_days: float = Field(default=7.0, gt=0, description="Days before the newest episode that are the window.")
    min_episodes: int = Field(default=30, ge=2, description="Fewest episodes on each side; with fewer: unknown.")
    slope_drop_amber: float = Field(default=0.15, gt=0, description="Drop of the slope of verifier on signals.")
    slope_drop_red: float = Field(default=0.30, gt=0, description="The same; red if it is certain.")
    praise_amber: float = Field(default=0.25, ge=0, description="Share of praise in all that speaks for success.")
    praise_red: float = Field(default=0.40, ge=0, description="The same, red.")
    mix_amber: float = Field(default=0.10, gt=0, description="Stability index (PSI) of the mix of actions.")
    mix_red: float = Field(default=0.25, gt=0, description="The same, red.")
    rate_ratio: float = Field(default=1.5, gt=1, description="Growth of broken calls or of questions that is red.")
    style_margin: float = Field(
        default=0.10, gt=0, description="Relative growth of length, lists, emoji or flattery that is tolerated."
    )
    goodhart_rounds: int = Field(default=3, ge=2, description="Policies, newest first, over which gains are compared.")
    goodhart_gain: float = Field(default=0.02, ge=0, description="Least gain of the signals that is looked into.")
    goodhart_follow: float = Field(
        default=0.3, ge=0, description="Share of the signals' gain that the verifier must show too; less is amber."
    )
    user_share: float = Field(default=0.02, gt=0, lt=0.5, description="Share of users, those who gained most.")
    user_ratio: float = Field(default=5.0, gt=1, description="Their gain over the median user's that is red.")
    min_users: int = Field(default=50, ge=10, description="Fewest users seen in the window; with fewer: unknown.")
    credit_amber: float = Field(
        default=0.20, ge=0, le=1, description="Share of steps whose credit has a like history; below, it is broadcast."
    )
