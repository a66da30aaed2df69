"""Two policies' scores → metric rows with intervals, coverage, wins and regressions, and the evaluation report.

Scores are paired by (metric, case). A case that the candidate lacks and the baseline has is a coverage gap: counted by
name, because a candidate could otherwise look better by not answering. Pure.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from flywheel.errors import EvalError
from flywheel.extensions import CaseScore
from flywheel.records import FRESH, CaseGap, EvalReport, MeasureRow, MetricRow
from flywheel.stages.evaluate.rows import Label, Pair, Standing, row, slice_rows
from flywheel.stages.evaluate.slices import gaps
from flywheel.stats.clusters import cluster, paired_t_interval

NAMED = 20  # cases of a gap that are named

Scores = Mapping[str, CaseScore]


class Comparison(NamedTuple):
    """One suite's outcome."""

    metrics: list[MetricRow]
    coverage: dict[str, int]
    wins: list[str]
    regressions: list[str]
    titles: dict[str, str]
    measures: list[MeasureRow]


def compare(  # noqa: PLR0913 - two sides, and how they are compared
    candidate: Sequence[CaseScore],
    baseline: Sequence[CaseScore],
    *,
    suite: str,
    primary: bool = True,
    seed: int = 0,
    known: Collection[str] = (),
    standings: Mapping[str, Standing] | None = None,
) -> Comparison:
    """Compare the candidate's scores with the baseline's.

    Args:
        candidate: its scores, in any order.
        baseline: scores on the same cases.
        suite: name for the rows.
        primary: whether the suite's headline metric decides superiority.
        seed: of the bootstrap.
        known: units that an earlier candidate was looked at on; where there are some, a row of the others is added.
        standings: declared kinds of slices; each has a row of the headline metric, found ones where they have cases.

    Raises:
        EvalError: a case is scored twice, or a score does not fit its metric.
    """
    measures, unmeasured = measure_rows(candidate, baseline, suite), _unmeasured(candidate, suite)
    candidate, baseline = ([s for s in scores if not s.unit] for scores in (candidate, baseline))
    ours, theirs = _by_metric(candidate, suite), _by_metric(baseline, suite)
    names = sorted(ours.keys() | theirs.keys())
    headline = headline_metric(candidate, baseline)
    names.sort(key=lambda m: m != headline)
    rows: list[MetricRow] = []
    heads: list[Pair] = []
    coverage: dict[str, int] = {}
    for metric in names:
        mine, other = ours.get(metric, {}), theirs.get(metric, {})
        pairs = [Pair(mine[case], other[case]) for case in sorted(_scored(mine) & _scored(other))]
        is_primary = primary and metric == headline
        is_binary = all(score.binary for scores in (mine, other) for score in scores.values())
        label = Label(suite, metric, is_binary, is_primary)
        rows.append(row(pairs, label, seed))
        if metric == headline:
            heads = pairs
            fresh = [pair for pair in pairs if pair.candidate.cluster not in known]
            if primary and len(fresh) < len(pairs):
                rows.append(row(fresh, label._replace(slice=FRESH), seed))
            rows += slice_rows(pairs, label, seed, standings if primary else None)
        coverage |= _coverage(mine, other, suite, metric if metric != headline else "")
    binary = [p for p in heads if p.candidate.binary]
    return Comparison(
        metrics=rows,
        coverage=coverage or unmeasured or {f"{suite}: offered": 0, f"{suite}: scored": 0},
        wins=[p.candidate.case_id for p in binary if p.difference > 0],
        regressions=[p.candidate.case_id for p in binary if p.difference < 0],
        titles={p.candidate.case_id: p.candidate.title for p in binary if p.difference and p.candidate.title},
        measures=measures,
    )


def _by_metric(scores: Sequence[CaseScore], suite: str) -> dict[str, dict[str, CaseScore]]:
    by_metric: dict[str, dict[str, CaseScore]] = {}
    for score in scores:
        _check(score, suite)
        cases = by_metric.setdefault(score.metric, {})
        if score.case_id in cases:
            raise EvalError(
                f"suite {suite}: {score.metric} scores case {score.case_id} twice",
                hint="an evaluator gives one score a metric and case",
            )
        cases[score.case_id] = score
    return by_metric


def _check(score: CaseScore, suite: str) -> None:
    if math.isnan(score.score):
        return
    fits = score.score in {0.0, 1.0} if score.binary else 0 <= score.score <= 1
    if not fits:
        kind = "0 or 1" if score.binary else "a number in [0, 1]"
        raise EvalError(
            f"suite {suite}: {score.metric} gives case {score.case_id} the score {score.score}, which is not {kind}",
            hint="set binary=False for scores between 0 and 1",
        )


def headline_metric(candidate: Sequence[CaseScore], baseline: Sequence[CaseScore]) -> str:
    """Return the suite's headline metric: the one marked primary, else the first by name."""
    marked = sorted({s.metric for s in (*candidate, *baseline) if s.primary})
    every = marked or sorted({s.metric for s in (*candidate, *baseline)})
    return every[0] if every else ""


def _scored(scores: Scores) -> set[str]:
    return {case for case, s in scores.items() if not math.isnan(s.score)}


def _coverage(ours: Scores, theirs: Scores, suite: str, metric: str) -> dict[str, int]:
    """Count cases: offered = scored + gap + missing by reason. Of other metrics than the headline only gaps count."""
    have, want = _scored(ours), _scored(theirs)
    gap = len(want - have)
    if metric:
        return {f"{suite}: gap: {metric}": gap} if gap else {}
    offered = ours.keys() | theirs.keys()
    missing = Counter(_reason(case, ours, theirs) for case in offered - want)
    counts = {f"{suite}: offered": len(offered), f"{suite}: scored": len(have & want)}
    counts |= {f"{suite}: gap": gap} if gap else {}
    return counts | {f"{suite}: missing: {reason}": n for reason, n in sorted(missing.items())}


def _unmeasured(scores: Sequence[CaseScore], suite: str) -> dict[str, int]:
    """Count the cases of a suite of measures where some could not be measured; nothing where all could."""
    by_case = {s.case_id: s for s in scores if s.unit}
    return _coverage(by_case, by_case, suite, "") if any(math.isnan(s.score) for s in by_case.values()) else {}


def _reason(case: str, ours: Scores, theirs: Scores) -> str:
    for scores in (theirs, ours):
        if case in scores and math.isnan(scores[case].score):
            return str(scores[case].slices.get("missing", "no reason given"))
    return "not scored for the baseline"


# --- report --------------------------------------------------------------------------------------------------------


def build_report(  # noqa: PLR0913 - one keyword for each thing that identifies an evaluation
    *,
    candidate: Mapping[str, Sequence[CaseScore]],
    baseline: Mapping[str, Sequence[CaseScore]],
    round_number: int,
    baseline_name: str,
    candidate_sha256: str,
    baseline_sha256: str,
    cases_sha256: str,
    trained_tasks: Collection[str],
    known: Collection[str] = (),
    standings: Mapping[str, Standing] | None = None,
    seed: int = 0,
) -> EvalReport:
    """Return the report that compares one round with another.

    Args:
        candidate: scores by suite; the first suite's headline metric is the primary one.
        baseline: scores by the same suites.
        round_number: the candidate's round.
        baseline_name: 'base' or the baseline's round number.
        candidate_sha256: the candidate's adapter.
        baseline_sha256: the baseline's adapter; '' for the base model.
        cases_sha256: identity of the cases and settings.
        trained_tasks: tasks that the candidate, or a round it descends from, was trained on.
        known: units that an earlier candidate was looked at on.
        standings: declared kinds of slices of the primary suite.
        seed: of the bootstrap.
    """
    suites = list(dict.fromkeys([*candidate, *baseline]))
    parts = {
        suite: compare(
            candidate.get(suite, ()),
            baseline.get(suite, ()),
            suite=suite,
            primary=suite == suites[0],
            seed=seed,
            known=known,
            standings=standings,
        )
        for suite in suites
    }
    cases = {
        (suite, score.case_id): score.task_id
        for side in (candidate, baseline)
        for suite, scores in side.items()
        for score in scores
        if not score.unit
    }
    return EvalReport(
        round=round_number,
        baseline=baseline_name,
        candidate_adapter_sha256=candidate_sha256,
        baseline_adapter_sha256=baseline_sha256,
        cases_sha256=cases_sha256,
        n_cases=len(cases),
        n_tasks=len(set(cases.values())),
        leaked_tasks=sum(task in trained_tasks for task in cases.values()),
        metrics=[row for part in parts.values() for row in part.metrics],
        measures=[row for part in parts.values() for row in part.measures],
        coverage={name: count for part in parts.values() for name, count in part.coverage.items()},
        gaps=_gaps(candidate.get(suites[0], ()), baseline.get(suites[0], ())) if suites else [],
        wins=parts[suites[0]].wins if suites else [],
        regressions=parts[suites[0]].regressions if suites else [],
        titles=parts[suites[0]].titles if suites else {},
        seed=seed,
    )


def _gaps(candidate: Sequence[CaseScore], baseline: Sequence[CaseScore]) -> list[CaseGap]:
    """Return the cases of a suite's headline metric that the candidate lacks, over all and by slice, by their ids."""
    candidate, baseline = ([s for s in scores if not s.unit] for scores in (candidate, baseline))
    headline = headline_metric(candidate, baseline)
    have = {s.case_id: s for s in baseline if s.metric == headline and not math.isnan(s.score)}
    ours = {s.case_id for s in candidate if s.metric == headline and not math.isnan(s.score)}
    slices = {
        case: {kind: (values,) if isinstance(values, str) else values for kind, values in score.slices.items()}
        for case, score in have.items()
    }
    lacking = gaps(sorted(have), have.keys() - ours, slices, {})
    return [CaseGap(slice=g.slice, lacking=g.lacking, of=g.of, names=g.names[:NAMED]) for g in lacking]


# --- measures: both means and their ratio, for what is not a score ----------------------------------------------------


def measure_rows(candidate: Sequence[CaseScore], baseline: Sequence[CaseScore], suite: str) -> list[MeasureRow]:
    """Return one row for each measure that either policy has, sorted by name, on the cases that both have."""
    ours, theirs = _by_measure(candidate), _by_measure(baseline)
    return [
        _measure_row(suite, name, ours.get(name, {}), theirs.get(name, {}))
        for name in sorted(ours.keys() | theirs.keys())
    ]


def _by_measure(scores: Sequence[CaseScore]) -> dict[str, dict[str, CaseScore]]:
    by_measure: dict[str, dict[str, CaseScore]] = {}
    for score in scores:
        if score.unit:
            by_measure.setdefault(score.metric, {})[score.case_id] = score
    return by_measure


def _measure_row(suite: str, name: str, ours: Mapping[str, CaseScore], theirs: Mapping[str, CaseScore]) -> MeasureRow:
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
    low, high = paired_t_interval(cluster(apart, [ours[c].cluster for c in cases])) if len(cases) > 1 else (0.0, 0.0)
    return row.model_copy(update={"ratio": ratio, "low": ratio + low, "high": ratio + high})
