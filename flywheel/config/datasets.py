"""Sections on what is trained on: preference pairs, groups of attempts, the replay environment."""

from __future__ import annotations

from pydantic import Field

from flywheel.config._section import Section


class PairsConfig(Section):
    """How preference pairs are mined and filtered."""

    builders: list[str] = Field(
        default=["user_edit", "retry_fixed", "sibling", "first_divergence", "efficiency", "rephrase"],
        description="Builders in order of preference: names in the flywheel.pairs group or module:function.",
    )
    min_margin: float = Field(default=0.15, gt=0, description="Least difference of returns that is expected.")
    min_p_better: float = Field(default=0.8, ge=0.5, le=1, description="Least probability that chosen is better.")
    max_per_state: int = Field(default=4, ge=1, description="Most pairs from one anchor state.")
    max_per_task: int = Field(default=8, ge=1, description="Most pairs from one task.")
    max_per_user: int = Field(default=4, ge=1, description="Most pairs of one task that rest on one user.")
    max_cheaper: int = Field(default=1, ge=0, description="Most pairs of one task that only say which way is cheaper.")
    min_users: int = Field(
        default=2,
        ge=1,
        description="Fewest users whose attempts favour a direction; without users in the log, attempts.",
    )
    min_lead: int = Field(
        default=2, ge=1, description="Users for a direction minus users against it; with 2, no single user decides."
    )
    max_risk: float = Field(default=0.8, gt=0, le=1, description="Risk from which an episode is never the chosen side.")
    backoff: bool = Field(default=False, description="Compare calls in rough states where exact ones are met by few.")


class GroupsConfig(Section):
    """How logged attempts are grouped."""

    min_size: int = Field(default=2, ge=2, description="Fewest attempts in a group.")
    max_size: int = Field(default=16, ge=2, description="Most attempts in a group.")
    min_range: float = Field(default=0.05, ge=0, description="Groups whose returns differ by less carry no signal.")
    by_policy: bool = Field(default=False, description="Whether members must share their policy, too.")
    max_per_user: int = Field(default=2, ge=1, description="Most members of a group that are one user's.")
    min_users: int = Field(
        default=2, ge=1, description="Distinct users behind a group; where the log names none, every attempt is one."
    )
    shift: float = Field(
        default=0.1, ge=0, description="Added to advantages off policy: the baseline lowered by so much (AsymRE)."
    )


class ReplayConfig(Section):
    """How the environment that replays the log is built, and what it answers."""

    reads: list[str] = Field(
        default=[], description="Tools that only look something up, where their names do not say so: `sql`, say."
    )
    acts: list[str] = Field(default=[], description="Tools that change something although their names do not say so.")
    min_agreement: float = Field(
        default=0.5,
        gt=0,
        le=1,
        description="Share of the attempts that made a call in the same world which must have got the same result.",
    )
    min_alike: float = Field(
        default=0.8, gt=0, le=1, description="Share of words in common from which two answers are the same answer."
    )
    max_calls: int = Field(default=30, ge=1, description="Most calls of one attempt in the environment.")
