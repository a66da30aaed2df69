"""What logged attempts say that a policy would have earned in them, and whether that may be believed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from flywheel.records.base import Record

__all__ = ["OffPolicyEstimate", "refused_alike"]


class OffPolicyEstimate(Record):
    """One off-policy estimate of what a policy would have earned in the log, with its overlap certificate."""

    name: str = Field(description="IPS, SNIPS, DM, DR, PDIS or MIPS.")
    target: Literal["new", "candidate", "baseline"] = Field(
        default="new", description="Whose value it is: the new policy of two logs; of a round, candidate or baseline."
    )
    state: str = Field(description="good, warn, or REFUSED, in which case there is no number.")
    reasons: list[str] = Field(description="Why it is refused, or what to beware of.")
    value: float | None = None
    low: float | None = Field(default=None, description="Lower end of the 95 % interval, users drawn as a whole.")
    high: float | None = None
    n: int
    earned: float | None = Field(default=None, description="What the policies that acted earned, on the mean.")
    certificate: dict[str, float] = Field(
        description="ess, ess_share, mean_weight, max_share, tail_index, typicality; rows whose probability is logged, "
        "counted, rescored, unknown."
    )


def refused_alike(estimates: Sequence[OffPolicyEstimate]) -> list[tuple[list[str], list[str], str]]:
    """Return (names, targets, why) of estimates without a number, those that are refused for the same reasons together.

    Names and targets are each told once, in order.
    """
    found: dict[str, list[OffPolicyEstimate]] = {}
    for one in estimates:
        if one.value is None:
            found.setdefault("; ".join(one.reasons), []).append(one)
    return [
        (list(dict.fromkeys(e.name for e in made)), list(dict.fromkeys(e.target for e in made)), why)
        for why, made in found.items()
    ]
