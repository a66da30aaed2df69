"""What is measured beside scores (tokens written, distance from the base): both policies' means, and their ratio.

The ratio's interval is the delta method's over tasks: r ± t · se(e), e = (candidate - r · baseline) / mean(baseline).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from flywheel.extensions import CaseScore
from flywheel.records import MeasureRow
from flywheel.stats.clusters import cluster, paired_t_interval

__all__ = ["measure_rows"]


def measure_rows(candidate: Sequence[CaseScore], baseline: Sequence[CaseScore], suite: str) -> list[MeasureRow]:
    """Return one row for each measure that either policy has, sorted by name, on the cases that both have."""
    ours, theirs = _by_measure(candidate), _by_measure(baseline)
    return [_row(suite, name, ours.get(name, {}), theirs.get(name, {})) for name in sorted(ours.keys() | theirs.keys())]


def _by_measure(scores: Sequence[CaseScore]) -> dict[str, dict[str, CaseScore]]:
    found: dict[str, dict[str, CaseScore]] = {}
    for score in scores:
        if score.unit:
            found.setdefault(score.metric, {})[score.case_id] = score
    return found


def _row(suite: str, name: str, ours: Mapping[str, CaseScore], theirs: Mapping[str, CaseScore]) -> MeasureRow:
    unit = next(s.unit for s in (*ours.values(), *theirs.values()))
    cases = sorted(c for c in ours.keys() & theirs.keys() if math.isfinite(ours[c].score + theirs[c].score))
    if not cases:
        return MeasureRow(suite=suite, measure=name, unit=unit, n=0)
    mine, other = [ours[c].score for c in cases], [theirs[c].score for c in cases]
    value, base = math.fsum(mine) / len(cases), math.fsum(other) / len(cases)
    row = MeasureRow(suite=suite, measure=name, unit=unit, n=len(cases), baseline=base, value=value)
    if base <= 0:
        return row
    ratio = value / base
    apart = [(a - ratio * b) / base for a, b in zip(mine, other, strict=True)]
    low, high = paired_t_interval(cluster(apart, [ours[c].task_id for c in cases])) if len(cases) > 1 else (0.0, 0.0)
    return row.model_copy(update={"ratio": ratio, "low": ratio + low, "high": ratio + high})
