"""Evaluation and gate: score both policies on held-out cases, compare, decide, move the pointer.

Scores are cached by policy, cases and settings, so the champion is not scored again every night and a repeated `eval`
is the same evaluation: it neither spends alpha nor appends a second decision.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Literal

from flywheel.errors import EvalError, UsageError
from flywheel.extensions import CaseScore, GateInput, Holdout, list_extensions, load_extension
from flywheel.pipeline.context import Context
from flywheel.pipeline.tables import read_table
from flywheel.pipeline.training import DATASET
from flywheel.records import EvalReport, Promotion, Split, Verdict, content_id
from flywheel.rounds import round_name

if TYPE_CHECKING:
    from flywheel.models.policy import PolicySet

State = Literal["promoted", "held", "retired"]

__all__ = ["evaluate", "force", "judge", "roll_back"]


def _holdout(ctx: Context) -> Holdout:
    import polars as pl

    frames = {t: read_table(ctx.store, t) for t in ("episodes", "steps", "returns", "pairs")}
    episodes = frames["episodes"].filter(pl.col("split") == Split.HOLDOUT).sort("episode_id").collect()
    ids = episodes.lazy().select("episode_id")
    held = {
        name: frames[name].join(ids, on="episode_id", how="semi").sort(key).collect()
        for name, key in (("steps", ["episode_id", "index"]), ("returns", ["episode_id", "step"]))
    }
    held["pairs"] = frames["pairs"].filter(pl.col("split") == Split.HOLDOUT).sort("pair_id").collect()
    if episodes.height == 0:
        raise EvalError(
            "no held-out task: nothing to evaluate on", hint="ingest more logs, or raise episodes.holdout_share"
        )
    return Holdout(episodes, held["steps"], held["returns"], held["pairs"], ctx.project)


def _lineage(ctx: Context, number: int | None) -> list[int]:
    found: list[int] = []
    while number is not None:
        found.append(number)
        number = ctx.registry.manifest(number).parent
    return found


def _trained_tasks(ctx: Context, number: int) -> set[str]:
    """Return every task that the round or one it descends from was trained on."""
    import json

    tasks: set[str] = set()
    for member in _lineage(ctx, number):
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
        settings = self._ctx.config.eval.model_dump(mode="json", exclude={"suites"})
        versions = [self._versions.get(s, "by path") for s in suites]
        return content_id(self._holdout_sha256, list(suites), versions, settings, self._ctx.config.model.dtype)

    def scores(self, number: int | None, suite: str) -> list[CaseScore]:
        """Return one policy's scores on one suite."""
        adapter_sha256 = self._ctx.registry.manifest(number).adapter_sha256 if number is not None else ""
        key = content_id(self._base_sha256, adapter_sha256, self.cases_sha256([suite]))
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


def evaluate(
    ctx: Context, number: int | None = None, *, against: str | None = None, suites: Sequence[str] | None = None
) -> EvalReport:
    """Evaluate a round beside the champion (or another round, or the base) on held-out cases, and store the report.

    Raises:
        UsageError: the round is not trained.
        EvalError: there is nothing to evaluate on.
    """
    from flywheel.stages.evaluate.compare import build_report

    candidate, baseline = _sides(ctx, number, against)
    chosen, started = list(suites or ctx.config.eval.suites), time.monotonic()
    scorer = _Scorer(ctx, _holdout(ctx))
    scores = {
        side: {suite: scorer.scores(side, suite) for suite in chosen} for side in dict.fromkeys((candidate, baseline))
    }
    manifest = ctx.registry.manifest(candidate)
    report = build_report(
        candidate=scores[candidate],
        baseline=scores[baseline],
        round_number=candidate,
        baseline_name="base" if baseline is None else str(baseline),
        candidate_sha256=manifest.adapter_sha256,
        baseline_sha256=ctx.registry.manifest(baseline).adapter_sha256 if baseline is not None else "",
        cases_sha256=scorer.cases_sha256(chosen),
        trained_tasks=_trained_tasks(ctx, candidate),
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


def judge(ctx: Context, number: int, *, by: str) -> Promotion:
    """Apply the gate to a round's stored report and move the champion if every rule holds.

    Raises:
        EvalError: the round has no evaluation.
    """
    from flywheel.stages.gate import decide

    report = ctx.registry.report(number)
    if report is None:
        raise EvalError(f"round {number} has no evaluation", hint=f"flywheel eval --round {number}")
    earlier = [p for p in ctx.registry.promotions() if p.report_sha256 == ctx.registry.report_sha256(number)]
    if earlier:
        _settle(ctx, earlier[-1])
        return earlier[-1]
    champion = ctx.registry.champion
    problems = ctx.registry.problems([n for n in (number, champion) if n is not None])
    if report.baseline != ("base" if champion is None else str(champion)):
        problems.append(f"the report compares with {report.baseline}, but the champion is {round_name(champion)}")
    given = GateInput(report, ctx.registry.manifest(number), ctx.registry.promotions(), problems)
    rules = {name: load_extension("gates", name, search=ctx.project) for name in ctx.config.gate.rules}
    decision = decide(given, rules, ctx.config.gate)
    promoted = decision.verdict == Verdict.PROMOTE
    return _record(
        ctx,
        number,
        decision="promoted" if promoted else "held",
        champion_after=number if promoted else champion,
        by=by,
        extra={"verdict": decision.verdict, "rules": list(decision.rules)},
    )


def _record(
    ctx: Context,
    number: int,
    *,
    decision: Literal["promoted", "held", "forced", "rolled_back"],
    champion_after: int | None,
    by: str,
    extra: dict[str, Any],
) -> Promotion:
    served = ctx.registry.manifest(champion_after).adapter_sha256 if champion_after is not None else ""
    promotion = Promotion(
        round=number,
        decision=decision,
        champion_before=ctx.registry.champion,
        champion_after=champion_after,
        report_sha256=ctx.registry.report_sha256(number),
        adapter_sha256=served,
        by=by,
        at=ctx.clock(),
        **extra,
    )
    recorded = ctx.registry.decide(promotion)
    _settle(ctx, recorded)
    return recorded


def _settle(ctx: Context, promotion: Promotion) -> None:
    """Bring the judged round's state in line with the decision; a kill may have come between the two."""
    states: dict[str, State] = {"promoted": "promoted", "forced": "promoted", "held": "held", "rolled_back": "retired"}
    manifest, state = ctx.registry.manifest(promotion.round), states[promotion.decision]
    if manifest.state != state:
        ctx.registry.save(manifest.model_copy(update={"state": state}))


def force(ctx: Context, number: int, *, reason: str, by: str) -> Promotion:
    """Make a trained round champion against or without the gate; the reason is written down.

    Raises:
        UsageError: the round is not trained, was rolled back, or is damaged.
    """
    if number not in ctx.registry.trained():
        raise UsageError(f"round {number} is not trained", hint=f"flywheel train --round {number}")
    problems = ctx.registry.problems([number])
    if problems:
        raise UsageError("; ".join(problems), hint="a damaged round is never promoted, not even by force")
    return _record(ctx, number, decision="forced", champion_after=number, by=by, extra={"reason": reason})


def roll_back(ctx: Context, to: str | None, *, reason: str, by: str) -> Promotion:
    """Move the champion back to the previous one, or to a named round or the base.

    Raises:
        UsageError: there is no champion, or nothing to go back to.
    """
    champion = ctx.registry.champion
    if champion is None:
        raise UsageError("there is no champion: the base model serves", hint="`flywheel log` shows the rounds")
    target = ctx.registry.resolve(to) if to is not None else ctx.registry.aliases()["previous"]
    if target == champion:
        raise UsageError(f"round {champion} is already champion", hint="name another with --to")
    retired = {p.round for p in ctx.registry.promotions() if p.decision == "rolled_back"}
    if target in retired:
        raise UsageError(f"round {target} was itself rolled back", hint="name another with --to, or `--to base`")
    return _record(ctx, champion, decision="rolled_back", champion_after=target, by=by, extra={"reason": reason})
