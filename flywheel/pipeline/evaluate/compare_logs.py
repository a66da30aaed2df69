"""Compare two policies from their logs alone: attempts in, the gate's verdict out; nothing is written.

The verdict comes from the rules that decide on a round, on the same rows. The differences: cases are tasks that both
served, their scores are recorded outcomes, and there is no adapter file to check. The level is that of a ledger's first
test: whoever compares one candidate after the other makes rounds of them, which share a ledger.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from flywheel.config import GateConfig
from flywheel.errors import UsageError
from flywheel.extensions import GateInput, load_extensions
from flywheel.pipeline.context import Context
from flywheel.pipeline.evaluate.leakage import trained_tasks
from flywheel.pipeline.evaluate.logged_attempts import Log, choose, policy_of, read_attempts, scored_sides
from flywheel.pipeline.evaluate.looks import paired_units
from flywheel.present import count, metric_name
from flywheel.records import CaseGap, EvalReport, MetricRow, OffPolicyEstimate, RuleResult, Verdict, content_id
from flywheel.results.rounds import CoverageGap, LogsEvalAnswer
from flywheel.stages.evaluate.attempt import Attempt
from flywheel.stages.evaluate.compare import Comparison, compare
from flywheel.stages.evaluate.logs.score import NO_OUTCOME, SUITE, Served, serve
from flywheel.stages.evaluate.off_policy.estimators import as_record
from flywheel.stages.evaluate.off_policy.logs import off_policy
from flywheel.stages.evaluate.slices import standings
from flywheel.stages.gate import Decision, decide, rule_names
from flywheel.stages.gate.evidence import weigh
from flywheel.stats.paired import wilson
from flywheel.stats.planning import candidate_level
from flywheel.stats.reliability import pass_all

_GRADED = "outcomes are graded: means of scores are compared, not success rates; rewards.success_at sets a threshold"
NAMED = 20  # cases of a gap that are named
_ROUND = re.compile(r"(?:.*[ _-])?round[ _-]?(\d+)", re.IGNORECASE)


def compare_logs(ctx: Context, logs: Sequence[Path], old: str | None, new: str | None, key: bytes) -> LogsEvalAnswer:
    """Compare an old and a new policy from the attempts that they served.

    Args:
        ctx: the project, for its configuration and rounds; need not have been initialised.
        logs: the old policy's files, then the new one's; or one for both, with the names of both.
        old: policy or model in the old log; all of it by default.
        new: policy or model in the new log.
        key: of redaction, for both logs.

    Raises:
        UsageError: it is not clear which side is which, or no policy has the given name.
        IngestError: nothing was found, or too much is unreadable.
        EvalError: a log has no conversation.
    """
    sides = _sides(ctx, logs, old, new, key)
    (before, after), outcome, notes = scored_sides(sides)
    served = serve(before.attempts, after.attempts, rules=ctx.config.eval.slices)
    names = (old or policy_of(before) or logs[0].name, new or policy_of(after) or logs[-1].name)
    comparison = compare(
        served.new, served.old, suite=SUITE, seed=ctx.config.eval.seed, standings=standings(ctx.config.eval.slices)
    )
    report = _report(comparison, served, names, _leaked(ctx, new or "", after, served), ctx.config.gate.alpha)
    report = report.model_copy(update={"off_policy": _estimates(served, ctx.config.eval.seed)})
    notes += [_GRADED] if served.graded and outcome == "recorded" else []
    problems = _lacks(served, ctx.config.gate.max_gap)
    if problems and _hides_nothing(served, ctx.config.gate):
        notes += [f"{problem}; it is better even if it failed all of them" for problem in problems]
        report, problems = report.model_copy(update={"gaps": []}), []
    notes += _notes(served, sides, names)
    decision = decide(
        GateInput(report, None, (), problems),
        load_extensions("gates", rule_names(ctx.config.gate), search=ctx.project),
        ctx.config.gate,
    )
    return _answer(report, names, decision, served, outcome=outcome, notes=notes)


def _sides(ctx: Context, logs: Sequence[Path], old: str | None, new: str | None, key: bytes) -> tuple[Log, Log]:
    read = [read_attempts([path], ctx.config, ctx.project, key) for path in logs]
    if len(read) == 1:
        if old is None or new is None:
            known = ", ".join(read[0].policies()) or "none"
            raise UsageError(
                "one log for two policies: which is the old one, which the new one?",
                hint=f"--old NAME --new NAME, or --logs OLD --logs NEW; policies and models in it: {known}",
            )
        if old == new:
            raise UsageError(f"`{old}` would be compared with itself", hint="--old and --new name two policies")
        read *= 2
    if len(read) != 2:  # noqa: PLR2004 - an old and a new one
        raise UsageError(
            f"expected two logs, got {len(read)}", hint="--logs OLD --logs NEW; a folder or a glob may be many files"
        )
    return choose(read[0], old, "old"), choose(read[1], new, "new")


def _leaked(ctx: Context, name: str, log: Log, served: Served) -> int:
    """Return how many cases the new policy was trained on, where it is a round of this project."""
    names = {n for a in log.attempts for n in log.names[a.episode_id]} | {name}
    rounds = {int(m[1]) for n in names if (m := _ROUND.fullmatch(n.strip()))}
    known = [n for n in sorted(rounds) if n in ctx.registry.numbers() and n in ctx.registry.trained()]
    trained = {task for number in known for task in trained_tasks(ctx, number)}
    return sum(any(a.task_id in trained for side in both.values() for a in side) for both in served.attempts.values())


def _report(comparison: Comparison, served: Served, names: tuple[str, str], leaked: int, alpha: float) -> EvalReport:
    coverage = {name: cases for name, cases in comparison.coverage.items() if not name.startswith(f"{SUITE}: gap")}
    missing = f"{SUITE}: missing: not scored for the baseline"
    if missing in coverage:  # the old policy's attempts have no outcome there, so there is nothing to compare with
        coverage[f"{SUITE}: missing: {NO_OUTCOME}"] = coverage.pop(missing)
    lacking = next((gap.lacking for gap in served.gaps if gap.slice == "all"), 0)
    cases = sorted(
        (s.case_id, s.score, side) for side, scores in (("o", served.old), ("n", served.new)) for s in scores
    )
    level = candidate_level(1, 0, alpha=alpha)
    return EvalReport(
        evidence=weigh([paired_units(served.new, served.old)], candidate=1, level=level),
        round=0,
        baseline=names[0],
        candidate_adapter_sha256="",
        baseline_adapter_sha256="",
        cases_sha256=content_id(cases),
        n_cases=len(served.attempts),
        n_tasks=len({s.task_id for s in served.old}),
        leaked_tasks=leaked,
        metrics=[row.model_copy(update={"unit": served.unit}) for row in comparison.metrics],
        coverage=coverage | ({f"{SUITE}: lacking": lacking} if lacking else {}),
        gaps=[CaseGap(slice=g.slice, lacking=g.lacking, of=g.of, names=g.names[:NAMED]) for g in served.gaps],
        wins=comparison.wins,
        regressions=comparison.regressions,
    )


def _worst_case(served: Served) -> dict[str, tuple[float, int]]:
    """Return the units as they are if the new policy had failed every case that it lacks."""
    units = dict(paired_units(served.new, served.old))
    have = {s.case_id for s in served.new if s.primary and math.isfinite(s.score)}
    for score in served.old:
        if score.primary and math.isfinite(score.score) and score.case_id not in have:
            total, cases = units.get(score.cluster, (0.0, 0))
            units[score.cluster] = total - score.score, cases + 1
    return units


def _hides_nothing(served: Served, cfg: GateConfig) -> bool:
    """Return whether a coverage gap cannot hide a loss that matters.

    The new policy must be better although it is taken to have failed every case that it lacks, and no part of the
    traffic with at least `gate.found_share` of the cases may have lost more than half of its own.
    """
    whole = next((g for g in served.gaps if g.slice == "all"), None)
    level = candidate_level(1, 0, alpha=cfg.alpha)
    worst = weigh([_worst_case(served)], candidate=1, level=level)
    if whole is None or worst is None or worst.mean <= 0 or worst.log_e_best < math.log(1 / level):
        return False
    return all(gap is whole or gap.of < cfg.found_share * whole.of for gap in served.gaps)


def _lacks(served: Served, most: float) -> list[str]:
    """Return the coverage gap over all cases, if it is beyond gate.max_gap; gaps of slices are the report's."""
    total = next((gap for gap in served.gaps if gap.slice == "all"), None)
    if total is None or total.lacking <= most * total.of:
        return []
    return [f"the new policy lacks {count(total.lacking)} of {count(total.of, 'case')} that the old one has"]


def _notes(served: Served, sides: tuple[Log, Log], names: tuple[str, str]) -> list[str]:
    notes = []
    for log, side, name in zip(sides, ("old", "new"), names, strict=True):
        policies = {n for a in log.attempts for n in log.names[a.episode_id]}
        if len(policies) > 2:  # noqa: PLR2004 - one policy and its model
            notes.append(f"the {side} log ({name}) holds several policies, taken as one; --{side} NAME chooses")
        if log.set_aside:
            shown = ", ".join(log.set_aside[:3]) + (", ..." if len(log.set_aside) > 3 else "")  # noqa: PLR2004
            notes.append(f"{count(len(log.set_aside), 'file')} of the {side} log set aside, as unreadable: {shown}")
        if log.quarantined:
            notes.append(f"{count(log.quarantined)} of {count(log.read)} records of the {side} log are unreadable")
    if served.colliding:
        shown = ", ".join(served.colliding[:5])
        notes.append(f"{count(len(served.colliding), 'task id')} with different requests in the two logs: {shown}")
    if served.only_new:
        notes.append(f"{count(served.only_new, 'case')} of the new policy only, not compared")
    return notes


def _estimates(served: Served, seed: int) -> list[OffPolicyEstimate]:
    rewards = [a.score for both in served.attempts.values() for a in both["old"] if a.score is not None]
    earned = math.fsum(rewards) / len(rewards) if rewards else None
    return [as_record(estimate, "new", earned) for estimate in off_policy(served, seed=seed)]


# --- the answer ----------------------------------------------------------------------------------------------------


def _answer(
    report: EvalReport, names: tuple[str, str], decision: Decision, served: Served, *, outcome: str, notes: list[str]
) -> LogsEvalAnswer:
    verdict, rules = decision.verdict, decision.rules
    head = next((r for r in report.metrics if r.primary and r.slice == "all"), None)
    numbers = _numbers(head, rules)
    by_rule = {rule.rule: rule for rule in rules}
    harm = by_rule.get("no_deterioration")
    tested = {r: n for r, n in (harm.numbers if harm else {}).items() if r.startswith("p: ")}
    return LogsEvalAnswer(
        verdict=verdict,
        reasons=[r.message for r in sorted(rules, key=lambda r: (r.passed, r.verdict != verdict))],
        needed_n=int(numbers["needed_n"]) if "needed_n" in numbers and verdict == Verdict.INCONCLUSIVE else None,
        old=names[0],
        new=names[1],
        outcome=outcome,
        unit=served.unit,
        cases=head.n if head else 0,
        paired_by=served.paired_by,
        numbers=numbers,
        report=report,
        rules=rules,
        worse=[name.removeprefix("p: ") for name, p in tested.items() if p <= _level(harm)],
        suspect=[metric_name(r) for r in report.metrics if _suspect(r, tested, _level(harm))],
        gaps=[CoverageGap(slice=g.slice, lacking=g.lacking, of=g.of, names=g.names[:NAMED]) for g in served.gaps],
        only_new=served.only_new,
        colliding=served.colliding[:NAMED],
        pass_k=_pass_k(served),
        amounts=_amounts(served),
        off_policy=report.off_policy,
        notes=notes,
    )


def _suspect(row: MetricRow, adjusted: Mapping[str, float], level: float) -> bool:
    proof = adjusted.get(f"p: {metric_name(row)}", 0.0) <= level
    return row.p_worse is not None and row.p_worse <= level and not proof


def _level(rule: RuleResult | None) -> float:
    return rule.numbers.get("alpha", 0.0) if rule else 0.0


def _numbers(head: MetricRow | None, rules: Sequence[RuleResult]) -> dict[str, float]:
    numbers = next((dict(r.numbers) for r in rules if r.rule == "superiority"), {})
    if head is None or head.baseline is None or head.value is None:
        return numbers
    numbers |= {"n": float(head.n), "units": float(head.n_tasks), "old": head.baseline, "new": head.value}
    numbers |= {n: v for n, v in (("delta", head.delta), ("low", head.low), ("high", head.high)) if v is not None}
    if head.binary:
        for side, rate in (("old", head.baseline), ("new", head.value)):
            numbers[f"{side}_low"], numbers[f"{side}_high"] = wilson(rate * head.n, head.n)
            numbers[f"{side}_successes"] = float(round(rate * head.n))
    return numbers


def _pass_k(served: Served) -> dict[str, dict[str, float]]:
    by_k: dict[str, dict[str, float]] = {}
    counts = {
        side: [(sum(a.score == 1 for a in both[side]), len(both[side])) for both in served.attempts.values()]
        for side in ("old", "new")
    }
    most = 0 if served.graded else min(max((n for _, n in tasks), default=0) for tasks in counts.values())
    for k in (k for k in (1, 2, 3, 4, 8, 16) if most > 1 and k <= most):
        values = {side: pass_all(tasks, k) for side, tasks in counts.items()}
        old, new = values["old"], values["new"]
        if old and new:
            by_k[str(k)] = {"old": old[0], "old_tasks": old[1], "new": new[0], "new_tasks": new[1]}
    return by_k


def _amounts(served: Served) -> dict[str, dict[str, float]]:
    """Return the mean of each amount (cost, latency, ...), over cases where both sides know it."""
    totals: dict[str, dict[str, float]] = {}
    for both in served.attempts.values():
        means = [_means(both[side]) for side in ("old", "new")]
        for name in sorted(means[0].keys() & means[1].keys()):
            sums = totals.setdefault(name, {"old": 0.0, "new": 0.0, "n": 0.0})
            sums |= {"old": sums["old"] + means[0][name], "new": sums["new"] + means[1][name], "n": sums["n"] + 1}
    return {
        name: {"old": sums["old"] / sums["n"], "new": sums["new"] / sums["n"], "n": sums["n"]}
        for name, sums in sorted(totals.items())
    }


def _means(attempts: Sequence[Attempt]) -> dict[str, float]:
    names = {name for a in attempts for name in a.amounts}
    known = {name: [a.amounts[name] for a in attempts if name in a.amounts] for name in names}
    return {name: math.fsum(values) / len(values) for name, values in known.items()}
