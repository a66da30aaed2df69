"""Evaluation: score both policies on held-out cases, compare, store the report.

Scores are cached by policy, cases and settings, so the champion is not scored again every night and a repeated `eval`
is the same evaluation: it neither spends alpha nor appends a second decision.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from flywheel.errors import EvalError, UsageError
from flywheel.extensions import CaseScore, Holdout, list_extensions, load_extension
from flywheel.pipeline.context import Context
from flywheel.pipeline.crossing import read_holdout
from flywheel.pipeline.training import DATASET
from flywheel.records import EvalReport, content_id
from flywheel.rounds import round_name

if TYPE_CHECKING:
    from flywheel.models.policy import PolicySet
    from flywheel.stages.evaluate.attempts import Attempt

__all__ = ["evaluate", "lineage", "look_id", "trained_tasks"]


def _holdout(ctx: Context) -> Holdout:
    found = read_holdout(ctx)
    if found.episodes.height == 0:
        raise EvalError(
            "no held-out task: nothing to evaluate on", hint="ingest more logs, or raise episodes.holdout_share"
        )
    return found


def lineage(ctx: Context, number: int | None) -> list[int]:
    """Return a round and those it descends from, youngest first."""
    found: list[int] = []
    while number is not None:
        found.append(number)
        number = ctx.registry.manifest(number).parent
    return found


def trained_tasks(ctx: Context, number: int) -> set[str]:
    """Return every task that the round or one it descends from was trained on."""
    import json

    tasks: set[str] = set()
    for member in lineage(ctx, number):
        path = ctx.registry.folder(member) / DATASET
        tasks |= {json.loads(line)["task_id"] for line in path.read_text(encoding="utf-8").splitlines()}
    return tasks | _merged_into(ctx, tasks)


def _merged_into(ctx: Context, tasks: set[str]) -> set[str]:
    """Return the tasks of today that go on from the given ones: two can turn out to be one."""
    import polars as pl

    if ctx.store.current("tasks") is None:
        return set()
    table = ctx.store.table("tasks", "tasks").select("task_id", "formerly").explode("formerly").unique()
    return set(table.filter(pl.col("formerly").is_in(sorted(tasks))).collect()["task_id"].to_list())


class _Scorer:
    """Scores policies suite by suite; loads the base model once, and only if a score is not cached."""

    def __init__(self, ctx: Context, holdout: Holdout) -> None:
        from flywheel.models.load import base_identity
        from flywheel.stages.evaluate.cases import holdout_sha256

        self._ctx = ctx
        self._holdout = holdout
        self._base_sha256 = base_identity(ctx.config.model).sha256
        self._versions = {e.name: f"{e.distribution} {e.version}" for e in list_extensions("evaluators")}
        self._policies: PolicySet | None = None
        self._holdout_sha256 = holdout_sha256(holdout)

    def cases_sha256(self, suites: Sequence[str]) -> str:
        """Identify the cases and everything but the policy that their scores depend on."""
        settings = self._ctx.config.eval.model_dump(mode="json", exclude={"suites", "slices", "user_tiers"})
        versions = [self._versions.get(s, "by path") for s in suites]
        return content_id(self._holdout_sha256, list(suites), versions, settings, self._ctx.config.model.dtype)

    def look(self, candidate_sha256: str, baseline_sha256: str, suites: Sequence[str]) -> str:
        """Identify an evaluation by candidate, baseline and cases: what makes a repeated one the same."""
        return look_id(candidate_sha256, baseline_sha256, self.cases_sha256(suites))

    def keep_for_last(self, spent: frozenset[str]) -> None:
        """Have evaluators that cap their cases choose those of spent tasks last."""
        self._holdout = replace(self._holdout, spent=spent)

    def scores(self, number: int | None, suite: str) -> list[CaseScore]:
        """Return one policy's scores on one suite."""
        adapter_sha256 = self._ctx.registry.manifest(number).adapter_sha256 if number is not None else ""
        key = content_id(self._base_sha256, adapter_sha256, self.cases_sha256([suite]), sorted(self._holdout.spent))
        cached = self._ctx.store.cached("scores", key)
        if cached is None:
            self._ctx.say(f"scoring {round_name(number)} on {suite}")
            evaluator = load_extension("evaluators", suite, search=self._ctx.project)
            policy = self._policy_set().policy(self._ctx.registry.adapter(number), round_name(number), adapter_sha256)
            cached = [
                {**asdict(s), "score": None if math.isnan(s.score) else s.score}
                for s in evaluator(policy, self._holdout, self._ctx.config.eval)
            ]
            self._ctx.store.cache("scores", key, cached)
        return [CaseScore(**{**s, "score": math.nan if s["score"] is None else s["score"]}) for s in cached]

    def _policy_set(self) -> PolicySet:
        if self._policies is None:
            from flywheel.models.policy import PolicySet

            self._policies = PolicySet(self._ctx.config.model, self._ctx.config.eval)
        return self._policies


def _sides(ctx: Context, number: int | None, against: str | None) -> tuple[int, int | None]:
    candidate = number if number is not None else ctx.registry.resolve("latest")
    if candidate is None or candidate not in ctx.registry.trained():
        raise UsageError(f"{round_name(candidate)} is not trained", hint=f"flywheel train --round {candidate}")
    baseline = ctx.registry.resolve(against or "@champion")
    if against is None and baseline == candidate:
        decided = [p for p in ctx.registry.promotions() if p.round == candidate]
        baseline = decided[-1].champion_before if decided else None
    return candidate, baseline


def _sliced(ctx: Context, holdout: Holdout, scores: dict[str, list[CaseScore]]) -> dict[str, list[CaseScore]]:
    """Return the scores with the slices of their tasks, found and declared; a suite's own slices stand above them."""
    from flywheel.pipeline.attempts import held_out
    from flywheel.stages.evaluate.slicing import case_slices

    made: dict[str, list[Attempt]] = {}
    for attempt in held_out(ctx, holdout.episodes):
        made.setdefault(attempt.task_id, []).append(attempt)
    slices = case_slices(made, ctx.config.eval.slices)
    return {
        suite: [replace(s, slices={**slices.get(s.task_id, {}), **s.slices}) for s in found]
        for suite, found in scores.items()
    }


def evaluate(
    ctx: Context, number: int | None = None, *, against: str | None = None, suites: Sequence[str] | None = None
) -> EvalReport:
    """Evaluate a round beside the champion (or another round, or the base) on held-out cases, and store the report.

    Raises:
        UsageError: the round is not trained.
        EvalError: there is nothing to evaluate on.
    """
    from flywheel.stages.evaluate.compare import build_report
    from flywheel.stages.evaluate.slicing import standings

    candidate, baseline = _sides(ctx, number, against)
    chosen, started = list(suites or ctx.config.eval.suites), time.monotonic()
    holdout = _holdout(ctx)
    scorer = _Scorer(ctx, holdout)
    manifest = ctx.registry.manifest(candidate)
    baseline_sha256 = ctx.registry.manifest(baseline).adapter_sha256 if baseline is not None else ""
    spent = ctx.registry.spent(scorer.look(manifest.adapter_sha256, baseline_sha256, chosen))
    scorer.keep_for_last(spent)
    scores = {
        side: {suite: scorer.scores(side, suite) for suite in chosen} for side in dict.fromkeys((candidate, baseline))
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
    stored = ctx.registry.report(candidate)
    if stored is not None and stored.model_copy(update={"timings_s": {}}) == report:
        return stored
    report = report.model_copy(update={"timings_s": {"total": round(time.monotonic() - started, 3)}})
    ctx.registry.save_report(report)
    if manifest.state == "trained":
        ctx.registry.save(manifest.model_copy(update={"state": "evaluated"}))
    return report


def look_id(candidate_sha256: str, baseline_sha256: str, cases_sha256: str) -> str:
    """Identify an evaluation: the same policies on the same cases."""
    return content_id("look", candidate_sha256, baseline_sha256, cases_sha256)
