"""Weighted attempts → off-policy estimates: what a comparison of logs and the evaluation of a round have in common.

In: a row an attempt, with the weight of its first action; ratios of whole attempts. Out: IPS, SNIPS, DM, DR, MIPS and
PDIS, each with its overlap certificate, or refused. Probabilities are never multiplied over more than five decisions.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from flywheel.records import OffPolicyEstimate
from flywheel.stats.ope import LONGEST, Estimate, dr_terms, estimate, ips_terms, pdis_terms, snips_terms
from flywheel.stats.overlap import REFUSED, Certificate

if TYPE_CHECKING:
    Floats = npt.NDArray[np.float64]

CLIP = 10.0
NAMES = ("IPS", "SNIPS", "DM", "DR", "MIPS", "PDIS")
MOST_UNKNOWN = 0.5  # share of rows whose logged probability is unknown from which on nothing is estimated
_SHRINK = 1.0  # attempts that the case's mean counts for, and the log's mean in the case's


class Sources(NamedTuple):
    """Where the probabilities of the policy that acted are from."""

    counts: Mapping[str, int]  # logged, counted, rescored or unknown → rows
    why: str  # a sentence on unknown ones, with {} for how many of how many

    @property
    def reason(self) -> str:
        """Why nothing is estimated; '' where enough is known."""
        unknown, total = self.counts.get("unknown", 0), sum(self.counts.values())
        return self.why.format(f"{unknown:,} of {total:,} rows") if unknown >= MOST_UNKNOWN * total else ""


class Choice(NamedTuple):
    """An action that was taken."""

    weight: float  # e(a|s) / b(a|s)
    kind_weight: float  # the same of its kind
    surprise: float  # of the action to the target policy, in nats


class Row(NamedTuple):
    """One attempt with an outcome: its first action, weighted."""

    unit: str
    weight: float
    kind_weight: float
    reward: float
    q: float
    v: float
    surprise: float


class Case(NamedTuple):
    """What all attempts in a state share."""

    target: Mapping[str, float]  # e(a|s) of every action that was seen, and of any other under a name of its own
    overall: float  # mean reward of the log


def weighted_rows(taken: Sequence[tuple[str, float, str]], chosen: Sequence[Choice], case: Case) -> Iterator[Row]:
    """Yield a state's rows; what an action earns is learnt from the other attempts only.

    Args:
        taken: each attempt's first action, its reward and the unit that it is resampled with.
        chosen: its weights.
        case: the state.
    """
    e = case.target
    total, sums = math.fsum(reward for _, reward, _ in taken), dict.fromkeys(e, 0.0)
    counts = Counter(key for key, _, _ in taken)
    for key, reward, _ in taken:
        sums[key] += reward
    for (key, reward, unit), choice in zip(taken, chosen, strict=True):
        mean = (total - reward + _SHRINK * case.overall) / (len(taken) - 1 + _SHRINK)
        q = {a: (sums[a] - reward * (a == key) + _SHRINK * mean) / (counts[a] - (a == key) + _SHRINK) for a in e}
        v = math.fsum(p * q[a] for a, p in e.items())
        yield Row(unit, choice.weight, choice.kind_weight, reward, q[key], v, choice.surprise)


def estimates(
    rows: Sequence[Row], product: Estimate, sources: Sources, *, typical: float, seed: int = 0
) -> list[Estimate]:
    """Return IPS, SNIPS, DM, DR and MIPS on first actions, and with them what whole attempts say.

    Args:
        rows: at least one.
        product: the estimate of whole attempts (`product_estimate`).
        sources: where the logged probabilities are from; too many unknown ones refuse everything.
        typical: share of the rows that the target policy could have made.
        seed: of the bootstrap.
    """
    columns: Sequence[Floats] = [np.array([row[i] for row in rows], dtype=np.float64) for i in range(1, 6)]
    weights, kinds, rewards, q, v = columns
    units, clipped = [row.unit for row in rows], np.minimum(weights, CLIP)
    terms = {
        "IPS": (ips_terms(weights, rewards, clip=CLIP), weights),
        "SNIPS": (snips_terms(clipped, rewards), weights),
        "DM": (v, weights),
        "DR": (dr_terms(clipped, rewards, q, v), weights),
        "MIPS": (ips_terms(kinds, rewards, clip=CLIP), kinds),
    }
    on_first_actions = [estimate(name, of, by, units, typical=typical, seed=seed) for name, (of, by) in terms.items()]
    return [_sourced(raw, sources) for raw in (*on_first_actions, product)]


def refusals(sources: Sources, reasons: Sequence[str] = ()) -> list[Estimate]:
    """Return the result where nothing can be estimated: every name, REFUSED, with the reasons and no number."""
    total = sum(sources.counts.values())
    why = [*([sources.reason] if sources.reason else []), *reasons]
    numbers = {name: float(n) for name, n in sources.counts.items()}
    return [Estimate(name, None, None, None, total, Certificate(REFUSED, why, numbers)) for name in NAMES]


def _sourced(raw: Estimate, sources: Sources) -> Estimate:
    """Add where the logged probabilities are from, and refuse the estimate where they are unknown."""
    certificate = raw.certificate
    numbers = certificate.numbers | {name: float(n) for name, n in sources.counts.items()}
    if not sources.reason:
        return raw._replace(certificate=certificate._replace(numbers=numbers))
    reasons = [sources.reason, *certificate.reasons]
    return Estimate(raw.name, None, None, None, raw.n, Certificate(REFUSED, reasons, numbers))


def product_estimate(
    ratios: Sequence[Sequence[float]], rewards: Sequence[float], units: Sequence[str], seed: int
) -> Estimate:
    """Return PDIS of whole attempts, whose reward comes at their end; refused where one has more than five decisions.

    Args:
        ratios: e(a|s) / b(a|s) of each decision of each attempt.
        rewards: one an attempt.
        units: what each is resampled with.
        seed: of the bootstrap.
    """
    longest = max(map(len, ratios), default=0)
    if longest > LONGEST or not ratios:
        reason = f"attempts of up to {longest} decisions, more than {LONGEST}: the product of weights proves nothing"
        return Estimate(
            "PDIS", None, None, None, len(ratios), Certificate(REFUSED, [reason], {"steps": float(longest)})
        )
    weights = np.ones((len(ratios), longest))
    earned = np.zeros((len(ratios), longest))
    for i, row in enumerate(ratios):
        weights[i, : len(row)] = row
        earned[i, len(row) - 1] = rewards[i]
    return estimate("PDIS", pdis_terms(weights, earned), weights.prod(axis=1), units, seed=seed)


def as_record(
    estimate: Estimate, target: Literal["new", "candidate", "baseline"], earned: float | None = None
) -> OffPolicyEstimate:
    """Return an estimate as reports have it.

    Args:
        estimate: as computed.
        target: whose value it is.
        earned: mean reward of the rows that it rests on.
    """
    return OffPolicyEstimate(
        name=estimate.name,
        target=target,
        state=estimate.certificate.state,
        reasons=estimate.certificate.reasons,
        value=estimate.value,
        low=estimate.low,
        high=estimate.high,
        n=estimate.n,
        earned=earned,
        certificate=estimate.certificate.numbers,
    )
