"""Off-policy estimates of a policy that can be asked: its own probability of each logged action, not a counted one.

In: attempts with outcomes, each with the log-probability of its actions to the policy that took them and to the target.
Out: estimates with certificates. An action is its exact text, so the same meaning in other words is another action:
MIPS, over the tools and the names of their arguments, is the estimate that forgives that. In a state the target may
also do what was never logged: that earns the state's overall mean.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from flywheel.stages.evaluate.off_policy.estimators import (
    Case,
    Choice,
    Row,
    Sources,
    estimates,
    product_estimate,
    refusals,
    weighted_rows,
)
from flywheel.stats.ope import LONGEST, Estimate

_CAP = 50.0  # nats of a weight's logarithm: beyond, it is refused anyway, and its square must stay finite
_ELSE = ""  # anything that was never logged
_USUAL = 0.9


@dataclass(frozen=True)
class Likely:
    """One attempt with an outcome.

    Attributes:
        episode_id: which one.
        state: what was read before its first action, tools and the sampling temperature included.
        served: the policy that acted; attempts of one share its probabilities.
        action: the first action's exact text; never empty.
        kind: the tools that it calls, and with which arguments.
        unit: what the attempt is resampled with: its user, or its task.
        reward: in [0, 1].
        logged: log-probabilities of its actions to the policy that acted, in nats; at least the first.
        target: the same to the target.
        steps: how many decisions it has.
    """

    episode_id: str
    state: str
    served: str
    action: str
    kind: str
    unit: str
    reward: float
    logged: tuple[float, ...]
    target: tuple[float, ...]
    steps: int


def likely_off_policy(attempts: Sequence[Likely], sources: Sources, *, seed: int = 0) -> list[Estimate]:
    """Return IPS, SNIPS, DM, DR and MIPS on first actions, and PDIS on whole attempts of at most five decisions.

    Args:
        attempts: in any order.
        sources: how many attempts have logged, rescored and unknown probabilities; the unknown ones are not among them.
        seed: of the bootstrap.
    """
    if sources.reason or not attempts:
        return refusals(sources, () if sources.reason else ["no attempt with a known outcome"])
    ordered = sorted(attempts, key=lambda a: a.episode_id)
    overall = math.fsum(a.reward for a in ordered) / len(ordered)
    states: dict[str, list[Likely]] = {}
    for attempt in ordered:
        states.setdefault(attempt.state, []).append(attempt)
    rows = [row for _, alike in sorted(states.items()) for row in _rows(alike, overall)]
    ratios = [[_ratio(t, b) for t, b in zip(a.target, a.logged, strict=True)] for a in ordered]
    longest = max(a.steps for a in ordered)
    if longest > LONGEST:
        ratios = [[1.0] * longest]  # only how long the longest is, which refuses it
    product = product_estimate(ratios, [a.reward for a in ordered], [a.unit for a in ordered], seed)
    product = product._replace(n=len(ordered))
    return estimates(rows, product, sources, typical=_typical(rows), seed=seed)


def _ratio(target: float, logged: float) -> float:
    return math.exp(min(_CAP, target - logged))


def _rows(attempts: Sequence[Likely], overall: float) -> list[Row]:
    e: dict[str, float] = {a.action: math.exp(a.target[0]) for a in attempts}
    e[_ELSE] = max(0.0, 1 - math.fsum(e.values()))
    kinds = _kind_weights(attempts)
    chosen = [Choice(_ratio(a.target[0], a.logged[0]), kinds[a.served, a.kind], -a.target[0]) for a in attempts]
    return list(weighted_rows([(a.action, a.reward, a.unit) for a in attempts], chosen, Case(e, overall)))


def _kind_weights(attempts: Sequence[Likely]) -> Mapping[tuple[str, str], float]:
    """Return e/b of each kind of action, summed over the actions that each policy that acted was seen to take."""
    seen: dict[tuple[str, str], dict[str, Likely]] = {}
    for attempt in attempts:
        seen.setdefault((attempt.served, attempt.kind), {}).setdefault(attempt.action, attempt)
    return {
        key: _ratio(_log_sum([a.target[0] for a in ways.values()]), _log_sum([a.logged[0] for a in ways.values()]))
        for key, ways in seen.items()
    }


def _log_sum(values: Sequence[float]) -> float:
    """Return log(sum exp x), for numbers too small to be written down themselves."""
    most = max(values)
    return most + math.log(math.fsum(math.exp(x - most) for x in values))


def _typical(rows: Sequence[Row]) -> float:
    """Return the share of rows that are no more surprising to the target than nine tenths of its own actions.

    How surprising its own are is estimated from the same rows, weighted to be the target's: nothing is generated.
    """
    total, reached = math.fsum(row.weight for row in rows), 0.0
    for row in sorted(rows, key=lambda row: row.surprise):
        reached += row.weight
        if reached >= _USUAL * total:
            return sum(other.surprise <= row.surprise + 1e-9 for other in rows) / len(rows)
    return 1.0
