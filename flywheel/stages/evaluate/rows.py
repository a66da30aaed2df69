"""Paired scores of one metric → a row with interval and p-values; for everything and for each slice.

Binary metrics have Tango's score interval; where tasks have several cases its counts are divided by the design effect
and its quantile is Student's t over tasks. Other metrics have the clustered bootstrap's percentile interval, or a t
interval where tasks are few. P-values take the user or the task, not the case, as the
unit.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from flywheel.extensions import CaseScore
from flywheel.records import MetricRow
from flywheel.stats.clusters import (
    Clusters,
    cluster,
    critical_value,
    design_effect,
    mean_difference,
    sign_flip_better,
)
from flywheel.stats.paired import Interval
from flywheel.stats.tango import tango_interval

Standing = Literal["found", "declared", "unguarded"]

LEAST_SLICE = 5


class Pair(NamedTuple):
    """Both policies' scores on one case."""

    candidate: CaseScore
    baseline: CaseScore

    @property
    def difference(self) -> float:
        """Candidate's score minus the baseline's."""
        return self.candidate.score - self.baseline.score


class Label(NamedTuple):
    """What a row is about."""

    suite: str
    metric: str
    binary: bool
    primary: bool
    slice: str = "all"
    standing: Standing = "found"


def slice_rows(
    pairs: Sequence[Pair], label: Label, seed: int, standings: Mapping[str, Standing] | None = None
) -> Iterator[MetricRow]:
    """Yield a row for each found slice that is large enough to say something and is not everything, and each declared.

    Args:
        pairs: of the headline metric.
        label: of the rows.
        seed: of the bootstrap.
        standings: of declared kinds of slices; they have a row even where they have no case.
    """
    declared = standings or {}
    slices: dict[str, list[Pair]] = {f"{kind}=yes": [] for kind in declared}
    kinds = dict.fromkeys(slices, "")
    for pair in pairs:
        for kind, values in pair.candidate.slices.items():
            for value in (values,) if isinstance(values, str) else values:
                slices.setdefault(f"{kind}={value}", []).append(pair)
                kinds[f"{kind}={value}"] = kind
    for name, members in sorted(slices.items()):
        standing = declared.get(kinds[name] or name.removesuffix("=yes"), "found")
        if standing != "found" or LEAST_SLICE <= len(members) < len(pairs):
            yield row(members, label._replace(slice=name, standing=standing), seed)


def row(pairs: Sequence[Pair], label: Label, seed: int) -> MetricRow:
    """Return one row: means, difference, interval and p-values, tasks as units."""
    named = {"suite": label.suite, "metric": label.metric, "slice": label.slice}
    if not pairs:
        return MetricRow(**named, standing=label.standing, n=0, binary=label.binary, primary=label.primary)
    differences = [p.difference for p in pairs]
    data = cluster(differences, [p.candidate.cluster for p in pairs])
    wins, losses = sum(d > 0 for d in differences), sum(d < 0 for d in differences)
    effect = design_effect(data)
    if label.binary:
        interval, method = _binary_interval(data, wins, losses, effect)
        p_better = sign_flip_better(data)
        p_worse = sign_flip_better(data._replace(sums=[-s for s in data.sums]))
    else:
        difference = mean_difference(data, seed=seed)
        interval = Interval(max(-1.0, difference.interval.low), min(1.0, difference.interval.high))
        method, p_better, p_worse = difference.method, difference.p_better, difference.p_worse
    baseline = math.fsum(p.baseline.score for p in pairs) / len(pairs)
    value = math.fsum(p.candidate.score for p in pairs) / len(pairs)
    return MetricRow(
        **named,
        standing=label.standing,
        n=len(pairs),
        baseline=baseline,
        value=value,
        delta=data.mean,
        low=interval.low,
        high=interval.high,
        method=method,
        wins=wins if label.binary else 0,
        losses=losses if label.binary else 0,
        binary=label.binary,
        primary=label.primary,
        n_tasks=len(data.sums),
        unit="user" if any(p.candidate.drawn_with for p in pairs) else "task",
        design_effect=effect,
        p_better=p_better,
        p_worse=p_worse,
    )


def _binary_interval(data: Clusters, wins: int, losses: int, effect: float) -> tuple[Interval, str]:
    quantile = critical_value(data, 0.975)
    interval = tango_interval(wins / effect, losses / effect, data.n / effect, quantile=quantile)
    if not data.clustered:
        return interval, "Tango"
    return interval, f"Tango, {len(data.sums)} tasks, design effect {effect:.1f}"
