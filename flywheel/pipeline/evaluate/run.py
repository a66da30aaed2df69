"""Evaluation: score both policies on held-out cases, compare them, store the report.

A round is looked at night after night until it is decided. Each look scores what is new, both policies on the same
cases; scores are cached, so a repeated `eval` without new logs adds nothing and decides nothing a second time.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from flywheel.errors import EvalError, UsageError
from flywheel.extensions import CaseScore, Holdout
from flywheel.pipeline.context import Context
from flywheel.pipeline.evaluate.baselines import baseline_rows
from flywheel.pipeline.evaluate.holdout import read_holdout
from flywheel.pipeline.evaluate.leakage import asked_in_training, trained_tasks
from flywheel.pipeline.evaluate.logged_attempts import held_out
from flywheel.pipeline.evaluate.looks import (
    Scores,
    earlier_scores,
    evidence_of,
    lost_looks,
    new_scores,
    of_tasks,
    paired_units,
    save_scores,
    scores_path,
    task_rows,
    units_of,
)
from flywheel.pipeline.evaluate.off_policy import off_policy_rows
from flywheel.pipeline.evaluate.protocol import as_registered, protocol_of, registered, registered_suites, sha256_of
from flywheel.pipeline.evaluate.scorer import PolicyScorer
from flywheel.pipeline.evaluate.served import served_by
from flywheel.pipeline.evaluate.suites import Suite, chosen_suites
from flywheel.records import EvalReport, LedgerEntry, RoundManifest, content_id
from flywheel.registry.candidates import Candidate
from flywheel.stages.evaluate.compare import build_report
from flywheel.stages.evaluate.slices import case_slices, standings
from flywheel.stages.evaluate.suites.own_cases import OwnCases, read_cases
from flywheel.stats.planning import candidate_level

if TYPE_CHECKING:
    from flywheel.stages.evaluate.attempt import Attempt


def _sides(ctx: Context, number: int | None, against: str | None) -> tuple[int, int | None]:
    candidate = number if number is not None else ctx.registry.resolve("latest")
    if candidate is None:
        raise UsageError("there is no trained round to evaluate", hint="flywheel train")
    if candidate not in ctx.registry.trained():
        known = ", ".join(map(str, ctx.registry.trained()))
        hint = f"flywheel eval --round N; trained are {known}" if known else "flywheel train"
        raise UsageError(f"round {candidate} is not trained", hint=hint)
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
        s.name: [c.case_id for c in scores.get(s.name, ()) if not c.unit and c.score == 0]
        for s in suites
        if s.lists_failures
    }
    return {name: cases for name, cases in failed.items() if cases}


def _described(
    ctx: Context, holdout: Holdout, scores: dict[str, list[CaseScore]], units: Mapping[str, str]
) -> dict[str, list[CaseScore]]:
    """Return the scores with their units and slices, found and declared; a suite's own slices take precedence."""
    attempts: dict[str, list[Attempt]] = {}
    for attempt in held_out(ctx, holdout.episodes).attempts:
        attempts.setdefault(attempt.task_id, []).append(attempt)
    slices = case_slices(attempts, ctx.config.eval.slices)
    return {
        suite: [
            replace(
                s,
                slices={**slices.get(s.task_id, {}), **s.slices},
                drawn_with=unit if (unit := units.get(s.task_id, s.task_id)) != s.task_id else "",
            )
            for s in suite_scores
        ]
        for suite, suite_scores in scores.items()
    }


def evaluate(
    ctx: Context, number: int | None = None, *, against: str | None = None, suites: Sequence[str] | None = None
) -> EvalReport:
    """Look at a round: score what is new, compare with the champion (or another round, or the base), store the report.

    The round is registered as a candidate before anything is scored, and all its looks are one test. A round that was
    decided is not looked at again.

    Raises:
        UsageError: the round is not trained.
        StoreError: its adapter is missing, or is not the one that was trained.
        EvalError: there is nothing to evaluate on.
    """
    ctx.registry.settle()
    number, against_round = _sides(ctx, number, against)
    ctx.registry.sound_adapter(number)  # its scores may all be cached
    manifest, started = ctx.registry.manifest(number), time.monotonic()
    ctx = dataclasses.replace(ctx, config=registered(ctx, manifest))
    chosen = chosen_suites(ctx, suites) if suites else registered_suites(ctx, manifest)
    holdout = read_holdout(ctx)
    if holdout.episodes.height == 0 and not all(suite.fixed for suite in chosen):
        raise EvalError(
            "no held-out tasks: nothing to evaluate on", hint="ingest more logs, or raise episodes.holdout_share"
        )
    protocol = as_registered(protocol_of(ctx, chosen), manifest)
    candidate = _registered(ctx, manifest, against_round, protocol)
    sides = (number, against_round)
    with contextlib.closing(PolicyScorer(ctx, holdout)) as scorer:
        scores, candidate = _look(ctx, scorer, candidate, chosen, sides)
        update = {
            "evidence": evidence_of(candidate),
            "protocol_sha256": candidate.registered.protocol_sha256,
            "rivals": baseline_rows(ctx, scorer, chosen, scores["candidate"], against_round),
            "failed": _failed(chosen, scores["candidate"]),
            "off_policy": off_policy_rows(ctx, scorer, holdout, sides),
            "served": served_by(ctx, scorer, holdout, sides),
        }
    report = build_report(
        candidate=scores["candidate"],
        baseline=scores["baseline"],
        round_number=number,
        baseline_name="base" if against_round is None else str(against_round),
        candidate_sha256=manifest.adapter_sha256,
        baseline_sha256=candidate.registered.baseline_sha256,
        cases_sha256=content_id([look.scores_sha256 for look in candidate.looks]),
        trained_tasks=trained_tasks(ctx, number),
        known=candidate.known,
        standings=standings(ctx.config.eval.slices),
        seed=ctx.config.eval.seed,
    ).model_copy(update=update)
    stored = ctx.registry.report(number)
    report = _with_leaks(ctx, report, chosen)
    if stored is not None and stored.model_copy(update={"timings_s": {}}) == report:
        ctx.registry.candidates.reported(candidate, ctx.registry.report_sha256(number))
        return stored
    report = report.model_copy(
        update={"timings_s": {"total": round(time.monotonic() - started, 3), **scorer.timings_s}}
    )
    ctx.registry.candidates.reported(candidate, ctx.registry.save_report(report))
    if manifest.state == "trained":
        ctx.registry.save(manifest.model_copy(update={"state": "evaluated"}))
    return report


def has_news(ctx: Context, candidate: Candidate) -> bool:
    """Return whether held-out tasks or attempts have come since the last look at a candidate."""
    rows = content_id("holdout", task_rows(read_holdout(ctx)))
    return not candidate.looks or candidate.looks[-1].holdout_sha256 != rows


def _registered(ctx: Context, manifest: RoundManifest, against: int | None, protocol: dict[str, Any]) -> Candidate:
    """Return the candidate, registered now if it is evaluated for the first time."""
    ledger = ctx.registry.candidates
    baseline_sha256 = ctx.registry.manifest(against).adapter_sha256 if against is not None else ""
    key = (manifest.adapter_sha256, baseline_sha256, sha256_of(protocol))
    if ledger.find(*key) is None:
        place, promotions = ledger.next_place()
        ledger.append(
            LedgerEntry(
                event="registered",
                candidate=place,
                round=manifest.round,
                baseline="base" if against is None else str(against),
                candidate_sha256=key[0],
                baseline_sha256=key[1],
                protocol_sha256=key[2],
                level=candidate_level(place - ledger.unspent(), promotions, alpha=ctx.config.gate.alpha),
            )
        )
    candidate = ledger.find(*key)
    if candidate is None:
        raise EvalError("the ledger of candidates cannot be read back", hint="flywheel doctor")
    return candidate


def _look(
    ctx: Context, scorer: PolicyScorer, candidate: Candidate, suites: Sequence[Suite], sides: tuple[int, int | None]
) -> tuple[dict[str, Scores], Candidate]:
    """Score what is new, unless the candidate has ended; return all its scores by side, and the candidate with them."""
    folder, holdout = ctx.registry.folder(sides[0]), scorer.holdout
    units, rows = units_of(holdout.episodes), task_rows(holdout)
    held_out_sha256 = content_id("holdout", rows)
    is_over = candidate.ended is not None or (candidate.looks and candidate.looks[-1].holdout_sha256 == held_out_sha256)
    # Without news what is shown for reference is on the cases of the last look, as it was there.
    before = replace(candidate, looks=candidate.looks[:-1], lines=candidate.lines[:-1]) if is_over else candidate
    scores = earlier_scores(folder, before)
    lost, seen = lost_looks(folder, before), before.tasks
    closed = {task for look in lost for task in look.tasks}  # a case must not count twice
    due = {task for task, sha256 in rows.items() if seen.get(task) != sha256} - closed
    known = frozenset(task for task in due if units[task] in candidate.known)
    gone = {unit for look in lost for unit in look.units} - set(units.values())  # own cases that the evidence has
    own = candidate.known.union(s.task_id for s in scores["candidate"].get(suites[0].name, ())) - set(units.values())
    known |= (own | gone) - set(rows)  # a suite's own cases that a candidate, or this one at an earlier look, had
    scorer.offer(replace(of_tasks(holdout, due), known=known))
    if is_over:
        return earlier_scores(folder, candidate), candidate
    fresh = {
        name: _described(
            ctx,
            holdout,
            {s.name: new_scores(scorer.scores(side, s), scores[name].get(s.name, ())) for s in suites},
            units,
        )
        for name, side in zip(("candidate", "baseline"), sides, strict=True)
    }
    head = suites[0].name
    scored = {s.task_id for s in fresh["candidate"][head]} & due
    path = scores_path(folder, candidate.place, len(candidate.looks) + 1)
    sha256 = save_scores(path, fresh)
    ctx.registry.share()  # a look's line names scores that other machines have
    counted = suites[0].fixed and lost  # its cases are the same at every look
    differences = {} if counted else paired_units(fresh["candidate"][head], fresh["baseline"][head])
    differences = {unit: difference for unit, difference in differences.items() if unit not in gone}
    ctx.registry.candidates.look(
        candidate, {task: rows[task] for task in scored}, differences, sha256, holdout_sha256=held_out_sha256
    )
    for name, suite_scores in fresh.items():
        for suite, added in suite_scores.items():
            scores[name].setdefault(suite, []).extend(added)
    entry = candidate.registered
    looked_at = ctx.registry.candidates.find(entry.candidate_sha256, entry.baseline_sha256, entry.protocol_sha256)
    return scores, looked_at or candidate
