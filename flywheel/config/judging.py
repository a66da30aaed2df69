"""Sections on what a round is judged by, and when it may become champion."""

from __future__ import annotations

from pydantic import Field

from flywheel.config._section import Section

__all__ = ["EvalConfig", "GateConfig"]


class EvalConfig(Section):
    """What a round is judged on."""

    suites: list[str] = Field(
        default=["next_action", "preference"],
        description="Suites: names in the flywheel.evaluators group or module:function. The first is primary.",
    )
    max_cases: int = Field(default=200, ge=1, description="Most cases of a suite; chosen by hash, stable.")
    max_new_tokens: int = Field(default=96, ge=1, description="Longest generated action in tokens.")
    batch_size: int = Field(default=8, ge=1, description="Prompts generated or scored together.")
    seed: int = Field(default=0, ge=0, description="Seed of everything sampled.")


class GateConfig(Section):
    """When a round may become champion."""

    rules: list[str] = Field(
        default=["validity", "superiority", "non_inferior", "no_deterioration"],
        description="Rules, all of which must hold: names in the flywheel.gates group or module:function.",
    )
    alpha: float = Field(default=0.1, gt=0, lt=1, description="Long-run share of false promotions (LORD++).")
    initial_wealth: float = Field(default=0.05, gt=0, lt=1, description="LORD++ starting wealth w0.")
    margin: float = Field(default=0.03, gt=0, lt=1, description="Non-inferiority margin of guardrail metrics.")
    min_cases: int = Field(default=5, ge=1, description="Fewest paired cases on the primary metric.")
