"""Evaluation reports, manifests and decisions written by hand, for the gate's tests."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Literal

from flywheel.extensions import GateInput
from flywheel.records import (
    EvalReport,
    GateEvidence,
    MetricRow,
    OffPolicyEstimate,
    Promotion,
    RoundManifest,
    RuleResult,
    Verdict,
)
from flywheel.stages.gate.evidence import weigh
from flywheel.stats.paired import mcnemar_better
from flywheel.stats.tango import tango_interval


def row(wins: int, losses: int, n: int, **rest: Any) -> MetricRow:
    low, high = tango_interval(wins, losses, n) if n else (None, None)
    values: dict[str, Any] = {
        "suite": "next_action",
        "metric": "good",
        "n": n,
        "baseline": 0.5 - (wins - losses) / (2 * n) if n else None,
        "value": 0.5 + (wins - losses) / (2 * n) if n else None,
        "delta": (wins - losses) / n if n else None,
        "low": low,
        "high": high,
        "wins": wins,
        "losses": losses,
        "primary": True,
        "n_tasks": n,
        "p_better": mcnemar_better(wins, losses) if n else None,
        "p_worse": mcnemar_better(losses, wins) if n else None,
    }
    return MetricRow(**(values | rest))


def guard(wins: int, losses: int, n: int, metric: str = "form") -> MetricRow:
    return row(wins, losses, n, metric=metric, primary=False)


def manifest(number: int = 2, **rest: Any) -> RoundManifest:
    values: dict[str, Any] = {
        "round": number,
        "state": "evaluated",
        "method": "sft",
        "method_reason": "cold start",
        "parent": None,
        "reference": "none",
        "base_model": "embedded",
        "base_model_sha256": "0",
        "inputs": {},
        "counts": {},
        "config": {},
        "seed": 0,
        "adapter_sha256": f"adapter {number}",
    }
    return RoundManifest(**(values | rest))


def report(*metrics: MetricRow, number: int = 2, **rest: Any) -> EvalReport:
    head = next((m for m in metrics if m.primary), None)
    n = head.n if head else 0
    values: dict[str, Any] = {
        "round": number,
        "baseline": "base",
        "candidate_adapter_sha256": f"adapter {number}",
        "baseline_adapter_sha256": "",
        "cases_sha256": "c",
        "n_cases": n,
        "n_tasks": n,
        "leaked_tasks": 0,
        "metrics": list(metrics),
        "coverage": {"next_action: offered": n, "next_action: scored": n},
    }
    if "evidence" not in rest:
        rest["evidence"] = evidence_of(head)
    return EvalReport(**(values | rest))


def evidence_of(head: MetricRow | None, *, level: float = 0.03) -> GateEvidence | None:
    """Return the evidence of one look at as many tasks as the primary row has cases, of a project's first candidate."""
    if head is None or not head.binary:
        return None
    differences = [1.0] * head.wins + [-1.0] * head.losses + [0.0] * (head.n - head.wins - head.losses)
    return weigh([{f"t{i}": (d, 1) for i, d in enumerate(differences)}], candidate=1, level=level)


def given_input(
    evaluation: EvalReport,
    *,
    history: Sequence[Promotion] = (),
    problems: Sequence[str] = (),
    **rest: Any,
) -> GateInput:
    return GateInput(evaluation, manifest(evaluation.round, **rest), history, problems)


def estimate(
    high: float | None, *, name: str = "DR", target: Literal["new", "candidate", "baseline"] = "candidate"
) -> OffPolicyEstimate:
    """Return an estimate of a policy's reward, where those that acted earned 0.6; refused without a number."""
    low = None if high is None else high - 0.1
    numbers: dict[str, Any] = {"value": low, "low": low, "high": high, "n": 200, "earned": 0.6, "certificate": {}}
    state = "REFUSED" if high is None else "good"
    return OffPolicyEstimate(name=name, target=target, state=state, reasons=[], **numbers)


def entry(
    decision: Literal["promoted", "held", "forced", "rolled_back"],
    *,
    number: int,
    rules: Sequence[RuleResult] = (),
    verdict: Verdict | None = None,
) -> Promotion:
    return Promotion(
        round=number,
        decision=decision,
        verdict=verdict,
        rules=list(rules),
        by="test",
        at=datetime(2026, 1, 1, tzinfo=UTC),
    )
