"""Two policies' scores → metric rows with intervals, coverage, wins and regressions, and the evaluation report.

Scores are paired by (metric, case). A case that the candidate lacks and the baseline has is a coverage gap: counted by
name, because a candidate could otherwise look better by not answering. Pure.

Binary metrics have Tango's score interval; where tasks have several cases its counts are divided by the design effect
and its quantile is Student's t over tasks. Other metrics have the clustered bootstrap's percentile interval, or a t
interval where tasks are few. P-values take the task, not the case, as the unit.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from flywheel.errors import EvalError
from flywheel.extensions import CaseScore
from flywheel.records import EvalReport, MetricRow
from flywheel.stats.clusters import (
    Clusters,
    bootstrap_better,
    bootstrap_interval,
    cluster,
    critical_value,
    design_effect,
    paired_t_interval,
    sign_flip_better,
)
from flywheel.stats.paired import Interval
from flywheel.stats.tango import tango_interval

__all__ = ["Comparison", "build_report", "compare"]

LEAST_SLICE = 5
LEAST_TASKS = 20  # a bootstrap over fewer is too sure of itself; Student's t is not

Scores = Mapping[str, CaseScore]


class Comparison(NamedTuple):
    """One suite's outcome."""

    metrics: list[MetricRow]
    coverage: dict[str, int]
    wins: list[str]
    regressions: list[str]


class _Pair(NamedTuple):
    """Both policies' scores on one case."""

    candidate: CaseScore
    baseline: CaseScore

    @property
    def difference(self) -> float:
        return self.candidate.score - self.baseline.score


def compare(
    candidate: Sequence[CaseScore], baseline: Sequence[CaseScore], *, suite: str, primary: bool = True, seed: int = 0
) -> Comparison:
    """Set the candidate's scores beside the baseline's.

    Args:
        candidate: its scores, in any order.
        baseline: scores on the same cases.
        suite: name for the rows.
        primary: whether the suite's headline metric decides superiority.
        seed: of the bootstrap.

    Raises:
        EvalError: a case is scored twice, or a score does not fit its metric.
    """
    ours, theirs = _by_metric(candidate, suite), _by_metric(baseline, suite)
    names = sorted(ours.keys() | theirs.keys())
    headline = _headline(candidate, baseline)
    names.sort(key=lambda m: m != headline)
    rows: list[MetricRow] = []
    coverage: dict[str, int] = {}
    for metric in names:
        mine, other = ours.get(metric, {}), theirs.get(metric, {})
        pairs = _pairs(mine, other)
        is_primary = primary and metric == headline
        label = _Label(suite, metric, _is_binary(mine, other), is_primary)
        rows.append(_row(pairs, label, seed))
        if metric == headline:
            rows += _slice_rows(pairs, label, seed)
        coverage |= _coverage(mine, other, suite, metric if metric != headline else "")
    heads = _pairs(ours.get(headline, {}), theirs.get(headline, {}))
    binary = [p for p in heads if p.candidate.binary]
    return Comparison(
        metrics=rows,
        coverage=coverage or {f"{suite}: offered": 0, f"{suite}: scored": 0},
        wins=[p.candidate.case_id for p in binary if p.difference > 0],
        regressions=[p.candidate.case_id for p in binary if p.difference < 0],
    )


def _by_metric(scores: Sequence[CaseScore], suite: str) -> dict[str, dict[str, CaseScore]]:
    found: dict[str, dict[str, CaseScore]] = {}
    for score in scores:
        _check(score, suite)
        cases = found.setdefault(score.metric, {})
        if score.case_id in cases:
            raise EvalError(
                f"suite {suite}: {score.metric} scores case {score.case_id} twice",
                hint="an evaluator gives one score a metric and case",
            )
        cases[score.case_id] = score
    return found


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


def _headline(candidate: Sequence[CaseScore], baseline: Sequence[CaseScore]) -> str:
    """Return the suite's headline metric: the one marked primary, else the first by name."""
    marked = sorted({s.metric for s in (*candidate, *baseline) if s.primary})
    every = marked or sorted({s.metric for s in (*candidate, *baseline)})
    return every[0] if every else ""


def _is_binary(ours: Scores, theirs: Scores) -> bool:
    return all(s.binary for scores in (ours, theirs) for s in scores.values())


def _scored(scores: Scores) -> set[str]:
    return {case for case, s in scores.items() if not math.isnan(s.score)}


def _pairs(ours: Scores, theirs: Scores) -> list[_Pair]:
    return [_Pair(ours[case], theirs[case]) for case in sorted(_scored(ours) & _scored(theirs))]


def _coverage(ours: Scores, theirs: Scores, suite: str, metric: str) -> dict[str, int]:
    """Count cases: offered = scored + gap + missing by reason. Of metrics beside the headline only gaps are counted."""
    have, want = _scored(ours), _scored(theirs)
    gap = len(want - have)
    if metric:
        return {f"{suite}: gap: {metric}": gap} if gap else {}
    offered = ours.keys() | theirs.keys()
    missing = Counter(_reason(case, ours, theirs) for case in offered - want)
    counts = {f"{suite}: offered": len(offered), f"{suite}: scored": len(have & want)}
    counts |= {f"{suite}: gap": gap} if gap else {}
    return counts | {f"{suite}: missing: {reason}": n for reason, n in sorted(missing.items())}


def _reason(case: str, ours: Scores, theirs: Scores) -> str:
    for scores in (theirs, ours):
        if case in scores and math.isnan(scores[case].score):
            return str(scores[case].slices.get("missing", "no reason given"))
    return "not scored for the baseline"


# --- rows ----------------------------------------------------------------------------------------------------------


class _Label(NamedTuple):
    """What a row is about."""

    suite: str
    metric: str
    binary: bool
    primary: bool
    slice: str = "all"


def _slice_rows(pairs: Sequence[_Pair], label: _Label, seed: int) -> Iterator[MetricRow]:
    """Yield a row for each slice that is large enough to say something and is not everything."""
    slices: dict[str, list[_Pair]] = {}
    for pair in pairs:
        for name, values in pair.candidate.slices.items():
            for value in (values,) if isinstance(values, str) else values:
                slices.setdefault(f"{name}={value}", []).append(pair)
    for name, members in sorted(slices.items()):
        if LEAST_SLICE <= len(members) < len(pairs):
            yield _row(members, label._replace(slice=name), seed)


def _row(pairs: Sequence[_Pair], label: _Label, seed: int) -> MetricRow:
    named = {"suite": label.suite, "metric": label.metric, "slice": label.slice}
    if not pairs:
        return MetricRow(**named, n=0, binary=label.binary, primary=label.primary)
    differences = [p.difference for p in pairs]
    data = cluster(differences, [p.candidate.task_id for p in pairs])
    worse = data._replace(sums=[-s for s in data.sums])
    wins, losses = (sum(d * sign > 0 for d in differences) for sign in (1, -1))
    effect = design_effect(data)
    if label.binary:
        interval, method = _binary_interval(data, wins, losses, effect)
        p_better, p_worse = sign_flip_better(data), sign_flip_better(worse)
    else:
        interval, method = _real_interval(data, seed)
        p_better, p_worse = bootstrap_better(data, seed=seed), bootstrap_better(worse, seed=seed)
    baseline = math.fsum(p.baseline.score for p in pairs) / len(pairs)
    value = math.fsum(p.candidate.score for p in pairs) / len(pairs)
    return MetricRow(
        **named,
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


def _real_interval(data: Clusters, seed: int) -> tuple[Interval, str]:
    tasks = len(data.sums)
    if tasks >= LEAST_TASKS:
        return bootstrap_interval(data, seed=seed), f"bootstrap over {tasks} tasks"
    low, high = paired_t_interval(data)
    return Interval(max(-1.0, low), min(1.0, high)), f"t over {tasks} tasks"


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
    seed: int = 0,
) -> EvalReport:
    """Return the report of one round beside another.

    Args:
        candidate: scores by suite; the first suite's headline metric is the primary one.
        baseline: scores by the same suites.
        round_number: the candidate's round.
        baseline_name: 'base' or the baseline's round number.
        candidate_sha256: the candidate's adapter.
        baseline_sha256: the baseline's adapter; '' for the base model.
        cases_sha256: identity of the cases and settings.
        trained_tasks: tasks that the candidate, or a round it descends from, was trained on.
        seed: of the bootstrap.
    """
    suites = list(dict.fromkeys([*candidate, *baseline]))
    parts = {
        suite: compare(
            candidate.get(suite, ()), baseline.get(suite, ()), suite=suite, primary=suite == suites[0], seed=seed
        )
        for suite in suites
    }
    cases = {
        (suite, score.case_id): score.task_id
        for side in (candidate, baseline)
        for suite, scores in side.items()
        for score in scores
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
        coverage={name: count for part in parts.values() for name, count in part.coverage.items()},
        wins=parts[suites[0]].wins if suites else [],
        regressions=parts[suites[0]].regressions if suites else [],
        seed=seed,
    )
