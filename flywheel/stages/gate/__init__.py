"""The gate: an evaluation report in, a verdict with its numbers out. Pure; it moves nothing.

    BLOCKED       the comparison itself cannot be trusted (leaked tasks, a changed file, missing cases)
    REJECT        the candidate is surely worse somewhere
    PROMOTE       every rule holds
    INCONCLUSIVE  anything else, with the number of cases still needed: the honest and common answer

Rules are names in the flywheel.gates group. Each judges alone and says what it would do; the gravest word wins.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flywheel.records import RuleResult, Verdict
from flywheel.stages.gate.guardrails import no_deterioration, non_inferior
from flywheel.stages.gate.slices import slices
from flywheel.stages.gate.superiority import superiority
from flywheel.stages.gate.validity import validity

if TYPE_CHECKING:
    from flywheel.config import GateConfig
    from flywheel.extensions import GateInput, GateRule

__all__ = ["Decision", "decide", "no_deterioration", "non_inferior", "slices", "superiority", "validity"]

_GRAVEST_FIRST = (Verdict.BLOCKED, Verdict.REJECT, Verdict.INCONCLUSIVE, Verdict.PROMOTE)


@dataclass(frozen=True)
class Decision:
    """What the gate says, and each rule's part in it."""

    verdict: Verdict
    rules: list[RuleResult]


def decide(given: GateInput, rules: Mapping[str, GateRule], cfg: GateConfig) -> Decision:
    """Apply every rule and return the gravest verdict; without rules nothing is ever promoted."""
    results = [rule(given, cfg) for rule in rules.values()]
    implied = {_implied(result) for result in results} or {Verdict.INCONCLUSIVE}
    return Decision(next(v for v in _GRAVEST_FIRST if v in implied), results)


def _implied(result: RuleResult) -> Verdict:
    """Return a rule's verdict; a rule that did not pass never promotes, whatever it says."""
    if not result.passed and result.verdict == Verdict.PROMOTE:
        return Verdict.INCONCLUSIVE
    return result.verdict
