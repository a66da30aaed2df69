"""Evaluation: score both policies on held-out cases, compare them, store the report.

Scores are cached by policy, cases and settings, so the champion is not scored again every night and a repeated `eval`
is the same evaluation: it neither spends alpha nor appends a second decision.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from flywheel.errors import EvalError, UsageError
from flywheel.extensions import CaseScore, Holdout
from flywheel.pipeline.context import Context
from flywheel.pipeline.evaluate.baselines import baseline_rows
from flywheel.pipeline.evaluate.holdout import read_holdout
from flywheel.pipeline.evaluate.leakage import asked_in_training, trained_tasks
from flywheel.pipeline.evaluate.logged_attempts import held_out
from flywheel.pipeline.evaluate.off_policy import off_policy_rows
from flywheel.pipeline.evaluate.scorer import PolicyScorer
from flywheel.pipeline.evaluate.suites import Suite, chosen_suites
from flywheel.records import EvalReport
from flywheel.stages.evaluate.compare import build_report
from flywheel.stages.evaluate.slices import case_slices, standings
from flywheel.stages.evaluate.suites.own_cases import OwnCases, read_cases

if TYPE_CHECKING:
    from flywheel.stages.evaluate.attempt import Attempt


def _sides(ctx: Context, number: int | None, against: str | None) -> tuple[int, int | None]:
    candidate = number if number is not None else ctx.registry.resolve("latest")
    if candidate is None:
        raise UsageError("there is no trained round to evaluate", hint="flywheel train")
    if candidate not in ctx.registry.trained():
        raise UsageError(f"round {candidate} is not trained", hint=f"flywheel train --round {candidate}")
    baseline = ctx.registry.resolve(against or "@champion")
    if against is None and baseline == candidate:
        decided = [p for p in ctx.registry.promotions() if p.round == candidate]
        baseline = decided[-1].champion_before if decided else None
    return candidate, baseline


def _with_leaks(ctx: Context, report: EvalReport, suites: Sequence[Suite]) -> EvalReport:
    """Count own cases that were asked in training: leaks in the primary suite, elsewhere a note on coverage."""
    for suite in suites:
        if isinstance(suite.evaluator, OwnCases):
            cases = read_cases(ctx.project, ctx.config.eval, suite.evaluator.stem)
            known = len(asked_in_training(ctx, ctx.registry.lineage(report.round), cases))
            primary = suite is suites[0]
            noted = {f"{suite.name}: asked in training": known} if known else {}
            leaked = report.leaked_tasks + (known if primary else 0)
            report = report.model_copy(update={"leaked_tasks": leaked, "coverage": report.coverage | noted})
    return report


def _failed(suites: Sequence[Suite], scores: Mapping[str, Sequence[CaseScore]]) -> dict[str, list[str]]:
    """Return the cases that the candidate failed, by suite, where their names are for people."""
    failed = {
        s.name: [c.case_id for c in scores[s.name] if not c.unit and c.score == 0] for s in suites if s.lists_failures
    }
    return {name: cases for name, cases in failed.items() if cases}


def _sliced(ctx: Context, holdout: Holdout, scores: dict[str, list[CaseScore]]) -> dict[str, list[CaseScore]]:
    """Return the scores with the slices of their tasks, found and declared; a suite's own slices take precedence."""
    attempts: dict[str, list[Attempt]] = {}
    for attempt in held_out(ctx, holdout.episodes).attempts:
        attempts.setdefault(attempt.task_id, []).append(attempt)
    slices = case_slices(attempts, ctx.config.eval.slices)
    return {
        suite: [replace(s, slices={**slices.get(s.task_id, {}), **s.slices}) for s in suite_scores]
        for suite, suite_scores in scores.items()
    }


def evaluate(
    ctx: Context, number: int | None = None, *, against: str | None = None, suites: Sequence[str] | None = None
) -> EvalReport:
    """Compare a round with the champion (or another round, or the base) on held-out cases, and store the report.

    Raises:
        UsageError: the round is not trained.
        EvalError: there is nothing to evaluate on.
    """
    candidate, baseline = _sides(ctx, number, against)
    chosen, started = chosen_suites(ctx, suites), time.monotonic()
    holdout = read_holdout(ctx)
    if holdout.episodes.height == 0 and not all(suite.fixed for suite in chosen):
        raise EvalError(
            "no held-out tasks: nothing to evaluate on", hint="ingest more logs, or raise episodes.holdout_share"
        )
    scorer = PolicyScorer(ctx, holdout)
    manifest = ctx.registry.manifest(candidate)
    baseline_sha256 = ctx.registry.manifest(baseline).adapter_sha256 if baseline is not None else ""
    spent = ctx.registry.spent(scorer.look(manifest.adapter_sha256, baseline_sha256, chosen))
    scorer.keep_for_last(spent)
    scores = {
        side: {suite.name: scorer.scores(side, suite) for suite in chosen}
        for side in dict.fromkeys((candidate, baseline))
    }
    report = build_report(
        candidate=_sliced(ctx, holdout, scores[candidate]),
        baseline=_sliced(ctx, holdout, scores[baseline]),
        round_number=candidate,
        baseline_name="base" if baseline is None else str(baseline),
        candidate_sha256=manifest.adapter_sha256,
        baseline_sha256=baseline_sha256,
        cases_sha256=scorer.cases_sha256(chosen),
        trained_tasks=trained_tasks(ctx, candidate),
        spent=spent,
        standings=standings(ctx.config.eval.slices),
        seed=ctx.config.eval.seed,
    )
    report = report.model_copy(
        update={
            "rivals": baseline_rows(ctx, scorer, chosen, scores[candidate], baseline),
            "failed": _failed(chosen, scores[candidate]),
            "off_policy": off_policy_rows(ctx, scorer, holdout, (candidate, baseline)),
        }
    )
    report = _with_leaks(ctx, report, chosen)
    stored = ctx.registry.report(candidate)
    if stored is not None and stored.model_copy(update={"timings_s": {}}) == report:
        return stored
    report = report.model_copy(
        update={"timings_s": {"total": round(time.monotonic() - started, 3), **scorer.timings_s}}
    )
    ctx.registry.save_report(report)
    if manifest.state == "trained":
        ctx.registry.save(manifest.model_copy(update={"state": "evaluated"}))
    return report
