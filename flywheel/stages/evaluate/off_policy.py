"""Off-policy estimates from two logs: what the new policy's choices would have earned in what the old one tried.

In: both sides' attempts, case by case. Out: estimates with certificates. The probability of an action is the one that
its log tells (a propensity, or the action's token log-probabilities), else it is counted: a case's attempts say how
often each policy took which action. A case that the old policy tried once, without saying how likely that was, tells
nothing about its probabilities; where those are half of the rows or more, every number is refused. Probabilities are
never multiplied over more than five decisions.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from flywheel.stages.evaluate.attempts import Act, Attempt
from flywheel.stages.evaluate.served import Served
from flywheel.stats.ope import (
    LONGEST,
    Estimate,
    dr_terms,
    estimate,
    ips_terms,
    marginal_weight,
    pdis_terms,
    snips_terms,
)
from flywheel.stats.overlap import REFUSED, Certificate

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

__all__ = ["CLIP", "HEADLINE", "off_policy"]

HEADLINE = "DR"
CLIP = 10.0
_END = Act("end", "end")
LOGGED, COUNTED, UNKNOWN = "logged", "counted", "unknown"
MOST_UNKNOWN = 0.5  # share of rows whose old probability is unknown from which on nothing is estimated
_SHRINK = 1.0  # attempts that the case's mean counts for, and the log's mean in the case's


class _Row(NamedTuple):
    """One judged attempt of the old policy: its first action, weighted."""

    unit: str
    source: str  # where the old policy's probability is from: logged, counted or unknown
    weight: float
    kind_weight: float
    reward: float
    q: float
    v: float
    surprise: float  # of its action to the new policy, in nats


def off_policy(served: Served, *, seed: int = 0) -> list[Estimate]:
    """Return IPS, SNIPS, DM, DR and MIPS on first actions, and PDIS on whole attempts of at most five decisions."""
    import numpy as np

    rows, own = _rows(served)
    if not rows:
        return []
    columns: Sequence[Floats] = [np.array([row[i] for row in rows], dtype=np.float64) for i in range(2, 8)]
    weights, kinds, rewards, q, v, surprise = columns
    units = [row.unit for row in rows]
    typical = float((surprise <= np.quantile(np.array(own), 0.9) + 1e-12).mean())

    sources = Counter(row.source for row in rows)

    def made(name: str, terms: Floats, by: Floats) -> Estimate:
        return _sourced(estimate(name, terms, by, units, typical=typical, seed=seed), sources)

    clipped = np.minimum(weights, CLIP)
    return [
        made("IPS", ips_terms(weights, rewards, clip=CLIP), weights),
        made("SNIPS", snips_terms(clipped, rewards), weights),
        made("DM", v, weights),
        made("DR", dr_terms(clipped, rewards, q, v), weights),
        made("MIPS", ips_terms(kinds, rewards, clip=CLIP), kinds),
        _sourced(_pdis(served, seed), sources),
    ]


def _sourced(found: Estimate, sources: Counter[str]) -> Estimate:
    """Say where the old policy's probabilities are from, and refuse the estimate where they are unknown."""
    certificate = found.certificate
    numbers = certificate.numbers | {name: float(sources[name]) for name in (LOGGED, COUNTED, UNKNOWN)}
    if sources[UNKNOWN] < MOST_UNKNOWN * sources.total():
        return found._replace(certificate=certificate._replace(numbers=numbers))
    reason = (
        f"the old policy's probabilities are unknown for {sources[UNKNOWN]:,} of {sources.total():,} rows: the log "
        "tells no propensity, and it tried their tasks once"
    )
    return Estimate(
        found.name, None, None, None, found.n, Certificate(REFUSED, [reason, *certificate.reasons], numbers)
    )


def _rows(served: Served) -> tuple[list[_Row], list[float]]:
    """Return the old policy's judged attempts, and how surprising the new policy's own actions are to itself."""
    judged = {case: [a for a in both["old"] if a.score is not None] for case, both in served.attempts.items()}
    scores = [a.score or 0.0 for made in judged.values() for a in made]
    overall = math.fsum(scores) / len(scores) if scores else 0.0
    rows: list[_Row] = []
    own: list[float] = []
    for case, made in judged.items():
        new = [_first(a) for a in served.acted[case]["new"]]
        if not made or not new:
            continue
        e, b, kind = _chances(new, [_first(a) for a in made])
        source = _source([_first(a) for a in served.acted[case]["old"]])
        rows += _weighted(made, e, b, kind, _Case(served.units[case], overall, source))
        own += [-math.log(e[act.key]) for act in new]
    return rows, own


class _Case(NamedTuple):
    """What all rows of a case share."""

    unit: str
    overall: float
    source: str


def _first(attempt: Attempt) -> Act:
    return attempt.acts[0] if attempt.acts else _END


def _source(old: Sequence[Act]) -> str:
    """Return where a case's old probabilities are from."""
    if all(act.log_prob is not None for act in old):
        return LOGGED
    return COUNTED if len(old) > 1 else UNKNOWN


def _told(acts: Sequence[Act]) -> dict[str, float]:
    """Return each action's probability as the log tells it; {} unless it tells all of them."""
    found: dict[str, list[float]] = {}
    for act in acts:
        if act.log_prob is None:
            return {}
        found.setdefault(act.key, []).append(math.exp(act.log_prob))
    return {key: math.fsum(told) / len(told) for key, told in found.items()}


def _chances(new: Sequence[Act], old: Sequence[Act]) -> tuple[dict[str, float], dict[str, float], dict[str, str]]:
    """Return e(a), b(a) and each action's kind.

    As logged, else counted: e smoothed by half an attempt spread over every action seen. An action that the new policy
    was not seen to take keeps its counted e, so that no weight is 0.
    """
    taken, logged = Counter(a.key for a in new), Counter(a.key for a in old)
    kind = {a.key: a.kind for a in (*new, *old)}
    extra = 0.5 / len(kind)
    e = {key: (taken[key] + extra) / (len(new) + 0.5) for key in kind}
    told = _told(new)
    if told:
        unseen = [key for key in e if key not in told]
        left = max(0.5 / (len(new) + 0.5), 1 - math.fsum(told.values())) / max(1, len(unseen))
        e = {key: min(e[key], left) for key in unseen} | told
    return e, {key: n / len(old) for key, n in logged.items()} | _told(old), kind


def _weighted(
    made: Sequence[Attempt], e: Mapping[str, float], b: Mapping[str, float], kind: Mapping[str, str], case: _Case
) -> Iterator[_Row]:
    """Yield a case's rows; what an action earns is learnt from the other attempts only."""
    total, sums = math.fsum(a.score or 0.0 for a in made), dict.fromkeys(e, 0.0)
    counts = Counter(_first(attempt).key for attempt in made)
    for attempt in made:
        sums[_first(attempt).key] += attempt.score or 0.0
    for attempt in made:
        key, reward = _first(attempt).key, attempt.score or 0.0
        mean = (total - reward + _SHRINK * case.overall) / (len(made) - 1 + _SHRINK)
        q = {a: (sums[a] - reward * (a == key) + _SHRINK * mean) / (counts[a] - (a == key) + _SHRINK) for a in e}
        v = math.fsum(p * q[a] for a, p in e.items())
        weight = e[key] / b[key]
        kinds = marginal_weight(e, b, kind, key)
        yield _Row(case.unit, case.source, weight, kinds, reward, q[key], v, -math.log(e[key]))


# --- whole attempts ------------------------------------------------------------------------------------------------


def _pdis(served: Served, seed: int) -> Estimate:
    import numpy as np

    ratios, rewards, units = [], [], []
    longest = 0
    for case, both in served.attempts.items():
        if not served.acted[case]["new"]:
            continue
        chance = _by_prefix(served.acted[case]["new"]), _by_prefix(both["old"])
        for attempt in both["old"]:
            path = _path(attempt)
            longest = max(longest, len(path))
            ratios.append([_ratio(chance, path[:t], kind) for t, kind in enumerate(path)])
            rewards.append(attempt.score or 0.0)
            units.append(served.units[case])
    if longest > LONGEST or not ratios:
        reason = (
            f"attempts of up to {longest} decisions, more than {LONGEST}: the product of their weights says nothing"
        )
        return Estimate(
            "PDIS", None, None, None, len(ratios), Certificate(REFUSED, [reason], {"steps": float(longest)})
        )
    weights = np.ones((len(ratios), longest))
    earned = np.zeros((len(ratios), longest))
    for i, row in enumerate(ratios):
        weights[i, : len(row)] = row
        earned[i, len(row) - 1] = rewards[i]
    return estimate("PDIS", pdis_terms(weights, earned), weights.prod(axis=1), units, seed=seed)


def _path(attempt: Attempt) -> tuple[str, ...]:
    return (*(act.kind for act in attempt.acts), _END.kind)


def _by_prefix(attempts: Sequence[Attempt]) -> dict[tuple[str, ...], Counter[str]]:
    found: dict[tuple[str, ...], Counter[str]] = {}
    for attempt in attempts:
        path = _path(attempt)
        for t, kind in enumerate(path):
            found.setdefault(path[:t], Counter())[kind] += 1
    return found


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
