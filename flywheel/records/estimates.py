"""What a policy would have earned in the logged attempts, and whether the estimate can be trusted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from flywheel.records.base import Record


class OffPolicyEstimate(Record):
    """One off-policy estimate of what a policy would have earned in the log, with its overlap certificate."""

    name: str = Field(description="IPS, SNIPS, DM, DR, PDIS or MIPS.")
    target: Literal["new", "candidate", "baseline"] = Field(
        default="new", description="Whose value it is: the new policy of two logs; of a round, candidate or baseline."
    )
    state: str = Field(description="good, warn, or REFUSED, in which case there is no number.")
    reasons: list[str] = Field(description="Why it is refused, or warnings.")
    value: float | None = None
    low: float | None = Field(default=None, description="Lower end of the 95% interval, resampled by user.")
    high: float | None = None
    n: int
    earned: float | None = Field(default=None, description="Mean reward of the policies that acted.")
    certificate: dict[str, float] = Field(
        description="ess, ess_share, mean_weight, max_share, tail_index, typicality; rows whose probability is logged, "
        "counted, rescored, unknown."
    )


def refused_alike(estimates: Sequence[OffPolicyEstimate]) -> list[tuple[list[str], list[str], str]]:
    """Return (names, targets, why) of estimates without a number, those that are refused for the same reasons together.

    Names and targets are listed once, in order.
    """
    refused: dict[str, list[OffPolicyEstimate]] = {}
    for estimate in estimates:
        if estimate.value is None:
            refused.setdefault("; ".join(estimate.reasons), []).append(estimate)
    return [
        (list(dict.fromkeys(e.name for e in alike)), list(dict.fromkeys(e.target for e in alike)), why)
        for why, alike in refused.items()
    ]
