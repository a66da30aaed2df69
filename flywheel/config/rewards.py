"""The section on signals, how they combine, and who gets the credit."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from flywheel.config._section import Section


def _two_ends(ends: tuple[float, float]) -> tuple[float, float]:
    if ends[0] == ends[1]:
        raise ValueError("the worst and the best value are equal")
    return ends


ScoreNames = dict[str, Annotated[tuple[float, float], AfterValidator(_two_ends)]]


class JudgeConfig(Section):
    """The optional signal `judge`: a model behind an OpenAI-compatible endpoint, weighted by its reliability."""

    url: str = Field(default="", description="Base URL of the endpoint, as in http://localhost:8000/v1; '' for none.")
    model: str = Field(default="", description="Model to ask.")
    key_env: str = Field(default="", description="Environment variable with the endpoint's key; '' for none.")
    timeout_s: float = Field(default=60.0, gt=0, description="Seconds to wait for one verdict.")
    max_chars: int = Field(default=24_000, ge=1_000, description="Characters of a conversation that the judge reads.")


class RulesConfig(Section):
    """The hand-set reward, used where rewards.scheme is "rules": a sum of these, one scale for all tasks."""

    success: float = Field(default=5.0, description="The episode more likely succeeded than not.")
    failure: float = Field(default=0.0, description="It more likely failed.")
    step: float = Field(default=-0.1, description="Each model action.")
    tool_error: float = Field(default=-0.3, description="Each tool call that failed.")
    adopted: float = Field(default=0.5, description="The user took or kept the output.")
    risk: float = Field(default=-10.0, description="Times the highest severity of a risk.")


class RewardsConfig(Section):
    """Signals and how they combine: R = alpha*success - beta*cost - gamma*risk."""

    signals: list[str] = Field(
        default=[
            "outcome", "claim", "tool_error", "recovery", "loop", "agreement", "effort",
            "thumbs", "adopted", "user_edit", "undo", "complaint", "thanks",
            "correction", "rephrase", "retry", "escalate", "abandon",
            "cost", "latency", "questions",
            "risk", "unconfirmed", "tainted", "injection", "leak",
        ],
        description="Signals to compute: names in the flywheel.rewards group or module:function.",
    )  # fmt: skip
    score_names: ScoreNames = Field(
        default={},
        description="Feedback and outcomes by name: their worst and best value, as in stars_10 = [1, 10] or "
        "had_error = [1, 0]. Names are compared in lower case with words joined by _.",
    )
    success_at: dict[str, float] = Field(
        default={},
        description="Outcomes by name: the value from which on a graded one is a success, below a failure, as in "
        "reward = 0.8; without it a score between worst and best is compared as a mean.",
    )
    judge: JudgeConfig = JudgeConfig()
    scheme: Literal["signals", "rules"] = Field(
        default="signals",
        description="'signals': R from P(success), cost and risk; 'rules': the sum of [rewards.rules].",
    )
    fit: Literal["gold", "always", "never"] = Field(
        default="gold",
        description="Learn each signal's reliability where enough outcomes are known (gold: audits, verifiers), where "
        "three families of signals overlap too (always), or never; else the priors hold.",
    )
    scope: Literal["all", "month", "policy"] = Field(
        default="month", description="Within what reliabilities may differ, shrunk towards those of the whole log."
    )
    min_maturity: float = Field(
        default=0.8,
        ge=0,
        le=1,
        description="Share of late evidence that must have had time to come before an episode is learned from.",
    )
    alpha: float = Field(default=1.0, description="Weight of success (2p - 1).")
    beta: float = Field(
        default=0.1, ge=0, description="Weight of cost; below pairs.min_margin so that it only breaks ties."
    )
    gamma: float = Field(default=1.0, ge=0, description="Weight of risk.")
    kappa: float = Field(default=0.05, ge=0, description="Price in R of a question beyond the task's 75th percentile.")
    shrinkage: float = Field(default=2.0, ge=0, description="Prior strength k of a node's value in the prefix tree.")
    credit: Literal["values", "prefix_tree", "broadcast", "discounted", "gigpo", "process", "error_local"] = Field(
        default="values",
        description="Who gets the return, step by step; all but the default are for comparison with other tools.",
    )
    min_support: int = Field(
        default=3, ge=1, description="Attempts through an action from which its exact history is used."
    )
    stratum: int = Field(
        default=8,
        ge=0,
        description="Attempts of one policy, or with one set of tools and system prompt, from which they are compared "
        "among themselves only; 0: never.",
    )
    omega: float = Field(default=1.0, ge=0, description="Weight of a step's credit next to its episode's advantage.")
    discount: float = Field(
        default=1.0,
        gt=0,
        le=1,
        description="What a step's share of the return is multiplied by per step to the end; .99 at most where "
        "these are more than ten.",
    )
    rules: RulesConfig = RulesConfig()
