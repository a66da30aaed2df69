"""Off-policy estimates from two logs: what the new policy's choices would have earned in what the old one tried.

In: both sides' attempts, case by case. Out: estimates with certificates. The probability of an action is the logged one
(a propensity, or the action's token log-probabilities), else it is counted: how often each policy took which action in
a case's attempts. A case that the old policy tried once, without a logged probability, gives none; where those are half
of the rows or more, every number is refused. Probabilities are never multiplied over more than five decisions.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np

from flywheel.stages.evaluate.attempt import Act, Attempt
from flywheel.stages.evaluate.logs.score import Served
from flywheel.stages.evaluate.off_policy.estimators import (
    Case,
    Choice,
    Row,
    Sources,
    estimates,
    product_estimate,
    weighted_rows,
)
from flywheel.stats.ope import Estimate, marginal_weight

_END = Act("end", "end")
LOGGED, COUNTED, UNKNOWN = "logged", "counted", "unknown"
_UNKNOWN_WHY = "the log has no propensity, and it tried their tasks once"


def off_policy(served: Served, *, seed: int = 0) -> list[Estimate]:
    """Return IPS, SNIPS, DM, DR and MIPS on first actions, and PDIS on whole attempts of at most five decisions."""
    rows, own, sources = _rows(served)
    if not rows:
        return []
    usual = np.quantile(np.array(own), 0.9) + 1e-12
    typical = sum(row.surprise <= usual for row in rows) / len(rows)
    known = Sources(
        {name: sources[name] for name in (LOGGED, COUNTED, UNKNOWN)},
        f"the old policy's probabilities are unknown for {{}}: {_UNKNOWN_WHY}",
    )
    return estimates(rows, _pdis(served, seed), known, typical=typical, seed=seed)


def _rows(served: Served) -> tuple[list[Row], list[float], Counter[str]]:
    """Return the old policy's attempts with outcomes, how surprising the new policy's own actions are, and sources.

    Sources count for how many rows the old policy's probability is logged, counted or unknown.
    """
    labelled = {case: [a for a in both["old"] if a.score is not None] for case, both in served.attempts.items()}
    scores = [a.score or 0.0 for old in labelled.values() for a in old]
    overall = math.fsum(scores) / len(scores) if scores else 0.0
    rows: list[Row] = []
    own: list[float] = []
    sources: Counter[str] = Counter()
    for case, old in labelled.items():
        new = [_first(a) for a in served.acted[case]["new"]]
        if not old or not new:
            continue
        e, b, kind = _chances(new, [_first(a) for a in old])
        sources[_source([_first(a) for a in served.acted[case]["old"]])] += len(old)
        keys = [_first(attempt).key for attempt in old]
        chosen = [Choice(e[key] / b[key], marginal_weight(e, b, kind, key), -math.log(e[key])) for key in keys]
        taken = [(key, attempt.score or 0.0, served.units[case]) for key, attempt in zip(keys, old, strict=True)]
        rows += weighted_rows(taken, chosen, Case(e, overall))
        own += [-math.log(e[act.key]) for act in new]
    return rows, own, sources


def _first(attempt: Attempt) -> Act:
    return attempt.acts[0] if attempt.acts else _END


def _source(old: Sequence[Act]) -> str:
    """Return where a case's old probabilities are from."""
    if all(act.log_prob is not None for act in old):
        return LOGGED
    return COUNTED if len(old) > 1 else UNKNOWN


def _logged(acts: Sequence[Act]) -> dict[str, float]:
    """Return each action's logged probability; {} unless all of them are logged."""
    chances: dict[str, list[float]] = {}
    for act in acts:
        if act.log_prob is None:
            return {}
        chances.setdefault(act.key, []).append(math.exp(act.log_prob))
    return {key: math.fsum(values) / len(values) for key, values in chances.items()}


def _chances(new: Sequence[Act], old: Sequence[Act]) -> tuple[dict[str, float], dict[str, float], dict[str, str]]:
    """Return e(a), b(a) and each action's kind.

    As logged, else counted: e smoothed by half an attempt spread over every action seen. An action that the new policy
    was not seen to take keeps its counted e, so that no weight is 0.
    """
    taken, tried = Counter(a.key for a in new), Counter(a.key for a in old)
    kind = {a.key: a.kind for a in (*new, *old)}
    extra = 0.5 / len(kind)
    e = {key: (taken[key] + extra) / (len(new) + 0.5) for key in kind}
    logged = _logged(new)
    if logged:
        unseen = [key for key in e if key not in logged]
        left = max(0.5 / (len(new) + 0.5), 1 - math.fsum(logged.values())) / max(1, len(unseen))
        e = {key: min(e[key], left) for key in unseen} | logged
    return e, {key: n / len(old) for key, n in tried.items()} | _logged(old), kind


# --- whole attempts ------------------------------------------------------------------------------------------------


def _pdis(served: Served, seed: int) -> Estimate:
    ratios, rewards, units = [], [], []
    for case, both in served.attempts.items():
        if not served.acted[case]["new"]:
            continue
        chance = _by_prefix(served.acted[case]["new"]), _by_prefix(both["old"])
        for attempt in both["old"]:
            path = _path(attempt)
            ratios.append([_ratio(chance, path[:t], kind) for t, kind in enumerate(path)])
            rewards.append(attempt.score or 0.0)
            units.append(served.units[case])
    return product_estimate(ratios, rewards, units, seed)


def _path(attempt: Attempt) -> tuple[str, ...]:
    return (*(act.kind for act in attempt.acts), _END.kind)


def _by_prefix(attempts: Sequence[Attempt]) -> dict[tuple[str, ...], Counter[str]]:
    counts: dict[tuple[str, ...], Counter[str]] = {}
    for attempt in attempts:
        path = _path(attempt)
        for t, kind in enumerate(path):
            counts.setdefault(path[:t], Counter())[kind] += 1
    return counts


def _ratio(
    chance: tuple[dict[tuple[str, ...], Counter[str]], dict[tuple[str, ...], Counter[str]]],
    before: tuple[str, ...],
    kind: str,
) -> float:
    """Return e/b of an action; 1 where the new policy never came, which the ratios before have accounted for."""
    new, old = chance[0].get(before), chance[1][before]
    if new is None:
        return 1.0
    seen = new.keys() | old.keys()
    e = (new[kind] + 0.5 / len(seen)) / (new.total() + 0.5)
    return e / (old[kind] / old.total())
