"""What off-policy estimates may do to a decision: hold a promotion. They never make one.

In: a decision and the estimates. Out: the same decision, or INCONCLUSIVE with a rule that says why.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from flywheel.records import RuleResult, Verdict

if TYPE_CHECKING:
    from flywheel.records import OffPolicyEstimate
    from flywheel.stages.gate import Decision

__all__ = ["HEADLINE", "vetoed"]

HEADLINE = "DR"


def vetoed(decision: Decision, estimates: Sequence[OffPolicyEstimate], *, log: str = "old log") -> Decision:
    """Return the decision after what the log says against it.

    A promotion is held where the headline estimate of the judged policy, if it is not refused, lies with its whole
    interval below what the policies that acted earned.

    Args:
        decision: the gate's.
        estimates: of the judged policy, and of others, which have no part in it.
        log: what the estimates are from, for the sentence.
    """
    against = [
        e
        for e in estimates
        if e.name == HEADLINE
        and e.target != "baseline"
        and e.high is not None
        and e.earned is not None
        and e.high < e.earned
    ]
    if decision.verdict != Verdict.PROMOTE or not against:
        return decision
    low, high, earned = (x or 0.0 for x in (against[0].low, against[0].high, against[0].earned))
    message = (
        f"The {log} says otherwise: {HEADLINE} expects [{low:.3f}, {high:.3f}] of the new policy "
        f"(n {against[0].n:,}), where {'the old one' if against[0].target == 'new' else 'those that acted'} earned "
        f"{earned:.3f}."
    )
    said = RuleResult(rule="off_policy", passed=False, verdict=Verdict.INCONCLUSIVE, message=message)
    return type(decision)(Verdict.INCONCLUSIVE, [*decision.rules, said])
